//! Leases that make no sense are refused when the limiter is built.

use std::time::Duration;

use tollgate::key::Header;
use tollgate::{Ban, Concurrent, Lease, Limiter, Once, Policy, Quota, Tiers};

use crate::leases::far::Far;

fn refusal(policy: Policy) -> String {
    let built = Limiter::builder()
        .policy(policy)
        .backend(Far::new())
        .build();
    built.unwrap_err().to_string()
}

#[test]
fn quotas_that_cannot_be_leased_are_refused_by_name() {
    let lease = Lease::up_to(100);
    let second = Quota::per_second(100);
    let log: Quota = "100/s sliding-log".parse().unwrap();
    let tiers = Tiers::by(|_, _| None::<String>).tier("gold", log);
    for (policy, reason) in [
        (
            Policy::new("api", log),
            "the quota 100/s sliding-log cannot be leased: twice the limit could pass in a period, since a block is counted when it is \
             leased and not when it is spent; use the default algorithm, a fixed window or interval refill",
        ),
        (
            Policy::new("api", second).tiers(tiers),
            "the quota 100/s sliding-log cannot be leased: twice the limit could pass in a period, since a block is counted when it is \
             leased and not when it is spent; use the default algorithm, a fixed window or interval refill",
        ),
        (
            Policy::new("api", (second, Concurrent::at_most(5))),
            "the quota 5 at once cannot be leased: a place is held by one process at a time",
        ),
        (
            Policy::new("api", second).ban(Ban::after(5, Duration::from_secs(60))),
            "each request asks the backend whether the caller is banned",
        ),
        (
            Policy::new("api", second).once_by(Header::new("idempotency-key")),
            "each request asks the backend whether its id is known",
        ),
        (
            Policy::new("api", second).once(Once::default()),
            "each request asks the backend whether its id is known",
        ),
        (
            Policy::new("api", second).cost(60),
            "up to 100 within 100ms: a request costs 60, so that a block would serve one; at least 120",
        ),
    ] {
        let said = refusal(policy.lease(lease));
        assert_eq!(said, format!("policy \"api\": lease: {reason}"));
    }
    let none = refusal(Policy::new("api", second).lease(Lease::up_to(1)));
    assert_eq!(
        none,
        "policy \"api\": lease: up to 1: a lease of one unit saves no call; at least 2"
    );
}
