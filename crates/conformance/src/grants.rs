//! Grants of as much as there is. A backend that does not say that it [can](Capability::UpTo) passes these tests unasked.

use std::time::Duration;

use tollgate_core::{
    Algorithm, Call, Capability, Charge, Concurrent, Decision, FailureKind, Mode, Quota, Receipt,
    Verdict,
};

use crate::{Budget, Subject, align, every_algorithm};

const SECOND: Duration = Duration::from_secs(1);

fn can_grant(subject: &dyn Subject) -> bool {
    subject
        .backend()
        .admin()
        .capabilities()
        .has(Capability::UpTo)
}

async fn grant(subject: &dyn Subject, charges: &[Charge<'_>], at_least: u64) -> Decision {
    let answer = subject
        .backend()
        .decide(Call::of(charges).at_least(at_least));
    answer.await.unwrap()
}

fn taken(decision: &Decision) -> Vec<u64> {
    decision.verdicts().iter().map(Verdict::taken).collect()
}

/// All that was asked for while there is enough, then the rest, and then nothing.
pub async fn a_grant_is_what_is_left_and_no_more(subject: &dyn Subject) {
    if !can_grant(subject) {
        return;
    }
    for quota in every_algorithm(20, SECOND) {
        let budget = Budget::of("grants-rest", quota);
        align(subject, SECOND * 4).await;

        for (asked, amount) in [(12, 12), (12, 8), (12, 0)] {
            let granted = grant(subject, &[budget.charge(asked)], 1).await;
            assert_eq!(granted.is_admitted(), amount > 0, "{quota}");
            assert_eq!(taken(&granted), [amount], "{quota}");
        }
        assert_eq!(budget.remaining(subject).await, 0, "{quota}");
        // More than a full budget holds.
        subject.advance(SECOND * 4).await;
        let granted = grant(subject, &[budget.charge(1 << 50)], 1).await;
        assert_eq!(taken(&granted), [20], "{quota}");
    }
}

/// An amount whose drain has a rest beyond the numbers that are exact in Lua, for a large budget beside a small one.
pub async fn a_grant_for_a_large_budget_is_what_a_small_one_beside_it_has(subject: &dyn Subject) {
    if !can_grant(subject) {
        return;
    }
    // A unit drains in 20 µs and 500,654,180 of the 4,294,967,291 parts of another.
    let odd: Quota = "4294967291/day burst 1000".parse().unwrap();
    let large = Quota::per_day(1 << 30).using(Algorithm::FixedWindow {
        offset: Duration::ZERO,
    });
    for (mode, amounts) in [
        (Mode::Enforce, [1_000, 1_000]),
        (Mode::Shadow, [1 << 30, 0]),
    ] {
        let large = Budget::of(&format!("grants-large-{mode:?}").to_lowercase(), large);
        let small = Budget::of(&format!("grants-small-{mode:?}").to_lowercase(), odd);
        let charges = [large.charge(1 << 30), small.charge_in(mode, 1 << 30)];

        let granted = grant(subject, &charges, 1).await;

        assert!(granted.is_admitted());
        assert_eq!(taken(&granted), amounts);
    }
}

/// Below the least nothing is taken, and retry-after is that of the least.
pub async fn a_grant_below_the_least_takes_nothing(subject: &dyn Subject) {
    if !can_grant(subject) {
        return;
    }
    let budget = Budget::of("grants-least", Quota::per_second(10));
    assert!(budget.take(subject, 7).await.is_admitted());

    let denied = grant(subject, &[budget.charge(9)], 5).await;

    assert!(!denied.is_admitted());
    assert_eq!(denied.retry_after(), Some(SECOND / 5));
    assert_eq!(budget.remaining(subject).await, 3);
    let granted = grant(subject, &[budget.charge(9)], 3).await;
    assert_eq!(taken(&granted), [3]);
}

/// The amount is that of the tightest budget, and is taken from each of them.
pub async fn a_grant_is_what_every_budget_has(subject: &dyn Subject) {
    if !can_grant(subject) {
        return;
    }
    let wide = Budget::of("grants-wide", Quota::per_minute(100));
    let narrow = Budget::of("grants-narrow", Quota::per_minute(7));
    let trial = Budget::of("grants-trial", Quota::per_minute(2));

    let charges = [
        wide.charge(50),
        narrow.charge(50),
        trial.charge_in(Mode::Shadow, 50),
    ];
    let granted = grant(subject, &charges, 1).await;

    assert!(granted.is_admitted());
    assert_eq!(taken(&granted), [7, 7, 0]);
    assert_eq!(wide.remaining(subject).await, 93);
    let denied = grant(subject, &charges, 1).await;
    assert!(!denied.is_admitted());
    assert_eq!(wide.remaining(subject).await, 93);
}

/// Budgets of several callers, which may lie in several places: the amount is that of the tightest, and the surplus comes back.
pub async fn a_grant_over_several_callers_is_what_each_has(subject: &dyn Subject) {
    if !can_grant(subject) {
        return;
    }
    let budgets: Vec<_> = (0..8)
        .map(|number| {
            let quota = Quota::per_day(20 - number).using(Algorithm::FixedWindow {
                offset: Duration::ZERO,
            });
            Budget::of("grants-several", quota).for_key(format!("caller-{number}"))
        })
        .collect();
    let charges: Vec<_> = budgets.iter().map(|budget| budget.charge(50)).collect();

    let granted = grant(subject, &charges, 1).await;

    assert!(granted.is_admitted());
    assert_eq!(taken(&granted), [13; 8]);
    for (number, budget) in (0..).zip(&budgets) {
        assert_eq!(budget.remaining(subject).await, 7 - number);
    }
    assert!(!grant(subject, &charges, 1).await.is_admitted());
    assert!(!grant(subject, &charges[..7], 2).await.is_admitted());
    for (number, budget) in (0..).zip(&budgets) {
        assert_eq!(budget.remaining(subject).await, 7 - number);
    }
}

/// A probe says how much there is, and takes nothing.
pub async fn a_probe_of_a_grant_takes_nothing(subject: &dyn Subject) {
    if !can_grant(subject) {
        return;
    }
    let budget = Budget::of("grants-probe", Quota::per_minute(7));
    let asked = grant(subject, &[budget.charge_in(Mode::Probe, 50)], 1).await;
    assert!(asked.verdicts()[0].is_allowed());
    assert_eq!(
        (asked.verdicts()[0].remaining(), taken(&asked)),
        (7, vec![0])
    );
    assert_eq!(budget.remaining(subject).await, 7);
}

/// A receipt of a grant gives back what was granted.
pub async fn a_grant_is_given_back_as_it_was_taken(subject: &dyn Subject) {
    if !can_grant(subject) {
        return;
    }
    let budget = Budget::of("grants-credit", Quota::per_minute(7));
    let charge = budget.charge(50);
    let granted = grant(subject, &[charge], 1).await;
    let receipt = Receipt::of(&charge, &granted.verdicts()[0], granted.at()).unwrap();
    assert_eq!(receipt.cost(), 7);
    subject.backend().refund(receipt, u64::MAX);
    subject.settle().await;
    assert_eq!(budget.remaining(subject).await, 7);
}

/// Places are granted as units are, and held until they are given back.
pub async fn places_are_granted_as_units_are(subject: &dyn Subject) {
    if !can_grant(subject)
        || !subject
            .backend()
            .admin()
            .capabilities()
            .has(Capability::Held)
    {
        return;
    }
    let places = Budget::of("grants-places", Concurrent::at_most(5).into());
    let units = Budget::of("grants-units", Quota::per_minute(100));
    let charges = [places.charge(3), units.charge(3)];
    assert_eq!(taken(&grant(subject, &charges, 1).await), [3, 3]);

    let granted = grant(subject, &charges, 1).await;

    assert_eq!(taken(&granted), [2, 2]);
    assert!(!grant(subject, &charges, 1).await.is_admitted());
    let receipt = Receipt::of(&charges[0], &granted.verdicts()[0], granted.at()).unwrap();
    subject.backend().refund(receipt, u64::MAX);
    subject.settle().await;
    assert_eq!(taken(&grant(subject, &charges, 1).await), [2, 2]);
}

/// A call that may wait, or asks for different amounts, is an error and not a denial.
pub async fn a_grant_of_different_amounts_is_an_error(subject: &dyn Subject) {
    if !can_grant(subject) {
        return;
    }
    let (one, other) = (
        Budget::of("grants-one", Quota::per_minute(7)),
        Budget::of("grants-other", Quota::per_minute(7)),
    );
    let charges = [one.charge(3), other.charge(4)];
    let answer = subject
        .backend()
        .decide(Call::of(&charges).at_least(1))
        .await;
    assert_eq!(answer.unwrap_err().kind(), FailureKind::InvalidCall);
}
