//! A pattern of paths, in axum's syntax.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::path::canonical;
use super::portable::{PortableParam, PortableSegment};

/// More than any path has, and as many as the router takes.
const MAX_PARAMS: usize = 25;

/// A pattern like `/users/{id}` or `/files/{*path}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    pub(super) segments: Box<[Segment]>,
}

/// The part between two slashes: a text, and behind it a parameter or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) prefix: String,
    pub(super) kind: Kind,
    /// The parameter's.
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Static,
    Param,
    CatchAll,
}

impl Pattern {
    /// The pattern, or what is wrong with it.
    ///
    /// # Errors
    ///
    /// If the text is not a pattern, with the reason.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(path) = text.strip_prefix('/') else {
            return Err("does not start with /".into());
        };
        let old = |segment: &str| segment.starts_with([':', '*']);
        if path.split('/').any(old) {
            return Err("has the old syntax: write {name} or {*name}".into());
        }
        if text.contains(['?', '#']) {
            return Err("has a query or a fragment, which no path has".into());
        }
        if text.matches('{').count() > MAX_PARAMS {
            return Err(format!("has more than {MAX_PARAMS} braces"));
        }
        // Patterns that axum would refuse are refused in axum's words.
        matchit::Router::new()
            .insert(text, ())
            .map_err(|error| lower_first(&error.to_string()))?;
        // The router takes `{/a}` for one name, and every reader for two segments.
        if path.split('/').any(has_open_brace) {
            return Err("has a slash within braces".into());
        }
        // The router compares bytes, so a value there could make another character of the percent sign.
        let prefixes = path.split('/').map(split);
        let mut prefixes = prefixes.filter_map(|(prefix, param)| param.map(|_| prefix));
        if prefixes.any(ends_within_a_character) {
            return Err("has a percent sign in front of a parameter: write %25".into());
        }
        Ok(Self {
            text: text.into(),
            segments: path.split('/').map(Segment::parse).collect(),
        })
    }

    /// The pattern without doubled slashes and without a slash at the end, if it has one of them.
    pub(crate) fn tidied(&self) -> Option<Self> {
        let mut segments = self.segments.to_vec();
        segments.retain(|segment| segment.kind != Kind::Static || !segment.prefix.is_empty());
        if segments.is_empty() {
            segments.push(Segment::parse(""));
        }
        (segments.len() < self.segments.len()).then(|| Self {
            text: self.text.clone(),
            segments: segments.into(),
        })
    }

    /// The text before the second slash, unless it is a parameter.
    pub(crate) fn starts_with(&self) -> Option<&str> {
        let first = self.segments.first()?;
        (first.kind == Kind::Static).then_some(&*first.prefix)
    }

    /// True if it has no parameters.
    pub(crate) fn is_literal(&self) -> bool {
        self.params().next().is_none()
    }

    /// The names of its parameters.
    pub(crate) fn params(&self) -> impl Iterator<Item = &str> {
        let segments = self.segments.iter();
        let params = segments.filter(|segment| segment.kind != Kind::Static);
        params.map(|segment| segment.name.as_str())
    }

    /// True if it ends in a parameter for all the rest of a path.
    pub(crate) fn has_rest(&self) -> bool {
        let mut segments = self.segments.iter();
        segments.any(|segment| segment.kind == Kind::CatchAll)
    }

    /// Its segments in plain figures.
    pub(crate) fn portable(&self) -> Vec<PortableSegment> {
        let param = |segment: &Segment| {
            (segment.kind != Kind::Static).then(|| PortableParam {
                name: segment.name.clone(),
                is_rest: segment.kind == Kind::CatchAll,
            })
        };
        let segments = self.segments.iter();
        let portable = segments.map(|segment| PortableSegment {
            prefix: segment.prefix.clone(),
            param: param(segment),
        });
        portable.collect()
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Makes it cover paths whose case is ignored.
    pub(crate) fn ignore_case(&mut self) {
        for segment in &mut self.segments {
            segment.prefix = canonical(&segment.prefix, true);
        }
    }

    /// The pattern for the router. Patterns that cover the same paths are equal here, whatever their parameters are called.
    pub(crate) fn route(&self) -> String {
        let mut route = String::with_capacity(self.text.len());
        for segment in &self.segments {
            route.push('/');
            route.push_str(&segment.prefix.replace('{', "{{").replace('}', "}}"));
            route.push_str(match segment.kind {
                Kind::Static => "",
                Kind::Param => "{p}",
                Kind::CatchAll => "{*p}",
            });
        }
        route
    }

    /// True if it could cover a path that has other forms.
    pub(super) fn covers_untidy_paths(&self) -> bool {
        let is_untidy = |prefix: &str| matches!(prefix, "" | ".") || prefix.contains("%2F");
        let mut segments = self.segments.iter();
        segments.any(|segment| segment.kind != Kind::Static || is_untidy(&segment.prefix))
    }

    /// True if it covers this form of a path.
    pub fn covers(&self, path: &str) -> bool {
        let Some(mut rest) = path.strip_prefix('/') else {
            return false;
        };
        let last = self.segments.len() - 1;
        for (index, segment) in self.segments.iter().enumerate() {
            if segment.kind == Kind::CatchAll {
                return rest.len() > segment.prefix.len() && rest.starts_with(&segment.prefix);
            }
            let (this, behind) = match rest.split_once('/') {
                Some((this, behind)) => (this, Some(behind)),
                None => (rest, None),
            };
            if !segment.covers(this, index == last) {
                return false;
            }
            match behind {
                Some(behind) => rest = behind,
                None => return index == last,
            }
        }
        false
    }

    /// The name's parts of a path that the pattern covers, encoded as they are there.
    pub(crate) fn capture<'p>(&self, path: &'p str, name: &str) -> Captures<'p> {
        let segments = self.segments.iter().map(Cow::Borrowed);
        capture(segments, path, name)
    }
}

impl Segment {
    fn parse(text: &str) -> Self {
        let (prefix, param) = split(text);
        let (kind, name) = match param {
            None => (Kind::Static, ""),
            Some(param) => match param.strip_prefix('*') {
                Some(name) => (Kind::CatchAll, name),
                None => (Kind::Param, param),
            },
        };
        Self {
            prefix: canonical(&unescape(prefix), false),
            kind,
            name: unescape(name).into_owned(),
        }
    }

    /// A parameter may be empty where something follows it, which is how the router has it.
    pub(super) fn covers(&self, text: &str, is_last: bool) -> bool {
        match self.kind {
            Kind::Static => text == self.prefix,
            _ => {
                let rest = text.strip_prefix(&*self.prefix);
                rest.is_some_and(|rest| !(is_last && rest.is_empty()))
            }
        }
    }
}

/// True if the percent sign of an encoded character is there, and one of its digits is not.
fn ends_within_a_character(prefix: &str) -> bool {
    let digits = prefix.trim_end_matches(|c: char| c.is_ascii_hexdigit());
    digits.ends_with('%') && prefix.len() - digits.len() < 2
}

/// True if a brace is left open or closed. A doubled brace (`{{`) stands for itself.
fn has_open_brace(segment: &str) -> bool {
    let segment = segment.replace("{{", "").replace("}}", "");
    segment.matches('{').count() != segment.matches('}').count()
}

/// The values in a path for one name: one, unless nested routers have the name twice.
pub(crate) type Captures<'p> = SmallVec<[&'p str; 1]>;

/// The name's parts of a path, given the pattern that axum says it matched; `None` if the pattern does not cover the path. Then a layer in
/// between has rewritten that, and no place in it is where the pattern says.
pub(crate) fn captured<'p>(
    pattern: &str,
    path: &'p str,
    ignores_case: bool,
    name: &str,
) -> Option<Captures<'p>> {
    let segments = pattern.strip_prefix('/').unwrap_or(pattern).split('/');
    let segments: SmallVec<[Segment; 8]> = segments.map(Segment::parse).collect();
    covers(&segments, path, ignores_case)
        .then(|| capture(segments.iter().map(Cow::Borrowed), path, name))
}

/// Says whether a path has these segments, byte by byte as axum compares them, or whatever the case of letters.
fn covers(segments: &[Segment], path: &str, ignores_case: bool) -> bool {
    let begins = |this: &str, prefix: &str| {
        let this = this.get(..prefix.len()).unwrap_or_default();
        this == prefix || ignores_case && this.eq_ignore_ascii_case(prefix)
    };
    let mut path = path.strip_prefix('/').unwrap_or(path).split('/');
    for segment in segments {
        let fits = match segment.kind {
            Kind::CatchAll => return true,
            Kind::Static => path.next().is_some_and(|this| {
                this.len() == segment.prefix.len() && begins(this, &segment.prefix)
            }),
            Kind::Param => path
                .next()
                .is_some_and(|this| begins(this, &segment.prefix)),
        };
        if !fits {
            return false;
        }
    }
    path.next().is_none()
}

fn capture<'s, 'p>(
    segments: impl Iterator<Item = Cow<'s, Segment>>,
    path: &'p str,
    name: &str,
) -> Captures<'p> {
    let mut captures = Captures::new();
    let mut rest = path.strip_prefix('/').unwrap_or(path);
    for segment in segments {
        let (this, behind) = rest.split_once('/').unwrap_or((rest, ""));
        if segment.kind != Kind::Static && segment.name == name {
            let whole = if segment.kind == Kind::CatchAll {
                rest
            } else {
                this
            };
            // By its length: what has been matched begins with it, be it in another case.
            captures.extend(whole.get(segment.prefix.len()..));
        }
        rest = behind;
    }
    captures
}

/// The text before the parameter, and what stands within the parameter's braces.
fn split(segment: &str) -> (&str, Option<&str>) {
    let mut bytes = segment.bytes().enumerate().peekable();
    while let Some((at, byte)) = bytes.next() {
        if byte != b'{' {
            continue;
        }
        if bytes.next_if(|(_, next)| *next == b'{').is_some() {
            continue;
        }
        let param = segment
            .get(at + 1..)
            .and_then(|rest| rest.strip_suffix('}'));
        return (segment.get(..at).unwrap_or_default(), param);
    }
    (segment, None)
}

fn unescape(text: &str) -> Cow<'_, str> {
    if text.contains(['{', '}']) {
        Cow::Owned(text.replace("{{", "{").replace("}}", "}"))
    } else {
        Cow::Borrowed(text)
    }
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(chars).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).unwrap()
    }

    #[test]
    fn what_axum_would_refuse_is_refused() {
        let cases = [
            ("users", "does not start with /"),
            ("", "does not start with /"),
            ("/:id", "old syntax"),
            ("/*rest", "old syntax"),
            ("/{}", "valid name"),
            ("/{id", "valid name"),
            ("/id}", "valid name"),
            ("/{*rest}/x", "end of a route"),
            ("/{a}{b}", "one parameter"),
            ("/{a}.png", "one parameter"),
            ("/users/{/id}", "slash within braces"),
            ("/{a/b}", "valid name"),
            ("/search?q={q}", "query"),
            ("/page#top", "fragment"),
            ("/%{id}", "write %25"),
            ("/x/%7{*rest}", "write %25"),
        ];
        for (text, reason) in cases {
            let error = Pattern::parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!(Pattern::parse("/100%25{a}/%7{{").is_ok());
        assert!(Pattern::parse(&"/{a}".repeat(25)).is_ok());
        assert!(Pattern::parse(&"/{a}".repeat(26)).is_err());
    }

    #[test]
    fn parameters_are_captured_by_name() {
        let cases = [
            ("/users/{id}", "/users/7", "id", &["7"][..]),
            ("/users/{id}", "/users/7", "name", &[]),
            ("/{a}/x/{b}", "/1/x/2", "b", &["2"]),
            ("/user-{id}", "/user-7", "id", &["7"]),
            ("/files/{*path}", "/files/a/b", "path", &["a/b"]),
            ("/v{*rest}", "/v1/a/b", "rest", &["1/a/b"]),
            ("/{{x}}-{id}", "/{x}-7", "id", &["7"]),
            ("/{a}/c", "//c", "a", &[""]),
            ("/{a}/{a}", "/1/2", "a", &["1", "2"]),
        ];
        for (text, path, name, expected) in cases {
            assert!(pattern(text).covers(path), "{text} {path}");
            let own = pattern(text).capture(path, name);
            assert_eq!(own.as_slice(), expected, "{text} {path}");
            let of_axum = captured(text, path, false, name).expect("covered");
            assert_eq!(of_axum.as_slice(), expected, "{text} {path}");
        }
    }

    #[test]
    fn a_path_that_the_matched_pattern_does_not_cover_has_no_parameters() {
        let cases = [
            ("/api/users/{id}", "/api///users/7"),
            ("/api/users/{id}", "/api/users"),
            ("/api/users/{id}", "/api/users/7/x"),
            ("/user-{id}", "/User-7"),
        ];
        for (text, path) in cases {
            assert_eq!(captured(text, path, false, "id"), None, "{text} {path}");
        }
    }
}
