//! Calls with ids. A replay of an admission passes, and its policy's budgets are not charged.

use smallvec::SmallVec;

use super::bans::decide_with_bans;
use super::{OtherCharges, States, decide_in_groups};
use crate::{Charge, Decision, MAX_CHARGES, Mode, Timestamp, Verdict};

/// Decides a call in which at least one charge is an id.
///
/// The ids are asked first. The budgets of a policy whose id is replayed are charged nothing, and so they pass and say how much is
/// left. Bans hold, what is held is held by each request, and other policies are charged as ever. If the call is admitted, a new
/// id is remembered and a replay is counted; on trial, if all of the policy's own charges pass.
pub(super) fn decide_with_ids(
    now: Timestamp,
    charges: &[Charge<'_>],
    states: &mut (impl States + ?Sized),
) -> Decision {
    let now_us = now.as_micros();
    let is_replay: SmallVec<[bool; 8]> = charges
        .iter()
        .enumerate()
        .map(|(index, charge)| {
            let rule = charge.quota.rule();
            charge.cost > 0 && rule.is_replay(states.state(index), now_us)
        })
        .collect();
    let is_spared = |charge: &Charge<'_>| {
        let mut ids = charges.iter().zip(&is_replay);
        ids.any(|(id, is_replay)| *is_replay && id.is_id_of(charge))
    };
    let numbers: SmallVec<[usize; 4]> = (0..charges.len())
        .filter(|index| !charges[*index].quota.is_once())
        .collect();
    let judged = numbers.iter().map(|index| match charges[*index] {
        charge if is_spared(&charge) => Charge { cost: 0, ..charge },
        charge => charge,
    });
    let judged: SmallVec<[Charge<'_>; 4]> = judged.collect();
    let mut others = OtherCharges { states, numbers };
    let decision = if judged.iter().any(|charge| charge.quota.is_ban()) {
        decide_with_bans(now, &judged, &mut others)
    } else {
        decide_in_groups(now, &judged, &mut others, true)
    };
    let OtherCharges { states, numbers } = others;

    let passes = |id: &Charge<'_>| match id.mode {
        Mode::Enforce => decision.is_admitted(),
        Mode::Shadow => {
            let mut verdicts = judged.iter().zip(decision.verdicts());
            verdicts.all(|(charge, verdict)| !id.is_id_beside(charge) || verdict.is_allowed())
        }
        Mode::Probe => false,
    };
    let mut decided = numbers.iter().zip(decision.verdicts()).peekable();
    let verdicts = charges.iter().enumerate().map(|(index, charge)| {
        if let Some((_, verdict)) = decided.next_if(|(number, _)| **number == index) {
            return *verdict;
        }
        let (rule, state) = (charge.quota.rule(), states.state(index));
        let takes = charge.cost > 0 && passes(charge) && !is_replay[index];
        if is_replay[index] && passes(charge) {
            rule.replay(state);
        }
        let (passage, full_at, budget) = rule.step(state, now_us, charge.cost, takes);
        let taken = if takes { charge.cost } else { 0 };
        let limit = charge.quota.capacity();
        Verdict::new(charge.mode, passage, limit, budget, taken, full_at)
    });
    let verdicts: SmallVec<[Verdict; MAX_CHARGES]> = verdicts.collect();
    Decision::new(now, decision.is_admitted(), verdicts)
}
