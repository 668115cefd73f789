//! A backend that fails at the moment that a test chooses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tollgate::{
    Answer, Backend, BackendError, Capabilities, Charge, Decision, FailureKind, Key, MemoryBackend,
    Receipt, Scope,
};

/// A backend that fails while it is told to.
#[derive(Debug)]
pub struct Failing(pub MemoryBackend, pub Arc<AtomicBool>);

impl Backend for Failing {
    fn decide(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        if self.1.load(Ordering::Relaxed) {
            return Answer::now(Err(BackendError::new(FailureKind::Unreachable, "a test")));
        }
        self.0.decide(charges)
    }

    fn decide_up_to(&self, charges: &[Charge<'_>], at_least: u64) -> Answer<Decision> {
        if self.1.load(Ordering::Relaxed) {
            return Answer::now(Err(BackendError::new(FailureKind::Unreachable, "a test")));
        }
        self.0.decide_up_to(charges, at_least)
    }

    fn credit(&self, receipt: Receipt, n: u64) {
        self.0.credit(receipt, n);
    }

    fn debit(&self, receipt: &Receipt, n: u64) {
        self.0.debit(receipt, n);
    }

    fn reset(&self, scope: Scope, key: &Key) -> Answer<()> {
        self.0.reset(scope, key)
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
}
