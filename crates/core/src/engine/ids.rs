//! Calls with ids. A replay of an admission passes, and its policy's budgets are not charged.

use smallvec::SmallVec;

use super::bans::decide_with_bans;
use super::{OtherCharges, States, decide_budgets};
use crate::{Charge, Decision, Mode, Timestamp, Verdict};

/// Decides a call in which at least one charge is an id.
///
/// The ids are asked first. The budgets of a policy whose id is replayed are charged nothing, and so they pass and say how much is
/// left. Bans stay in force, each request holds its own place, and other policies are charged as ever. If the call is admitted, a
/// new id is remembered and a replay is counted; on trial, if all of the policy's own charges pass.
pub(super) fn decide_with_ids(
    now: Timestamp,
    charges: &[Charge<'_>],
    states: &mut (impl States + ?Sized),
) -> Decision {
    let now_us = now.as_micros();
    let mut is_replay: SmallVec<[bool; 8]> = SmallVec::new();
    for (index, charge) in charges.iter().enumerate() {
        let rule = charge.quota.rule();
        let is_id = charge.quota.is_once() && charge.cost > 0;
        is_replay.push(is_id && rule.is_replay(states.state(index), now_us));
    }
    let is_spared = |charge: &Charge<'_>| {
        let mut ids = charges.iter().zip(&is_replay);
        ids.any(|(id, is_replay)| *is_replay && id.is_id_of(charge))
    };
    let mut numbers = SmallVec::new();
    let mut judged: SmallVec<[Charge<'_>; 4]> = SmallVec::new();
    for (index, charge) in charges.iter().enumerate() {
        if charge.quota.is_once() {
            continue;
        }
        numbers.push(index);
        judged.push(Charge {
            cost: if is_spared(charge) { 0 } else { charge.cost },
            ..*charge
        });
    }
    let mut others = OtherCharges { states, numbers };
    let decision = if judged.iter().any(|charge| charge.quota.is_ban()) {
        decide_with_bans(now, &judged, &mut others)
    } else {
        decide_budgets(now, &judged, &mut others, true)
    };
    let states = others.states;

    let passes = |id: &Charge<'_>| match id.mode {
        Mode::Enforce => decision.is_admitted(),
        Mode::Shadow => {
            let mut verdicts = judged.iter().zip(decision.verdicts());
            verdicts.all(|(charge, verdict)| !id.is_id_beside(charge) || verdict.is_allowed())
        }
        Mode::Probe => false,
    };
    let mut decided = decision.verdicts().iter();
    let mut verdicts = SmallVec::with_capacity(charges.len());
    for (index, charge) in charges.iter().enumerate() {
        if !charge.quota.is_once() {
            verdicts.extend(decided.next().copied());
            continue;
        }
        let (rule, state) = (charge.quota.rule(), states.state(index));
        let takes = charge.cost > 0 && passes(charge) && !is_replay[index];
        if is_replay[index] && passes(charge) {
            rule.replay(state);
        }
        let (passage, full_at, budget) = rule.step(state, now_us, charge.cost, takes);
        let taken = if takes { charge.cost } else { 0 };
        let limit = charge.quota.capacity();
        verdicts.push(Verdict::new(
            charge.mode,
            passage,
            limit,
            budget,
            taken,
            full_at,
        ));
    }
    Decision::of_several(now, decision.is_admitted(), verdicts)
}

#[cfg(test)]
mod tests {
    use crate::{Charge, Decision, Key, Mode, Once, Quota, Scope, State, Timestamp, decide};

    /// An order of this cost with an id of this cost, beside another policy's charge, all in one mode.
    fn order(states: &mut [State; 3], mode: Mode, cost: u64, other: u64, id: u64) -> Decision {
        let (quota, once) = (Quota::per_day(2), Quota::from(Once::default()));
        let key = Key::from("alice");
        let charge = |policy, quota, cost| Charge {
            scope: Scope::of(policy, 0, quota),
            quota,
            key: &key,
            cost,
            mode,
        };
        let charges = [
            charge("orders", &quota, cost),
            charge("exports", &quota, other),
            charge("orders", &once, id),
        ];
        decide(Timestamp::from_micros(1_000), &charges, &mut states[..])
    }

    fn unused() -> [State; 3] {
        let quota = Quota::per_day(2);
        let once = Quota::from(Once::default());
        [&quota, &quota, &once].map(State::full)
    }

    #[test]
    fn a_question_about_an_id_spares_no_budget_and_is_not_remembered() {
        let mut states = unused();
        order(&mut states, Mode::Enforce, 0, 0, 0);
        assert_eq!(
            order(&mut states, Mode::Enforce, 1, 0, 1).verdicts()[0].taken(),
            1
        );

        assert_eq!(
            order(&mut states, Mode::Enforce, 1, 0, 0).verdicts()[0].taken(),
            1
        );

        let replay = order(&mut states, Mode::Enforce, 1, 0, 1);
        assert!(replay.is_admitted());
        assert_eq!(
            (
                replay.verdicts()[0].taken(),
                replay.verdicts()[2].remaining()
            ),
            (0, 1)
        );
    }

    #[test]
    fn on_trial_an_id_is_remembered_if_the_charges_of_its_own_policy_pass() {
        for (cost, other, is_remembered) in [(1, 1, true), (1, 3, true), (3, 1, false)] {
            let mut states = unused();

            let first = order(&mut states, Mode::Shadow, cost, other, 1);

            assert_eq!(first.verdicts()[2].taken(), u64::from(is_remembered));
            let again = order(&mut states, Mode::Shadow, 1, 0, 1);
            assert_eq!(again.verdicts()[0].taken(), u64::from(!is_remembered));
        }
    }

    #[test]
    fn a_replay_that_another_policy_denies_is_not_counted() {
        let mut states = unused();
        order(&mut states, Mode::Enforce, 1, 0, 1);

        let denied = order(&mut states, Mode::Enforce, 1, 3, 1);

        assert!(!denied.is_admitted());
        assert_eq!(denied.verdicts()[2].remaining(), 2);
    }
}
