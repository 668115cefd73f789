//! Classes of requests: a share of every budget is kept for the important.

use std::fmt;
use std::sync::Arc;

use super::answer_cache::Tier;
use super::label::{Rank, Seat};
use super::tiers::Grant;
use super::{Limit, Policy, Share};
use crate::key::{KeyExtractor, Source};
use crate::{ConfigError, QuotaError, RequestView};

/// The classes of a policy, and the quotas of each.
#[derive(Clone, Default)]
pub(crate) struct Classes {
    /// The extractor that names the class of a request.
    source: Option<Source>,
    /// The classes for which a share is kept, the most important first. All other requests are one more, behind them.
    kept: Vec<(Arc<str>, Share)>,
    /// The quotas of each class: the policy's own, then those of each tier. Nothing, until the limiter is built.
    seats: Vec<Arc<[Limit]>>,
}

/// A name for the requests of no class.
const OTHERS: &str = "all others";

/// Classes of requests.
impl Policy {
    /// Names the class of a request by what this extractor finds: the name of a class that [`keep_for`](Self::keep_for) states. A
    /// request for which it finds another name or nothing is one of all others, the least important.
    ///
    /// **Do not believe the caller.** A header that any client can send makes each of them important. A class is what an outer
    /// layer has found out ([`Extension`](crate::key::Extension)), what a gateway that strips it from outside writes into a header,
    /// or a part of the request itself, such as its path or method ([`from_fn`](crate::key::from_fn)).
    ///
    /// ```
    /// use tollgate::{Policy, Quota, Share, key};
    ///
    /// // Checkouts may use all of it; a fifth is kept from all other requests.
    /// let shop = Policy::new("shop", Quota::per_second(500)).key(key::Global).class_by(key::MatchedRoute).keep_for("/checkout", Share::percent(20));
    /// ```
    #[must_use]
    pub fn class_by(self, class: impl KeyExtractor) -> Self {
        self.classes_by(Source::new(class))
    }

    /// Keeps a share of every budget for the requests of this class, and of those stated before it. The first call names the most
    /// important class, which may use all of a budget. A request of the next leaves the first one's share, and a request of no
    /// class leaves the shares of all: it passes only if that much is left after it.
    ///
    /// The share is counted in whole units of each quota, rounded down: of the burst of [`Gcra`](crate::Algorithm::Gcra), and of
    /// the limit of all others. It is exact, shared by a fleet like the budget itself, and holds in every [tier](Self::tiers).
    /// [`class_by`](Self::class_by) says which requests are of which class.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota, Share, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let api = Policy::new("api", Quota::per_day(100))
    ///     .class_by(key::Header::new("x-class"))
    ///     .keep_for("critical", Share::percent(20))
    ///     .keep_for("normal", Share::percent(10));
    /// let limiter = Limiter::builder().policy(api).build()?;
    ///
    /// // With a budget of 100, a request without a class leaves 30, a normal one leaves 20, and a critical one leaves none.
    /// let check = || limiter.check("api", "alice");
    /// assert_eq!(check().cost(70).await?.remaining(), 0);
    /// assert!(!check().await?.is_allowed());
    /// assert!(check().class("normal").cost(10).await?.is_allowed());
    /// assert!(!check().class("normal").await?.is_allowed());
    /// assert!(check().class("critical").cost(20).await?.is_allowed());
    /// # Ok(()) }
    /// ```
    ///
    /// The limiter is not built if a share is 0 or less than one unit of a quota, if nothing would be left to all others, if two
    /// classes have one name, if nothing names the class of a request, if a quota lets requests
    /// [wait for their turn](crate::Quota::wait_up_to), because a line of turns has no classes, or if a quota
    /// [warms up](crate::Quota::warm_up), because cold units take more room than one each and would take the share. Requests that wait for a place under a
    /// [`Concurrent`](crate::Concurrent) limit stand in the order of their classes, first come first served within one.
    #[must_use]
    pub fn keep_for(mut self, class: &str, share: Share) -> Self {
        self.classes_mut().kept.push((class.into(), share));
        self
    }

    pub(crate) fn classes_by(mut self, source: Source) -> Self {
        self.classes_mut().source = Some(source);
        self
    }

    fn classes_mut(&mut self) -> &mut Classes {
        Arc::make_mut(self.classes.get_or_insert_default())
    }
}

impl Policy {
    /// Works out the quotas of each class, for a limiter that is built.
    ///
    /// # Errors
    ///
    /// If the classes make no sense: see [`keep_for`](Self::keep_for).
    pub(super) fn share_out(&mut self) -> Result<(), ConfigError> {
        let Some(classes) = &self.classes else {
            return Ok(());
        };
        self.check_classes(classes)?;
        let mut seats = Vec::new();
        for class in 0..=classes.kept.len() {
            let own = (None, &*self.limits);
            let tiers = self.tiers.iter().flat_map(|tiers| tiers.grants());
            for (tier, limits) in [own].into_iter().chain(tiers) {
                let limits = limits.iter().map(|limit| self.limit_of(class, tier, limit));
                seats.push(limits.collect::<Result<_, _>>()?);
            }
        }
        self.classes_mut().seats = seats;
        Ok(())
    }

    fn check_classes(&self, classes: &Classes) -> Result<(), ConfigError> {
        let refuse = |reason: &str| {
            Err(ConfigError::Classes {
                policy: self.name.to_string(),
                reason: reason.to_owned(),
            })
        };
        if classes.kept.is_empty() {
            return refuse(
                "`class_by` names classes, and no share is kept for any: add `keep_for`",
            );
        }
        let Some(source) = &classes.source else {
            return refuse(
                "a share is kept, and nothing names the class of a request: add `class_by`",
            );
        };
        if let Some(reason) = self.flaw_of(source) {
            return refuse(&reason);
        }
        // In millionths, rounded up.
        let mut kept = 0;
        for (rank, (name, share)) in classes.kept.iter().enumerate() {
            let earlier = classes.kept.iter().take(rank);
            let reason = if name.is_empty() || name.len() > Classes::MAX_NAME_LEN {
                "invalid name; use 1 to 64 bytes"
            } else if earlier.into_iter().any(|(other, _)| other == name) {
                "two classes have this name"
            } else if share.is_nothing() {
                "a share of 0 % keeps nothing"
            } else if share.is_whole() {
                "a share of 100 % leaves nothing to all others: their requests never pass"
            } else {
                kept += share.part_rounded_up(Classes::MILLION);
                if kept < Classes::MILLION {
                    continue;
                }
                "this share and those before it keep 100 %: all other requests never pass"
            };
            return Err(self.class_error(name, reason));
        }
        Ok(())
    }

    fn class_error(&self, class: &str, reason: impl Into<String>) -> ConfigError {
        ConfigError::Class {
            policy: self.name.to_string(),
            class: class.chars().take(Classes::MAX_NAME_LEN).collect(),
            reason: reason.into(),
        }
    }

    /// The limit as a class sees it: it leaves what is kept for those before it.
    fn limit_of(
        &self,
        class: usize,
        tier: Option<&str>,
        limit: &Limit,
    ) -> Result<Limit, ConfigError> {
        // A ban has no budget of which anything could be kept.
        if limit.quota.is_ban() {
            return Ok(limit.clone());
        }
        let kept = self.classes.iter().flat_map(|classes| &classes.kept);
        let whole = limit.quota.capacity();
        let mut leaves = 0;
        for (name, share) in kept.clone().take(class) {
            let units = share.units_of(whole);
            if units == 0 {
                let of_tier = tier.map_or_else(String::new, |tier| format!(" of tier {tier:?}"));
                let reason = format!(
                    "its share of the {whole} of {:?}{of_tier} is less than one",
                    limit.label.quota()
                );
                return Err(self.class_error(name, reason));
            }
            leaves += units;
        }
        let name = kept.map(|(name, _)| name).nth(class);
        let quota = limit
            .quota
            .try_keeping(leaves)
            .map_err(|error| match error {
                QuotaError::KeptOfTurns | QuotaError::KeptOfWarmUp => ConfigError::Classes {
                    policy: self.name.to_string(),
                    reason: error.to_string(),
                },
                error => self.class_error(name.map_or(OTHERS, |name| name), error.to_string()),
            })?;
        // A share is at least a hundredth, so there are fewer than a hundred.
        let rank = Rank::try_from(class).unwrap_or(Rank::MAX);
        Ok(limit.of_class(name.cloned(), rank, quota))
    }

    /// The quotas of all classes, by the name of their class.
    pub(super) fn limits_of_classes(&self) -> impl Iterator<Item = (&str, &Limit)> {
        let limits = self.classes.iter().flat_map(|classes| &classes.seats);
        let limits = limits.flat_map(|limits| limits.iter());
        limits.map(|limit| (limit.label.class().unwrap_or(OTHERS), limit))
    }

    /// The class of a request.
    #[inline]
    pub(crate) fn class_of(&self, request: &RequestView<'_>) -> Rank {
        match &self.classes {
            None => 0,
            Some(classes) => classes.find(request),
        }
    }

    /// The class of a request that says none.
    pub(crate) fn least_class(&self) -> Rank {
        let classes = self.classes.as_ref();
        classes.map_or(0, |classes| classes.least())
    }

    /// The class of this name.
    pub(crate) fn class_named(&self, name: &str) -> Option<Rank> {
        self.classes.as_ref()?.rank(name.as_bytes())
    }

    /// True if the class of a request needs a whole one.
    pub(super) fn class_needs_whole_request(&self) -> bool {
        let source = self
            .classes
            .as_ref()
            .and_then(|classes| classes.source.as_ref());
        source.is_some_and(Source::needs_whole_request)
    }

    /// The place of the quotas that hold for a class in a tier: see [`limits_at`](Self::limits_at).
    pub(crate) fn seat(&self, tier: Tier, class: Rank) -> Seat {
        let place = tier.map_or(0, |tier| tier + 1);
        let seat = match &self.classes {
            None => place,
            Some(_) => (usize::from(class) + 1) * self.grants() + place,
        };
        // No policy has four billion tiers.
        Seat::try_from(seat).unwrap_or_default()
    }

    /// The quotas at a place: at 0 the policy's own, then those of its tiers, and behind them the same for each class.
    #[inline]
    pub(crate) fn limits_at(&self, seat: Seat) -> &[Limit] {
        if seat == 0 {
            return &self.limits;
        }
        self.limits_elsewhere(seat)
    }

    #[inline(never)]
    fn limits_elsewhere(&self, seat: Seat) -> &[Limit] {
        let seat = usize::try_from(seat).unwrap_or(usize::MAX);
        let found = match seat.checked_sub(self.grants()) {
            None => self.grant(seat.checked_sub(1)).map(Grant::limits),
            Some(seat) => {
                let classes = self.classes.as_ref();
                classes
                    .and_then(|classes| classes.seats.get(seat))
                    .map(|limits| &**limits)
            }
        };
        // A tier without limits is in no plan.
        found.unwrap_or(&self.limits)
    }

    /// The number of grants: the policy's own quotas, and those of each tier.
    fn grants(&self) -> usize {
        1 + self
            .tiers
            .as_ref()
            .map_or(0, |tiers| tiers.grants().count())
    }
}

impl Classes {
    const MAX_NAME_LEN: usize = tollgate_core::MAX_NAME_LEN;
    const MILLION: u64 = 1_000_000;

    fn least(&self) -> Rank {
        Rank::try_from(self.kept.len()).unwrap_or(Rank::MAX)
    }

    fn rank(&self, name: &[u8]) -> Option<Rank> {
        let rank = self
            .kept
            .iter()
            .position(|(known, _)| known.as_bytes() == name)?;
        Rank::try_from(rank).ok()
    }

    /// An ambiguous class counts as none: no caller gains by naming two.
    fn find(&self, request: &RequestView<'_>) -> Rank {
        let source = self.source.as_ref();
        let name = source.and_then(|source| source.extract_class(request));
        let known = name.and_then(|name| self.rank(name.text()?.as_bytes()));
        known.unwrap_or(self.least())
    }
}

impl fmt::Debug for Classes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.kept.iter().map(|(name, share)| (name, share)))
            .finish()
    }
}
