//! Credit, debit, reset.

use std::time::Duration;

use tollgate_core::{Algorithm, DEBT_CEILING, Decision, Quota, Receipt};

use crate::{Budget, Subject, align, every_algorithm};

const SECOND: Duration = Duration::from_secs(1);

fn receipt(budget: &Budget, decision: &Decision) -> Receipt {
    let charges = [budget.charge(decision.verdicts()[0].taken())];
    decision.receipts(&charges).next().unwrap()
}

async fn credit(subject: &dyn Subject, receipt: Receipt, n: u64) {
    subject.backend().refund(receipt, n);
    subject.settle().await;
}

async fn debit(subject: &dyn Subject, receipt: &Receipt, n: u64) {
    subject.backend().debit(receipt, n);
    subject.settle().await;
}

/// Afterwards the budget is as if the charge had not been.
pub async fn a_credit_gives_back_what_was_taken(subject: &dyn Subject) {
    for quota in every_algorithm(10, SECOND) {
        let budget = Budget::of("credit", quota);
        align(subject, SECOND * 4).await;
        let receipt = receipt(&budget, &budget.take(subject, 7).await);

        credit(subject, receipt, 7).await;

        assert_eq!(budget.remaining(subject).await, 10, "{quota}");
    }
}

/// Ten come at the start of each second, and thirty can be saved. A credit counts until the next ten come.
pub async fn refills_in_intervals_come_all_at_once_up_to_the_burst(subject: &dyn Subject) {
    let offset = SECOND / 4;
    let quota = Quota::per_second(10).using(Algorithm::IntervalRefill { offset });
    let budget = Budget::of("refills", quota.burst(30));
    let micro = Duration::from_micros(1);
    align(subject, SECOND).await;

    // given half a second before a refill, a budget that is spent but for a credit
    subject.advance(SECOND * 3 / 4).await;
    let early = receipt(&budget, &budget.take(subject, 20).await);
    let late = receipt(&budget, &budget.take(subject, 10).await);
    credit(subject, late, 4).await;

    // then nothing comes until the refill, and all of it then
    let verdict = budget.take(subject, 5).await.verdicts()[0];
    assert_eq!((verdict.limit(), verdict.remaining()), (30, 4));
    assert_eq!(verdict.retry_after(), Some(SECOND / 2));
    assert_eq!(verdict.reset_after(), SECOND * 5 / 2);
    let verdict = budget.take(subject, 15).await.verdicts()[0];
    assert_eq!(verdict.retry_after(), Some(SECOND * 3 / 2));
    subject.advance(SECOND / 2 - micro).await;
    assert_eq!(budget.remaining(subject).await, 4);
    subject.advance(micro).await;
    assert_eq!(budget.remaining(subject).await, 14);

    // and a credit of what was charged before gives back nothing, while a debit takes more than there is
    credit(subject, early, 20).await;
    assert_eq!(budget.remaining(subject).await, 14);
    let now = receipt(&budget, &budget.take(subject, 14).await);
    debit(subject, &now, 5).await;
    let verdict = budget.take(subject, 1).await.verdicts()[0];
    assert_eq!(
        (verdict.remaining(), verdict.retry_after()),
        (0, Some(SECOND))
    );
    for left in [5, 15, 25, 30, 30] {
        subject.advance(SECOND).await;
        assert_eq!(budget.remaining(subject).await, left);
    }
}

/// A credit gives back no more than its charge, and nothing of another.
pub async fn a_credit_gives_back_no_more_than_was_taken(subject: &dyn Subject) {
    for quota in every_algorithm(10, SECOND) {
        let budget = Budget::of("credit-too-much", quota);
        align(subject, SECOND * 4).await;
        let first = receipt(&budget, &budget.take(subject, 2).await);
        subject.advance(Duration::from_micros(1)).await;
        budget.take(subject, 6).await;

        credit(subject, first, 1000).await;

        assert_eq!(budget.remaining(subject).await, 4, "{quota}");
    }
}

/// The rest of the charge stays.
pub async fn a_credit_in_part_gives_back_that_part(subject: &dyn Subject) {
    for quota in every_algorithm(10, SECOND) {
        let budget = Budget::of("credit-part", quota);
        align(subject, SECOND * 4).await;
        let receipt = receipt(&budget, &budget.take(subject, 8).await);

        credit(subject, receipt, 5).await;

        assert_eq!(budget.remaining(subject).await, 7, "{quota}");
    }
}

/// A charge in a past window gives the present window nothing.
pub async fn pitfall_a_refund_after_the_window_rolled(subject: &dyn Subject) {
    for quota in every_algorithm(10, SECOND).split_off(1) {
        let budget = Budget::of("refund-rolled", quota);
        align(subject, SECOND * 4).await;
        let receipt = receipt(&budget, &budget.take(subject, 10).await);
        subject.advance(SECOND * 2).await;
        assert!(budget.take(subject, 10).await.is_admitted(), "{quota}");

        credit(subject, receipt, 10).await;

        assert_eq!(budget.remaining(subject).await, 0, "{quota}");
    }
}

/// Burst 5 at 1/s: five at 0 s, five at 5 s. The first five have drained; their credit must not let ten pass at once.
pub async fn pitfall_a_refund_after_the_tokens_drained(subject: &dyn Subject) {
    let budget = Budget::of("refund-drained", Quota::per_second(1).burst(5));
    let receipt = receipt(&budget, &budget.take(subject, 5).await);
    subject.advance(SECOND * 5).await;
    assert!(budget.take(subject, 5).await.is_admitted());

    credit(subject, receipt, 5).await;

    assert_eq!(budget.remaining(subject).await, 0);
}

/// Nothing remains, and the wait includes the debt.
pub async fn a_debit_goes_past_the_capacity(subject: &dyn Subject) {
    let budget = Budget::of("debt", Quota::per_second(10));
    let receipt = receipt(&budget, &budget.take(subject, 10).await);

    debit(subject, &receipt, 20).await;

    let verdict = budget.take(subject, 1).await.verdicts()[0];
    assert_eq!(verdict.remaining(), 0);
    assert_eq!(verdict.retry_after(), Some(Duration::from_millis(2100)));
    assert_eq!(verdict.reset_after(), Duration::from_secs(3));
}

/// A debit of any size leaves a debt of a few refills at most.
pub async fn a_debt_is_bounded(subject: &dyn Subject) {
    let budget = Budget::of("debt-bounded", Quota::per_second(10));
    let receipt = receipt(&budget, &budget.take(subject, 1).await);

    for _ in 0..3 {
        debit(subject, &receipt, u64::MAX).await;
    }

    let verdict = budget.take(subject, 1).await.verdicts()[0];
    assert_eq!(
        verdict.reset_after(),
        SECOND * u32::try_from(DEBT_CEILING).unwrap()
    );
}

/// A forgotten key has a full budget, and the debit is taken from that.
pub async fn a_debit_of_a_key_that_was_forgotten_counts(subject: &dyn Subject) {
    for quota in every_algorithm(10, SECOND * 60) {
        let budget = Budget::of("debit-forgotten", quota);
        align(subject, SECOND * 60).await;
        let receipt = receipt(&budget, &budget.take(subject, 3).await);
        subject
            .backend()
            .admin()
            .reset(budget.scope, &budget.key)
            .await
            .unwrap();

        debit(subject, &receipt, 4).await;

        assert_eq!(budget.remaining(subject).await, 6, "{quota}");
    }
}

/// A full budget stays full.
pub async fn a_credit_of_a_key_that_was_forgotten_does_nothing(subject: &dyn Subject) {
    for quota in every_algorithm(10, SECOND * 60) {
        let budget = Budget::of("credit-forgotten", quota);
        align(subject, SECOND * 60).await;
        let receipt = receipt(&budget, &budget.take(subject, 3).await);
        subject
            .backend()
            .admin()
            .reset(budget.scope, &budget.key)
            .await
            .unwrap();

        credit(subject, receipt, 3).await;

        assert_eq!(budget.remaining(subject).await, 10, "{quota}");
    }
}

/// A reset touches no other budget, neither of the key nor of the policy.
pub async fn a_reset_forgets_one_key_of_one_scope(subject: &dyn Subject) {
    let alice = Budget::of("reset", Quota::per_hour(5));
    let bob = alice.for_key("bob");
    let elsewhere = Budget::of("reset-elsewhere", Quota::per_hour(5));
    let window = Budget::of("reset", Quota::per_hour(5).using(Algorithm::SlidingWindow));
    align(subject, SECOND * 3600).await;
    for budget in [&alice, &bob, &elsewhere, &window] {
        budget.take(subject, 4).await;
    }

    subject
        .backend()
        .admin()
        .reset(alice.scope, &alice.key)
        .await
        .unwrap();

    assert_eq!(alice.remaining(subject).await, 5);
    for budget in [bob, elsewhere, window] {
        assert_eq!(budget.remaining(subject).await, 1);
    }
}
