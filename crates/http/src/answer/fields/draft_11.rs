//! The RateLimit fields of draft-ietf-httpapi-ratelimit-headers-11.
//!
//! ```text
//! RateLimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400
//! RateLimit: "burst";r=50;t=30
//! ```

use std::ptr;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use tollgate_limiter::PolicyVerdict;
use tollgate_limiter::transport::Report;

use super::super::line::{Line, list};
use super::standing::Standing;
use super::{RATE_LIMIT, RATE_LIMIT_POLICY, quotas};
use crate::answer::texts::{Texts, texts};

/// Adds the state of the tightest quota, and every quota's policy.
pub(super) fn append(
    headers: &mut HeaderMap,
    report: Report<'_>,
    tightest: &PolicyVerdict,
    told: Option<u64>,
) {
    let texts = texts(tightest.label());
    headers.append(RATE_LIMIT, state(texts, tightest, told));
    let policies = match report.sole() {
        Some(_) => texts.member.clone(),
        None => policies(report),
    };
    headers.append(RATE_LIMIT_POLICY, policies);
}

/// Adds the state of every quota, and its policy.
pub(super) fn append_all(headers: &mut HeaderMap, report: Report<'_>, told: Option<u64>) {
    let tightest = report.tightest();
    let states = quotas(report).into_iter().filter_map(|quota| {
        // The last of several charges knows best how the quota stands.
        let verdicts = report.enforced();
        let one = verdicts
            .filter(|one| Arc::ptr_eq(one.label(), quota))
            .last()?;
        // The wait that is told is that of the longest refusal.
        let is_tightest = tightest.is_some_and(|tightest| ptr::eq(tightest, one));
        Some(state(texts(quota), one, told.filter(|_| is_tightest)))
    });
    headers.append(RATE_LIMIT, list(states));
    headers.append(RATE_LIMIT_POLICY, policies(report));
}

/// Every quota's policy.
fn policies(report: Report<'_>) -> HeaderValue {
    let quotas = quotas(report);
    list(quotas.iter().map(|label| texts(label).member.clone()))
}

/// The state of a quota. The time is left out if coming back does not help, as `Retry-After` is: a client would take the time
/// until the budget is full for a time to come back.
pub(in crate::answer) fn state(of: &Texts, one: &PolicyVerdict, told: Option<u64>) -> HeaderValue {
    let standing = Standing::of(one, told);
    let mut member = Line::new();
    member.text(&of.state);
    member.integer(standing.remaining);
    if !standing.is_timeless {
        member.text(";t=");
        member.integer(standing.seconds);
    }
    member.value()
}
