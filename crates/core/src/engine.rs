//! How a call is decided: all or nothing over what is enforced, everything else on its own.

use smallvec::SmallVec;

use crate::algorithm::{Passage, Point};
use crate::{Charge, Decision, Mode, State, Timestamp, Verdict};

/// Where a backend keeps the states of a call's charges.
pub trait States {
    /// The state of charge number `index`. Charges of one scope and key have one state.
    fn state(&mut self, index: usize) -> &mut State;
}

impl States for [State] {
    fn state(&mut self, index: usize) -> &mut State {
        &mut self[index]
    }
}

/// Decides a call of one charge as [`decide`] does, if its quota is of the commonest kind; otherwise `None`, and nothing
/// has happened. For backends in whose calls every instruction counts.
#[must_use]
#[inline(always)]
pub fn decide_quickly(now: Timestamp, charge: &Charge<'_>, state: &mut State) -> Option<Decision> {
    let take = charge.mode != Mode::Probe;
    let quota = charge.quota;
    let verdict = quota.quick_verdict(state, now.as_micros(), charge.cost, take)?;
    Some(Decision::of_one(now, charge.mode, verdict))
}

/// Decides a call at `now`.
///
/// First all enforced charges: if each passes, each is taken; otherwise none is. Then, on what that left, each shadow
/// charge on its own, in order. Last the probes, which take nothing. Charges of one scope and key in one mode are one
/// charge of the summed cost, under the first one's quota.
///
/// The verdicts report each budget as the whole call left it.
#[must_use]
pub fn decide(
    now: Timestamp,
    charges: &[Charge<'_>],
    states: &mut (impl States + ?Sized),
) -> Decision {
    if let [charge] = charges {
        let take = charge.mode != Mode::Probe;
        let verdict = charge
            .quota
            .verdict(states.state(0), now.as_micros(), charge.cost, take);
        return Decision::of_one(now, charge.mode, verdict);
    }

    let mut groups = group(charges);
    let now_us = now.as_micros();

    let mut admitted = true;
    for group in groups
        .iter_mut()
        .filter(|group| group.mode == Mode::Enforce)
    {
        let quota = charges[group.first].quota;
        group.passage = quota.passage(states.state(group.first), now_us, group.cost);
        admitted &= group.passage == Passage::Open;
    }
    for group in groups
        .iter_mut()
        .filter(|group| group.mode == Mode::Enforce)
    {
        if admitted && group.cost > 0 {
            let quota = charges[group.first].quota;
            group.full_at = quota.take(states.state(group.first), now_us, group.cost);
            group.taken = true;
        }
    }
    for group in groups.iter_mut().filter(|group| group.mode == Mode::Shadow) {
        let quota = charges[group.first].quota;
        (group.passage, group.full_at, _) =
            quota.step(states.state(group.first), now_us, group.cost, true);
        group.taken = group.passage == Passage::Open;
    }
    for group in groups.iter_mut().filter(|group| group.mode == Mode::Probe) {
        let quota = charges[group.first].quota;
        group.passage = quota.passage(states.state(group.first), now_us, group.cost);
    }

    let verdicts = charges.iter().enumerate().map(|(index, charge)| {
        // Every charge is in a group; grouped by the same comparison.
        let group = groups
            .iter()
            .find(|group| group.holds(&charges[group.first], charge));
        let state = states.state(index);
        // Advances a state that only a charge of another mode has touched so far; no other effect.
        charge.quota.passage(state, now_us, 0);
        let budget = charge.quota.budget(state, now_us);
        let limit = charge.quota.capacity();
        match group {
            Some(group) => {
                let taken = if group.taken { charge.cost } else { 0 };
                Verdict::new(group.passage, limit, budget, taken, group.full_at)
            }
            None => Verdict::unknown(limit),
        }
    });
    Decision::new(now, admitted, verdicts.collect::<SmallVec<[_; 4]>>())
}

/// Charges of one scope, key and mode.
struct Group {
    first: usize,
    mode: Mode,
    cost: u64,
    passage: Passage,
    full_at: Point,
    taken: bool,
}

impl Group {
    fn holds(&self, first: &Charge<'_>, charge: &Charge<'_>) -> bool {
        self.mode == charge.mode && first.shares_state_with(charge)
    }
}

fn group(charges: &[Charge<'_>]) -> SmallVec<[Group; 4]> {
    let mut groups: SmallVec<[Group; 4]> = SmallVec::new();
    for (index, charge) in charges.iter().enumerate() {
        match groups
            .iter_mut()
            .find(|group| group.holds(&charges[group.first], charge))
        {
            Some(group) => group.cost = group.cost.saturating_add(charge.cost),
            None => groups.push(Group {
                first: index,
                mode: charge.mode,
                cost: charge.cost,
                passage: Passage::Open,
                full_at: Point::ZERO,
                taken: false,
            }),
        }
    }
    groups
}
