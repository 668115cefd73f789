//! The switches with which an operator turns policies off or puts them on trial while the service runs.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use super::snapshot::Snapshot;
use super::{CheckError, Limiter};
use crate::{ConfigError, Policy, Switch};

/// The switches of one limiter.
#[derive(Clone, Debug, Default)]
pub(super) struct Switches {
    all: Switch,
    /// Those that are not on, of policies that the limiter has.
    policies: BTreeMap<String, Switch>,
}

impl Switches {
    /// The switch that holds for a policy.
    pub(super) fn of(&self, policy: &str) -> Switch {
        let own = self.policies.get(policy).copied().unwrap_or_default();
        self.all.max(own)
    }
}

/// Switches.
impl Limiter {
    /// Switches a policy: off, to trial, or on again. It holds from the next request on, for this limiter and its clones, also for
    /// the policies that [replace](Self::replace) the present ones, until the policy is gone. It is for the moment in which a limit
    /// harms: a restart would take too long, and an edit of the configuration would have to be undone.
    ///
    /// While a policy is off nothing is charged, so that its budgets refill, and its block lists and bans keep no caller out. An
    /// observer hears of each request that it would have covered, with [`Cause::Off`](crate::Cause::Off). A stream whose messages
    /// are charged goes on as it began. Each process has switches of its own.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota, Switch};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::from(Policy::new("mail", Quota::per_hour(1)));
    /// limiter.check("mail", "alice").await?;
    /// assert!(!limiter.check("mail", "alice").await?.is_allowed());
    ///
    /// limiter.switch("mail", Switch::Off)?;
    /// assert!(limiter.check("mail", "alice").await?.is_allowed());
    /// limiter.switch("mail", Switch::On)?;
    /// assert!(!limiter.check("mail", "alice").await?.is_allowed());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If the limiter has no policy of that name. A limit that an annotation states in place, without naming a policy of the
    /// limiter, follows [`switch_all`](Self::switch_all) alone.
    pub fn switch(&self, policy: &str, to: Switch) -> Result<(), CheckError> {
        let mut switches = self.switches();
        if self.policy(policy).is_none() {
            return Err(CheckError::UnknownPolicy {
                policy: policy.chars().take(tollgate_core::MAX_NAME_LEN).collect(),
            });
        }
        if to == Switch::On {
            switches.policies.remove(policy);
        } else {
            switches.policies.insert(policy.to_owned(), to);
        }
        self.turn_policies(&switches);
        tracing::warn!(policy, switch = ?to, "an operator has switched a policy");
        Ok(())
    }

    /// Switches all policies, those of handlers and routes included. A policy whose own switch limits less keeps that. Requests
    /// that are [shed](crate::LimiterBuilder::shed) under pressure are refused by no policy, and are so still.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota, Switch};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::from(Policy::new("mail", Quota::per_hour(1)));
    /// limiter.check("mail", "alice").await?;
    ///
    /// limiter.switch_all(Switch::Shadow);
    /// let second = limiter.check("mail", "alice").await?;
    /// assert!(second.is_allowed() && second.verdicts()[0].is_denied());
    /// # Ok(()) }
    /// ```
    pub fn switch_all(&self, to: Switch) {
        let mut switches = self.switches();
        switches.all = to;
        self.turn_policies(&switches);
        tracing::warn!(switch = ?to, "an operator has switched all policies");
    }

    /// The switch that holds for a policy: of its own and that of all, the one that limits less.
    ///
    /// ```
    /// use tollgate::{Limiter, Quota, Switch};
    ///
    /// let limiter = Limiter::from(Quota::per_second(10));
    /// limiter.switch_all(Switch::Off);
    /// assert_eq!(limiter.switch_of("default"), Switch::Off);
    /// ```
    #[must_use]
    pub fn switch_of(&self, policy: &str) -> Switch {
        self.switches().of(policy)
    }

    /// A policy of a handler, as the switches say.
    #[doc(hidden)]
    #[must_use]
    pub fn switched(&self, mut policy: Policy) -> Policy {
        policy.turn(self.switch_of(policy.name()));
        policy
    }

    fn switches(&self) -> MutexGuard<'_, Switches> {
        let switches = &self.0.switches;
        switches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Turns the present policies.
    fn turn_policies(&self, switches: &Switches) {
        let turned = self.snapshot().turned(&self.0.terms, switches);
        self.install(turned);
    }

    /// Replaces all policies, which go on as they are switched.
    pub(crate) fn replace_uncounted(&self, policies: Vec<Policy>) -> Result<(), ConfigError> {
        let mut switches = self.switches();
        let snapshot = Snapshot::new(policies, &self.0.terms)?;
        let known = |name: &str| snapshot.policy(name).is_some();
        switches.policies.retain(|name, _| known(name));
        let is_switched = switches.all != Switch::On || !switches.policies.is_empty();
        let snapshot = if is_switched {
            snapshot.turned(&self.0.terms, &switches)
        } else {
            snapshot
        };
        self.install(snapshot);
        self.0.observers.replaced(Some(&self.snapshot().policies));
        Ok(())
    }

    /// The number of policies that are switched to each state but on. While all are, it is one at least: those of handlers are
    /// not counted, and a limiter may have no others.
    #[cfg(feature = "metrics")]
    pub(super) fn switched_policies(&self) -> [usize; 2] {
        let (snapshot, all) = (self.snapshot(), self.switches().all);
        let count = |to| {
            let policies = snapshot.policies.iter();
            let switched = policies.filter(|policy| policy.switch == to).count();
            switched.max(usize::from(all == to))
        };
        [count(Switch::Shadow), count(Switch::Off)]
    }
}

impl Snapshot {
    /// A snapshot with these policies, switched as `switches` says.
    fn turned(&self, terms: &super::terms::Terms, switches: &Switches) -> Self {
        let policies = self.policies.iter().map(|policy| {
            let mut policy = Policy::clone(policy);
            policy.turn(switches.of(policy.name()));
            Arc::new(policy)
        });
        Self::of(policies.collect(), terms)
    }
}
