//! A backend in memory whose answers arrive later than it decides.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::{Admin, Answer, Backend, Call, Decision, MemoryBackend, Settlement};

#[derive(Debug)]
pub struct Late(pub MemoryBackend, pub Duration);

impl Backend for Late {
    fn decide(&self, call: Call<'_>) -> Answer<Decision> {
        let (decided, by) = (self.0.decide(call), self.1);
        Answer::later(async move {
            sleep(by).await;
            decided.await
        })
    }

    fn settle(&self, settlement: Settlement<'_>) {
        self.0.settle(settlement);
    }

    fn admin(&self) -> &dyn Admin {
        self.0.admin()
    }
}
