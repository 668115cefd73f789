//! A backend with figures.

use tollgate::{
    Admin, Answer, Backend, BackendError, Call, Capabilities, Decision, FailureKind, Figure, Key,
    MemoryBackend, Scope, Settlement,
};

/// A backend that has every figure and fails every decision.
#[derive(Debug)]
pub struct Figured(pub MemoryBackend);

impl Backend for Figured {
    fn decide(&self, _call: Call<'_>) -> Answer<Decision> {
        let error = BackendError::new(FailureKind::Unreachable, "gone");
        Answer::later(async { Err(error) })
    }

    fn settle(&self, settlement: Settlement<'_>) {
        self.0.settle(settlement);
    }

    fn admin(&self) -> &dyn Admin {
        self
    }
}

impl Admin for Figured {
    fn reset(&self, scope: Scope, key: &Key) -> Answer<()> {
        self.0.admin().reset(scope, key)
    }

    fn figures(&self, tell: &mut dyn FnMut(Figure, u64)) {
        // Each has a value of its own.
        for (figure, value) in [
            Figure::Calls,
            Figure::Requests,
            Figure::BytesOut,
            Figure::BytesIn,
            Figure::LostGiveBacks,
            Figure::Held,
            Figure::LostLeases,
            Figure::Reclaimed,
            Figure::KnownDenials,
            Figure::LeasedDecisions,
            Figure::ServersAway,
            Figure::Keys,
            Figure::Evicted,
        ]
        .into_iter()
        .zip(101..)
        {
            tell(figure, value);
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.0.admin().capabilities()
    }
}
