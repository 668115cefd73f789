//! All patterns of a limiter as one router.

use std::collections::HashMap;
use std::fmt;

use smallvec::SmallVec;

use super::pattern::Relation;
use super::{PathForms, Pattern};

/// Finds the policies that a path belongs to, each by its place in the limiter.
#[derive(Clone)]
pub(crate) struct Matcher {
    /// One, unless there are patterns that cannot stand in one router: see [`Tier::takes`]. A path is looked for in each.
    tiers: Box<[Tier]>,
    /// Policies without a pattern.
    unrouted: Box<[usize]>,
}

/// Patterns of which any two lie apart or one within the other. Those that cover a path then lie within each other, and the
/// router leads to the innermost, which knows the others.
#[derive(Clone, Default)]
struct Tier {
    router: matchit::Router<usize>,
    leaves: Vec<Leaf>,
}

/// What the router leads to: a pattern, and what is known about the paths for which it is the innermost.
#[derive(Clone)]
struct Leaf {
    pattern: Pattern,
    /// Policies with a pattern that covers these paths.
    routed: Vec<usize>,
    /// Policies that exempt them.
    exempt: Vec<usize>,
    /// What follows if there is nothing else to be known: those, and those without a pattern, but none that exempt them.
    covering: Vec<usize>,
}

/// The policies that a path belongs to, in their order.
#[derive(Debug)]
pub(crate) enum Covering<'a> {
    /// As they stand in the router.
    Known(&'a [usize]),
    /// Put together for this path.
    Joined(SmallVec<[usize; 8]>),
}

impl Covering<'_> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        match self {
            Self::Known(policies) => policies.iter().copied(),
            Self::Joined(policies) => policies.iter().copied(),
        }
    }
}

/// The patterns of a policy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patterns<'a> {
    pub(crate) routes: &'a [Pattern],
    pub(crate) exempt: &'a [Pattern],
}

impl Matcher {
    /// Nothing, if no policy has a pattern.
    pub(crate) fn new(policies: &[Patterns<'_>]) -> Option<Self> {
        let mut tiers = Vec::new();
        let mut places = HashMap::new();
        for (index, policy) in policies.iter().enumerate() {
            let routes = policy.routes.iter().map(|pattern| (pattern, false));
            let exempt = policy.exempt.iter().map(|pattern| (pattern, true));
            for (pattern, is_exempt) in routes.chain(exempt) {
                let place = places
                    .entry(pattern.route())
                    .or_insert_with_key(|route| place(&mut tiers, pattern, route));
                let leaf: &mut Leaf = &mut tiers[place.0].leaves[place.1];
                let list = if is_exempt {
                    &mut leaf.exempt
                } else {
                    &mut leaf.routed
                };
                list.push(index);
            }
        }
        if tiers.is_empty() {
            return None;
        }
        let unrouted = policies.iter().enumerate();
        let unrouted = unrouted.filter(|(_, policy)| policy.routes.is_empty());
        let unrouted: Box<[usize]> = unrouted.map(|(index, _)| index).collect();
        for tier in &mut tiers {
            tier.inherit(&unrouted);
        }
        Some(Self {
            tiers: tiers.into(),
            unrouted,
        })
    }

    /// The policies that the path belongs to.
    pub(crate) fn covering(&self, path: &PathForms<'_>) -> Covering<'_> {
        // Nearly every path has one form, and nearly every limiter one tier.
        if let (Some(path), [tier]) = (path.only(), &*self.tiers) {
            let leaf = tier.find(path);
            return Covering::Known(leaf.map_or(&*self.unrouted, |leaf| &leaf.covering));
        }
        let finds = path
            .iter()
            .flat_map(|path| self.tiers.iter().filter_map(|tier| tier.find(path)));
        Covering::Joined(self.join(finds))
    }

    fn join<'a>(&self, leaves: impl Iterator<Item = &'a Leaf>) -> SmallVec<[usize; 8]> {
        let mut joined = SmallVec::from_slice(&self.unrouted);
        let mut exempt: SmallVec<[usize; 8]> = SmallVec::new();
        for leaf in leaves {
            joined.extend_from_slice(&leaf.routed);
            exempt.extend_from_slice(&leaf.exempt);
        }
        tidy(&mut joined, &exempt);
        joined
    }

    /// The most that policies can weigh together on one path; `weight` is what each weighs.
    pub(crate) fn heaviest(&self, weight: impl Fn(usize) -> usize) -> usize {
        let sum = |policies: &[usize]| policies.iter().map(|policy| weight(*policy)).sum();
        let heaviest = |leaf: &Leaf, other: Option<&Leaf>| -> usize {
            let leaves = [Some(leaf), other].into_iter().flatten();
            let policies = leaves.flat_map(|leaf| leaf.routed.iter().copied());
            let mut policies = policies.collect();
            tidy(&mut policies, &[]);
            sum(&policies)
        };
        let tiers = self.tiers.iter().map(|tier| {
            // A path with too many slashes is looked for as it is and without them.
            let leaves = tier.leaves.iter();
            let untidy = leaves.filter(|leaf| leaf.pattern.covers_untidy_paths());
            let others: Vec<_> = untidy.map(Some).chain([None]).collect();
            let pairs = tier
                .leaves
                .iter()
                .flat_map(|leaf| others.iter().map(move |other| heaviest(leaf, *other)));
            pairs.max().unwrap_or(0)
        });
        let unrouted: usize = sum(&self.unrouted);
        unrouted + tiers.sum::<usize>()
    }
}

/// Puts the pattern into the first tier that takes it, and says where it is.
fn place(tiers: &mut Vec<Tier>, pattern: &Pattern, route: &str) -> (usize, usize) {
    for (index, tier) in tiers.iter_mut().enumerate() {
        if let Some(leaf) = tier.take(pattern, route) {
            return (index, leaf);
        }
    }
    let mut tier = Tier::default();
    let leaf = tier.take(pattern, route).unwrap_or(0);
    tiers.push(tier);
    (tiers.len() - 1, leaf)
}

impl Tier {
    /// Takes the pattern in, if it lies across none that is there, and if the router has room: it knows no place with both
    /// a parameter and a wildcard.
    fn take(&mut self, pattern: &Pattern, route: &str) -> Option<usize> {
        let across = |leaf: &Leaf| leaf.pattern.relation(pattern) == Relation::Across;
        if self.leaves.iter().any(across) {
            return None;
        }
        let index = self.leaves.len();
        self.router.insert(route, index).ok()?;
        self.leaves.push(Leaf {
            pattern: pattern.clone(),
            routed: Vec::new(),
            exempt: Vec::new(),
            covering: Vec::new(),
        });
        Some(index)
    }

    /// Lets every leaf know of the patterns around its own.
    fn inherit(&mut self, unrouted: &[usize]) {
        let own = self.leaves.clone();
        for leaf in &mut self.leaves {
            let mut covering = SmallVec::from_slice(unrouted);
            for around in &own {
                let relation = leaf.pattern.relation(&around.pattern);
                if relation == Relation::Within && leaf.pattern.route() != around.pattern.route() {
                    leaf.routed.extend_from_slice(&around.routed);
                    leaf.exempt.extend_from_slice(&around.exempt);
                }
            }
            covering.extend_from_slice(&leaf.routed);
            tidy(&mut covering, &leaf.exempt);
            leaf.covering = covering.into_vec();
        }
    }

    fn find(&self, path: &str) -> Option<&Leaf> {
        let found = self.router.at(path).ok()?;
        self.leaves.get(*found.value)
    }
}

/// Sorts the policies, each once, without those that are exempt.
fn tidy(policies: &mut SmallVec<[usize; 8]>, exempt: &[usize]) {
    policies.sort_unstable();
    policies.dedup();
    policies.retain(|policy| !exempt.contains(policy));
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leaves = self.tiers.iter().flat_map(|tier| &tier.leaves);
        let patterns = leaves.map(|leaf| (leaf.pattern.as_str(), &leaf.covering));
        f.debug_map().entries(patterns).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).unwrap()
    }

    fn matcher(routes: &[&str]) -> Matcher {
        let routes: Vec<Vec<Pattern>> = routes
            .iter()
            .map(|text| {
                let pattern = pattern(text);
                let tidied = pattern.tidied();
                [Some(pattern), tidied].into_iter().flatten().collect()
            })
            .collect();
        let patterns: Vec<_> = routes
            .iter()
            .map(|routes| Patterns {
                routes,
                exempt: &[],
            })
            .collect();
        Matcher::new(&patterns).unwrap()
    }

    fn covers(route: &str, form: &str) -> bool {
        let pattern = pattern(route);
        pattern.covers(form) || pattern.tidied().is_some_and(|tidied| tidied.covers(form))
    }

    fn covering(matcher: &Matcher, path: &str) -> Vec<usize> {
        matcher
            .covering(&PathForms::of(path, false))
            .iter()
            .collect()
    }

    #[test]
    fn a_path_belongs_to_all_patterns_that_cover_it() {
        let matcher = matcher(&["/{*rest}", "/users/{id}", "/users/me", "/users/{id}/posts"]);
        assert_eq!(covering(&matcher, "/users/me"), [0, 1, 2]);
        assert_eq!(covering(&matcher, "/users/7"), [0, 1]);
        assert_eq!(covering(&matcher, "/users/7/posts"), [0, 3]);
        assert_eq!(covering(&matcher, "/elsewhere"), [0]);
        assert!(covering(&matcher, "/").is_empty());
        assert_eq!(matcher.tiers.len(), 1);
    }

    #[test]
    fn parameters_of_other_names_are_one_pattern() {
        let matcher = matcher(&["/users/{id}", "/users/{name}/", "//users/{u}"]);
        assert_eq!(covering(&matcher, "/users/7"), [0, 1, 2]);
        assert_eq!(matcher.tiers.len(), 1);
    }

    #[test]
    fn what_axum_routes_to_a_pattern_is_covered_with_all_its_slashes() {
        let matcher = matcher(&["/files/{*path}", "/files", "/{*rest}", "/{a}/c"]);
        assert_eq!(covering(&matcher, "/files//"), [0, 1, 2]);
        assert_eq!(covering(&matcher, "//"), [2]);
        assert_eq!(covering(&matcher, "//c"), [2, 3]);
    }

    #[test]
    fn a_slash_at_the_end_of_a_pattern_may_stand_behind_an_empty_parameter() {
        let matcher = matcher(&["/{p}/", "/a/{p}/b/"]);
        assert_eq!(covering(&matcher, "//"), [0]);
        assert_eq!(covering(&matcher, "/x"), [0]);
        assert_eq!(covering(&matcher, "/a//b/"), [1]);
        assert_eq!(covering(&matcher, "/a/x/b"), [1]);
    }

    #[test]
    fn a_hundred_policies_stand_in_one_router() {
        let routes: Vec<_> = (0..100).map(|n| format!("/v1/thing-{n}/{{id}}")).collect();
        let routes: Vec<_> = routes.iter().map(String::as_str).collect();
        let matcher = matcher(&routes);
        assert_eq!(matcher.tiers.len(), 1);
        assert_eq!(covering(&matcher, "/v1/thing-42/x"), [42]);
        assert_eq!(matcher.heaviest(|_| 1), 2);
    }

    #[test]
    fn services_and_packages_of_grpc_can_be_said() {
        let matcher = matcher(&["/pkg.Users/{method}", "/pkg.{*rest}", "/pkg.Users/Get"]);
        assert_eq!(covering(&matcher, "/pkg.Users/Get"), [0, 1, 2]);
        assert_eq!(covering(&matcher, "/pkg.Users/Put"), [0, 1]);
        assert_eq!(covering(&matcher, "/pkg.Posts/Get"), [1]);
    }

    #[test]
    fn what_is_exempt_is_not_covered_in_any_form() {
        let (all, health) = ([pattern("/{*rest}")], [pattern("/health")]);
        let policies = [
            Patterns {
                routes: &all,
                exempt: &health,
            },
            Patterns {
                routes: &[],
                exempt: &health,
            },
            Patterns {
                routes: &[],
                exempt: &[],
            },
        ];
        let matcher = Matcher::new(&policies).unwrap();
        assert_eq!(covering(&matcher, "/health"), [2]);
        assert_eq!(covering(&matcher, "//health/"), [2]);
        assert_eq!(covering(&matcher, "/other"), [0, 1, 2]);
        assert_eq!(covering(&matcher, "/"), [1, 2]);
    }

    fn text() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec!["a", "b", "ab", "a-", "{{", "%61", "B"])
    }

    fn route() -> impl Strategy<Value = String> {
        let segment = prop_oneof![
            4 => text().prop_map(str::to_owned),
            2 => Just("{p}".to_owned()),
            1 => text().prop_map(|text| format!("{text}{{p}}")),
        ];
        let end = prop_oneof![
            4 => Just(String::new()),
            1 => Just("/".to_owned()),
            2 => Just("/{*rest}".to_owned()),
            1 => text().prop_map(|text| format!("/{text}{{*rest}}")),
        ];
        (vec(segment, 0..4), end).prop_map(|(segments, end)| {
            let path: String = segments
                .iter()
                .map(|segment| format!("/{segment}"))
                .collect();
            if path.is_empty() && end.is_empty() {
                "/".to_owned()
            } else {
                path + &end
            }
        })
    }

    fn path() -> impl Strategy<Value = String> {
        let segment = prop::sample::select(vec![
            "a", "b", "ab", "a-", "a-b", "{", "%61", "", "c", "%2f",
        ]);
        vec(segment, 1..6).prop_map(|segments| format!("/{}", segments.join("/")))
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, ..ProptestConfig::default() })]

        #[test]
        fn the_router_finds_what_looking_at_each_pattern_finds(
            routes in vec(route(), 1..8),
            paths in vec(path(), 1..20),
        ) {
            let routes: Vec<_> = routes.iter().map(String::as_str).collect();
            let matcher = matcher(&routes);
            for path in &paths {
                let forms = PathForms::of(path, false);
                let each = routes.iter().enumerate();
                let expected: Vec<_> = each
                    .filter(|(_, route)| forms.iter().any(|form| covers(route, form)))
                    .map(|(index, _)| index)
                    .collect();
                prop_assert_eq!(covering(&matcher, path), expected, "{}", path);
                prop_assert!(covering(&matcher, path).len() <= matcher.heaviest(|_| 1));
            }
        }

        #[test]
        fn what_axums_router_routes_to_a_pattern_a_policy_with_it_covers(
            route in route(),
            paths in vec(path(), 1..20),
        ) {
            let mut axums = matchit::Router::new();
            axums.insert(&*route, ()).unwrap();
            let matcher = matcher(&[&route]);
            for path in &paths {
                if axums.at(path).is_ok() {
                    prop_assert_eq!(covering(&matcher, path), [0], "{}", path);
                }
            }
        }
    }
}
