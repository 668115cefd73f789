//! A backend that decides quotas and can do nothing else.

use tollgate::{
    Admin, Answer, Backend, Call, Capabilities, Capability, Decision, Key, MemoryBackend, Scope,
    Settlement,
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
    fn decide(&self, call: Call<'_>) -> Answer<Decision> {
        self.inner.decide(call)
    }

    fn settle(&self, settlement: Settlement<'_>) {
        self.inner.settle(settlement);
    }

    fn admin(&self) -> &dyn Admin {
        self
    }
}

impl Admin for QuotasOnly {
    fn reset(&self, scope: Scope, key: &Key) -> Answer<()> {
        self.inner.admin().reset(scope, key)
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }
}
