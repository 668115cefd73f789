//! Decides a call: all or nothing over the enforced charges, each other charge on its own.

mod bans;
mod grants;
mod ids;
mod known;

pub use self::grants::{check_up_to, decide_up_to};
pub use self::known::deny_by_known;

use smallvec::SmallVec;

use crate::algorithm::{Passage, Point, Step};
use crate::{Charge, Decision, Mode, Quota, State, Timestamp, Verdict};

/// The place where a backend keeps the states of a call's charges.
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
/// has happened. It serves backends for which every instruction counts.
#[must_use]
#[inline(always)]
pub fn decide_quickly(now: Timestamp, charge: &Charge<'_>, state: &mut State) -> Option<Decision> {
    let take = charge.mode != Mode::Probe;
    let quota = charge.quota;
    let verdict = quick_verdict(
        quota,
        state,
        now.as_micros(),
        charge.cost,
        charge.mode,
        take,
    )?;
    Some(Decision::of_one(now, charge.mode, verdict))
}

/// Decides a call of one charge as [`decide`] does, whatever its quota. For backends, if [`decide_quickly`] does not.
#[must_use]
#[inline]
pub fn decide_one(now: Timestamp, charge: &Charge<'_>, state: &mut State) -> Decision {
    let (quota, cost, mode) = (charge.quota, charge.cost, charge.mode);
    let take = mode != Mode::Probe;
    let (rule, now_us) = (quota.rule(), now.as_micros());
    let verdict = match rule.held_step(state, now_us, cost, take) {
        Some(step) => verdict_of(step, quota, cost, mode, take),
        None => {
            let step = rule.step(state, now_us, cost, take);
            verdict_of(step, quota, cost, mode, take)
        }
    };
    Decision::of_one(now, mode, verdict)
}

/// Decides a call at `now`.
///
/// The enforced charges come first: if each passes, each is taken; otherwise none is. Each shadow charge follows on its own, in
/// order, against the state that this leaves. The probes come last and take nothing. Charges of one scope and key in one mode are
/// one charge of the summed cost, under the first one's quota.
///
/// The verdicts report each budget as the whole call left it. A denied call may hold an enforced charge and a shadow charge on
/// one budget. The enforced charge is then judged by the budget after the shadow, so that the wait it is told is long enough.
#[must_use]
pub fn decide(
    now: Timestamp,
    charges: &[Charge<'_>],
    states: &mut (impl States + ?Sized),
) -> Decision {
    if let [charge] = charges {
        return decide_one(now, charge, states.state(0));
    }

    if charges.iter().any(|charge| charge.quota.is_once()) {
        return ids::decide_with_ids(now, charges, states);
    }
    if charges.iter().any(|charge| charge.quota.is_ban()) {
        return bans::decide_with_bans(now, charges, states);
    }
    decide_budgets(now, charges, states, true)
}

/// Decides charges of budgets alone. If the call may not be admitted, the enforced ones are judged, and not taken.
fn decide_budgets(
    now: Timestamp,
    charges: &[Charge<'_>],
    states: &mut (impl States + ?Sized),
    may_admit: bool,
) -> Decision {
    if are_apart(charges) {
        decide_apart(now, charges, states, may_admit)
    } else {
        decide_in_groups(now, charges, states, may_admit)
    }
}

/// Decides charges of which several may name one state.
fn decide_in_groups(
    now: Timestamp,
    charges: &[Charge<'_>],
    states: &mut (impl States + ?Sized),
    may_admit: bool,
) -> Decision {
    let mut groups = group(charges);
    let now_us = now.as_micros();

    let mut admitted = may_admit;
    for group in groups.iter().filter(|group| group.mode == Mode::Enforce) {
        let quota = charges[group.first].quota;
        let passage = quota
            .rule()
            .passage(states.state(group.first), now_us, group.cost);
        admitted &= passage.passes();
    }
    for mode in [Mode::Enforce, Mode::Shadow, Mode::Probe] {
        for group in groups.iter_mut().filter(|group| group.mode == mode) {
            let quota = charges[group.first].quota;
            let state = states.state(group.first);
            group.takes = mode.takes(admitted);
            (group.passage, group.full_at, _) =
                quota.rule().step(state, now_us, group.cost, group.takes);
        }
    }
    if !admitted {
        // A shadow may have taken from the budget that an enforced charge waits for. The enforced charge's wait must be true of
        // what is left.
        for group in groups
            .iter_mut()
            .filter(|group| group.mode == Mode::Enforce)
        {
            let quota = charges[group.first].quota;
            group.passage = quota
                .rule()
                .passage(states.state(group.first), now_us, group.cost);
        }
    }

    let verdicts = charges.iter().enumerate().map(|(index, charge)| {
        // Every charge is in a group, because the groups were made by the same comparison.
        let group = groups
            .iter_mut()
            .find(|group| group.holds(&charges[group.first], charge));
        let state = states.state(index);
        // The rest that the other groups have left, seen by this quota. This brings the state to now and has no other effect.
        charge.quota.rule().passage(state, now_us, 0);
        let budget = charge.quota.rule().budget(state, now_us);
        let limit = charge.quota.capacity();
        match group {
            Some(group) => {
                let taken = if group.takes { charge.cost } else { 0 };
                let (mode, passage) = (charge.mode, group.passage);
                let full_at = group.full_at_of(taken, &charges[group.first]);
                Verdict::new(mode, passage, limit, budget, taken, full_at)
            }
            None => Verdict::unknown(limit),
        }
    });
    Decision::new(now, admitted, verdicts)
}

/// Says whether no two charges name one state, which is the usual case.
fn are_apart(charges: &[Charge<'_>]) -> bool {
    let mut before = charges.iter().enumerate();
    before.all(|(index, charge)| {
        let mut others = charges[..index].iter();
        !others.any(|other| other.shares_state_with(charge))
    })
}

/// Decides without groups, and with one visit to each state, since no other charge names it.
fn decide_apart(
    now: Timestamp,
    charges: &[Charge<'_>],
    states: &mut (impl States + ?Sized),
    may_admit: bool,
) -> Decision {
    let now_us = now.as_micros();
    let mut numbered = charges.iter().enumerate();
    let admitted = may_admit
        && numbered.all(|(index, charge)| {
            let passage = |state| charge.quota.rule().passage(state, now_us, charge.cost);
            charge.mode != Mode::Enforce || passage(states.state(index)).passes()
        });
    let mut verdicts = SmallVec::with_capacity(charges.len());
    for (index, charge) in charges.iter().enumerate() {
        let take = charge.mode.takes(admitted);
        let (quota, state) = (charge.quota, states.state(index));
        let (cost, mode) = (charge.cost, charge.mode);
        verdicts.push(
            match quick_verdict(quota, state, now_us, cost, mode, take) {
                Some(verdict) => verdict,
                None => {
                    let step = quota.rule().step(state, now_us, cost, take);
                    verdict_of(step, quota, cost, mode, take)
                }
            },
        );
    }
    Decision::of_several(now, admitted, verdicts)
}

/// The verdict on a charge that is alone in its call, from the step that it took.
#[inline(always)]
fn verdict_of(
    (passage, full_at, budget): Step,
    quota: &Quota,
    cost: u64,
    mode: Mode,
    take: bool,
) -> Verdict {
    let taken = if take { cost } else { 0 };
    Verdict::new(mode, passage, quota.capacity(), budget, taken, full_at)
}

/// This verdict for the commonest algorithm in 64 bits; `None` if the quota needs the general way.
// Inlined always: a call would hand the result over in memory.
#[inline(always)]
fn quick_verdict(
    quota: &Quota,
    state: &mut State,
    now: u64,
    cost: u64,
    mode: Mode,
    take: bool,
) -> Option<Verdict> {
    let step = quota.rule().quick_step(state, now, cost, take)?;
    Some(verdict_of(step, quota, cost, mode, take))
}

impl Mode {
    /// Says whether a passing charge of this mode is taken.
    fn takes(self, admitted: bool) -> bool {
        match self {
            Self::Enforce => admitted,
            Self::Shadow => true,
            Self::Probe => false,
        }
    }
}

/// The charges of a call that are decided by themselves, by their numbers.
struct OtherCharges<'a, S: ?Sized> {
    states: &'a mut S,
    numbers: SmallVec<[usize; 4]>,
}

impl<S: States + ?Sized> States for OtherCharges<'_, S> {
    fn state(&mut self, index: usize) -> &mut State {
        self.states.state(self.numbers[index])
    }
}

/// Charges with one scope, key and mode.
struct Group {
    first: usize,
    mode: Mode,
    cost: u64,
    passage: Passage,
    full_at: Point,
    takes: bool,
}

impl Group {
    fn holds(&self, first: &Charge<'_>, charge: &Charge<'_>) -> bool {
        self.mode == charge.mode && first.shares_state_with(charge)
    }

    /// The time at which the budget would have been full after the next charge of the group that took this much. Charges that may
    /// wait drain one behind the other, so that two of them that are withdrawn free two stretches, and not one twice.
    fn full_at_of(&mut self, taken: u64, first: &Charge<'_>) -> Point {
        let full_at = self.full_at;
        if self.takes && first.quota.waits() {
            self.full_at = first.quota.rule().earlier(full_at, taken);
        }
        full_at
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
                takes: false,
            }),
        }
    }
    groups
}
