//! The RateLimit fields of draft-ietf-httpapi-ratelimit-headers-11.
//!
//! ```text
//! RateLimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400
//! RateLimit: "burst";r=50;t=30
//! ```

use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};

use super::line::{Line, list, value};
use super::standing::Standing;
use super::{RATE_LIMIT, RATE_LIMIT_POLICY, quotas};
use crate::Quota;
use crate::answer::retry_after::whole_seconds;
use crate::answer::texts::texts;
use crate::policy::Label;
use crate::report::{PolicyVerdict, Report};

/// A quota's member of the `RateLimit-Policy` field.
///
/// `q` is what a full budget holds and `w` is how long it takes to refill, so that the two agree with the `r` that a caller
/// sees counting down: 10/s with a burst of 50 is 50 in 5 seconds.
pub(in crate::answer) fn policy_member(name: &str, quota: &Quota) -> HeaderValue {
    let seconds = refill_seconds(quota);
    value(format!("\"{name}\";q={};w={seconds}", quota.capacity()).as_bytes())
}

/// How long it takes an empty budget to refill: in headers, never nothing.
pub(super) fn refill_seconds(quota: &Quota) -> u64 {
    let refill_us =
        u128::from(quota.capacity()) * quota.period().as_micros() / u128::from(quota.limit());
    let refill = Duration::from_micros(u64::try_from(refill_us).unwrap_or(u64::MAX));
    whole_seconds(refill).max(1)
}

/// Adds how the tightest quota stands, and every quota's policy.
pub(super) fn append(
    headers: &mut HeaderMap,
    report: Report<'_>,
    tightest: &PolicyVerdict,
    told: Option<u64>,
) {
    // One growth rather than several.
    headers.reserve(2);
    headers.append(RATE_LIMIT, state(tightest, told));
    headers.append(RATE_LIMIT_POLICY, policies(report));
}

/// Adds how every quota stands, and its policy.
pub(super) fn append_all(headers: &mut HeaderMap, report: Report<'_>, told: Option<u64>) {
    let tightest = report.tightest();
    let states = quotas(report).into_iter().filter_map(|quota| {
        // Of several charges the last one knows best how the quota stands.
        let verdicts = report.enforced();
        let one = verdicts
            .filter(|one| Arc::ptr_eq(one.label(), quota))
            .last()?;
        // The wait that is told is that of the longest refusal.
        let is_tightest = tightest.is_some_and(|tightest| ptr::eq(tightest, one));
        Some(state(one, told.filter(|_| is_tightest)))
    });
    headers.append(RATE_LIMIT, list(states));
    headers.append(RATE_LIMIT_POLICY, policies(report));
}

/// Every quota's policy.
fn policies(report: Report<'_>) -> HeaderValue {
    let member = |label: &Label| texts(label).member.clone();
    match report.sole() {
        Some(sole) => member(sole.label()),
        None => list(quotas(report).iter().map(|label| member(label))),
    }
}

/// How a quota stands. Time is left out where it does not help to come back, as there is no `Retry-After`: the time until the
/// budget is full would be read as one to come back at.
pub(in crate::answer) fn state(one: &PolicyVerdict, told: Option<u64>) -> HeaderValue {
    let standing = Standing::of(one, told);
    let mut member = Line::new();
    member.text("\"");
    member.text(one.quota());
    member.text("\";r=");
    member.integer(standing.remaining);
    if !standing.never {
        member.text(";t=");
        member.integer(standing.seconds);
    }
    member.value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Algorithm;

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
        ];
        for (quota, expected) in cases {
            assert_eq!(policy_member("x", &quota), expected);
        }
    }
}
