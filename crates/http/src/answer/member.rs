//! The members of the `RateLimit-Policy` field, which describe quotas.

use std::time::Duration;

use http::{HeaderName, HeaderValue};
use tollgate_core::{Quota, Unit};

use super::retry_after::whole_seconds;

pub(super) const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(super) const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// A quota's member of the `RateLimit-Policy` field.
///
/// `q` is the capacity of a full budget and `w` the time to refill it, so that both agree with the `r` that counts down: 10/s
/// with a burst of 50 is 50 in 5 seconds.
pub(super) fn policy_member(name: &str, quota: &Quota) -> HeaderValue {
    if quota.is_held() {
        return value(&format!("\"{name}\";q={};qu={HELD}", quota.capacity()));
    }
    let seconds = refill_seconds(quota);
    value(&format!("\"{name}\";q={};w={seconds}", quota.capacity()))
}

/// The unit of a limit on how many at once, which has no window.
const HELD: &str = "\"concurrent-requests\"";

/// The time to refill an empty budget, in whole seconds. In headers it is never zero.
#[must_use]
pub fn refill_seconds(quota: &Quota) -> u64 {
    let (capacity, limit) = (u128::from(quota.capacity()), u128::from(quota.limit()));
    let refill_us = match quota.unit() {
        // A part of a refill comes no sooner than a whole one.
        Unit::IntervalRefill { .. } => capacity.div_ceil(limit) * quota.period().as_micros(),
        Unit::Gcra
        | Unit::FixedWindow { .. }
        | Unit::SlidingWindow { .. }
        | Unit::RollingWindow { .. }
        | Unit::SlidingLog { .. }
        | Unit::Calendar(_)
        | Unit::Held
        | Unit::Ban
        | Unit::Once => capacity * quota.period().as_micros() / limit,
    };
    let refill = Duration::from_micros(u64::try_from(refill_us).unwrap_or(u64::MAX));
    whole_seconds(refill).max(1)
}

/// A quota's member of the `RateLimit-Policy` field, which has no name.
pub(super) fn plain_policy_member(quota: &Quota) -> HeaderValue {
    if quota.is_held() {
        return value(&format!("{};comment={HELD}", quota.capacity()));
    }
    let seconds = refill_seconds(quota);
    value(&format!("{};w={seconds}", quota.capacity()))
}

/// Names are checked to be a part of ASCII that needs no escape, and the rest is written here.
fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::{Algorithm, Concurrent};

    /// Ten at the start of each minute, up to this burst.
    fn refilled(burst: u64) -> Quota {
        let offset = Duration::ZERO;
        let quota = Quota::per_minute(10).using(Algorithm::IntervalRefill { offset });
        quota.burst(burst)
    }

    #[test]
    fn a_member_says_what_a_full_budget_holds_and_how_long_it_takes_to_refill() {
        let cases = [
            (Quota::per_minute(100), "\"x\";q=100;w=60"),
            (Quota::per_second(10).burst(50), "\"x\";q=50;w=5"),
            (Quota::per_second(10).burst(1), "\"x\";q=1;w=1"),
            (Quota::per_second(3).burst(10), "\"x\";q=10;w=4"),
            (Quota::new(5, Duration::from_millis(100)), "\"x\";q=5;w=1"),
            (
                Quota::per_day(1000).using(Algorithm::SlidingWindow),
                "\"x\";q=1000;w=86400",
            ),
            (refilled(30), "\"x\";q=30;w=180"),
            (refilled(25), "\"x\";q=25;w=180"),
            (refilled(5), "\"x\";q=5;w=60"),
            (
                Concurrent::at_most(5).into(),
                "\"x\";q=5;qu=\"concurrent-requests\"",
            ),
        ];
        for (quota, expected) in cases {
            assert_eq!(policy_member("x", &quota), expected);
        }
    }
}
