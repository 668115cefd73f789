//! A policy in plain figures, for programs that have it applied without this library.

use super::tiers::{PortableTier, TierTable};
use super::{Block, Policy};
use crate::Key;
use crate::matching::{Pattern, PortableSegment};

/// A policy in plain figures: its conditions on paths, its lists and its quotas. Closures, registered names and everything that a
/// configuration states in plain figures already have no part in it.
#[derive(Clone, Debug)]
pub struct PortablePolicy {
    /// The patterns of paths that it covers; all paths if there are none.
    pub routes: Vec<Vec<PortableSegment>>,
    /// The patterns of paths that it does not cover. They hold for paths as they are sent.
    pub exempt_routes: Vec<Vec<PortableSegment>>,
    /// The identities that it does not charge.
    pub exempt_keys: Vec<Key>,
    /// The identities that it refuses, with the answers. Of two entries for one identity the first counts.
    pub blocked_keys: Vec<(Key, Block)>,
    /// The quotas of identities without a tier.
    pub own: PortableTier,
    /// The tiers by their names.
    pub tiers: Vec<(String, PortableTier)>,
    /// The tier of each identity that has one.
    pub tier_of: Vec<(Key, String)>,
}

impl Policy {
    /// The policy in plain figures. Lists are those of this moment.
    #[doc(hidden)]
    #[must_use]
    pub fn portable(&self) -> PortablePolicy {
        let patterns = self.patterns();
        let segments = |patterns: &[Pattern]| patterns.iter().map(Pattern::portable).collect();
        let (exempt_keys, blocked_keys) = self.listed_keys();
        let tiers = self.tiers.as_deref();
        PortablePolicy {
            routes: segments(patterns.routes),
            exempt_routes: segments(patterns.exempt),
            exempt_keys,
            blocked_keys,
            own: match self.limits() {
                [] => PortableTier::Nothing,
                limits => PortableTier::Limits(limits.to_vec()),
            },
            tiers: tiers.map(TierTable::portable).unwrap_or_default(),
            tier_of: tiers.map(TierTable::places).unwrap_or_default(),
        }
    }
}
