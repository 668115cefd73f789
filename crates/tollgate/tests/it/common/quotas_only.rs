//! A backend that decides quotas and can do nothing else.

use tollgate::{
    Answer, Backend, Capabilities, Capability, Charge, Decision, Key, MemoryBackend, Receipt, Scope,
};

#[derive(Debug)]
pub struct QuotasOnly {
    inner: MemoryBackend,
    capabilities: Capabilities,
}

impl QuotasOnly {
    pub fn new() -> Self {
        Self {
            inner: MemoryBackend::new(),
            capabilities: Capabilities::none(),
        }
    }

    /// Decides such charges as well.
    pub fn and(mut self, capability: Capability) -> Self {
        self.capabilities = self.capabilities.with(capability);
        self
    }
}

impl Backend for QuotasOnly {
    fn decide(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        self.inner.decide(charges)
    }

    fn credit(&self, receipt: Receipt, n: u64) {
        self.inner.credit(receipt, n);
    }

    fn debit(&self, receipt: &Receipt, n: u64) {
        self.inner.debit(receipt, n);
    }

    fn reset(&self, scope: Scope, key: &Key) -> Answer<()> {
        self.inner.reset(scope, key)
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }
}
