//! The RateLimit fields of draft-ietf-httpapi-ratelimit-headers-11.
//!
//! ```text
//! RateLimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400
//! RateLimit: "burst";r=50;t=30
//! ```

use std::ptr;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};

use super::line::{Line, list};
use super::standing::{Standing, told_wait};
use super::{RATE_LIMIT, RATE_LIMIT_POLICY, quotas};
use crate::Quota;
use crate::answer::prepared::Prepared;
use crate::answer::prepared_quota::PreparedQuota;
use crate::answer::rendered::{About, Says, render_headers, rendered};
use crate::answer::retry_after::whole_seconds;
use crate::report::{PolicyVerdict, Report};

/// A quota's member of the `RateLimit-Policy` field.
///
/// `q` is what a full budget holds and `w` is how long it takes to refill, so that the two agree with the `r` that a caller
/// sees counting down: 10/s with a burst of 50 is 50 in 5 seconds.
pub(in super::super) fn policy_member(name: &str, quota: &Quota) -> String {
    let seconds = refill_seconds(quota);
    format!("\"{name}\";q={};w={seconds}", quota.capacity())
}

/// How long it takes an empty budget to refill: in headers, never nothing.
pub(super) fn refill_seconds(quota: &Quota) -> u64 {
    let refill_us =
        u128::from(quota.capacity()) * quota.period().as_micros() / u128::from(quota.limit());
    let refill = Duration::from_micros(u64::try_from(refill_us).unwrap_or(u64::MAX));
    whole_seconds(refill).max(1)
}

/// Adds the fields for what took part: every quota's policy, and how the tightest one stands. Members of another limiter
/// further in are left standing, and ours follow them.
#[inline]
pub(crate) fn write_usual_fields(headers: &mut HeaderMap, report: &Report) {
    if headers.is_empty()
        && let [sole] = report.verdicts()
        && sole.counts()
    {
        write_sole(headers, sole);
        return;
    }
    append_usual(headers, report);
}

/// Both fields, where there is nothing else and no other quota took part.
#[inline]
fn write_sole(headers: &mut HeaderMap, sole: &PolicyVerdict) {
    let quota = PreparedQuota::of(sole.labels());
    let says = says(About::of(&quota.fields), sole, None);
    render_headers(headers, says, |headers| {
        quota.fields.copy_to(headers, [render(quota, says)]);
    });
}

#[inline(never)]
fn append_usual(headers: &mut HeaderMap, report: &Report) {
    let tightest = match report.verdicts() {
        [sole] if sole.counts() => Some(sole),
        _ => report.tightest(),
    };
    if let Some(tightest) = tightest {
        append(headers, report, tightest, told_wait(headers, tightest));
    }
}

/// Adds how the tightest quota stands, and every quota's policy.
#[inline]
pub(super) fn append(
    headers: &mut HeaderMap,
    report: &Report,
    tightest: &PolicyVerdict,
    told: Option<u64>,
) {
    // One growth rather than several.
    headers.reserve(2);
    headers.append(RATE_LIMIT, state(tightest, told));
    headers.append(RATE_LIMIT_POLICY, policies(report));
}

/// Adds how every quota stands, and its policy.
pub(super) fn append_all(headers: &mut HeaderMap, report: &Report, told: Option<u64>) {
    let tightest = report.tightest();
    let states = quotas(report).into_iter().filter_map(|quota| {
        // Of several charges the last one knows best how the quota stands.
        let verdicts = report.enforced();
        let one = verdicts.filter(|one| ptr::eq(one.labels(), quota)).last()?;
        // The wait that is told is that of the longest refusal.
        let is_tightest = tightest.is_some_and(|tightest| ptr::eq(tightest, one));
        Some(state(one, told.filter(|_| is_tightest)))
    });
    headers.append(RATE_LIMIT, list(states));
    headers.append(RATE_LIMIT_POLICY, policies(report));
}

/// The fields of one quota, but for its state.
pub(in super::super) fn prepare_fields(member: &HeaderValue) -> Prepared {
    Prepared::new([
        (RATE_LIMIT, HeaderValue::from_static("")),
        (RATE_LIMIT_POLICY, member.clone()),
    ])
}

/// Every quota's policy.
#[inline]
fn policies(report: &Report) -> HeaderValue {
    match report.verdicts() {
        // The usual case.
        [sole] if sole.counts() => PreparedQuota::of(sole.labels()).member.clone(),
        _ => {
            let quotas = quotas(report).into_iter().map(PreparedQuota::of);
            list(quotas.map(|quota| quota.member.clone()))
        }
    }
}

/// How a quota stands.
#[inline]
pub(in super::super) fn state(one: &PolicyVerdict, told: Option<u64>) -> HeaderValue {
    let quota = PreparedQuota::of(one.labels());
    let says = says(About::of(quota), one, told);
    rendered(says, || render(quota, says))
}

/// What is said of a quota.
#[inline]
fn says(about: About, one: &PolicyVerdict, told: Option<u64>) -> Says {
    let standing = Standing::of(one, told);
    Says {
        about,
        number: standing.remaining,
        seconds: if standing.never {
            NEVER
        } else {
            standing.seconds
        },
    }
}

/// No time at all, as there is no `Retry-After`: the time until the budget is full would be read as one to come back at.
const NEVER: u64 = u64::MAX;

fn render(quota: &PreparedQuota, says: Says) -> HeaderValue {
    let mut member = Line::new();
    member.text(&quota.state);
    member.integer(says.number);
    if says.seconds != NEVER {
        member.text(";t=");
        member.integer(says.seconds);
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
