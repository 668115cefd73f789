//! Calls with bans. A ban counts the denials of its policy's charges, and a banned identity is charged nothing.

use smallvec::SmallVec;

use super::{OtherCharges, States, decide_in_groups};
use crate::algorithm::Passage;
use crate::{Charge, Decision, MAX_CHARGES, Mode, Timestamp, Verdict};

/// Decides a call in which at least one charge is a ban.
///
/// The bans are asked first. If an enforced one is in force, no enforced charge is taken or a strike; it is judged all the same,
/// so that retry-after is a promise. A ban on trial keeps only its own policy's charges on trial from being taken. Otherwise the
/// charges are decided as ever, and each denial is a strike of the ban that guards the charge: one for each call, however many of
/// its charges are denied.
pub(super) fn decide_with_bans(
    now: Timestamp,
    charges: &[Charge<'_>],
    states: &mut (impl States + ?Sized),
) -> Decision {
    let now_us = now.as_micros();
    let is_closed: SmallVec<[bool; 8]> = charges
        .iter()
        .enumerate()
        .map(|(index, charge)| {
            let rule = charge.quota.rule();
            charge.quota.is_ban()
                && rule.passage(states.state(index), now_us, charge.cost) != Passage::Open
        })
        .collect();
    let closed = |index: usize, mode| is_closed[index] && charges[index].mode == mode;
    let is_banned = (0..charges.len()).any(|index| closed(index, Mode::Enforce));

    // On trial, a charge of those who would be banned is a question.
    let is_spared = |charge: &Charge<'_>| {
        let mut bans = charges.iter().enumerate();
        charge.mode == Mode::Shadow
            && bans.any(|(index, ban)| closed(index, Mode::Shadow) && ban.guards(charge))
    };
    let numbers: SmallVec<[usize; 4]> = (0..charges.len())
        .filter(|index| !charges[*index].quota.is_ban())
        .collect();
    let judged = numbers.iter().map(|index| match charges[*index] {
        charge if is_spared(&charge) => Charge {
            mode: Mode::Probe,
            ..charge
        },
        charge => charge,
    });
    let judged: SmallVec<[Charge<'_>; 4]> = judged.collect();
    let mut others = OtherCharges { states, numbers };
    let decision = decide_in_groups(now, &judged, &mut others, !is_banned);
    let OtherCharges { states, numbers } = others;
    let strikes = |mode| match mode {
        Mode::Enforce => !is_banned,
        Mode::Shadow => true,
        Mode::Probe => false,
    };
    let is_struck = |ban: &Charge<'_>| {
        let mut verdicts = judged.iter().zip(decision.verdicts());
        strikes(ban.mode)
            && verdicts.any(|(judged, verdict)| {
                ban.guards(judged) && strikes(judged.mode) && verdict.is_denied()
            })
    };
    let admitted = decision.is_admitted();

    let mut decided = numbers.iter().zip(decision.verdicts()).peekable();
    let verdicts = charges.iter().enumerate().map(|(index, charge)| {
        if let Some((_, verdict)) = decided.next_if(|(number, _)| **number == index) {
            return *verdict;
        }
        let (rule, state) = (charge.quota.rule(), states.state(index));
        let mode = charge.mode;
        let hears = mode.takes(admitted) || is_closed[index] && mode != Mode::Probe;
        let (mut passage, full_at, mut budget) = rule.step(state, now_us, charge.cost, hears);
        let takes = hears && passage == Passage::Open;
        if !is_closed[index] && is_struck(charge) {
            rule.strike(state, now_us);
            passage = rule.passage(state, now_us, charge.cost);
            budget = rule.budget(state, now_us);
        }
        let taken = if takes { charge.cost } else { 0 };
        let limit = charge.quota.capacity();
        Verdict::new(mode, passage, limit, budget, taken, full_at)
    });
    let verdicts: SmallVec<[Verdict; MAX_CHARGES]> = verdicts.collect();
    Decision::new(now, admitted, verdicts)
}
