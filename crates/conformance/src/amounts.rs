//! The amounts that pass, and the numbers of verdicts.

use std::time::Duration;

use tollgate_core::{Algorithm, Quota};

use crate::{Budget, Subject, align, decide, every_algorithm};

const SECOND: Duration = Duration::from_secs(1);

/// A budget that was never charged is full.
pub async fn a_key_never_seen_has_a_full_budget(subject: &dyn Subject) {
    for quota in every_algorithm(10, SECOND) {
        let budget = Budget::of("never-seen", quota);

        let decision = budget.take(subject, 0).await;

        let verdict = decision.verdicts()[0];
        assert!(decision.is_admitted() && verdict.is_allowed(), "{quota}");
        assert_eq!((verdict.limit(), verdict.remaining()), (10, 10), "{quota}");
        assert_eq!(verdict.reset_after(), Duration::ZERO, "{quota}");
        assert_eq!((verdict.taken(), verdict.retry_after()), (0, None));
    }
}

/// Exactly the limit passes, in any portions.
pub async fn a_budget_admits_what_it_holds_and_not_one_more(subject: &dyn Subject) {
    for quota in every_algorithm(10, SECOND) {
        let budget = Budget::of("holds", quota);
        align(subject, SECOND * 4).await;
        subject.advance(SECOND / 2).await;

        for cost in [1, 4, 2, 3] {
            assert!(budget.take(subject, cost).await.is_admitted(), "{quota}");
        }

        let decision = budget.take(subject, 1).await;
        assert!(!decision.is_admitted(), "{quota}");
        assert!(decision.verdicts()[0].is_denied(), "{quota}");
    }
}

/// The largest cost that would pass, each time.
pub async fn what_remains_counts_down(subject: &dyn Subject) {
    for quota in every_algorithm(10, SECOND) {
        let budget = Budget::of("counts-down", quota);
        align(subject, SECOND * 4).await;
        subject.advance(SECOND / 2).await;

        for left in (0..10).rev() {
            let verdict = budget.take(subject, 1).await.verdicts()[0];
            assert_eq!((verdict.remaining(), verdict.taken()), (left, 1), "{quota}");
            assert!(verdict.reset_after() > Duration::ZERO, "{quota}");
        }
    }
}

/// A cost of 0 passes, even when nothing is left, and changes nothing.
pub async fn a_cost_of_nothing_is_a_peek(subject: &dyn Subject) {
    for quota in every_algorithm(3, SECOND) {
        let budget = Budget::of("peek", quota);
        align(subject, SECOND * 4).await;
        budget.take(subject, 3).await;

        for _ in 0..5 {
            let decision = budget.take(subject, 0).await;
            assert!(decision.is_admitted(), "{quota}");
            assert_eq!(decision.verdicts()[0].remaining(), 0, "{quota}");
        }
    }
}

/// The denial says never, instead of naming a time at which the call would fail again.
pub async fn a_cost_above_the_capacity_never_passes(subject: &dyn Subject) {
    for quota in every_algorithm(10, SECOND) {
        for cost in [11, 1000, u64::MAX] {
            let budget = Budget::of("too-dear", quota);

            let decision = budget.take(subject, cost).await;

            let verdict = decision.verdicts()[0];
            assert!(!decision.is_admitted() && verdict.never_passes(), "{quota}");
            assert_eq!(
                (decision.retry_after(), verdict.retry_after()),
                (None, None)
            );
            assert_eq!(budget.remaining(subject).await, 10, "{quota}");
        }
    }
}

/// The product of limit and period is beyond exact numbers; the rule must not need it.
pub async fn a_large_quota_of_a_long_period_is_exact(subject: &dyn Subject) {
    let day = Duration::from_secs(86_400);
    for quota in [
        Quota::per_day(1_000_000),
        Quota::per_day(1_000_000).using(Algorithm::SlidingWindow),
        Quota::per_day(1_000_000).using(Algorithm::RollingWindow { buckets: 100 }),
        Quota::per_day(864_000_000_000).using(Algorithm::SlidingWindow),
    ] {
        let budget = Budget::of("large", quota);
        align(subject, day).await;
        let most = quota.limit();

        assert!(
            budget.take(subject, most - 1).await.is_admitted(),
            "{quota}"
        );
        assert!(!budget.take(subject, 2).await.is_admitted(), "{quota}");
        assert!(budget.take(subject, 1).await.is_admitted(), "{quota}");
        let verdict = budget.take(subject, 1).await.verdicts()[0];

        let retry_after = verdict.retry_after().unwrap();
        subject
            .advance(retry_after - Duration::from_micros(1))
            .await;
        assert!(!budget.take(subject, 1).await.is_admitted(), "{quota}");
        subject.advance(Duration::from_micros(1)).await;
        assert!(budget.take(subject, 1).await.is_admitted(), "{quota}");
    }
}

/// Two periods of quiet are enough for any algorithm.
pub async fn a_caller_who_was_quiet_has_a_full_budget_again(subject: &dyn Subject) {
    for quota in every_algorithm(10, SECOND) {
        for pause in [2, 60, 86_400 * 400] {
            let budget = Budget::of("quiet", quota);
            budget.take(subject, budget.remaining(subject).await).await;

            subject.advance(SECOND * pause).await;

            assert_eq!(budget.remaining(subject).await, 10, "{quota} {pause}");
        }
    }
}

/// At 7 a second one fits every 142,857 1/7 µs. So seven waits together take a whole second, and not a µs more.
pub async fn a_rate_that_is_no_whole_number_of_microseconds_does_not_drift(subject: &dyn Subject) {
    let budget = Budget::of("no-drift", Quota::per_second(7).burst(1));
    let started_at = budget.take(subject, 1).await.at();
    let mut admitted_at = started_at;

    for _ in 0..700 {
        let wait = budget.take(subject, 1).await.retry_after().unwrap();
        subject.advance(wait).await;
        let decision = budget.take(subject, 1).await;
        assert!(decision.is_admitted());
        admitted_at = decision.at();
    }

    // Each came up to a microsecond late, which cannot be made up for: a burst of one spaces, it does not average.
    let spent = admitted_at.as_micros() - started_at.as_micros();
    assert!((100_000_000..=100_000_700).contains(&spent), "{spent} µs");
}

/// Receipts and histories need the time of each decision.
pub async fn verdicts_carry_the_time_of_the_backend(subject: &dyn Subject) {
    let before = decide(subject, &[]).await.at();

    subject.advance(Duration::from_micros(1_234_567)).await;

    let after = decide(subject, &[]).await.at();
    assert_eq!(after.as_micros() - before.as_micros(), 1_234_567);
}
