//! A count that starts anew in each window.

use super::{Budget, Decider, Passage, Point, Snapshot, count_up};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FixedWindow {
    pub(crate) limit: u64,
    pub(crate) period_us: u64,
    /// Below the period.
    pub(crate) offset_us: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct WindowCount {
    window: u64,
    count: u64,
}

impl FixedWindow {
    /// The number of the window that holds `time`. Number 0 is the window that holds the epoch.
    fn window(&self, time: u64) -> u64 {
        (time + (self.period_us - self.offset_us)) / self.period_us
    }

    /// The time until the window of a state ends. The state was brought to `now`.
    fn left(&self, state: &WindowCount, now: u64) -> u64 {
        state.window * self.period_us + self.offset_us - now
    }
}

impl Decider for FixedWindow {
    type State = WindowCount;

    fn advance(&self, state: &mut WindowCount, now: u64) {
        let window = self.window(now);
        if state.window < window {
            *state = WindowCount { window, count: 0 };
        } else if state.window > window + 1 {
            // The clock stepped back, and the count moves to the clock's window. A step of less than a period moves nothing,
            // for a count that moved would be dropped as soon as the clock is back; the window stays until it is over.
            state.window = window;
        }
    }

    fn passage(&self, state: &mut WindowCount, now: u64, cost: u64) -> Passage {
        if cost > self.limit {
            Passage::NEVER
        } else if cost == 0 || state.count + cost <= self.limit {
            Passage::Open
        } else {
            Passage::after(self.left(state, now))
        }
    }

    fn take(&self, state: &mut WindowCount, _now: u64, cost: u64) {
        state.count = count_up(state.count, cost, self.limit);
    }

    fn give_back(&self, state: &mut WindowCount, now: u64, at: u64, _full_at: Point, cost: u64) {
        if at <= now && self.window(at) == state.window {
            state.count = state.count.saturating_sub(cost);
        }
    }

    fn budget(&self, state: &WindowCount, now: u64) -> Budget {
        Budget {
            remaining: self.limit.saturating_sub(state.count),
            reset_after_us: if state.count > 0 {
                self.left(state, now)
            } else {
                0
            },
        }
    }
}

impl WindowCount {
    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot::FixedWindow {
            window: self.window,
            count: self.count,
        }
    }

    pub(super) fn restore(window: u64, count: u64) -> Self {
        Self { window, count }
    }

    /// One period after the window's end, or after its start if nothing was charged in it, because a clock that is less than a
    /// period behind may come back to it.
    pub(super) fn meaningless_at(&self, period_us: u64, offset_us: u64) -> u64 {
        match (self.window, self.count) {
            (0, 0) => 0,
            (_, 0) => self.window * period_us + offset_us,
            _ => (self.window + 1) * period_us + offset_us,
        }
    }
}
