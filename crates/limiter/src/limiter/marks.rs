//! The decision on the span of the request: fields that the application's own span declares, and no span of ours.

use tollgate_core::{Decision, Mode, Outcome, Verdict};
use tracing::Span;

use super::event::{Cause, Origin};
use super::plan::{Entries, Payer};
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
    let policies = entries.decided(decision);
    let asked = policies.flat_map(|(payer, own, is_replay)| {
        let policy = (payer, own, origin.of(is_replay));
        let decided = payer.limits().iter().zip(own);
        decided.map(move |(limit, verdict)| (limit, verdict, policy))
    });
    let counting = asked.filter(|(limit, verdict, (payer, ..))| {
        let is_asked = verdict.outcome() != Outcome::Unknown;
        let is_silent_ban = limit.quota.is_ban() && !verdict.is_denied();
        payer.mode() == Mode::Enforce && is_asked && !is_silent_ban
    });
    let tightest = counting.reduce(|best, one| {
        if one.1.is_tighter_than(best.1) {
            one
        } else {
            best
        }
    });
    let Some((limit, verdict, (payer, own, origin))) = tightest else {
        return;
    };
    span.record("rate_limit.policy", limit.label.policy());
    span.record("rate_limit.result", result_of(payer, own, origin));
    span.record("rate_limit.remaining", verdict.remaining());
    if let Some(wait) = verdict.retry_after() {
        // Rounded up, as callers are told.
        let ms = u64::try_from(wait.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX);
        span.record("rate_limit.retry_after_ms", ms);
    }
}

/// The result of a policy, in the words of the metrics.
fn result_of(payer: Payer<'_>, own: &[Verdict], origin: Origin) -> &'static str {
    let decided = || payer.limits().iter().zip(own);
    let is_denied = own.iter().any(Verdict::is_denied);
    let is_banned = || decided().any(|(limit, one)| limit.quota.is_ban() && one.is_denied());
    let waits = |(limit, one): (&Limit, &Verdict)| {
        !one.wait().is_zero() || origin.has_waited_for(&limit.quota)
    };
    match (origin.cause, is_denied) {
        (Cause::Local, true) => "denied_by_share",
        (Cause::Local, false) => "allowed_by_share",
        (Cause::Replayed, _) => "replayed",
        (_, true) if is_banned() => "banned",
        (_, true) => "denied",
        (_, false) if decided().any(waits) => "waited",
        (_, false) => "allowed",
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
