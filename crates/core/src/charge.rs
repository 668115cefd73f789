//! One quota of one policy, resolved for one request.

use crate::{Key, Quota, Scope};

/// The most charges that one call may carry.
///
/// A request meets a handful of quotas; 32 leaves room for every sensible combination. It bounds the work of one call, and the
/// time that one call holds a lock or a Redis server.
pub const MAX_CHARGES: usize = 32;

/// The effect that a charge asks for.
///
/// A charge on trial takes its own budget and never denies the call:
///
/// ```
/// use tollgate::{Call, Charge, ImmediateBackend, Key, MemoryBackend, Mode, Quota, Scope};
///
/// let backend = MemoryBackend::new();
/// let quota = Quota::per_minute(1);
/// let trial = Charge {
///     scope: Scope::of("trial", 0, &quota),
///     quota: &quota,
///     key: &Key::from("alice"),
///     cost: 1,
///     mode: Mode::Shadow,
/// };
/// assert!(backend.decide_now(Call::of(&[trial]))?.verdicts()[0].is_allowed());
///
/// let second = backend.decide_now(Call::of(&[trial]))?;
/// assert!(second.verdicts()[0].is_denied());
/// assert!(second.is_admitted());
/// # Ok::<(), tollgate::BackendError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Taken if every enforced charge of the call passes; otherwise the call is denied and nothing is taken.
    Enforce,
    /// Decided and taken on its own, without any effect on the others: a limit on trial.
    Shadow,
    /// A question: would this cost pass? Nothing is taken, and the call does not depend on it.
    Probe,
}

/// A charge: a cost under a quota, taken from the budget of a key.
///
/// Charges of one call that name the same scope and key in the same mode are one charge of the summed cost.
///
/// ```
/// use tollgate::{Call, Charge, ImmediateBackend, Key, MemoryBackend, Mode, Quota, Scope};
///
/// let backend = MemoryBackend::new();
/// let quota = Quota::per_day(5);
/// let three = Charge {
///     scope: Scope::of("export", 0, &quota),
///     quota: &quota,
///     key: &Key::from("alice"),
///     cost: 3,
///     mode: Mode::Enforce,
/// };
/// assert!(backend.decide_now(Call::of(&[three]))?.is_admitted());
/// assert!(!backend.decide_now(Call::of(&[three]))?.is_admitted());
///
/// let peek = Charge { cost: 0, ..three };
/// assert_eq!(backend.decide_now(Call::of(&[peek]))?.verdicts()[0].remaining(), 2);
/// # Ok::<(), tollgate::BackendError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// The name of the key's budget: the policy, and the unit of its states.
    pub scope: Scope,
    /// The rule.
    pub quota: &'a Quota,
    /// The identity whose budget is charged.
    pub key: &'a Key,
    /// The cost. 0 is a peek: it passes and reports the truth.
    pub cost: u64,
    /// The effect.
    pub mode: Mode,
}

impl Charge<'_> {
    /// Says whether this is a [`Ban`](crate::Ban) whose strikes are the denials of `other`: a charge of the same policy, whatever
    /// its tier, and of the same key. For backends.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Call, Ban, Charge, Key, Mode, Quota, Scope};
    ///
    /// let (quota, ban) = (Quota::per_minute(5), Quota::from(Ban::after(3, Duration::from_secs(60))));
    /// let guarded = Charge {
    ///     scope: Scope::of("login", 0, &quota),
    ///     quota: &quota,
    ///     key: &Key::from("alice"),
    ///     cost: 1,
    ///     mode: Mode::Enforce,
    /// };
    /// let guard = Charge { scope: Scope::of("login", 1, &ban), quota: &ban, cost: 0, ..guarded };
    /// assert!(guard.guards(&guarded) && !guarded.guards(&guard));
    /// ```
    #[must_use]
    pub fn guards(&self, other: &Self) -> bool {
        let is_guard = self.quota.hears_denials() && !other.quota.is_ban();
        is_guard && self.scope.is_of_policy_of(other.scope) && self.key == other.key
    }

    /// Says whether both charges name one state.
    pub(crate) fn shares_state_with(&self, other: &Self) -> bool {
        self.scope == other.scope && self.key == other.key
    }
}
