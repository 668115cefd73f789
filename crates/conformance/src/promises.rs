//! Retry-after and reset-after, to the microsecond.

use std::time::Duration;

use tollgate_core::Quota;

use crate::{Budget, Subject, align, decide, every_algorithm};

const SECOND: Duration = Duration::from_secs(1);
const MICRO: Duration = Duration::from_micros(1);

/// A charge denied at t with r is denied at t + r − 1 µs and admitted at t + r.
pub async fn retry_after_is_kept_to_the_microsecond(subject: &dyn Subject) {
    for quota in every_algorithm(10, SECOND) {
        for (pause_us, cost) in [(1, 1), (123_457, 4), (499_999, 7), (700_001, 10)] {
            let budget = Budget::of("promise", quota).for_key(cost);
            align(subject, SECOND).await;
            for part in [3, 3, 4] {
                subject.advance(Duration::from_micros(pause_us)).await;
                budget.take(subject, part).await;
            }
            budget.take(subject, budget.remaining(subject).await).await;

            let retry_after = budget.take(subject, cost).await.retry_after().unwrap();

            subject.advance(retry_after - MICRO).await;
            let early = budget.take(subject, cost).await;
            assert!(
                !early.is_admitted(),
                "{quota}: {cost} after {retry_after:?}"
            );
            assert_eq!(early.retry_after(), Some(MICRO), "{quota}");
            subject.advance(MICRO).await;
            let in_time = budget.take(subject, cost).await;
            assert!(
                in_time.is_admitted(),
                "{quota}: {cost} after {retry_after:?}"
            );
        }
    }
}

/// A budget is full at its reset time, and not a microsecond before.
pub async fn reset_after_is_when_the_budget_is_full(subject: &dyn Subject) {
    for quota in every_algorithm(10, SECOND) {
        let budget = Budget::of("reset-after", quota);
        align(subject, SECOND).await;
        subject.advance(Duration::from_micros(123_456)).await;
        let reset_after = budget.take(subject, 10).await.verdicts()[0].reset_after();

        subject.advance(reset_after - MICRO).await;
        let early = budget.take(subject, 0).await.verdicts()[0];
        subject.advance(MICRO).await;
        let in_time = budget.take(subject, 0).await.verdicts()[0];

        assert_eq!(early.reset_after(), MICRO, "{quota}");
        assert_eq!(in_time.reset_after(), Duration::ZERO, "{quota}");
        assert_eq!(in_time.remaining(), 10, "{quota}");
    }
}

/// A caller that keeps trying passes when one that waited would.
pub async fn pitfall_a_denied_request_still_counted(subject: &dyn Subject) {
    for quota in every_algorithm(5, SECOND) {
        let budget = Budget::of("impatient", quota);
        align(subject, SECOND).await;
        budget.take(subject, 5).await;
        let promised = budget.take(subject, 1).await.retry_after().unwrap();

        let step = promised / 50;
        for _ in 0..49 {
            assert!(!budget.take(subject, 1).await.is_admitted(), "{quota}");
            subject.advance(step).await;
        }
        subject.advance(promised - step * 49).await;

        assert!(budget.take(subject, 1).await.is_admitted(), "{quota}");
    }
}

/// A denied cost leaves the rest as it is, however often it is asked for.
pub async fn pitfall_a_weighted_denial_drove_the_balance_negative(subject: &dyn Subject) {
    for quota in every_algorithm(10, SECOND) {
        let budget = Budget::of("weighted", quota);
        align(subject, SECOND).await;
        subject.advance(SECOND / 2).await;
        budget.take(subject, 7).await;

        for cost in [4, 5, 10, 4] {
            let verdict = budget.take(subject, cost).await.verdicts()[0];
            assert!(verdict.is_denied(), "{quota}");
            assert_eq!((verdict.remaining(), verdict.taken()), (3, 0), "{quota}");
        }

        assert!(budget.take(subject, 3).await.is_admitted(), "{quota}");
    }
}

/// A wait of zero would send every client straight back.
pub async fn pitfall_a_retry_after_of_0(subject: &dyn Subject) {
    for quota in every_algorithm(1000, SECOND) {
        let budget = Budget::of("retry-0", quota);
        align(subject, SECOND).await;
        subject.advance(SECOND - MICRO).await;
        budget.take(subject, 1000).await;

        let retry_after = budget.take(subject, 1).await.retry_after().unwrap();

        assert!(retry_after >= MICRO, "{quota}");
    }
}

/// One a minute is a valid quota.
pub async fn pitfall_a_rate_below_one_a_second(subject: &dyn Subject) {
    for quota in every_algorithm(1, SECOND * 60) {
        let budget = Budget::of("slow", quota);
        align(subject, SECOND * 60).await;

        assert!(budget.take(subject, 1).await.is_admitted(), "{quota}");
        let wait = budget.take(subject, 1).await.retry_after().unwrap();
        subject.advance(wait).await;

        assert!(budget.take(subject, 1).await.is_admitted(), "{quota}");
    }
}

/// The wait of a call is the longest of its denials.
pub async fn the_whole_call_passes_after_its_longest_wait(subject: &dyn Subject) {
    let quick = Budget::of("longest-quick", Quota::per_second(10).burst(1));
    let slow = Budget::of("longest-slow", Quota::per_minute(10).burst(1));
    let call = [quick.charge(1), slow.charge(1)];
    decide(subject, &call).await;

    let denied = decide(subject, &call).await;
    let retry_after = denied.retry_after().unwrap();

    assert_eq!(retry_after, SECOND * 6);
    subject.advance(retry_after - MICRO).await;
    assert!(!decide(subject, &call).await.is_admitted());
    subject.advance(MICRO).await;
    assert!(decide(subject, &call).await.is_admitted());
}
