//! The memory of leased budgets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use crate::ALLOCATOR;
use stats_alloc::Region;
use tollgate::{
    Admin, Answer, Backend, Call, Capabilities, Decision, Lease, Limiter, MemoryBackend, Policy,
    Quota, Settlement,
};

/// The most budgets whose blocks a process has, and the bytes that each takes, as docs/redis.md states them.
const MOST: usize = 65_536;
const BYTES_EACH: usize = 1_060;

/// A shared backend, whose own memory of callers is small.
#[derive(Debug)]
struct Shared(MemoryBackend);

impl Shared {
    fn new() -> Self {
        Self(MemoryBackend::builder().max_keys(1_024).build())
    }
}

impl Backend for Shared {
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

impl Admin for Shared {
    fn capabilities(&self) -> Capabilities {
        self.0.admin().capabilities()
    }

    fn place(&self) -> Option<String> {
        Some("elsewhere".to_owned())
    }
}

fn limiter() -> Limiter {
    // As long as a lease may be, so that no budget is forgotten meanwhile.
    let lease = Lease::up_to(500).within(Duration::from_secs(60));
    let policy = Policy::new("api", Quota::per_second(5_000)).lease(lease);
    let limiter = Limiter::builder().policy(policy).backend(Shared::new());
    limiter.build().unwrap()
}

async fn ask(limiter: &Limiter, callers: std::ops::Range<usize>) {
    for caller in callers {
        let key = format!("caller-{caller}");
        let decided = limiter.check("api", &*key).await.unwrap();
        assert!(decided.is_allowed());
    }
}

#[tokio::test]
async fn leased_budgets_take_no_more_bytes_than_is_stated_and_further_callers_take_none() {
    if !tollgate_testkit::alone!() {
        return;
    }
    // given the parts of the process that are made once
    ask(&limiter(), 0..10).await;
    let region = Region::new(ALLOCATOR);
    let in_use = || {
        let change = region.change();
        change.bytes_allocated - change.bytes_deallocated
    };
    let limiter = limiter();
    // Some more than there is room for: the callers fall on parts of that room by chance.
    let enough = MOST + MOST / 4;

    ask(&limiter, 0..enough).await;

    let full = in_use();
    assert!(
        full > MOST * BYTES_EACH / 2,
        "{full} bytes: nothing is counted"
    );
    assert!(full <= MOST * BYTES_EACH, "{} bytes each", full / MOST);
    ask(&limiter, enough..2 * enough).await;
    assert_eq!(in_use() / MOST, full / MOST);
}
