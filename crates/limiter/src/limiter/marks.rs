//! The decision on the span of the request: fields that the application's own span declares, and no span of ours.

use tollgate_core::{Decision, Mode, Outcome, Verdict};
use tracing::Span;

use super::event::{Cause, Origin};
use super::plan::Entries;
use crate::policy::Limit;

/// Writes the decision that says most about the request into the present span, if that declares the fields.
#[cold]
pub(super) fn decided(entries: Entries<'_>, decision: &Decision, origin: Origin) {
    if matches!(origin.cause, Cause::Left | Cause::Settled | Cause::Released) {
        return;
    }
    let Some(span) = marked() else {
        return;
    };
    let asked = entries.quotas().zip(decision.verdicts());
    let counting = asked.filter(|((limit, _, mode), verdict)| {
        let is_asked = verdict.outcome() != Outcome::Unknown;
        let is_silent_ban = limit.quota.is_ban() && !verdict.is_denied();
        *mode == Mode::Enforce && is_asked && !is_silent_ban
    });
    let tightest = counting.reduce(|best, one| {
        if one.1.is_tighter_than(best.1) {
            one
        } else {
            best
        }
    });
    let Some(((limit, ..), verdict)) = tightest else {
        return;
    };
    span.record("rate_limit.policy", limit.label.policy());
    span.record("rate_limit.result", result_of(limit, verdict, origin));
    span.record("rate_limit.remaining", verdict.remaining());
    if let Some(wait) = verdict.retry_after() {
        // Rounded up, as callers are told.
        let ms = u64::try_from(wait.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX);
        span.record("rate_limit.retry_after_ms", ms);
    }
}

fn result_of(limit: &Limit, verdict: &Verdict, origin: Origin) -> &'static str {
    if verdict.is_denied() {
        "denied"
    } else if verdict.wait().is_zero() && !origin.has_waited_for(&limit.quota) {
        "allowed"
    } else {
        "waited"
    }
}

/// Writes the result of a policy that decides without its quotas.
#[cold]
pub(super) fn untouched(policy: &str, is_enforced: bool, cause: Cause) {
    let result = match cause {
        Cause::PassedUndecided => "passed_undecided",
        Cause::RefusedUndecided => "refused_undecided",
        Cause::Blocked => "blocked",
        Cause::Unidentified => "unidentified",
        Cause::TierUnknown => "tier_unknown",
        Cause::Shed => "shed",
        // Another policy may have more to say.
        _ => return,
    };
    if let (true, Some(span)) = (is_enforced, marked()) {
        span.record("rate_limit.policy", policy);
        span.record("rate_limit.result", result);
    }
}

/// The present span, if it declares our fields.
fn marked() -> Option<Span> {
    let span = Span::current();
    span.has_field("rate_limit.result").then_some(span)
}
