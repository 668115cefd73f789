//! Requests that are decided out of leased blocks.

use std::rc::Rc;
use std::time::Duration;

use tokio::runtime;
use tokio::task::yield_now;
use tollgate::{
    Admin, Answer, Backend, Call, Capabilities, Decision, Key, Lease, Limiter, MemoryBackend,
    Policy, Scope, Settlement,
};
use tower::Layer;

use super::{Nothing, PLENTY, Scenario, address, each, serve_from, silent};

/// A backend in memory that says it is elsewhere.
#[derive(Debug)]
struct Far(MemoryBackend);

impl Backend for Far {
    fn decide(&self, call: Call<'_>) -> Answer<Decision> {
        self.0.decide(call)
    }

    fn settle(&self, settlement: Settlement<'_>) {
        self.0.settle(settlement);
    }

    fn admin(&self) -> &dyn Admin {
        self
    }
}

impl Admin for Far {
    fn reset(&self, scope: Scope, key: &Key) -> Answer<()> {
        self.0.admin().reset(scope, key)
    }

    fn place(&self) -> Option<String> {
        Some("elsewhere".to_owned())
    }

    fn capabilities(&self) -> Capabilities {
        self.0.admin().capabilities()
    }
}

/// The rounds before those that are measured, in which the blocks grow with the demand.
const EARLIER: u32 = 20;

/// As many turns of the runtime as there may be tasks.
async fn answered(tasks: u32) {
    for _ in 0..tasks {
        yield_now().await;
    }
}

/// One hot caller, whose blocks live for longer than a run. Questions are answered between the rounds, and not counted.
pub(super) fn served() -> Box<dyn FnMut(u32)> {
    let lease = Lease::up_to(1_000_000).within(Duration::from_secs(60));
    let limiter = Limiter::builder()
        .policy(Policy::new("plenty", PLENTY).lease(lease))
        .backend(Far(MemoryBackend::new()))
        .build();
    let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() else {
        return each(|_| {});
    };
    let mut serve = serve_from(|_, _| address(0).into(), silent(limiter).layer(Nothing));
    let runtime = Rc::new(runtime);
    let entered = Rc::clone(&runtime);
    let mut serve_leased = move |callers| {
        let _entered = entered.enter();
        serve(callers);
    };
    // The profiler would count what is said not to be measured here, where nothing is.
    for _ in 0..EARLIER {
        serve_leased(1_000);
        runtime.block_on(answered(1_000));
    }
    Box::new(move |callers| {
        serve_leased(callers);
        Scenario::not_measured(|| runtime.block_on(answered(callers)));
    })
}
