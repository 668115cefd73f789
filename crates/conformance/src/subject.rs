//! The backend under test, and the helpers that the tests are written with.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Algorithm, Backend, Call, Charge, Decision, Key, Mode, Quota, Scope, Unit};

/// The time at which tests on a server begin: so far ahead that nothing expires by the server's own clock.
pub const FAR_AHEAD_US: u64 = 3_500_000_000_000_000;

/// A backend under test, and its time.
pub trait Subject: Send + Sync {
    /// The backend, one and the same at each call.
    fn backend(&self) -> Arc<dyn Backend>;

    /// Moves the backend's time forward.
    fn advance(&self, by: Duration) -> Elapsed<'_>;

    /// Returns when every credit and debit so far has been applied. At once, unless they travel.
    fn settle(&self) -> Elapsed<'_> {
        Box::pin(std::future::ready(()))
    }
}

/// The future of a [`Subject`].
pub type Elapsed<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// One key's budget under one policy.
#[derive(Clone, Debug)]
pub struct Budget {
    /// The name of the key's budget.
    pub scope: Scope,
    /// The quota.
    pub quota: Quota,
    /// The key.
    pub key: Key,
}

impl Budget {
    /// Alice's budget, under the first quota of the policy of this name. Tests name policies after themselves, so that none
    /// meets another's states on a shared server.
    #[must_use]
    pub fn of(policy: &str, quota: Quota) -> Self {
        Self {
            scope: Scope::of(policy, 0, &quota),
            quota,
            key: Key::from("alice"),
        }
    }

    /// Another key's, under the same quota.
    #[must_use]
    pub fn for_key(&self, key: impl Into<Key>) -> Self {
        Self {
            key: key.into(),
            ..self.clone()
        }
    }

    /// An enforced charge.
    #[must_use]
    pub fn charge(&self, cost: u64) -> Charge<'_> {
        self.charge_in(Mode::Enforce, cost)
    }

    /// A charge of any mode.
    #[must_use]
    pub fn charge_in(&self, mode: Mode, cost: u64) -> Charge<'_> {
        Charge {
            scope: self.scope,
            quota: &self.quota,
            key: &self.key,
            cost,
            mode,
        }
    }

    /// Takes `cost`, alone.
    pub async fn take(&self, subject: &dyn Subject, cost: u64) -> Decision {
        decide(subject, &[self.charge(cost)]).await
    }

    /// The rest of the budget.
    pub async fn remaining(&self, subject: &dyn Subject) -> u64 {
        self.take(subject, 0).await.verdicts()[0].remaining()
    }
}

/// The backend's decision on these charges.
pub async fn decide(subject: &dyn Subject, charges: &[Charge<'_>]) -> Decision {
    subject.backend().decide(Call::of(charges)).await.unwrap()
}

/// Moves to the next start of a window of this length, from any time of the backend.
pub async fn align(subject: &dyn Subject, period: Duration) {
    let now = decide(subject, &[]).await.at().as_micros();
    let period_us = u64::try_from(period.as_micros()).unwrap();
    subject
        .advance(Duration::from_micros(period_us - now % period_us))
        .await;
}

/// Says whether [`every_algorithm`] has a quota of this unit. A new unit does not compile before it stands here.
const fn is_listed(unit: Unit) -> bool {
    match unit {
        Unit::Gcra
        | Unit::FixedWindow { .. }
        | Unit::SlidingWindow { .. }
        | Unit::RollingWindow { .. }
        | Unit::SlidingLog { .. }
        | Unit::IntervalRefill { .. }
        // No test chooses its period, and a server's clock would have to be this process's.
        | Unit::Calendar(_)
        // These have tests of their own: no time refills the one, and the other is not a budget.
        | Unit::Held
        | Unit::Ban
        | Unit::Once => true,
    }
}

/// `limit` per `period` by each of the algorithms.
#[must_use]
pub fn every_algorithm(limit: u64, period: Duration) -> Vec<Quota> {
    let quota = Quota::new(limit, period);
    let offset = period / 4;
    let quotas = vec![
        quota,
        quota.using(Algorithm::FixedWindow {
            offset: Duration::ZERO,
        }),
        quota.using(Algorithm::FixedWindow { offset }),
        quota.using(Algorithm::SlidingWindow),
        quota.using(Algorithm::RollingWindow { buckets: 10 }),
        quota.using(Algorithm::SlidingLog),
        quota.using(Algorithm::IntervalRefill {
            offset: Duration::ZERO,
        }),
        quota.using(Algorithm::IntervalRefill { offset }),
    ];
    assert!(quotas.iter().all(|quota| is_listed(quota.unit())));
    quotas
}
