//! Calls of several charges, and their modes.

use std::time::Duration;

use tollgate_core::{Call, FailureKind, MAX_CHARGES, Mode, Quota, Verdict};

use crate::{Budget, Subject, align, decide, every_algorithm};

const SECOND: Duration = Duration::from_secs(1);

/// A call without charges passes.
pub async fn a_call_without_charges_is_admitted(subject: &dyn Subject) {
    let decision = decide(subject, &[]).await;

    assert!(decision.is_admitted());
    assert!(decision.verdicts().is_empty());
}

/// An invalid call is an error and not a denial: no budget was exceeded.
pub async fn a_call_of_too_many_charges_is_an_error_and_not_a_denial(subject: &dyn Subject) {
    let budget = Budget::of("too-many", Quota::per_second(100));
    let charges = vec![budget.charge(1); MAX_CHARGES + 1];

    let error = subject
        .backend()
        .decide(Call::of(&charges))
        .await
        .unwrap_err();

    assert_eq!(error.kind(), FailureKind::InvalidCall);
    assert_eq!(budget.remaining(subject).await, 100);
}

/// Each charge names another key. First the last one is denied; then all pass.
pub async fn the_largest_call_is_all_or_nothing(subject: &dyn Subject) {
    let quota = Quota::per_minute(5);
    let budgets: Vec<Budget> = (0..32_u32)
        .map(|n| Budget::of("largest", quota).for_key(n))
        .collect();
    let charges: Vec<_> = budgets.iter().map(|budget| budget.charge(2)).collect();
    budgets[31].take(subject, 4).await;

    let denied = decide(subject, &charges).await;

    assert!(!denied.is_admitted());
    for (index, verdict) in denied.verdicts().iter().enumerate() {
        assert_eq!(verdict.is_allowed(), index < 31);
        assert_eq!(verdict.taken(), 0);
        assert_eq!(verdict.remaining(), if index < 31 { 5 } else { 1 });
    }
    subject
        .backend()
        .admin()
        .reset(budgets[31].scope, &budgets[31].key)
        .await
        .unwrap();
    assert!(decide(subject, &charges).await.is_admitted());
    for budget in &budgets {
        assert_eq!(budget.remaining(subject).await, 3);
    }
}

/// The charges stand in either order, by every algorithm.
pub async fn pitfall_the_first_of_several_limits_was_charged_although_the_second_denied(
    subject: &dyn Subject,
) {
    for quota in every_algorithm(10, SECOND) {
        let wide = Budget::of("several-wide", quota);
        let narrow = Budget::of("several-narrow", Quota::per_hour(1));
        align(subject, SECOND * 3600).await;
        narrow.take(subject, 1).await;

        for _ in 0..3 {
            assert!(
                !decide(subject, &[wide.charge(1), narrow.charge(1)])
                    .await
                    .is_admitted()
            );
            assert!(
                !decide(subject, &[narrow.charge(1), wide.charge(1)])
                    .await
                    .is_admitted()
            );
        }

        assert_eq!(wide.remaining(subject).await, 10, "{quota}");
    }
}

/// Six and five do not fit ten, though each alone does.
pub async fn the_same_key_twice_is_one_charge_of_the_summed_cost(subject: &dyn Subject) {
    for quota in every_algorithm(10, SECOND) {
        let budget = Budget::of("twice", quota);
        align(subject, SECOND * 4).await;
        subject.advance(SECOND / 2).await;

        let denied = decide(subject, &[budget.charge(6), budget.charge(5)]).await;
        let admitted = decide(subject, &[budget.charge(6), budget.charge(4)]).await;

        assert!(!denied.is_admitted(), "{quota}");
        assert!(denied.verdicts().iter().all(Verdict::never_passes));
        assert!(admitted.is_admitted(), "{quota}");
        assert_eq!(
            admitted.verdicts().iter().map(Verdict::taken).sum::<u64>(),
            10
        );
        assert!(admitted.verdicts().iter().all(|v| v.remaining() == 0));
    }
}

/// The verdicts keep the caller's order, whatever order the backend needs for its own purposes.
pub async fn verdicts_stand_in_the_order_of_their_charges(subject: &dyn Subject) {
    let budgets: Vec<Budget> = [7, 3, 9, 1, 5]
        .into_iter()
        .map(|limit| Budget::of(&format!("order-{limit}"), Quota::per_second(limit)))
        .collect();
    let charges: Vec<_> = budgets.iter().map(|budget| budget.charge(1)).collect();

    let decision = decide(subject, &charges).await;

    let limits: Vec<_> = decision.verdicts().iter().map(Verdict::limit).collect();
    let left: Vec<_> = decision.verdicts().iter().map(Verdict::remaining).collect();
    assert_eq!(limits, [7, 3, 9, 1, 5]);
    assert_eq!(left, [6, 2, 8, 0, 4]);
}

/// A shadow is taken also when the call is denied: this is the purpose of a trial.
pub async fn a_shadow_charge_is_taken_on_its_own(subject: &dyn Subject) {
    let shadow = Budget::of("shadow-own", Quota::per_minute(10));
    let enforced = Budget::of("shadow-own-enforced", Quota::per_minute(1));
    let call = [shadow.charge_in(Mode::Shadow, 1), enforced.charge(1)];

    assert!(decide(subject, &call).await.is_admitted());
    assert!(!decide(subject, &call).await.is_admitted());

    assert_eq!(shadow.remaining(subject).await, 8);
}

/// A shadow over its limit tells the denial that it would have given, and takes nothing.
pub async fn a_shadow_charge_that_does_not_fit_denies_nobody(subject: &dyn Subject) {
    let shadow = Budget::of("shadow-full", Quota::per_minute(3));
    let enforced = Budget::of("shadow-full-enforced", Quota::per_minute(10));

    let decision = decide(
        subject,
        &[shadow.charge_in(Mode::Shadow, 4), enforced.charge(1)],
    )
    .await;
    let alone = decide(subject, &[shadow.charge_in(Mode::Shadow, 4)]).await;

    assert!(decision.is_admitted() && decision.verdicts()[0].never_passes());
    assert!(alone.is_admitted() && alone.verdicts()[0].never_passes());
    assert_eq!(shadow.remaining(subject).await, 3);
    assert_eq!(enforced.remaining(subject).await, 9);
}

/// A probe asks if a cost would pass, and has no other effect.
pub async fn a_probe_takes_nothing_and_denies_nobody(subject: &dyn Subject) {
    let probed = Budget::of("probe", Quota::per_minute(3));
    probed.take(subject, 2).await;

    let fits = decide(subject, &[probed.charge_in(Mode::Probe, 1)]).await;
    let does_not = decide(subject, &[probed.charge_in(Mode::Probe, 2)]).await;

    assert!(fits.is_admitted() && fits.verdicts()[0].is_allowed());
    assert!(does_not.is_admitted() && does_not.verdicts()[0].is_denied());
    assert!(does_not.verdicts()[0].retry_after().is_some());
    assert_eq!(probed.remaining(subject).await, 1);
}

/// The enforced charge comes first, then the shadow on what that left, then the probe.
pub async fn one_key_in_every_mode(subject: &dyn Subject) {
    let budget = Budget::of("every-mode", Quota::per_minute(10));

    let decision = decide(
        subject,
        &[
            budget.charge_in(Mode::Probe, 3),
            budget.charge_in(Mode::Shadow, 3),
            budget.charge(5),
        ],
    )
    .await;

    let [probe, shadow, enforced] = decision.verdicts() else {
        unreachable!("three charges have three verdicts");
    };
    assert!(probe.is_denied() && shadow.is_allowed() && enforced.is_allowed());
    assert_eq!((probe.taken(), shadow.taken(), enforced.taken()), (0, 3, 5));
    assert_eq!(budget.remaining(subject).await, 2);
}

/// The future owns its data; the charges may be gone by then.
pub async fn answers_can_be_awaited_later(subject: &dyn Subject) {
    let answer = {
        let budget = Budget::of("later", Quota::per_minute(2));
        subject.backend().decide(Call::of(&[budget.charge(1)]))
    };

    assert!(answer.await.unwrap().is_admitted());
}
