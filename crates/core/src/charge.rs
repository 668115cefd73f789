//! One quota of one policy, resolved for one request.

use crate::{Key, Quota, Scope};

/// The most charges that one call may carry.
///
/// A request meets a handful of quotas; 32 leaves room for every sensible combination and keeps the work of one call,
/// and the time that one call holds a lock or a Redis server, within a bound.
pub const MAX_CHARGES: usize = 32;

/// What a charge asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Taken if every enforced charge of the call passes; otherwise the call is denied and nothing is taken.
    Enforce,
    /// Decided and taken on its own, never in the way of the others: a limit on trial.
    Shadow,
    /// Would this cost pass? Nothing is taken, and the call does not depend on it.
    Probe,
}

/// A charge: so much of this quota, from the budget of this key.
///
/// Charges of one call that name the same scope and key in the same mode are one charge of the summed cost.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// Which budget of the key, in words: the policy and what makes its states incompatible with others.
    pub scope: Scope,
    /// The rule.
    pub quota: &'a Quota,
    /// Whose budget.
    pub key: &'a Key,
    /// How much. 0 is a peek: it passes and reports the truth.
    pub cost: u64,
    /// What is asked.
    pub mode: Mode,
}

impl Charge<'_> {
    /// Whether both charges speak of one state.
    pub(crate) fn shares_state_with(&self, other: &Self) -> bool {
        self.scope == other.scope && self.key == other.key
    }
}
