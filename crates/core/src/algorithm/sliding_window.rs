//! Two counts: this window's, and the previous one's, weighed by the share of it that the sliding period still covers.
//!
//! Admits when previous × (period − elapsed) / period + current + cost ≤ limit, compared as fractions: both sides times
//! the period, in 128 bits.

use super::packed::PackedInteger;
use super::{Budget, Decider, Passage, Point, Snapshot, count_up};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SlidingWindow {
    pub(crate) limit: u64,
    pub(crate) period_us: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct WindowPair {
    window: PackedInteger<7>,
    previous: PackedInteger<6>,
    current: PackedInteger<6>,
}

impl SlidingWindow {
    fn window(&self, time: u64) -> u64 {
        time / self.period_us
    }

    /// The time, or the start of the state's window if the clock stepped back to before it.
    fn shown(&self, state: &WindowPair, now: u64) -> u64 {
        now.max(state.window.get() * self.period_us)
    }

    /// The rest of this window, which is the part of the previous one that the sliding period still covers.
    fn left(&self, time: u64) -> u64 {
        self.period_us - time % self.period_us
    }

    /// The most that may be left of a window of `count` to leave `room` enough: count × left / period ≤ room. Zero if the
    /// window has to be over.
    fn most_left(&self, count: u64, room: u64) -> u64 {
        let most = u128::from(room) * u128::from(self.period_us) / u128::from(count.max(1));
        u64::try_from(most).unwrap_or(u64::MAX)
    }
}

impl Decider for SlidingWindow {
    type State = WindowPair;

    fn advance(&self, state: &mut WindowPair, now: u64) {
        let window = self.window(now);
        if state.window.get() < window {
            state.previous = if state.window.get() + 1 == window {
                state.current
            } else {
                PackedInteger::ZERO
            };
            state.current = PackedInteger::ZERO;
            state.window = window.into();
        } else if state.window.get() > window + 1 {
            // The clock stepped back. The earlier weight of the previous count is unknown, so the count is taken in full, but
            // never beyond the limit. After a step of less than a period the window stays and waits for the clock: its counts
            // must not fade earlier than they would have.
            let (previous, current) = (state.previous.get(), state.current.get());
            state.current = current.max(self.limit.min(previous + current)).into();
            state.previous = PackedInteger::ZERO;
            state.window = window.into();
        }
    }

    fn passage(&self, state: &mut WindowPair, now: u64, cost: u64) -> Passage {
        if cost == 0 {
            return Passage::Open;
        }
        if cost > self.limit {
            return Passage::NEVER;
        }
        let (previous, current) = (state.previous.get(), state.current.get());
        let shown = self.shown(state, now);
        let (left, ahead) = (self.left(shown), shown - now);
        if let Some(room) = (self.limit - cost).checked_sub(current) {
            let fading = u128::from(previous) * u128::from(left);
            if fading <= u128::from(room) * u128::from(self.period_us) {
                return Passage::Open;
            }
            return Passage::after(ahead + left - self.most_left(previous, room));
        }
        // This window admits no more, because too much was charged in it. In the next one this window's count is the one that
        // fades.
        let most_left = self.most_left(current, self.limit - cost);
        Passage::after(ahead + left + self.period_us - most_left)
    }

    fn take(&self, state: &mut WindowPair, _now: u64, cost: u64) {
        state.current = count_up(state.current.get(), cost, self.limit).into();
    }

    fn give_back(&self, state: &mut WindowPair, now: u64, at: u64, _full_at: Point, cost: u64) {
        if at > now {
            return;
        }
        let (charged, window) = (self.window(at), state.window.get());
        if charged == window {
            state.current = state.current.get().saturating_sub(cost).into();
        } else if charged + 1 == window {
            state.previous = state.previous.get().saturating_sub(cost).into();
        }
    }

    fn budget(&self, state: &WindowPair, now: u64) -> Budget {
        let (previous, current) = (state.previous.get(), state.current.get());
        let shown = self.shown(state, now);
        let (left, ahead) = (self.left(shown), shown - now);
        let fading = u128::from(previous) * u128::from(left);
        let faded = u64::try_from(fading.div_ceil(u128::from(self.period_us))).unwrap_or(u64::MAX);
        let reset_after_us = match (previous, current) {
            (0, 0) => 0,
            (_, 0) => ahead + left,
            _ => ahead + left + self.period_us,
        };
        Budget {
            remaining: self.limit.saturating_sub(current.saturating_add(faded)),
            reset_after_us,
        }
    }
}

impl WindowPair {
    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot::SlidingWindow {
            window: self.window.get(),
            previous: self.previous.get(),
            current: self.current.get(),
        }
    }

    pub(super) fn restore(window: u64, previous: u64, current: u64) -> Self {
        Self {
            window: window.into(),
            previous: previous.into(),
            current: current.into(),
        }
    }

    /// One period after it stops counting, because a clock that is less than a period behind may come back to it.
    pub(super) fn meaningless_at(&self, period_us: u64) -> u64 {
        let window = self.window.get();
        match (self.previous.get(), self.current.get()) {
            (0, 0) if window == 0 => 0,
            (0, 0) => (window + 1) * period_us,
            (_, 0) => (window + 2) * period_us,
            _ => (window + 3) * period_us,
        }
    }
}
