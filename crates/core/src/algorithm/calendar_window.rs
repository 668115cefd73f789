//! A count that starts anew in each window of a calendar.
//!
//! A state keeps the bounds of its window. So the calendar is asked only when a window is over. Two processes that know
//! different versions of a zone may disagree about an end: even then a window begins only after the one before it is over.

use super::packed::PackedInteger;
use super::{Budget, Decider, Passage, Point, Snapshot, Step, count_up};
use crate::Calendar;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CalendarWindow {
    pub(crate) limit: u64,
    pub(crate) calendar: Calendar,
}

#[derive(Clone, Debug, Default)]
pub(super) struct CalendarCount {
    start_us: PackedInteger<7>,
    end_us: PackedInteger<7>,
    count: PackedInteger<6>,
}

/// A state, unpacked.
#[derive(Clone, Copy)]
struct Window {
    start_us: u64,
    end_us: u64,
    count: u64,
}

impl CalendarWindow {
    fn advance(&self, window: Window, now: u64) -> Window {
        if window.start_us <= now && now < window.end_us {
            window
        } else {
            self.moved(window, now)
        }
    }

    /// Moves a window that does not hold now.
    #[cold]
    fn moved(&self, window: Window, now: u64) -> Window {
        let [start_us, end_us, next_end_us] = self.calendar.window(now);
        if now >= window.end_us {
            Window {
                // Earlier charges belong to the window that is over.
                start_us: start_us.max(window.end_us),
                end_us,
                count: 0,
            }
        } else if window.end_us > next_end_us {
            // The clock stepped back, and the count moves to the clock's window. A step of less than a window leaves the
            // state as it is until the window is over: a count that moved would be dropped as soon as the clock is back.
            Window {
                start_us,
                end_us,
                ..window
            }
        } else {
            window
        }
    }

    fn passage(&self, window: Window, now: u64, cost: u64) -> Passage {
        if cost > self.limit {
            Passage::NEVER
        } else if cost == 0 || window.count + cost <= self.limit {
            Passage::Open
        } else {
            Passage::after(window.left(now))
        }
    }

    fn budget(&self, window: Window, now: u64) -> Budget {
        Budget {
            remaining: self.limit.saturating_sub(window.count),
            reset_after_us: if window.count > 0 {
                window.left(now)
            } else {
                0
            },
        }
    }
}

impl Decider for CalendarWindow {
    type State = CalendarCount;

    fn advance(&self, state: &mut CalendarCount, now: u64) {
        *state = self.advance(state.window(), now).packed();
    }

    fn passage(&self, state: &mut CalendarCount, now: u64, cost: u64) -> Passage {
        self.passage(state.window(), now, cost)
    }

    fn take(&self, state: &mut CalendarCount, _now: u64, cost: u64) {
        let count = count_up(state.count.get(), cost, self.limit);
        state.count = PackedInteger::of(count);
    }

    fn give_back(&self, state: &mut CalendarCount, now: u64, at: u64, _full_at: Point, cost: u64) {
        let window = state.window();
        if window.start_us <= at && at <= now {
            state.count = PackedInteger::of(window.count.saturating_sub(cost));
        }
    }

    fn budget(&self, state: &CalendarCount, now: u64) -> Budget {
        self.budget(state.window(), now)
    }

    fn step(&self, state: &mut CalendarCount, now: u64, cost: u64, take: bool) -> Step {
        let mut window = self.advance(state.window(), now);
        let passage = self.passage(window, now, cost);
        if take && passage == Passage::Open {
            window.count += cost;
        }
        *state = window.packed();
        (passage, Point::ZERO, self.budget(window, now))
    }
}

impl Window {
    /// The time until it ends. It was brought to `now`.
    fn left(self, now: u64) -> u64 {
        self.end_us.saturating_sub(now)
    }

    fn packed(self) -> CalendarCount {
        CalendarCount {
            start_us: PackedInteger::of(self.start_us),
            end_us: PackedInteger::of(self.end_us),
            count: PackedInteger::of(self.count),
        }
    }
}

impl CalendarCount {
    fn window(&self) -> Window {
        Window {
            start_us: self.start_us.get(),
            end_us: self.end_us.get(),
            count: self.count.get(),
        }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let Window {
            start_us,
            end_us,
            count,
        } = self.window();
        Snapshot::Calendar {
            start_us,
            end_us,
            count,
        }
    }

    pub(super) fn restore(start_us: u64, end_us: u64, count: u64) -> Self {
        Window {
            start_us,
            end_us,
            count,
        }
        .packed()
    }

    /// The length of the window after its end, because a clock that is less than that behind may come back to it; its end if
    /// nothing was charged in it.
    pub(super) fn meaningless_at(&self) -> u64 {
        let Window {
            start_us,
            end_us,
            count,
        } = self.window();
        if count == 0 {
            end_us
        } else {
            end_us + end_us.saturating_sub(start_us)
        }
    }
}
