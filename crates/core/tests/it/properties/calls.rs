//! Several charges in one call: all or nothing, shadows never in the way, and which verdict speaks for the call.

use std::time::Duration;

use tollgate_core::{
    Call, Charge, Decision, Key, Mode, Quota, Scope, State, States, Timestamp, Verdict, decide,
};

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
const TEN: Quota = Quota::per_second(10);

/// Decides charges of (quota, cost, mode). Each has a budget of its own, of which the given amount is spent.
fn call(charges: &[(Quota, u64, u64, Mode)]) -> (Decision, Vec<State>) {
    let key = Key::from("alice");
    let made = |spent: bool| -> Vec<Charge<'_>> {
        let charges = (0_u16..).zip(charges);
        let charges = charges.map(|(slot, (quota, before, cost, mode))| Charge {
            scope: Scope::of("calls", slot, quota),
            quota,
            key: &key,
            cost: if spent { *before } else { *cost },
            mode: if spent { Mode::Shadow } else { *mode },
        });
        charges.collect()
    };
    let mut states: Vec<State> = charges
        .iter()
        .map(|(quota, ..)| State::full(quota))
        .collect();
    let spent = decide(NOW, Call::of(&made(true)), &mut states[..]);
    assert!(spent.verdicts().iter().all(Verdict::is_allowed));
    let decision = decide(NOW, Call::of(&made(false)), &mut states[..]);
    (decision, states)
}

fn remaining(decision: &Decision) -> Vec<u64> {
    decision.verdicts().iter().map(Verdict::remaining).collect()
}

#[test]
fn a_denied_charge_leaves_the_other_budgets_untouched() {
    let (decision, _) = call(&[
        (TEN, 0, 3, Mode::Enforce),
        (TEN, 9, 2, Mode::Enforce),
        (TEN, 4, 3, Mode::Enforce),
    ]);

    assert!(!decision.is_admitted());
    assert_eq!(remaining(&decision), [10, 1, 6]);
    assert!(decision.verdicts().iter().all(|it| it.taken() == 0));
    let denied: Vec<bool> = decision.verdicts().iter().map(Verdict::is_denied).collect();
    assert_eq!(denied, [false, true, false]);
}

#[test]
fn a_shadow_is_taken_on_its_own_and_never_in_the_way() {
    let (passed, _) = call(&[(TEN, 0, 3, Mode::Enforce), (TEN, 9, 2, Mode::Shadow)]);
    assert!(passed.is_admitted());
    assert_eq!(remaining(&passed), [7, 1]);

    let (denied, _) = call(&[(TEN, 9, 2, Mode::Enforce), (TEN, 0, 3, Mode::Shadow)]);
    assert!(!denied.is_admitted());
    assert_eq!(remaining(&denied), [1, 7]);
}

#[test]
fn a_probe_says_what_would_be_and_takes_nothing() {
    let (decision, _) = call(&[
        (TEN, 0, 3, Mode::Enforce),
        (TEN, 9, 2, Mode::Probe),
        (TEN, 0, 2, Mode::Probe),
    ]);

    assert!(decision.is_admitted());
    assert_eq!(remaining(&decision), [7, 1, 10]);
    assert!(decision.verdicts()[1].is_denied() && decision.verdicts()[2].is_allowed());
}

struct One(State);

impl States for One {
    fn state(&mut self, _index: usize) -> &mut State {
        &mut self.0
    }
}

#[test]
fn the_same_budget_twice_is_one_charge_of_the_summed_cost() {
    let key = Key::from("alice");
    let charge = |cost| Charge {
        scope: Scope::of("calls-twice", 0, &TEN),
        quota: &TEN,
        key: &key,
        cost,
        mode: Mode::Enforce,
    };
    let mut state = One(State::full(&TEN));

    // Each alone would pass.
    let denied = decide(NOW, Call::of(&[charge(6), charge(5)]), &mut state);
    assert!(!denied.is_admitted() && denied.verdicts().iter().all(Verdict::is_denied));
    assert_eq!(remaining(&denied), [10, 10]);

    let charges = [charge(6), charge(4)];
    let passed = decide(NOW, Call::of(&charges), &mut state);
    assert_eq!(remaining(&passed), [0, 0]);
    let costs: Vec<u64> = passed.receipts(&charges).map(|it| it.cost()).collect();
    assert_eq!(costs, [6, 4]);

    // Each receipt gives back its own.
    for receipt in passed.receipts(&charges) {
        receipt.credit_to(&mut state.0, NOW, u64::MAX);
    }
    assert_eq!(
        remaining(&decide(NOW, Call::of(&[charge(0)]), &mut state)),
        [10]
    );

    let never = decide(
        NOW,
        Call::of(&[charge(u64::MAX), charge(u64::MAX)]),
        &mut state,
    );
    assert!(never.verdicts().iter().all(Verdict::never_passes));
}

#[test]
fn the_tightest_verdict_is_the_longest_wait_or_else_the_least_share() {
    let hundred = Quota::per_second(100);
    let slow = Quota::per_hour(10);
    let (enforce, shadow, probe) = (Mode::Enforce, Mode::Shadow, Mode::Probe);
    let cases = [
        // Admitted: the least share left, whatever the number.
        (
            vec![(hundred, 91, 1, enforce), (TEN, 4, 1, enforce)],
            Some(0),
        ),
        (
            vec![(hundred, 0, 1, enforce), (TEN, 4, 1, enforce)],
            Some(1),
        ),
        // Denied: the longest wait, though another verdict has less left.
        (vec![(TEN, 10, 1, enforce), (slow, 9, 2, enforce)], Some(1)),
        (vec![(slow, 9, 2, enforce), (TEN, 10, 1, enforce)], Some(0)),
        // A denial before an admission that has less left.
        (vec![(TEN, 9, 1, enforce), (TEN, 5, 6, enforce)], Some(1)),
        // Never before any wait.
        (vec![(slow, 9, 2, enforce), (TEN, 0, 11, enforce)], Some(1)),
        // Shadows and probes do not speak for the call.
        (vec![(TEN, 10, 1, shadow), (TEN, 0, 1, enforce)], Some(1)),
        (vec![(TEN, 10, 1, probe), (TEN, 10, 1, shadow)], None),
    ];
    for (charges, expected) in cases {
        let (decision, _) = call(&charges);

        let tightest = decision.tightest(charges.iter().map(|(.., mode)| *mode));

        assert_eq!(tightest, expected, "{charges:?}");
    }
}

#[test]
fn a_call_that_can_never_pass_names_no_time() {
    let (decision, _) = call(&[(TEN, 10, 1, Mode::Enforce), (TEN, 0, 11, Mode::Enforce)]);

    assert_eq!(decision.retry_after(), None);
    assert!(decision.verdicts()[0].retry_after().is_some());
}

#[test]
fn receipts_carry_the_time_of_whoever_gave_the_verdict() {
    let key = Key::from("alice");
    let charge = Charge {
        scope: Scope::of("test", 0, &TEN),
        quota: &TEN,
        key: &key,
        cost: 1,
        mode: Mode::Enforce,
    };
    let times = [NOW, NOW.saturating_add(Duration::from_secs(3_600)), NOW];
    let verdicts = times.map(|now| {
        let decision = decide(now, Call::of(&[charge]), &mut [State::full(&TEN)][..]);
        (now, decision.verdicts()[0])
    });

    let decision = Decision::apart(true, verdicts);

    let charges = [charge; 3];
    let at: Vec<_> = decision.receipts(&charges).map(|it| it.at()).collect();
    assert_eq!((at, decision.at()), (times.to_vec(), NOW));
}

#[test]
fn a_call_without_charges_passes() {
    let decision = decide(NOW, Call::of(&[]), &mut Vec::<State>::new()[..]);

    assert!(decision.is_admitted());
    assert_eq!(decision.at(), NOW);
}

#[test]
fn the_wait_of_a_call_is_that_of_its_enforced_charges() {
    // An admitted call has nothing to wait for, whatever the verdicts on a shadow or a probe.
    let (admitted, _) = call(&[
        (TEN, 0, 1, Mode::Enforce),
        (TEN, 10, 2, Mode::Shadow),
        (TEN, 10, 11, Mode::Probe),
    ]);
    assert!(admitted.is_admitted());
    assert_eq!(admitted.retry_after(), None);

    // A refused call waits for the charge that refused it, though a shadow beside it never passes.
    for mode in [Mode::Shadow, Mode::Probe] {
        for cost in [5, 11] {
            let (refused, _) = call(&[(TEN, 10, cost, mode), (TEN, 10, 1, Mode::Enforce)]);
            assert_eq!(
                refused.retry_after(),
                Some(Duration::from_millis(100)),
                "{mode:?} of {cost}"
            );
        }
    }
}
