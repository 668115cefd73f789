//! The budgets of a policy that callers have drawn on, and the processes that hold something, for operators.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{
    Answer, Call, Charge, Key, Mode, Quota, Scope, Snapshot, State, Timestamp, Unit, decide,
};

use crate::fleet::Fleet;
use crate::job::gone;
use crate::name::{Name, Names};
use crate::walk::{self, Found, Visitor, read_states};
use crate::wire::{HeldEntries, read_state};

/// The budgets that callers have drawn on, sorted by the share that is left, the least first: see
/// [`RedisBackend::used_budgets`](crate::RedisBackend::used_budgets).
///
/// ```no_run
/// use tollgate::{UsedBudget, UsedBudgets};
///
/// fn show(used: &UsedBudgets) {
///     used.budgets().iter().take(10).map(UsedBudget::identity).for_each(|caller| println!("{caller}"));
///     if !used.is_complete() {
///         println!("and others: {} were seen", used.seen());
///     }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct UsedBudgets {
    budgets: Vec<UsedBudget>,
    seen: u64,
    is_complete: bool,
}

/// A budget that is not full, as of when the list was made.
///
/// ```no_run
/// use tollgate::{Key, UsedBudget};
///
/// fn show(budget: &UsedBudget, caller: &Key) {
///     let quota = budget.quota();
///     let whose = if budget.key() == Some(caller) { "your" } else { budget.identity() };
///     println!("{whose} budget under {} ({quota}):", budget.scope().policy());
///     println!("{} of {} left, full in {:?}", budget.remaining(), budget.limit(), budget.reset_after());
/// }
/// ```
///
/// `Debug` does not show the identity: identities are addresses and API keys, and do not belong into logs.
#[derive(Clone)]
pub struct UsedBudget {
    scope: Scope,
    quota: Quota,
    key: Option<Key>,
    identity: Box<str>,
    limit: u64,
    remaining: u64,
    reset_after: Duration,
}

/// The units that one process holds under a limit on how many at once: see
/// [`RedisBackend::holdings`](crate::RedisBackend::holdings).
///
/// ```no_run
/// use tollgate::Holding;
///
/// fn show(holding: &Holding) {
///     println!("process {} holds {}, for {:?}", holding.process(), holding.units(), holding.lease_left());
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    process: Box<str>,
    units: u64,
    lease_left: Duration,
}

impl UsedBudgets {
    /// The budgets.
    #[must_use]
    pub fn budgets(&self) -> &[UsedBudget] {
        &self.budgets
    }

    /// The number of budgets in use that were seen. The list may have fewer, since it is bounded.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// True if each budget that was in use from the beginning to the end was seen.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }
}

impl UsedBudget {
    /// The scope of the budget: the policy and its quota.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// The quota by which it was read.
    #[must_use]
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    /// The identity; `None` if the backend keeps hashes of identities and nothing else.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// The identity as it stands in the names of states: see [`StateName`](crate::StateName).
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The size of the full budget.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The largest cost that would pass.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// The time until the budget is full again if no more is charged; zero for what is held.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.reset_after
    }

    /// Those first of which the least share is left, and then those that take longest.
    fn by_use(&self, other: &Self) -> Ordering {
        // Quotients, compared without dividing.
        let used = |one: &Self, other: &Self| {
            u128::from(one.limit.saturating_sub(one.remaining)) * u128::from(other.limit)
        };
        let by_share = used(other, self).cmp(&used(self, other));
        by_share
            .then_with(|| other.reset_after.cmp(&self.reset_after))
            .then_with(|| self.identity.cmp(&other.identity))
    }
}

impl Holding {
    /// The process, by the eight random bytes that it calls itself.
    #[must_use]
    pub fn process(&self) -> &str {
        &self.process
    }

    /// The units that it holds.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.units
    }

    /// The time until its lease ends, if it does not call again.
    #[must_use]
    pub fn lease_left(&self) -> Duration {
        self.lease_left
    }
}

impl fmt::Debug for UsedBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UsedBudget")
            .field("scope", &self.scope)
            .field("key", &self.key)
            .field("limit", &self.limit)
            .field("remaining", &self.remaining)
            .field("reset_after", &self.reset_after)
            .finish_non_exhaustive()
    }
}

/// Lists the budgets in use of one policy's scopes, at most so many.
pub(crate) fn list(
    fleet: &Fleet,
    names: &Arc<Names>,
    quotas: Vec<(Scope, Quota)>,
    most: usize,
) -> Answer<UsedBudgets> {
    walk::list(
        fleet,
        Listing {
            names: Arc::clone(names),
            quotas,
            most,
            seen: 0,
            budgets: HashMap::new(),
        },
    )
}

/// A list in the making.
struct Listing {
    names: Arc<Names>,
    /// The scopes, each with the quota by which its budgets are read.
    quotas: Vec<(Scope, Quota)>,
    most: usize,
    seen: u64,
    /// By the names of their states: `SCAN` may show a name twice.
    budgets: HashMap<Name, UsedBudget>,
}

impl Visitor for Listing {
    type List = UsedBudgets;

    fn pattern(&self) -> Name {
        match self.quotas.as_slice() {
            [] => Name::new(),
            [(scope, _)] => self.names.pattern(*scope),
            [(scope, _), ..] => self.names.pattern_of_policy(scope.policy_alone()),
        }
    }

    fn wants(&self, name: &[u8]) -> bool {
        let mut quotas = self.quotas.iter();
        quotas.any(|(scope, _)| self.names.read(*scope, name).is_some())
    }

    fn see(&mut self, name: &Name, state: &[u8], now: Timestamp) -> bool {
        let mut quotas = self.quotas.iter();
        let found = quotas.find_map(|(scope, quota)| {
            let read = self.names.read(*scope, name)?;
            Some((*scope, *quota, read))
        });
        let Some((scope, quota, read)) = found else {
            return true;
        };
        let Some(mut state) = state_of(state, scope.unit()) else {
            return false;
        };
        let probe = Charge {
            scope,
            quota: &quota,
            key: &Key::global(),
            cost: 0,
            mode: Mode::Probe,
        };
        let decision = decide(now, Call::of(&[probe]), slice::from_mut(&mut state));
        let Some(verdict) = decision.verdicts().first() else {
            return false;
        };
        if verdict.remaining() >= verdict.limit() && verdict.reset_after().is_zero() {
            return true;
        }
        let is_new = self.budgets.insert(
            name.clone(),
            UsedBudget {
                scope,
                quota,
                key: read.key().cloned(),
                identity: read.identity().into(),
                limit: verdict.limit(),
                remaining: verdict.remaining(),
                reset_after: verdict.reset_after(),
            },
        );
        self.seen += u64::from(is_new.is_none());
        if self.budgets.len() > self.most.saturating_mul(2).max(1_000) {
            self.shorten();
        }
        true
    }

    fn is_full(&self) -> bool {
        false
    }

    fn into_list(mut self, is_complete: bool) -> UsedBudgets {
        self.shorten();
        let mut budgets: Vec<_> = self.budgets.into_values().collect();
        budgets.sort_by(UsedBudget::by_use);
        UsedBudgets {
            budgets,
            seen: self.seen,
            is_complete,
        }
    }
}

impl Listing {
    /// Keeps those of which the least is left.
    fn shorten(&mut self) {
        if self.budgets.len() <= self.most {
            return;
        }
        let mut budgets: Vec<_> = self.budgets.drain().collect();
        budgets.sort_by(|(_, one), (_, other)| one.by_use(other));
        budgets.truncate(self.most);
        self.budgets.extend(budgets);
    }
}

/// A state of this unit. Only the sum of held units counts.
fn state_of(bytes: &[u8], unit: Unit) -> Option<State> {
    if unit != Unit::Held {
        return read_state(bytes, unit);
    }
    let entries = HeldEntries::read(bytes)?;
    Some(State::from(Snapshot::Held {
        held: entries.total,
        generation_us: 0,
    }))
}

/// The processes that hold something under a key.
pub(crate) fn holdings(fleet: &Fleet, name: Name) -> Answer<Vec<Holding>> {
    let fleet = fleet.clone();
    let (tell, told) = tokio::sync::oneshot::channel();
    let asked = fleet.clone();
    fleet.spawn(async move {
        let holdings = async {
            let master = asked.owner(&name)?;
            let mut connection = master.connection().ok_or_else(|| master.no_answer())?;
            let names = [name];
            let (found, now) = read_states(&master.link, &mut connection, &names).await?;
            let mut holdings = Vec::new();
            for found in found {
                if let Found::State(state) = found?
                    && let Some(entries) = HeldEntries::read(&state)
                {
                    holdings = entries.at(now);
                }
            }
            Ok(holdings)
        };
        drop(tell.send(holdings.await));
    });
    Answer::later(async move { told.await.unwrap_or_else(|_ended| Err(gone())) })
}

impl HeldEntries {
    fn at(self, now: Timestamp) -> Vec<Holding> {
        let now_ms = now.as_micros() / 1_000;
        let live = self.entries.into_iter();
        let live = live.filter(|entry| entry.units > 0 && entry.expires_ms > now_ms);
        let holdings = live.map(|entry| Holding {
            process: format!("{:016x}", u64::from_be_bytes(entry.process)).into(),
            units: entry.units,
            lease_left: Duration::from_millis(entry.expires_ms - now_ms),
        });
        holdings.collect()
    }
}
