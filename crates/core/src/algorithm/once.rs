//! Charges that count once: the memory of one id.
//!
//! The first admission of an id is remembered for the id's life. Until then a request with the id is a replay, as often as the
//! rule lets it, and later requests are charged anew. So a constant id does not get around a budget.

use super::packed::PackedInteger;
use super::{Budget, Decider, Passage, Point, Snapshot};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OnceRule {
    pub(crate) life_us: PackedInteger<6>,
    pub(crate) replays: u8,
}

/// All zeros, if nothing is remembered.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenId {
    since: PackedInteger<7>,
    until: PackedInteger<7>,
    /// The replays so far.
    used: u8,
}

impl OnceRule {
    /// Says whether a request with the id is a replay of its first admission.
    pub(super) fn is_replay(&self, state: &mut SeenId, now: u64) -> bool {
        self.advance(state, now);
        state.until.get() > 0 && state.used < self.replays
    }
}

impl Decider for OnceRule {
    type State = SeenId;

    /// A clock that stepped back to before the first admission begins the id's life anew, so that it is no longer than it was.
    fn advance(&self, state: &mut SeenId, now: u64) {
        let (since, until) = (state.since.get(), state.until.get());
        if now >= until {
            *state = SeenId::default();
        } else if now < since {
            state.since = now.into();
            state.until = (now + (until - since)).into();
        }
    }

    fn passage(&self, _state: &mut SeenId, _now: u64, _cost: u64) -> Passage {
        Passage::Open
    }

    /// Remembers an admission.
    fn take(&self, state: &mut SeenId, now: u64, _cost: u64) {
        *state = SeenId {
            since: now.into(),
            until: (now + self.life_us.get()).into(),
            used: 0,
        };
    }

    /// Does nothing: no id is charged after the fact.
    fn debit(&self, _state: &mut SeenId, _now: u64, _cost: u64) {}

    /// Forgets the admission, unless a later one is remembered by now.
    fn give_back(&self, state: &mut SeenId, _now: u64, at: u64, _full_at: Point, cost: u64) {
        if cost > 0 && at >= state.since.get() {
            *state = SeenId::default();
        }
    }

    /// The replays that are left, and the time after which the id is forgotten.
    fn budget(&self, state: &SeenId, now: u64) -> Budget {
        Budget {
            remaining: u64::from(self.replays.saturating_sub(state.used)),
            reset_after_us: state.until.get().saturating_sub(now),
        }
    }
}

impl SeenId {
    pub(super) fn count_replay(&mut self) {
        self.used = self.used.saturating_add(1);
    }

    pub(super) fn meaningless_at(&self) -> u64 {
        self.until.get()
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot::Once {
            since_us: self.since.get(),
            until_us: self.until.get(),
            replays: self.used,
        }
    }

    pub(super) fn restore(since_us: u64, until_us: u64, replays: u8) -> Self {
        Self {
            since: since_us.into(),
            until: until_us.into(),
            used: replays,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: OnceRule = OnceRule {
        life_us: PackedInteger::fitting(100),
        replays: 2,
    };

    fn admitted(at: u64) -> SeenId {
        let mut state = SeenId::default();
        RULE.take(&mut state, at, 1);
        state
    }

    #[test]
    fn an_id_lives_as_long_as_ever_by_a_clock_that_stepped_back() {
        let mut state = admitted(1_000);

        assert!(RULE.is_replay(&mut state, 10));

        assert_eq!(state.meaningless_at(), 110);
        assert!(RULE.is_replay(&mut state, 109));
        assert!(!RULE.is_replay(&mut state, 110));
    }

    #[test]
    fn a_credit_forgets_the_admission_that_it_gives_back_and_no_later_one() {
        let credited = |at, cost| {
            let mut state = admitted(1_000);
            RULE.give_back(&mut state, 1_050, at, Point::ZERO, cost);
            state.meaningless_at()
        };

        for (at, cost, ends) in [
            (1_000, 1, 0),
            (1_001, 1, 0),
            (999, 1, 1_100),
            (1_000, 0, 1_100),
        ] {
            assert_eq!(credited(at, cost), ends, "{cost} of {at}");
        }
    }

    #[test]
    fn a_state_comes_back_as_it_was_told() {
        let mut state = admitted(1_000);
        state.count_replay();
        let told = state.snapshot();

        assert_eq!(SeenId::restore(1_000, 1_100, 1).snapshot(), told);
    }
}
