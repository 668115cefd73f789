//! Helpers for tests on a real server.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

pub(crate) mod cluster;
pub(crate) mod held;
pub(crate) mod line;
pub(crate) mod load;
pub(crate) mod older;
pub(crate) mod watch;

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tollgate_core::{
    Algorithm, Backend, BackendError, Call, Charge, Decision, Key, Mode, Quota, Scope,
};
use tollgate_redis::{RedisBackend, RedisBackendBuilder};
use tollgate_testkit::Standalone;

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// A budget of one policy.
#[derive(Clone)]
pub(crate) struct Budget {
    pub(crate) scope: Scope,
    pub(crate) quota: Quota,
    pub(crate) key: Key,
}

impl Budget {
    pub(crate) fn of(policy: &str, quota: Quota) -> Self {
        Self {
            scope: Scope::of(policy, 0, &quota),
            quota,
            key: Key::from("alice"),
        }
    }

    pub(crate) fn charge(&self, cost: u64) -> Charge<'_> {
        Charge {
            scope: self.scope,
            quota: &self.quota,
            key: &self.key,
            cost,
            mode: Mode::Enforce,
        }
    }

    pub(crate) async fn take(
        &self,
        backend: &RedisBackend,
        cost: u64,
    ) -> Result<Decision, BackendError> {
        backend.decide(Call::of(&[self.charge(cost)])).await
    }

    pub(crate) async fn taken(&self, backend: &RedisBackend) -> u64 {
        self.quota.capacity() - self.remaining(backend).await
    }

    pub(crate) async fn remaining(&self, backend: &RedisBackend) -> u64 {
        self.take(backend, 0).await.unwrap().verdicts()[0].remaining()
    }
}

/// The name by which the harness knows a test of a module, for a process that runs this test again.
pub(crate) fn harness_name(module_path: &str, test: &str) -> String {
    let (_program, module) = module_path.split_once("::").unwrap();
    format!("{module}::{test}")
}

/// Longer than a busy machine holds anything up: few of these tests are about time.
pub(crate) const PATIENT: Duration = Duration::from_secs(60);

/// Deadlines that a busy machine keeps.
pub(crate) trait Patience {
    fn patient(self) -> Self;
}

impl Patience for RedisBackendBuilder {
    fn patient(self) -> Self {
        self.deadline(PATIENT).connect_deadline(PATIENT)
    }
}

pub(crate) async fn connect(server: &Standalone) -> RedisBackend {
    let builder = RedisBackend::builder(&server.url()).patient();
    builder.connect().await.unwrap()
}

/// The error of a connection attempt, in the words that an operator sees.
pub(crate) async fn refused(builder: RedisBackendBuilder) -> String {
    let error = builder.connect().await.unwrap_err();
    let said = error.to_string();
    assert_eq!(
        (format!("{error:?}"), said.lines().count()),
        (said.clone(), 1)
    );
    said
}

/// Waits until decisions are right again, without any help.
pub(crate) async fn recovered(backend: &RedisBackend, budget: &Budget) {
    let again = async {
        while budget.take(backend, 0).await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENT, again).await.expect("recovers");
}

/// The number of admitted requests, out of so many from each backend, all at once, for these budgets in turn.
pub(crate) async fn hammer(
    backends: impl IntoIterator<Item = RedisBackend>,
    budgets: impl Fn() -> Vec<Budget>,
    each: usize,
) -> usize {
    let mut hammering = JoinSet::new();
    for backend in backends {
        let budgets = budgets();
        hammering.spawn(async move {
            let calls: Vec<_> = (budgets.iter().cycle().take(each))
                .map(|budget| backend.decide(Call::of(&[budget.charge(1)])))
                .collect();
            let mut admitted = 0;
            for call in calls {
                admitted += usize::from(call.await.unwrap().is_admitted());
            }
            admitted
        });
    }
    hammering.join_all().await.into_iter().sum()
}

pub(crate) fn every_algorithm(limit: u64, period: Duration) -> [Quota; 6] {
    let quota = Quota::new(limit, period);
    [
        quota,
        quota.using(Algorithm::FixedWindow {
            offset: Duration::ZERO,
        }),
        quota.using(Algorithm::SlidingWindow),
        quota.using(Algorithm::RollingWindow { buckets: 10 }),
        quota.using(Algorithm::SlidingLog),
        quota.using(Algorithm::IntervalRefill {
            offset: Duration::ZERO,
        }),
    ]
}
