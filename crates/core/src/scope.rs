//! Which of a key's budgets a charge speaks of.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::{Quota, Unit};

/// The name of a family of budgets: a policy, which of its quotas, and the [`Unit`] of their states. With a key it
/// names one state.
///
/// The *limit* is not part of it, so that doubling a quota, or moving a caller to another tier, does not hand out a
/// fresh budget. What makes two states incompatible is: another algorithm, or windows of another length.
///
/// Scopes are interned for the life of the process: equal names give equal scopes, comparing two is comparing two
/// addresses, and a copy is a word. What is kept is bounded by the policies that were ever configured, not by requests.
#[derive(Clone, Copy)]
pub struct Scope(&'static Name);

#[derive(Clone, PartialEq, Eq, Hash)]
struct Name {
    policy: Box<str>,
    slot: u16,
    unit: Unit,
}

impl Scope {
    /// The scope of quota number `slot` (the first is 0) of the policy named `policy`.
    #[must_use]
    pub fn of(policy: &str, slot: u16, quota: &Quota) -> Self {
        static NAMES: OnceLock<Mutex<HashMap<Name, Scope>>> = OnceLock::new();

        let name = Name {
            policy: policy.into(),
            slot,
            unit: quota.unit(),
        };
        let mut names = NAMES
            .get_or_init(Mutex::default)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(scope) = names.get(&name) {
            return *scope;
        }
        let scope = Self(Box::leak(Box::new(name.clone())));
        names.insert(name, scope);
        scope
    }

    /// The policy's name.
    #[must_use]
    pub fn policy(self) -> &'static str {
        &self.0.policy
    }

    /// Which of the policy's quotas; the first is 0.
    #[must_use]
    pub fn slot(self) -> u16 {
        self.0.slot
    }

    /// What the states of this scope are counted in.
    #[must_use]
    pub fn unit(self) -> Unit {
        self.0.unit
    }
}

impl PartialEq for Scope {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0)
    }
}

impl Eq for Scope {}

impl Hash for Scope {
    fn hash<H: Hasher>(&self, state: &mut H) {
        ptr::from_ref(self.0).hash(state);
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Scope({:?}, {}, {:?})",
            self.policy(),
            self.slot(),
            self.unit()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Algorithm;

    #[test]
    fn doubling_a_quota_keeps_its_scope() {
        let before = Scope::of("scope-doubling", 0, &Quota::per_second(10));
        let after = Scope::of("scope-doubling", 0, &Quota::per_second(20));
        assert_eq!(before, after);
    }

    #[test]
    fn windows_of_another_length_have_another_scope() {
        let per =
            |quota: Quota| Scope::of("scope-windows", 0, &quota.using(Algorithm::SlidingWindow));
        assert_ne!(per(Quota::per_second(10)), per(Quota::per_minute(10)));
        assert_eq!(per(Quota::per_second(10)), per(Quota::per_second(11)));
    }

    #[test]
    fn another_policy_or_slot_has_another_scope() {
        let quota = Quota::per_second(10);
        let scope = Scope::of("scope-a", 0, &quota);
        assert_ne!(scope, Scope::of("scope-b", 0, &quota));
        assert_ne!(scope, Scope::of("scope-a", 1, &quota));
        assert_eq!(
            (scope.policy(), scope.slot(), scope.unit()),
            ("scope-a", 0, quota.unit())
        );
    }
}
