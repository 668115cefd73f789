//! A backend in memory whose answers arrive later than it decides.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::{
    Answer, Backend, Capabilities, Charge, Decision, Key, MemoryBackend, Receipt, Scope,
};

#[derive(Debug)]
pub struct Late(pub MemoryBackend, pub Duration);

impl Backend for Late {
    fn decide(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        let (decided, by) = (self.0.decide(charges), self.1);
        Answer::later(async move {
            sleep(by).await;
            decided.await
        })
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
