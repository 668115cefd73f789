//! The backend in memory conforms.

use std::sync::Arc;
use std::time::Duration;

use tollgate_conformance::{Elapsed, Subject};
use tollgate_core::{Backend, ManualClock};
use tollgate_memory::MemoryBackend;

struct Memory {
    backend: Arc<MemoryBackend>,
    clock: ManualClock,
}

impl Memory {
    fn new() -> Self {
        let clock = ManualClock::new();
        Self {
            backend: Arc::new(MemoryBackend::builder().clock(clock.clone()).build()),
            clock,
        }
    }
}

impl Subject for Memory {
    fn backend(&self) -> Arc<dyn Backend> {
        self.backend.clone()
    }

    fn advance(&self, by: Duration) -> Elapsed<'_> {
        self.clock.advance(by);
        Box::pin(std::future::ready(()))
    }
}

tollgate_conformance::conformance!(async { Memory::new() });
