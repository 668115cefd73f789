//! The memory of quotas that a database states.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::alloc::System;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use crate::ALLOCATOR;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use stats_alloc::Region;
use tollgate::key::Header;
use tollgate::{Key, Limiter, MemoryBackend, Policy, Quota, QuotaLookup, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

/// The number of identities that are remembered, and the bytes that each may take, as `QuotaLookup` states them.
const REMEMBERED: u64 = 10_000;
const BYTES_EACH: usize = 2_300;

/// The bytes that each budget of so short an identity may take in the memory backend, as that states them.
const BYTES_OF_A_BUDGET: usize = 64;

/// A policy under which each identity, a number, has that many an hour.
fn policy(remember_for: Duration) -> Policy {
    let quota = async |identity: Key| {
        let limit = identity.text().unwrap_or_default().parse::<u64>()?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Some(Quota::per_hour(limit)))
    };
    let lookup = QuotaLookup::new(remember_for, quota);
    let policy = Policy::new("api", Quota::per_hour(1));
    policy.key(Header::new("x-customer")).quota_by_async(lookup)
}

/// A limiter that remembers nothing but quotas: a peek leaves no state.
fn limiter(remember_for: Duration) -> Limiter {
    Limiter::from(policy(remember_for).cost(0))
}

/// A limiter that charges each request for all of its quota, so that no budget is soon full again and forgotten, and the backend
/// that keeps as many budgets as quotas are remembered.
fn charging() -> (Limiter, Arc<MemoryBackend>) {
    let budgets = usize::try_from(REMEMBERED).unwrap();
    let backend = Arc::new(MemoryBackend::builder().max_keys(budgets).build());
    let policy = policy(Duration::from_secs(600)).cost_by(|request| {
        let identity = request.headers()["x-customer"].to_str();
        identity.unwrap_or_default().parse().unwrap_or_default()
    });
    let limiter = Limiter::builder().policy(policy);
    let limiter = limiter.backend(Arc::clone(&backend)).build().unwrap();
    (limiter, backend)
}

/// Sends a request of each identity, whose answer states its quota.
async fn ask(limiter: &Limiter, identities: impl Iterator<Item = u64>) {
    let answer = async |_| Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()));
    let service = RateLimitLayer::new(limiter).layer(service_fn(answer));
    for identity in identities {
        let request = Request::get("/").header("x-customer", identity.to_string());
        let request = request.body(Full::<Bytes>::default()).unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        let stated = response.headers()["ratelimit-policy"].to_str().unwrap();
        assert_eq!(stated, format!("\"api\";q={identity};w=3600"));
    }
}

/// The bytes that are in use since the region began.
fn in_use(region: &Region<'_, System>) -> usize {
    let change = region.change();
    change
        .bytes_allocated
        .saturating_sub(change.bytes_deallocated)
}

#[tokio::test]
#[ignore = "slow: a hundred thousand requests"]
async fn ever_other_identities_and_quotas_take_no_more_memory_than_the_cache_and_give_it_back() {
    if !tollgate_testkit::alone!() {
        return;
    }
    // given the parts of the process that are made once
    let warm = limiter(Duration::from_secs(600));
    ask(&warm, 1..100).await;
    drop(warm);
    tokio::task::yield_now().await;
    let region = Region::new(ALLOCATOR);

    // when ten thousand identities have ten thousand different quotas
    let known = limiter(Duration::from_secs(600));
    ask(&known, 1..=REMEMBERED).await;
    let full = in_use(&region);
    let bound = usize::try_from(REMEMBERED).unwrap() * BYTES_EACH;
    assert!(full > bound / 4, "{full} bytes: the test counts nothing");
    assert!(full <= bound, "{} bytes for each", full / 10_000);

    // then thirty thousand more take none
    ask(&known, REMEMBERED + 1..=4 * REMEMBERED).await;
    let later = in_use(&region);
    assert!(later <= full + full / 20, "{full} and later {later}");

    // and neither do ever other quotas of the same identities,
    let changing = limiter(Duration::ZERO);
    ask(&changing, 1..=REMEMBERED).await;
    let first = in_use(&region);
    ask(&changing, 1..=REMEMBERED).await;
    let again = in_use(&region);
    assert!(again <= first + first / 50, "{first} and later {again}");

    // and all of it comes back.
    drop((known, changing));
    tokio::task::yield_now().await;
    let rest = in_use(&region);
    assert!(rest < 50_000, "{rest} bytes stay");

    // when each of ten thousand identities is charged
    let (charging, backend) = charging();
    ask(&charging, 1..=REMEMBERED).await;
    let full = in_use(&region);
    let budgets = backend.stats().max_keys;
    let bound = bound + budgets * BYTES_OF_A_BUDGET;
    assert!(backend.stats().keys > budgets / 2, "{:?}", backend.stats());
    assert!(full <= bound, "{} bytes for each", full / 10_000);

    // then the budgets of thirty thousand more take none either
    ask(&charging, REMEMBERED + 1..=4 * REMEMBERED).await;
    let later = in_use(&region);
    assert!(later <= full + full / 20, "{full} and later {later}");
    assert!(backend.stats().keys <= budgets, "{:?}", backend.stats());
    assert!(backend.stats().evicted > 0, "{:?}", backend.stats());

    // and they come back as well.
    drop((charging, backend));
    tokio::task::yield_now().await;
    let rest = in_use(&region);
    assert!(rest < 50_000, "{rest} bytes stay");
}
