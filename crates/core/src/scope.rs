//! Scopes: the names of a key's budgets.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::{Quota, Unit};

/// The name of a family of budgets: a policy, which of its quotas, and the [`Unit`] of their states. With a key it
/// names one state.
///
/// A named quota of a policy is called by its name, as `api:day`, and others by their position.
///
/// The *limit* is not part of it, so that doubling a quota, or moving a caller to another tier, does not hand out a fresh
/// budget. The unit is, because it makes two states incompatible: another algorithm, or windows of another length.
///
/// Scopes are interned for the life of the process: equal names give equal scopes, comparing two is comparing two addresses,
/// and a copy is a word. Their number is bounded by the policies that were ever configured, not by requests.
///
/// ```
/// use tollgate::{Quota, Scope, Unit};
///
/// let quota = Quota::per_second(10);
/// let scope = Scope::of("api", 0, &quota);
/// assert_eq!((scope.policy(), scope.slot(), scope.unit()), ("api", 0, Unit::Gcra));
///
/// // A larger limit reads the states of the smaller one. Another algorithm has states of its own.
/// assert_eq!(Scope::of("api", 0, &Quota::per_second(50)), scope);
/// assert_ne!(Scope::of("api", 0, &"10/s sliding-log".parse()?), scope);
///
/// // A backend that has no room for a word keeps the number.
/// assert_eq!(Scope::numbered(scope.number()), Some(scope));
/// # Ok::<(), tollgate::ParseQuotaError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Scope(&'static ScopeEntry);

#[derive(PartialEq, Eq, Hash)]
struct Name {
    policy: Box<str>,
    slot: u16,
    unit: Unit,
}

/// A name that was given out.
struct ScopeEntry {
    name: Name,
    number: u32,
}

impl Name {
    fn of(policy: &str, slot: u16, quota: &Quota) -> Self {
        Self {
            policy: policy.into(),
            slot,
            unit: quota.unit(),
        }
    }
}

/// All scopes by their names.
#[derive(Default)]
struct Names(HashMap<&'static Name, Scope>);

fn names() -> MutexGuard<'static, Names> {
    static NAMES: OnceLock<Mutex<Names>> = OnceLock::new();

    let names = NAMES.get_or_init(Mutex::default).lock();
    names.unwrap_or_else(PoisonError::into_inner)
}

impl Names {
    fn scope(&mut self, name: Name) -> Scope {
        if let Some(scope) = self.0.get(&name) {
            return *scope;
        }
        // Each takes memory for good, and the memory is full long before the numbers are used up.
        let number = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        let numbered: &'static ScopeEntry = Box::leak(Box::new(ScopeEntry { name, number }));
        let scope = Scope(numbered);
        let (list, place) = list_and_place(number);
        let list = NUMBERED[list].get_or_init(|| {
            let empty = (0..1_u32 << list).map(|_| OnceLock::new());
            empty.collect()
        });
        list[place].get_or_init(|| scope);
        self.0.insert(&numbered.name, scope);
        scope
    }

    /// Those of a policy and of its named quotas, without those of its tiers.
    fn of_policy(&self, policy: &str) -> impl Iterator<Item = Scope> {
        let scopes = self.0.values().copied();
        scopes.filter(move |scope| scope.policy().split(':').next() == Some(policy))
    }
}

/// All scopes by their numbers, in lists of one, two, four and so on. They are read without a lock, and never move.
static NUMBERED: [OnceLock<Box<[OnceLock<Scope>]>>; 32] = [const { OnceLock::new() }; 32];

impl Scope {
    /// The scope of quota number `slot` (the first is 0) of the policy named `policy`.
    #[must_use]
    pub fn of(policy: &str, slot: u16, quota: &Quota) -> Self {
        names().scope(Name::of(policy, slot, quota))
    }

    /// The scope of a family of this policy. `None` if the policy already has `most` families. It serves quotas whose number
    /// the configuration does not bound.
    #[doc(hidden)]
    #[must_use]
    pub fn of_few(
        policy: &str,
        family: &str,
        slot: u16,
        quota: &Quota,
        most: usize,
    ) -> Option<Self> {
        let name = Name::of(family, slot, quota);
        let mut names = names();
        let known = names.0.contains_key(&name) || names.of_policy(policy).count() < most;
        known.then(|| names.scope(name))
    }

    /// All scopes of the policy named `policy` in this process, and of its named quotas.
    #[doc(hidden)]
    #[must_use]
    pub fn all_of(policy: &str) -> Vec<Self> {
        names().of_policy(policy).collect()
    }

    /// The number of this scope in this process, small if scopes are few. For backends that have no room for a word.
    #[must_use]
    #[inline]
    pub fn number(self) -> u32 {
        self.0.number
    }

    /// The scope of this [number](Self::number), if there is one.
    #[must_use]
    pub fn numbered(number: u32) -> Option<Self> {
        let (list, place) = list_and_place(number);
        let scope = NUMBERED.get(list)?.get()?.get(place)?;
        scope.get().copied()
    }

    /// The policy's name. `#` and a tier's name follow it, if quotas of some tiers have a state of their own; then `:` and the
    /// quota's name, if that has one.
    #[must_use]
    pub fn policy(self) -> &'static str {
        &self.0.name.policy
    }

    /// The policy's name, without those of a tier and a quota.
    #[doc(hidden)]
    #[must_use]
    pub fn policy_alone(self) -> &'static str {
        let name = self.policy();
        name.split(['#', ':']).next().unwrap_or(name)
    }

    /// Says whether both are of one policy, whatever the tiers.
    pub(crate) fn is_of_policy_of(self, other: Self) -> bool {
        self.policy_alone() == other.policy_alone()
    }

    /// The position of the quota in the policy, if it has no name of its own; the first is 0, and so is a named one.
    #[must_use]
    pub fn slot(self) -> u16 {
        self.0.name.slot
    }

    /// The unit of the states of this scope.
    #[must_use]
    pub fn unit(self) -> Unit {
        self.0.name.unit
    }
}

/// The list that holds a number, and the place in it: list *n* begins with the number 2^*n* − 1.
fn list_and_place(number: u32) -> (usize, usize) {
    let nth = number.saturating_add(1);
    let list = nth.ilog2();
    (list as usize, (nth - (1 << list)) as usize)
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
    #[test]
    fn a_scope_is_found_by_its_number() {
        // given more than a few lists of them
        let quota = Quota::per_second(10);
        let scopes: Vec<_> = (0..1000)
            .map(|slot| Scope::of("scope-numbers", slot, &quota))
            .collect();

        // then each has its own
        for scope in scopes {
            assert_eq!(Scope::numbered(scope.number()), Some(scope));
        }
        assert_eq!(Scope::numbered(1_000_000), None);
        assert_eq!(Scope::numbered(u32::MAX), None);
    }
}
