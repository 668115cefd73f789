//! All patterns of a limiter as one router.

use std::collections::HashMap;
use std::fmt;

use smallvec::SmallVec;

use super::relation::Relation;
use super::{PathForms, Pattern};

/// Finds the policies that a path belongs to, each by its place in the limiter.
#[derive(Clone)]
pub(crate) struct Matcher {
    /// One, unless there are patterns that cannot stand in one router: see [`Tier::takes`]. A path is looked for in each.
    tiers: Box<[Tier]>,
    /// Policies without a pattern.
    unrouted: Box<[usize]>,
    /// True if any policy exempts paths.
    exempts: bool,
}

/// Patterns of which any two lie apart or one within the other. Those that cover a path then lie within each other, and the
/// router leads to the innermost, which knows the others.
#[derive(Clone, Default)]
struct Tier {
    router: matchit::Router<usize>,
    leaves: Vec<Leaf>,
}

/// The target of the router: a pattern, and the facts about the paths for which it is the innermost.
#[derive(Clone)]
struct Leaf {
    pattern: Pattern,
    /// Policies with a pattern that covers these paths.
    routed: Vec<usize>,
    /// Policies that exempt them.
    exempt: Vec<usize>,
    /// The candidates if nothing else is known: policies with the pattern and policies without patterns, but none that exempts
    /// it.
    covering: Vec<usize>,
}

/// Policies by their places in the limiter.
type Positions = SmallVec<[usize; 8]>;

/// The policies that a path belongs to, in their order.
#[derive(Debug)]
pub(crate) enum CoveringPolicies<'a> {
    /// As they stand in the router.
    Known(&'a [usize]),
    /// Put together for this path.
    Joined(Positions),
}

impl CoveringPolicies<'_> {
    pub(crate) fn as_slice(&self) -> &[usize] {
        match self {
            Self::Known(policies) => policies,
            Self::Joined(policies) => policies,
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
    /// `None` if no policy has a pattern.
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
            exempts: policies.iter().any(|policy| !policy.exempt.is_empty()),
        })
    }

    /// The policies that the path belongs to.
    #[inline]
    pub(crate) fn covering(&self, path: &PathForms<'_>) -> CoveringPolicies<'_> {
        // Nearly every path has one form, and nearly every limiter one tier.
        if let (Some(form), [tier]) = (path.only(), &*self.tiers)
            && (!self.exempts || path.is_plain())
        {
            let leaf = tier.find(form);
            return CoveringPolicies::Known(leaf.map_or(&*self.unrouted, |leaf| &leaf.covering));
        }
        self.covering_any(path)
    }

    #[inline(never)]
    fn covering_any(&self, path: &PathForms<'_>) -> CoveringPolicies<'_> {
        let finds = |path| self.tiers.iter().filter_map(move |tier| tier.find(path));
        let mut joined = SmallVec::from_slice(&self.unrouted);
        for leaf in path.covered().flat_map(finds) {
            joined.extend_from_slice(&leaf.routed);
        }
        // Other forms of a path widen what is covered, and never what is exempt: axum leads them elsewhere.
        let exempt = path.raw().map(|(raw, tidied)| self.exempting(raw, tidied));
        let exempt = exempt.reduce(|one, other| common(one, &other));
        let exempt = exempt.unwrap_or_default();
        tidy(&mut joined, &exempt);
        CoveringPolicies::Joined(joined)
    }

    /// The policies that exempt a path. A layer further in may remove slashes, and lead it elsewhere if a parameter took one of them.
    fn exempting(&self, raw: &str, tidied: &[String]) -> Positions {
        let leaves = |path| self.tiers.iter().filter_map(move |tier| tier.find(path));
        let exempt = |path| -> Positions {
            let exempt = leaves(path).flat_map(|leaf| leaf.exempt.iter().copied());
            exempt.collect()
        };
        if leaves(raw).all(|leaf| leaf.pattern.is_literal()) {
            return exempt(raw);
        }
        let others = tidied.iter().map(|form| exempt(form));
        others.fold(exempt(raw), |all, other| common(all, &other))
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
            // A path with another form is looked for in both. Paths of more than two that lead apart are left to the call's own bound.
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

/// The positions that are in both.
fn common(mut one: Positions, other: &Positions) -> Positions {
    one.retain(|position| other.contains(position));
    one
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
mod tests;
