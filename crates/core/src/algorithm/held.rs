//! A count of the units that are held at this moment: taken by a charge, and given back by its receipt.
//!
//! No time passes here. A unit is held until its receipt gives it back, however long that takes. So the time at which a refused
//! charge will pass is unknown.
//!
//! Each stretch in which anything is held has a *generation*, the time at which it began. Receipts name it. A receipt from
//! before a [reset](crate::Admin::reset) therefore cannot release the units of a later charge.

use super::{Budget, Decider, Passage, Point, RetryAfter, Snapshot};

/// The time for which a state is kept since something was first held, if nothing is any more: ten seconds.
const KEPT_US: u64 = 10_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) limit: u64,
    /// The longest time that a request may wait for a place. The rule does not read it: waiting requests stand in a queue of
    /// their process, and ask again.
    pub(crate) wait_us: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct HeldPlaces {
    held: u64,
    /// The time at which the first of the held units was taken.
    generation: u64,
}

impl Decider for Held {
    type State = HeldPlaces;

    fn passage(&self, state: &mut HeldPlaces, _now: u64, cost: u64) -> Passage {
        if cost > self.limit {
            Passage::NEVER
        } else if cost == 0 || state.held + cost <= self.limit {
            Passage::Open
        } else {
            Passage::Closed(RetryAfter::Unknown)
        }
    }

    fn take(&self, state: &mut HeldPlaces, now: u64, cost: u64) {
        if state.held == 0 {
            state.generation = now;
        }
        state.held = state.held.saturating_add(cost);
    }

    /// Does nothing: a debit has no receipt, so what it took would be held for ever.
    fn debit(&self, _state: &mut HeldPlaces, _now: u64, _cost: u64) {}

    fn give_back(&self, state: &mut HeldPlaces, _now: u64, _at: u64, full_at: Point, cost: u64) {
        if full_at.us == state.generation {
            state.held = state.held.saturating_sub(cost);
        }
    }

    fn budget(&self, state: &HeldPlaces, _now: u64) -> Budget {
        Budget {
            remaining: self.limit.saturating_sub(state.held),
            reset_after_us: 0,
        }
    }

    /// The generation.
    fn full_at(&self, state: &HeldPlaces) -> Point {
        Point {
            us: state.generation,
            rest: 0,
        }
    }
}

impl HeldPlaces {
    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot::Held {
            held: self.held,
            generation_us: self.generation,
        }
    }

    pub(super) fn restore(held: u64, generation: u64) -> Self {
        Self { held, generation }
    }

    /// Never, while anything is held. Afterwards it means nothing, and is kept for a while all the same: a caller that held
    /// something comes again soon, and then a state is found faster than made.
    pub(super) fn meaningless_at(&self) -> u64 {
        if self.held == 0 {
            self.generation.saturating_add(KEPT_US)
        } else {
            u64::MAX
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Held = Held {
        limit: 3,
        wait_us: 0,
    };

    fn taken(state: &mut HeldPlaces, now: u64, cost: u64) -> Option<Point> {
        let (passage, full_at, _) = RULE.step(state, now, cost, true);
        (passage == Passage::Open).then_some(full_at)
    }

    #[test]
    fn what_is_held_is_held_however_much_time_passes() {
        let mut state = HeldPlaces::default();
        let first = taken(&mut state, 5, 1).unwrap();
        let second = taken(&mut state, 7, 2).unwrap();
        assert_eq!(state.meaningless_at(), u64::MAX);
        for now in [7, 8, u64::MAX / 2] {
            let passage = RULE.passage(&mut state, now, 1);
            assert_eq!(passage, Passage::Closed(RetryAfter::Unknown));
        }
        RULE.give_back(&mut state, 9, 5, first, 1);
        assert_eq!(RULE.budget(&state, 9).remaining, 1);
        RULE.give_back(&mut state, 9, 7, second, 2);
        assert_eq!(RULE.budget(&state, 9).remaining, 3);
        assert_eq!(state.meaningless_at(), 5 + KEPT_US);
    }

    #[test]
    fn a_weight_above_the_limit_never_passes_and_one_of_nothing_always_does() {
        let mut state = HeldPlaces::default();
        taken(&mut state, 1, 3).unwrap();
        assert_eq!(RULE.passage(&mut state, 1, 4), Passage::NEVER);
        assert_eq!(RULE.passage(&mut state, 1, 0), Passage::Open);
    }

    #[test]
    fn a_receipt_from_before_a_reset_gives_nothing_back_that_a_later_charge_holds() {
        let mut state = HeldPlaces::default();
        let before = taken(&mut state, 1, 1).unwrap();
        state = HeldPlaces::default();
        taken(&mut state, 2, 1).unwrap();
        RULE.give_back(&mut state, 3, 1, before, 1);
        assert_eq!(RULE.budget(&state, 3).remaining, 2);
    }

    /// The clock may step back between two charges: the generation is compared for equality alone.
    #[test]
    fn a_clock_that_steps_loses_no_unit() {
        let mut state = HeldPlaces::default();
        let first = taken(&mut state, 1_000, 1).unwrap();
        let second = taken(&mut state, 10, 1).unwrap();
        RULE.give_back(&mut state, 5, 10, second, 1);
        RULE.give_back(&mut state, 1, 1_000, first, 1);
        assert_eq!(RULE.budget(&state, 1).remaining, 3);
    }

    #[test]
    fn a_debit_holds_nothing() {
        let mut state = HeldPlaces::default();
        RULE.debit(&mut state, 1, 2);
        assert_eq!(RULE.budget(&state, 1).remaining, 3);
    }
}
