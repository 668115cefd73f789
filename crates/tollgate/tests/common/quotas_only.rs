//! A backend that decides quotas and can do nothing else.

use tollgate::{Answer, Backend, Charge, Decision, Key, MemoryBackend, Receipt, Scope};

#[derive(Debug)]
pub struct QuotasOnly(MemoryBackend);

impl QuotasOnly {
    pub fn new() -> Self {
        Self(MemoryBackend::new())
    }
}

impl Backend for QuotasOnly {
    fn decide(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        self.0.decide(charges)
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
}
