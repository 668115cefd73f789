//! Limits on how many at once. A backend that does not say that it [can](Capability::Held) passes these tests unasked.

use std::time::Duration;

use tollgate_core::{Capability, Charge, Concurrent, Decision, Mode, Quota, Receipt};

use crate::{Budget, Subject, decide};

const SECOND: Duration = Duration::from_secs(1);

fn at_once(policy: &str, limit: u64) -> Budget {
    Budget::of(policy, Concurrent::at_most(limit).into())
}

fn can_hold(subject: &dyn Subject) -> bool {
    subject
        .backend()
        .admin()
        .capabilities()
        .has(Capability::Held)
}

fn receipt(charge: &Charge<'_>, decision: &Decision) -> Receipt {
    decision.receipts(&[*charge]).next().unwrap()
}

async fn release(subject: &dyn Subject, receipt: Receipt, n: u64) {
    subject.backend().refund(receipt, n);
    subject.settle().await;
}

/// The limit may be held, by requests of any weight, and a refused one is told no time.
pub async fn a_limit_at_once_admits_what_it_holds_and_not_one_more(subject: &dyn Subject) {
    if !can_hold(subject) {
        return;
    }
    let uploads = at_once("at-once", 5);
    for (cost, remaining) in [(1, 4), (3, 1), (1, 0)] {
        let decision = uploads.take(subject, cost).await;
        assert!(decision.is_admitted());
        assert_eq!(decision.verdicts()[0].remaining(), remaining);
    }

    let denied = uploads.take(subject, 1).await;

    assert!(!denied.is_admitted());
    let verdict = denied.verdicts()[0];
    assert_eq!(
        (verdict.limit(), verdict.remaining(), verdict.taken()),
        (5, 0, 0)
    );
    assert_eq!(
        (denied.retry_after(), verdict.never_passes()),
        (None, false)
    );
    assert!(uploads.take(subject, 0).await.is_admitted(), "a peek");
    assert!(uploads.take(subject, 6).await.verdicts()[0].never_passes());
    assert_eq!(uploads.for_key("bob").remaining(subject).await, 5);
}

/// No window and no refill gives it back.
pub async fn what_is_held_stays_held_as_time_passes(subject: &dyn Subject) {
    if !can_hold(subject) {
        return;
    }
    let uploads = at_once("stays", 2);
    uploads.take(subject, 2).await;
    for _ in 0..5 {
        subject.advance(SECOND * 2).await;
        assert!(!uploads.take(subject, 1).await.is_admitted());
    }
}

/// A release gives back the units of its receipt, to the next request.
pub async fn a_release_gives_back_what_was_taken_and_no_more(subject: &dyn Subject) {
    if !can_hold(subject) {
        return;
    }
    let uploads = at_once("release", 5);
    let first = receipt(&uploads.charge(2), &uploads.take(subject, 2).await);
    let second = receipt(&uploads.charge(3), &uploads.take(subject, 3).await);
    subject.advance(SECOND).await;

    release(subject, first, 1_000).await;
    assert_eq!(uploads.remaining(subject).await, 2);
    assert!(uploads.take(subject, 2).await.is_admitted());
    release(subject, second, 3).await;
    assert_eq!(uploads.remaining(subject).await, 3);
}

/// A denied request holds nothing.
pub async fn a_denied_request_holds_nothing(subject: &dyn Subject) {
    if !can_hold(subject) {
        return;
    }
    let uploads = at_once("denied", 3);
    let held = receipt(&uploads.charge(2), &uploads.take(subject, 2).await);
    for _ in 0..10 {
        assert!(!uploads.take(subject, 2).await.is_admitted());
    }

    release(subject, held, 2).await;

    assert_eq!(uploads.remaining(subject).await, 3);
}

/// A quota and a limit on how many at once, in one call: both are taken, or none.
pub async fn what_is_held_and_a_quota_are_taken_together_or_not_at_all(subject: &dyn Subject) {
    if !can_hold(subject) {
        return;
    }
    let (uploads, rate) = (
        at_once("both", 2),
        Budget::of("both-rate", Quota::per_hour(3)),
    );
    for (held, rated, passes) in [(1, 1, true), (2, 1, false), (1, 3, false), (1, 2, true)] {
        let decision = decide(subject, &[rate.charge(rated), uploads.charge(held)]).await;
        assert_eq!(decision.is_admitted(), passes, "{held} {rated}");
    }
    assert_eq!(uploads.remaining(subject).await, 0);
    assert_eq!(rate.remaining(subject).await, 0);
}

/// A charge in shadow holds on its own, if it fits, and is released by its receipt. A probe holds nothing.
pub async fn a_shadow_holds_and_a_probe_does_not(subject: &dyn Subject) {
    if !can_hold(subject) {
        return;
    }
    let uploads = at_once("shadow", 2);
    let (shadow, probe) = (
        uploads.charge_in(Mode::Shadow, 2),
        uploads.charge_in(Mode::Probe, 2),
    );
    decide(subject, &[probe]).await;
    let decision = decide(subject, &[shadow]).await;
    assert_eq!(uploads.remaining(subject).await, 0);
    let second = decide(subject, &[shadow]).await;
    assert!(second.is_admitted() && second.verdicts()[0].taken() == 0);

    release(subject, receipt(&shadow, &decision), 2).await;

    assert_eq!(uploads.remaining(subject).await, 2);
}

/// It has no receipt, so that it would be held for ever.
pub async fn a_debit_of_what_is_held_does_nothing(subject: &dyn Subject) {
    if !can_hold(subject) {
        return;
    }
    let uploads = at_once("debit", 5);
    let held = receipt(&uploads.charge(2), &uploads.take(subject, 2).await);
    subject.backend().debit(&held, 3);
    subject.settle().await;

    assert_eq!(uploads.remaining(subject).await, 3);
    release(subject, held, 2).await;
    assert_eq!(uploads.remaining(subject).await, 5);
}

/// After a reset, as many as the limit may pass at once.
pub async fn after_a_reset_nothing_is_held(subject: &dyn Subject) {
    if !can_hold(subject) {
        return;
    }
    let uploads = at_once("reset", 3);
    uploads.take(subject, 3).await;

    subject
        .backend()
        .admin()
        .reset(uploads.scope, &uploads.key)
        .await
        .unwrap();

    assert!(uploads.take(subject, 3).await.is_admitted());
    assert!(!uploads.take(subject, 1).await.is_admitted());
}

/// Another limit for the same key counts what is held already.
pub async fn another_limit_at_once_counts_what_is_held(subject: &dyn Subject) {
    if !can_hold(subject) {
        return;
    }
    let (free, paid) = (at_once("tiers", 2), at_once("tiers", 5));
    free.take(subject, 2).await;
    assert_eq!(paid.remaining(subject).await, 3);
    assert!(paid.take(subject, 3).await.is_admitted());
    let denied = free.take(subject, 1).await;
    assert!(!denied.is_admitted());
    assert_eq!(denied.verdicts()[0].remaining(), 0);
}
