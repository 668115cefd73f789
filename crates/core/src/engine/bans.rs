//! Calls with bans. A ban counts the denials of its policy's charges, and a banned identity is charged nothing.

use smallvec::SmallVec;

use super::{OtherCharges, States, decide_budgets};
use crate::algorithm::Passage;
use crate::{Charge, Decision, Mode, Timestamp, Verdict};

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
    let mut is_closed: SmallVec<[bool; 8]> = SmallVec::new();
    let (mut is_banned, mut is_banned_on_trial) = (false, false);
    for (index, charge) in charges.iter().enumerate() {
        let (rule, is_ban) = (charge.quota.rule(), charge.quota.is_ban());
        let passes = |state| rule.passage(state, now_us, charge.cost) == Passage::Open;
        let closed = is_ban && !passes(states.state(index));
        is_closed.push(closed);
        is_banned |= closed && charge.mode == Mode::Enforce;
        is_banned_on_trial |= closed && charge.mode == Mode::Shadow;
    }

    // On trial, a charge of a caller that would be banned is a question.
    let is_spared = |charge: &Charge<'_>| {
        let mut bans = charges.iter().zip(&is_closed);
        is_banned_on_trial
            && charge.mode == Mode::Shadow
            && bans.any(|(ban, is_closed)| {
                *is_closed && ban.mode == Mode::Shadow && ban.guards(charge)
            })
    };
    let mut numbers = SmallVec::new();
    let mut judged: SmallVec<[Charge<'_>; 4]> = SmallVec::new();
    for (index, charge) in charges.iter().enumerate() {
        if charge.quota.is_ban() {
            continue;
        }
        numbers.push(index);
        judged.push(Charge {
            mode: if is_spared(charge) {
                Mode::Probe
            } else {
                charge.mode
            },
            ..*charge
        });
    }
    let mut others = OtherCharges { states, numbers };
    let decision = decide_budgets(now, &judged, &mut others, !is_banned);
    let states = others.states;
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

    let mut decided = decision.verdicts().iter();
    let mut verdicts = SmallVec::with_capacity(charges.len());
    for (index, charge) in charges.iter().enumerate() {
        if !charge.quota.is_ban() {
            verdicts.extend(decided.next().copied());
            continue;
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
        verdicts.push(Verdict::new(mode, passage, limit, budget, taken, full_at));
    }
    Decision::of_several(now, admitted, verdicts)
}
