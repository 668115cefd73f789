//! Charges that count once: the memory of one id.
//!
//! The first admission of an id is remembered for the id's life. Until then a request with the id is a replay, as often as the
//! rule lets it, and later requests are charged anew. So a constant id does not get around a budget.
//!
//! A charge may be given back only if no replay has passed on it, and then none passes on it afterwards. Otherwise a caller could
//! send one request that is given back in the end, and replays of it in the meantime, without paying for any of them.

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
    /// The replays so far, with [`AGAIN`] added or not; [`CLOSED`] if the charge was given back.
    used: u8,
}

/// Added to the replays of a charge if an earlier one of the same microsecond had replays: its receipt is like the other's, so that
/// neither is given back.
const AGAIN: u8 = 128;

/// More than the replays of any rule.
const CLOSED: u8 = 255;

impl OnceRule {
    /// Says whether a request with the id is a replay of its first admission.
    pub(super) fn is_replay(&self, state: &mut SeenId, now: u64) -> bool {
        self.advance(state, now);
        state.until.get() > 0 && state.replays() < self.replays
    }

    /// Says whether the charge of `at` may be given back, as no replay has passed on it. From now on none does.
    pub(super) fn close(&self, state: &mut SeenId, now: u64, at: u64) -> bool {
        self.advance(state, now);
        let is_unused = matches!(state.used, 0 | CLOSED);
        let may_close = state.until.get() > 0 && state.since.get() == at && is_unused;
        if may_close {
            state.used = CLOSED;
        }
        may_close
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
        let is_again = state.until.get() > 0 && state.since.get() == now && state.used != CLOSED;
        *state = SeenId {
            since: now.into(),
            until: (now + self.life_us.get()).into(),
            used: if is_again { AGAIN } else { 0 },
        };
    }

    /// Does nothing: no id is charged after the fact.
    fn debit(&self, _state: &mut SeenId, _now: u64, _cost: u64) {}

    /// Does nothing: a credit of its charge [closes](Self::close) an id.
    fn give_back(&self, _state: &mut SeenId, _: u64, _: u64, _: Point, _: u64) {}

    /// The replays that are left, and the time after which the id is forgotten.
    fn budget(&self, state: &SeenId, now: u64) -> Budget {
        Budget {
            remaining: u64::from(self.replays.saturating_sub(state.replays())),
            reset_after_us: state.until.get().saturating_sub(now),
        }
    }
}

impl SeenId {
    const fn replays(&self) -> u8 {
        self.used % AGAIN
    }

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
    fn a_charge_may_be_given_back_until_a_replay_passes_and_then_none_does() {
        let closed = |at, replays| {
            let mut state = admitted(1_000);
            (0..replays).for_each(|_| state.count_replay());
            (
                RULE.close(&mut state, 1_050, at),
                RULE.is_replay(&mut state, 1_050),
            )
        };

        assert_eq!(closed(1_000, 0), (true, false));
        assert_eq!(closed(1_000, 1), (false, true));
        assert_eq!(closed(1_000, 2), (false, false));
        assert_eq!(closed(999, 0), (false, true), "an earlier charge");
    }

    #[test]
    fn every_charge_of_an_admission_may_be_given_back_and_none_after_its_life() {
        let mut state = admitted(1_000);

        assert!(RULE.close(&mut state, 1_050, 1_000));
        assert!(RULE.close(&mut state, 1_099, 1_000));
        assert!(!RULE.close(&mut state, 1_100, 1_000));
    }

    #[test]
    fn two_charges_of_one_microsecond_are_not_given_back() {
        let mut state = admitted(1_000);
        (0..2).for_each(|_| state.count_replay());
        RULE.take(&mut state, 1_000, 1);

        assert!(!RULE.close(&mut state, 1_050, 1_000));
        assert!(RULE.is_replay(&mut state, 1_050));

        RULE.take(&mut state, 1_051, 1);
        assert!(RULE.is_replay(&mut state, 1_052));
        assert!(RULE.close(&mut state, 1_053, 1_051));
    }

    #[test]
    fn a_state_comes_back_as_it_was_told() {
        let mut state = admitted(1_000);
        state.count_replay();
        let told = state.snapshot();

        assert_eq!(SeenId::restore(1_000, 1_100, 1).snapshot(), told);
    }
}
