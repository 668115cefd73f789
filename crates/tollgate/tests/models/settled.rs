//! What `RateLimitStatus` and its ledger use, as far as it matters to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::Mode;

use crate::Key;

pub(crate) use layer::Config;
pub(crate) use policy::{LABELS, Labels, Limit};
pub(crate) use report::PolicyVerdict;

/// What was asked of it after the fact.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limiter(Arc<Settled>);

#[derive(Debug, Default)]
struct Settled {
    credits: AtomicU64,
    credited: AtomicU64,
    debited: AtomicU64,
}

/// For so much.
pub(crate) struct Receipt(u64);

impl Limiter {
    pub(crate) fn credit(&self, receipt: Receipt, n: u64) {
        assert!(n <= receipt.0, "no more than was taken");
        self.0.credits.fetch_add(1, Ordering::SeqCst);
        self.0.credited.fetch_add(n, Ordering::SeqCst);
    }

    pub(crate) fn debit(&self, _receipt: &Receipt, n: u64) {
        self.0.debited.fetch_add(n, Ordering::SeqCst);
    }

    pub(crate) fn credits(&self) -> u64 {
        self.0.credits.load(Ordering::SeqCst)
    }

    /// What is left of a charge.
    pub(crate) fn charged(&self, at_first: u64) -> u64 {
        let read = |count: &AtomicU64| count.load(Ordering::SeqCst);
        at_first + read(&self.0.debited) - read(&self.0.credited)
    }
}

pub(crate) struct Plan;

impl Plan {
    pub(crate) fn sole(&self) -> Option<(&'static Labels, Mode, &Key, &policy::Policy)> {
        None
    }

    pub(crate) fn payers(&self) -> impl Iterator<Item = (&policy::Policy, &Key, &[Limit])> {
        std::iter::empty()
    }

    pub(crate) fn labels(&self) {}
}

pub(crate) mod policy {
    use std::sync::Arc;

    use crate::ResponseView;

    #[derive(Debug)]
    pub(crate) struct Labels {
        pub(crate) policy: &'static str,
    }

    pub(crate) static LABELS: [Labels; 2] =
        [Labels { policy: "inner" }, Labels { policy: "outer" }];

    pub(crate) struct Limit;

    pub(crate) struct Policy {
        pub(crate) outcome: Option<Outcome>,
    }

    #[derive(Clone)]
    pub(crate) enum Outcome {
        CountIf(Arc<dyn Fn(&ResponseView<'_>) -> bool + Send + Sync>),
        Cost(Arc<dyn Fn(&ResponseView<'_>) -> Option<u64> + Send + Sync>),
        Sent(Arc<dyn Fn(u64) -> u64 + Send + Sync>),
    }

    impl std::fmt::Debug for Outcome {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Outcome")
        }
    }
}

pub(crate) mod report {
    use tollgate::{Decision, Key, Mode, Timestamp, Verdict};

    use super::{Labels, Receipt};

    #[derive(Clone, Copy, Debug)]
    pub(crate) struct PolicyVerdict {
        labels: &'static Labels,
        taken: u64,
    }

    impl PolicyVerdict {
        pub(crate) fn new(_labels: &'static Labels, _mode: Mode, _verdict: Verdict) -> Self {
            unreachable!("no model decides")
        }

        pub(crate) fn taken(labels: &'static Labels, taken: u64) -> Self {
            Self { labels, taken }
        }

        pub(crate) fn verdict(&self) -> Taken {
            Taken(self.taken)
        }

        pub(crate) fn labels(&self) -> &'static Labels {
            self.labels
        }

        pub(crate) fn policy(&self) -> &'static str {
            self.labels.policy
        }

        pub(crate) fn receipt(&self, _key: &Key, _at: Timestamp) -> Option<Receipt> {
            Some(Receipt(self.taken))
        }

        pub(crate) fn correct_to(&mut self, cost: u64) {
            self.taken = cost;
        }
    }

    pub(crate) struct Taken(u64);

    impl Taken {
        pub(crate) fn taken(&self) -> u64 {
            self.0
        }
    }

    #[derive(Clone, Debug, Default)]
    pub(crate) struct Report(Vec<PolicyVerdict>);

    impl Report {
        pub(crate) const EMPTY: Self = Self(Vec::new());

        pub(crate) fn of_one(verdict: PolicyVerdict) -> Self {
            Self(vec![verdict])
        }

        pub(crate) fn new(_labels: (), _decision: &Decision) -> Self {
            Self::default()
        }

        pub(crate) fn set(&mut self, labels: &'static Labels, mode: Mode, verdict: &Verdict) {
            self.0 = vec![PolicyVerdict::new(labels, mode, *verdict)];
        }

        pub(crate) fn append(&mut self, inner: Self) {
            self.0.extend(inner.0);
        }

        pub(crate) fn verdicts(&self) -> &[PolicyVerdict] {
            &self.0
        }

        pub(crate) fn verdicts_mut(&mut self) -> &mut [PolicyVerdict] {
            &mut self.0
        }

        pub(crate) fn tightest(&self) -> Option<&PolicyVerdict> {
            self.0.first()
        }
    }
}

pub(crate) mod layer {
    use super::Limiter;

    #[derive(Debug, Default)]
    pub(crate) struct Config {
        pub(crate) limiter: Limiter,
    }

    impl Config {
        pub(crate) fn of(limiter: &Limiter) -> Self {
            Self {
                limiter: limiter.clone(),
            }
        }
    }
}
