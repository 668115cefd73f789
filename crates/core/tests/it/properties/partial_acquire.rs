//! As much as there is: a grant is the largest amount that a decision would let pass, and is decided as that amount.

use std::sync::LazyLock;
use std::time::Duration;

use proptest::prelude::*;
use tollgate_core::{
    Ban, Call, Charge, Key, Mode, Quota, Scope, State, Timestamp, Verdict, decide,
};

use crate::support::history::History;
use crate::support::quotas;
use crate::support::runner::check;
use crate::support::steps::{Step, amounts, starts, steps};

static KEY: LazyLock<Key> = LazyLock::new(Key::global);

fn charge<'a>(quota: &'a Quota, slot: u16, cost: u64, mode: Mode) -> Charge<'a> {
    Charge {
        scope: Scope::of("grants", slot, quota),
        quota,
        key: &KEY,
        cost,
        mode,
    }
}

/// Histories of some quotas, and the time after the last of them.
fn after(pasts: &[History]) -> (Vec<Quota>, Vec<State>, Timestamp) {
    let now = pasts.iter().map(|past| past.now).max().unwrap_or(0);
    let budgets = || pasts.iter().map(|past| &past.budget);
    (
        budgets().map(|budget| budget.quota).collect(),
        budgets().map(|budget| budget.state.clone()).collect(),
        Timestamp::from_micros(now),
    )
}

#[test]
fn a_grant_is_the_largest_amount_that_would_pass_and_is_decided_as_that_amount() {
    let quotas = prop_oneof![4 => quotas::any(), 1 => quotas::at_once()];
    let pasts = prop::collection::vec((quotas, steps(0..16)), 1..4);
    let asks = (
        amounts(),
        0_u64..4,
        prop::sample::select(vec![Mode::Enforce, Mode::Shadow]),
    );
    check(
        4_000,
        &(starts(), pasts, asks),
        |(start, pasts, (most, at_least, mode))| {
            let pasts: Vec<_> = { pasts.iter() }
                .map(|(quota, steps)| {
                    // No time belongs to what is held, and no debit.
                    let is_of_it = |step: &&Step| {
                        !quota.is_held() || matches!(step, Step::Charge(_) | Step::Credit(..))
                    };
                    let steps: Vec<_> = steps.iter().filter(is_of_it).copied().collect();
                    History::after(*quota, start, &steps)
                })
                .collect();
            let (quotas, states, now) = after(&pasts);
            let most = most.units(&pasts[0].budget, now.as_micros());
            let call = |cost| -> Vec<Charge<'_>> {
                let slots = (0..).zip(&quotas);
                slots
                    .map(|(slot, quota)| charge(quota, slot, cost, mode))
                    .collect()
            };
            let passes = |cost| {
                let decision = decide(now, Call::of(&call(cost)), &mut states.clone()[..]);
                decision.verdicts().iter().all(Verdict::is_allowed)
            };

            let mut granted_states = states.clone();
            let granted = decide(
                now,
                Call::of(&call(most)).at_least(at_least),
                &mut granted_states[..],
            );

            // What it took is what a decision of that amount takes, and it leaves what that leaves.
            let amount = granted.verdicts()[0].taken();
            let all_pass = granted.verdicts().iter().all(Verdict::is_allowed);
            let asked = if all_pass { amount } else { at_least.min(most) };
            let mut decided_states = states.clone();
            let decided = decide(now, Call::of(&call(asked)), &mut decided_states[..]);
            prop_assert_eq!(&granted, &decided);
            for (one, other) in granted_states.iter().zip(&decided_states) {
                prop_assert_eq!(one.snapshot(), other.snapshot());
            }
            if all_pass {
                prop_assert!(amount <= most && amount >= at_least.min(most));
                prop_assert!(
                    amount == most || !passes(amount + 1),
                    "{} is not the most",
                    amount
                );
            } else {
                prop_assert!(!passes(at_least.min(most)));
            }
            Ok(())
        },
    );
}

#[test]
fn charges_of_one_budget_share_what_is_left() {
    let quota = Quota::per_minute(10);
    let twice = [charge(&quota, 0, 8, Mode::Enforce); 2];
    struct One(State);
    impl tollgate_core::States for One {
        fn state(&mut self, _index: usize) -> &mut State {
            &mut self.0
        }
    }
    let mut state = One(State::full(&quota));

    let granted = decide(
        Timestamp::from_micros(0),
        Call::of(&twice).at_least(1),
        &mut state,
    );

    let taken: Vec<u64> = granted.verdicts().iter().map(Verdict::taken).collect();
    assert_eq!(taken, [5, 5]);
}

#[test]
fn a_shadow_beside_an_enforced_charge_has_no_say_in_the_amount() {
    let (ten, three) = (Quota::per_minute(10), Quota::per_minute(3));
    let charges = [
        charge(&ten, 0, 20, Mode::Enforce),
        charge(&three, 1, 20, Mode::Shadow),
    ];
    let mut states = [State::full(&ten), State::full(&three)];

    let granted = decide(
        Timestamp::from_micros(0),
        Call::of(&charges).at_least(1),
        &mut states[..],
    );

    assert!(granted.is_admitted());
    let taken: Vec<u64> = granted.verdicts().iter().map(Verdict::taken).collect();
    assert_eq!(taken, [10, 0]);
}

#[test]
fn a_grant_below_the_least_is_a_denial_of_the_least_and_a_strike() {
    let quota = Quota::per_minute(10);
    let ban = Ban::after(2, Duration::from_secs(60)).into();
    let charges = |most| {
        [
            charge(&quota, 0, most, Mode::Enforce),
            charge(&ban, 1, 0, Mode::Enforce),
        ]
    };
    let mut states = [State::full(&quota), State::full(&ban)];
    let now = Timestamp::from_micros(0);
    assert!(decide(now, Call::of(&charges(7)).at_least(7), &mut states[..]).is_admitted());

    let denied = decide(now, Call::of(&charges(7)).at_least(5), &mut states[..]);

    // Three are left, and two more come in twelve seconds.
    assert!(!denied.is_admitted());
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(12)));
    let banned = decide(now, Call::of(&charges(7)).at_least(5), &mut states[..]);
    assert!(banned.verdicts()[1].is_denied());
    let banned = decide(now, Call::of(&charges(7)).at_least(1), &mut states[..]);
    assert!(!banned.is_admitted() && banned.verdicts()[0].taken() == 0);
}

#[test]
fn a_call_that_no_grant_can_decide_is_refused() {
    let quota = Quota::per_minute(10);
    let waits = quota.wait_up_to(Duration::from_secs(1));
    for (charges, detail) in [
        (
            [
                charge(&quota, 0, 3, Mode::Enforce),
                charge(&quota, 1, 4, Mode::Enforce),
            ],
            "charges of 3 and of 4 in one call, which grants one amount",
        ),
        (
            [
                charge(&quota, 0, 3, Mode::Enforce),
                charge(&waits, 1, 3, Mode::Enforce),
            ],
            "a charge that may wait for its turn cannot be granted in part",
        ),
    ] {
        let refused = Call::of(&charges).at_least(1).check().unwrap_err();
        assert_eq!(refused.detail(), detail);
    }
    assert!(
        Call::of(&[charge(&quota, 0, 3, Mode::Enforce); 2])
            .at_least(1)
            .check()
            .is_ok()
    );
}

#[test]
fn a_ban_has_no_part_in_an_amount() {
    let quota = Quota::per_day(5);
    let ban = Quota::from(Ban::after(1, Duration::from_secs(9)).lasting(Duration::from_secs(1)));
    let charges = [
        charge(&quota, 0, 4, Mode::Enforce),
        charge(&ban, 1, 0, Mode::Enforce),
    ];
    let mut states = [State::full(&quota), State::full(&ban)];
    let call = Call::of(&charges).at_least(1);

    assert!(call.check().is_ok());
    let granted = decide(Timestamp::from_micros(0), call, &mut states[..]);

    assert_eq!(granted.verdicts()[0].taken(), 4);
}
