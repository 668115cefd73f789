//! A shared backend a millisecond away, whose answers are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;
use tollgate::{
    Admin, Answer, Backend, BackendError, Call, Capabilities, Decision, FailureKind, Key, Limiter,
    MemoryBackend, Policy, Scope, Settlement,
};

use crate::common::tokio_clock::in_tokio_time;

pub(crate) const LAG: Duration = Duration::from_millis(1);

/// The server, of which each process has a clone.
#[derive(Clone, Debug)]
pub(crate) struct Far(Arc<Server>);

#[derive(Debug)]
struct Server {
    budgets: MemoryBackend,
    lag: Duration,
    fails: AtomicBool,
    decisions: AtomicU64,
    blocks: AtomicU64,
    credits: AtomicU64,
}

impl Far {
    pub(crate) fn new() -> Self {
        Self::answering_after(LAG)
    }

    /// It answers at once.
    pub(crate) fn at_once() -> Self {
        Self::answering_after(Duration::ZERO)
    }

    fn answering_after(lag: Duration) -> Self {
        Self(Arc::new(Server {
            budgets: in_tokio_time(),
            lag,
            fails: AtomicBool::default(),
            decisions: AtomicU64::default(),
            blocks: AtomicU64::default(),
            credits: AtomicU64::default(),
        }))
    }

    /// A process with this policy.
    pub(crate) fn process(&self, policies: impl IntoIterator<Item = Policy>) -> Limiter {
        let limiter = Limiter::builder().policies(policies).backend(self.clone());
        limiter.build().unwrap()
    }

    /// A limiter beside the processes, which sees what they have left.
    pub(crate) fn beside(&self, policy: Policy) -> Limiter {
        let limiter = Limiter::builder().policy(policy).backend(self.clone());
        limiter.build().unwrap()
    }

    pub(crate) fn fail(&self, fails: bool) {
        self.0.fails.store(fails, Ordering::Relaxed);
    }

    /// The requests that it decided since the last question.
    pub(crate) fn decisions(&self) -> u64 {
        self.0.decisions.swap(0, Ordering::Relaxed)
    }

    /// The blocks that it was asked for since the last question.
    pub(crate) fn blocks(&self) -> u64 {
        self.0.blocks.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn credits(&self) -> u64 {
        self.0.credits.swap(0, Ordering::Relaxed)
    }

    fn later(&self, decided: Answer<Decision>) -> Answer<Decision> {
        let (lag, fails) = (self.0.lag, self.0.fails.load(Ordering::Relaxed));
        if lag.is_zero() && !fails {
            return decided;
        }
        Answer::later(async move {
            sleep(lag).await;
            if fails {
                return Err(BackendError::new(FailureKind::Unreachable, "a test"));
            }
            decided.await
        })
    }
}

impl Backend for Far {
    fn decide(&self, call: Call<'_>) -> Answer<Decision> {
        let asked = match call.at_least {
            Some(_) => &self.0.blocks,
            None => &self.0.decisions,
        };
        asked.fetch_add(1, Ordering::Relaxed);
        self.later(self.0.budgets.decide(call))
    }

    fn settle(&self, settlement: Settlement<'_>) {
        let is_refund = matches!(settlement, Settlement::Refund(..));
        self.0
            .credits
            .fetch_add(u64::from(is_refund), Ordering::Relaxed);
        self.0.budgets.settle(settlement);
    }

    fn admin(&self) -> &dyn Admin {
        self
    }
}

impl Admin for Far {
    fn reset(&self, scope: Scope, key: &Key) -> Answer<()> {
        self.0.budgets.admin().reset(scope, key)
    }

    fn place(&self) -> Option<String> {
        Some("a millisecond away".to_owned())
    }

    fn capabilities(&self) -> Capabilities {
        self.0.budgets.admin().capabilities()
    }
}
