//! A backend that fails at the moment that a test chooses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tollgate::{
    Admin, Answer, Backend, BackendError, Call, Decision, FailureKind, MemoryBackend, Settlement,
};

/// A backend that fails while it is told to.
#[derive(Debug)]
pub struct Failing(pub MemoryBackend, pub Arc<AtomicBool>);

impl Backend for Failing {
    fn decide(&self, call: Call<'_>) -> Answer<Decision> {
        if self.1.load(Ordering::Relaxed) {
            return Answer::now(Err(BackendError::new(FailureKind::Unreachable, "a test")));
        }
        self.0.decide(call)
    }

    fn settle(&self, settlement: Settlement<'_>) {
        self.0.settle(settlement);
    }

    fn admin(&self) -> &dyn Admin {
        self.0.admin()
    }
}
