//! The backend.

use std::fmt;
use std::slice;

use tollgate_core::{
    Admin, Answer, Backend, BackendError, BanList, Call, Capabilities, Capability, Clock, Decision,
    Figure, ImmediateBackend, Key, KeyHashing, Receipt, Scope, Settlement, State, decide,
};

use crate::builder::MemoryBackendBuilder;
use crate::lookup::Lookup;
use crate::shards::Shards;
use crate::stats::Stats;
use crate::transaction::decide_several;

/// The backend in this process's memory: see the [crate](crate).
///
/// ```
/// use tollgate::{Limiter, MemoryBackend, Policy, Quota};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// // A limiter that names no backend has this one with its defaults.
/// let backend = std::sync::Arc::new(MemoryBackend::builder().max_keys(50_000).build());
/// let limiter = Limiter::builder()
///     .policy(Policy::new("page", Quota::per_second(10)))
///     .backend(std::sync::Arc::clone(&backend))
///     .build()?;
///
/// // For metrics: keys that were forgotten too early.
/// assert_eq!(backend.stats().evicted, 0);
/// # Ok(()) }
/// ```
pub struct MemoryBackend {
    hashing: KeyHashing,
    shards: Shards,
    clock: Box<dyn Clock>,
}

impl MemoryBackend {
    /// A backend with the defaults: a million keys, the machine's clock.
    ///
    /// ```
    /// use tollgate::MemoryBackend;
    ///
    /// // A million, rounded down to equal shares.
    /// assert!(MemoryBackend::new().stats().max_keys > 999_000);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Starts to configure a backend.
    pub fn builder() -> MemoryBackendBuilder {
        MemoryBackendBuilder::default()
    }

    /// Kept apart from [`Backend::decide`], where the decision would be made in one place and copied to another.
    #[inline(never)]
    fn decided(&self, call: Call<'_>) -> Result<Decision, BackendError> {
        self.decide_now(call)
    }

    /// Decides a call of several charges, or one for as much as there is.
    #[inline(never)]
    fn decide_several(&self, call: Call<'_>) -> Result<Decision, BackendError> {
        call.check()?;
        decide_several(&self.shards, &self.hashing, &*self.clock, call)
    }

    /// Asks the idempotency key of a charge, if it had one, whether it may be given back.
    fn may_give_back(&self, receipt: &Receipt, n: u64) -> bool {
        let Some(id) = receipt.id_to_close(n) else {
            return true;
        };
        let lookup = Lookup::new(&self.hashing, id.scope(), id.key());
        let came_at = self.clock.now();
        let mut shard = self.shards.lock_for(&lookup);
        let now = shard.time(came_at, &*self.clock);
        // Nobody knows whether a retry has passed on a charge whose key is forgotten.
        shard
            .find(&lookup)
            .is_some_and(|slot| receipt.close(shard.settled_mut(slot), now))
    }

    pub(crate) fn with(hashing: KeyHashing, shards: Shards, clock: Box<dyn Clock>) -> Self {
        Self {
            hashing,
            shards,
            clock,
        }
    }

    /// The keys that it holds, and its work so far. Looks at one shard after the other: cheap enough for every scrape of
    /// metrics, but not for every request.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::of(&self.shards)
    }

    /// Says whether two keys are under one lock, for the models of the locking.
    #[cfg(loom)]
    #[must_use]
    pub fn share_a_lock(&self, scope: Scope, a: &Key, b: &Key) -> bool {
        let number = |key| self.shards.number(&Lookup::new(&self.hashing, scope, key));
        number(a) == number(b)
    }

    fn refunded(&self, receipt: &Receipt, n: u64) {
        if !self.may_give_back(receipt, n) {
            return;
        }
        let lookup = Lookup::new(&self.hashing, receipt.scope(), receipt.key());
        // No time matters to what is held.
        let came_at = (!receipt.quota().is_held()).then(|| self.clock.now());
        let mut shard = self.shards.lock_for(&lookup);
        let now = match came_at {
            Some(came_at) => shard.time(came_at, &*self.clock),
            None => shard.last(),
        };
        // A missing key has nothing to get back, because its budget is full.
        if let Some(slot) = shard.find(&lookup) {
            receipt.credit_to(shard.settled_mut(slot), now, n);
            shard.gave_back(&self.hashing, receipt.quota().unit(), slot);
        }
    }

    fn debited(&self, receipt: &Receipt, n: u64) {
        if n == 0 {
            return;
        }
        let lookup = Lookup::new(&self.hashing, receipt.scope(), receipt.key());
        let came_at = self.clock.now();
        let mut shard = self.shards.lock_for(&lookup);
        let now = shard.time(came_at, &*self.clock);
        if let Some(slot) = shard.find(&lookup) {
            // Each strike by a response is a visit of its own.
            let state = if receipt.quota().is_ban() {
                shard.state_mut(slot)
            } else {
                shard.settled_mut(slot)
            };
            receipt.debit_from(state, now, n);
        } else {
            let mut state = State::full(receipt.quota());
            receipt.debit_from(&mut state, now, n);
            // A debit that finds no room is lost, as an evicted one would be.
            drop(shard.insert(&self.hashing, now, &lookup, state, false));
        }
    }
}

impl Default for MemoryBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl ImmediateBackend for MemoryBackend {
    #[inline]
    fn decide_now(&self, call: Call<'_>) -> Result<Decision, BackendError> {
        let ([charge], None) = (call.charges, call.at_least) else {
            return self.decide_several(call);
        };
        // The other kind of call is known not to come here: a twelfth of a check.
        let call = Call::of(call.charges);
        let lookup = Lookup::new(&self.hashing, charge.scope, charge.key);
        // No lock is held while a clock is read.
        let came_at = self.clock.now();
        let mut shard = self.shards.lock_for(&lookup);
        let now = shard.time(came_at, &*self.clock);
        shard.tidy_now_and_then(&self.hashing, now);
        let Some(slot) = shard.find(&lookup) else {
            let decide = |state: &mut State| decide(now, call, slice::from_mut(state));
            return shard.decide_unseen(&self.hashing, now, lookup, charge, decide);
        };
        Ok(decide(now, call, slice::from_mut(shard.state_mut(slot))))
    }
}

impl Backend for MemoryBackend {
    fn decide(&self, call: Call<'_>) -> Answer<Decision> {
        Answer::now(self.decided(call))
    }

    fn settle(&self, settlement: Settlement<'_>) {
        match settlement {
            Settlement::Refund(receipt, n) => self.refunded(&receipt, n),
            Settlement::Debit(receipt, n) => self.debited(receipt, n),
            // This backend decides all permits.
            _ => {}
        }
    }

    fn admin(&self) -> &dyn Admin {
        self
    }
}

impl Admin for MemoryBackend {
    fn reset(&self, scope: Scope, key: &Key) -> Answer<()> {
        let lookup = Lookup::new(&self.hashing, scope, key);
        let mut shard = self.shards.lock_for(&lookup);
        if let Some(slot) = shard.find(&lookup) {
            shard.remove(&self.hashing, slot);
        }
        Answer::now(Ok(()))
    }

    /// Looks at one shard after the other, and holds each lock for one of them.
    fn bans(&self, scope: Scope) -> Answer<BanList> {
        let now = self.clock.now();
        let mut callers = Vec::new();
        for shard in self.shards.iter() {
            // One more than a list has, so that it is known to be incomplete.
            shard.list_bans(scope, now, BanList::MOST + 1, &mut callers);
        }
        Answer::now(Ok(BanList::new(callers, true)))
    }

    fn figures(&self, tell: &mut dyn FnMut(Figure, u64)) {
        let stats = self.stats();
        tell(Figure::Keys, u64::try_from(stats.keys).unwrap_or(u64::MAX));
        tell(Figure::Evicted, stats.evicted);
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
            .with(Capability::Held)
            .with(Capability::Waits)
            .with(Capability::Bans)
            .with(Capability::Once)
            .with(Capability::UpTo)
    }
}

/// Shows how full it is, and no identity or state.
impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackend")
            .field("clock", &self.clock)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
