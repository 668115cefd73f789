//! The relation of two patterns.

use super::Pattern;
use super::pattern::Kind;

/// The relation of the paths that two patterns cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// No path is covered by both.
    Apart,
    /// The first covers nothing that the second does not.
    Within,
    /// The second covers nothing that the first does not, and the first covers more.
    Around,
    /// Some paths are covered by both, and each covers others.
    Across,
}

impl Pattern {
    pub(super) fn relation(&self, other: &Self) -> Relation {
        match (self.is_within(other), other.is_within(self)) {
            (true, _) => Relation::Within,
            (false, true) => Relation::Around,
            (false, false) if self.meets(other) => Relation::Across,
            (false, false) => Relation::Apart,
        }
    }

    fn is_within(&self, other: &Self) -> bool {
        let last = self.segments.len() - 1;
        for (index, wide) in other.segments.iter().enumerate() {
            let Some(narrow) = self.segments.get(index) else {
                return false;
            };
            if wide.kind == Kind::CatchAll {
                // A slash follows at least, so that the rest is longer than the prefix.
                let longer = narrow.kind != Kind::Static
                    || narrow.prefix.len() > wide.prefix.len()
                    || index < last;
                return longer && narrow.prefix.starts_with(&wide.prefix);
            }
            let within = match (narrow.kind, wide.kind) {
                (Kind::CatchAll, _) | (Kind::Param, Kind::Static) => false,
                (Kind::Static, _) => wide.covers(&narrow.prefix, index == last),
                (Kind::Param, _) => narrow.prefix.starts_with(&wide.prefix),
            };
            if !within {
                return false;
            }
        }
        self.segments.len() == other.segments.len()
    }

    /// True if both may cover one path. In doubt the result is true.
    fn meets(&self, other: &Self) -> bool {
        let ends = (self.segments.len() - 1, other.segments.len() - 1);
        let pairs = self.segments.iter().zip(&other.segments);
        for (index, (one, two)) in pairs.enumerate() {
            let (one_ends, two_ends) = (index == ends.0, index == ends.1);
            let alike = one.prefix.starts_with(&two.prefix) || two.prefix.starts_with(&one.prefix);
            let meet = match (one.kind, two.kind) {
                (Kind::Static, Kind::Static) => one.prefix == two.prefix,
                (Kind::Static, _) => two.covers(&one.prefix, one_ends),
                (_, Kind::Static) => one.covers(&two.prefix, two_ends),
                _ => alike,
            };
            if !meet || one.kind == Kind::CatchAll || two.kind == Kind::CatchAll {
                return meet;
            }
        }
        self.segments.len() == other.segments.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).unwrap()
    }

    #[test]
    fn how_patterns_lie_to_each_other() {
        let cases = [
            ("/a", "/a", Relation::Within),
            ("/a", "/b", Relation::Apart),
            ("/a", "/{x}", Relation::Within),
            ("/{x}", "/a", Relation::Around),
            ("/{x}", "/{*y}", Relation::Within),
            ("/", "/{*y}", Relation::Apart),
            ("/a", "/a/{*y}", Relation::Apart),
            ("/a/b", "/a/{*y}", Relation::Within),
            ("/a", "/a{*y}", Relation::Apart),
            ("/a/b", "/a{*y}", Relation::Within),
            ("/a-{x}", "/{y}", Relation::Within),
            ("/a-{x}", "/b-{y}", Relation::Apart),
            ("/a/{x}", "/{y}/b", Relation::Across),
            ("/{x}/b", "/a/{*y}", Relation::Across),
            ("/{x}/{y}", "/{z}", Relation::Apart),
        ];
        for (one, other, expected) in cases {
            assert_eq!(
                pattern(one).relation(&pattern(other)),
                expected,
                "{one} {other}"
            );
        }
    }
}
