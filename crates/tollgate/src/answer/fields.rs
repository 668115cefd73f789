//! The RateLimit fields of draft-ietf-httpapi-ratelimit-headers-11.
//!
//! ```text
//! RateLimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400
//! RateLimit: "burst";r=50;t=30
//! ```

use std::ptr;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::prepared::Prepared;
use super::rendered::{Says, rendered};
use super::retry_after::whole_seconds;
use crate::Quota;
use crate::policy::Labels;
use crate::report::{PolicyVerdict, Report};

pub(super) const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(super) const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// A quota's member of the `RateLimit-Policy` field.
///
/// `q` is what a full budget holds and `w` is how long it takes to refill, so that the two agree with the `r` that a caller
/// sees counting down: 10/s with a burst of 50 is 50 in 5 seconds.
pub(crate) fn policy_member(name: &str, quota: &Quota) -> String {
    let refill_us =
        u128::from(quota.capacity()) * quota.period().as_micros() / u128::from(quota.limit());
    let refill = Duration::from_micros(u64::try_from(refill_us).unwrap_or(u64::MAX));
    format!(
        "\"{name}\";q={};w={}",
        quota.capacity(),
        whole_seconds(refill).max(1)
    )
}

/// Adds the fields for what took part: every quota's policy, and how the tightest one stands. Members of another limiter
/// further in are left standing, and ours follow them.
#[inline]
pub(crate) fn write_fields(headers: &mut HeaderMap, report: &Report) {
    if headers.is_empty()
        && let [sole] = report.verdicts()
        && sole.counts()
    {
        if let Some(value) = sole.labels().fields.copy_to(headers).next() {
            *value = state(sole);
        }
        return;
    }
    append_fields(headers, report);
}

#[inline(never)]
fn append_fields(headers: &mut HeaderMap, report: &Report) {
    let Some(tightest) = report.tightest() else {
        return;
    };
    // One growth rather than several.
    headers.reserve(2);
    headers.append(RATE_LIMIT, state(tightest));
    headers.append(RATE_LIMIT_POLICY, policies(report));
}

/// The fields of one quota, but for its state.
pub(crate) fn prepare_fields(member: &HeaderValue) -> Prepared {
    Prepared::new([
        (RATE_LIMIT, HeaderValue::from_static("")),
        (RATE_LIMIT_POLICY, member.clone()),
    ])
}

/// Whether somebody has written one of the fields already.
pub(super) fn has_fields(headers: &HeaderMap) -> bool {
    headers.contains_key(RATE_LIMIT) || headers.contains_key(RATE_LIMIT_POLICY)
}

fn policies(report: &Report) -> HeaderValue {
    let mut quotas = SmallVec::<[&Labels; 8]>::new();
    for one in report.enforced() {
        // Charged by the layer, and by the handler once more: it is still one policy.
        if !quotas.iter().any(|known| ptr::eq(*known, one.labels())) {
            quotas.push(one.labels());
        }
    }
    match &quotas[..] {
        // The usual case, rendered once when the policy was built.
        [only] => only.member.clone(),
        several => {
            let mut list = Vec::with_capacity(128);
            for quota in several {
                if !list.is_empty() {
                    list.extend_from_slice(b", ");
                }
                list.extend_from_slice(quota.member.as_bytes());
            }
            value(&list)
        }
    }
}

pub(super) fn state(tightest: &PolicyVerdict) -> HeaderValue {
    let verdict = tightest.verdict();
    // To a refused caller nothing is left, whatever a cheaper request could still get, and the time is that of
    // `Retry-After`, so that the two never disagree.
    let (number, after) = match (tightest.refuses(), verdict.retry_after()) {
        (true, Some(retry_after)) => (0, retry_after),
        (true, None) => (0, verdict.reset_after()),
        (false, _) => (verdict.remaining(), verdict.reset_after()),
    };
    let says = Says {
        what: &tightest.labels().state,
        number,
        seconds: whole_seconds(after),
    };
    rendered(says, render)
}

fn render(says: Says) -> HeaderValue {
    let mut member = Line::default();
    member.put(says.what.as_bytes());
    member.put(itoa::Buffer::new().format(says.number).as_bytes());
    member.put(b";t=");
    member.put(itoa::Buffer::new().format(says.seconds).as_bytes());
    value(&member.bytes[..member.len])
}

/// A short text on the stack. What does not fit is left out, and nothing is: a name of 64, two numbers of 20 and what stands
/// between them.
struct Line {
    bytes: [u8; 128],
    len: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            bytes: [0; 128],
            len: 0,
        }
    }
}

impl Line {
    #[inline]
    fn put(&mut self, text: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.len..self.len + text.len()) {
            room.copy_from_slice(text);
            self.len += text.len();
        }
    }
}

/// Names are checked to be a part of ASCII that needs no escape, and the rest is written here.
fn value(bytes: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(bytes).unwrap_or_else(|_| HeaderValue::from_static(""))
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
