//! The state of one key, whatever its rule is.

use std::time::Duration;

use super::calendar_window::CalendarCount;
use super::fixed_window::WindowCount;
use super::gcra::{Bucket, Reach};
use super::held::HeldPlaces;
use super::interval_refill::OwedRefills;
use super::once::SeenId;
use super::penalty::StrikeRecord;
use super::rolling_window::BucketCounts;
use super::sliding_log::ChargeLog;
use super::sliding_window::WindowPair;
use super::{Point, Snapshot, Unit};
use crate::Timestamp;

/// The state that a backend remembers of one key under one [`Scope`](crate::Scope).
///
/// Opaque: only [`decide`](crate::decide) and [`Receipt`](crate::Receipt) read it. It takes 24 bytes, so that a million of them
/// are cheap; buckets and logs live on the heap.
///
/// # Clocks that step
///
/// A clock that steps back by *D* never refills a budget. It may make one look up to *D* fuller, never fuller than full: a
/// state further ahead of now than eight budgets is brought back to that. A window or log stays where it is while the clock is
/// less than a period behind it, and new charges go into it. If the clock is further back, the window moves to now with its
/// counts. A step forward drains what it covers.
///
/// # Quotas that share a state
///
/// Callers may name different quotas for one state, as while a deploy changes a limit. No quota mistakes the other's debt for a
/// clock that stepped back: the ceiling of eight budgets is counted by the longer drain of the two quotas, the one that asks
/// and the one that wrote the state. A caller of the shorter quota waits for at most one full drain of the longer after the last
/// charge under that, or for eight if the key owes more than a budget. The verdict's retry-after says so.
///
/// # Units that are held
///
/// The state of a [`Concurrent`](crate::Concurrent) limit knows no time. It is not meaningless, and must not be forgotten, while
/// anything is held.
#[derive(Clone, Debug)]
pub struct State(pub(super) Repr);

#[derive(Clone, Debug)]
pub(super) enum Repr {
    Gcra(Bucket),
    FixedWindow(WindowCount),
    SlidingWindow(WindowPair),
    RollingWindow(BucketCounts),
    SlidingLog(ChargeLog),
    IntervalRefill(OwedRefills),
    Calendar(CalendarCount),
    Held(HeldPlaces),
    Ban(StrikeRecord),
    Once(SeenId),
}

impl State {
    /// The state of a key that was never seen, in this unit: its budget is full.
    #[must_use]
    pub fn empty(unit: Unit) -> Self {
        Self(match unit {
            Unit::Gcra => Repr::Gcra(Bucket::default()),
            Unit::FixedWindow { .. } => Repr::FixedWindow(WindowCount::default()),
            Unit::SlidingWindow { .. } => Repr::SlidingWindow(WindowPair::default()),
            Unit::RollingWindow { buckets, .. } => Repr::RollingWindow(BucketCounts::of(buckets)),
            Unit::SlidingLog { .. } => Repr::SlidingLog(ChargeLog::default()),
            Unit::IntervalRefill { .. } => Repr::IntervalRefill(OwedRefills::default()),
            Unit::Calendar(_) => Repr::Calendar(CalendarCount::default()),
            Unit::Held => Repr::Held(HeldPlaces::default()),
            Unit::Ban => Repr::Ban(StrikeRecord::default()),
            Unit::Once => Repr::Once(SeenId::default()),
        })
    }

    /// The time from which this state says only that the budget is full, so that forgetting it changes nothing. A window or log
    /// loses its meaning a period after its end: if the clock stepped back, a forgotten window would begin anew.
    #[must_use]
    pub fn meaningless_at(&self, unit: Unit) -> Timestamp {
        // A state of another unit has no meaning in this one.
        const NOW: u64 = 0;
        Timestamp::from_micros(match unit {
            Unit::Gcra => match &self.0 {
                Repr::Gcra(state) => state.meaningless_at(),
                _ => NOW,
            },
            Unit::FixedWindow {
                period_us,
                offset_us,
            } => match &self.0 {
                Repr::FixedWindow(state) => state.meaningless_at(period_us, offset_us),
                _ => NOW,
            },
            Unit::SlidingWindow { period_us } => match &self.0 {
                Repr::SlidingWindow(state) => state.meaningless_at(period_us),
                _ => NOW,
            },
            Unit::RollingWindow { period_us, buckets } => match &self.0 {
                Repr::RollingWindow(state) => state.meaningless_at(period_us, buckets),
                _ => NOW,
            },
            Unit::SlidingLog { period_us } => match &self.0 {
                Repr::SlidingLog(state) => state.meaningless_at(period_us),
                _ => NOW,
            },
            Unit::IntervalRefill {
                period_us,
                offset_us,
            } => match &self.0 {
                Repr::IntervalRefill(state) => state.meaningless_at(period_us, offset_us),
                _ => NOW,
            },
            Unit::Calendar(_) => match &self.0 {
                Repr::Calendar(state) => state.meaningless_at(),
                _ => NOW,
            },
            Unit::Held => match &self.0 {
                Repr::Held(state) => state.meaningless_at(),
                _ => NOW,
            },
            Unit::Ban => match &self.0 {
                Repr::Ban(state) => state.meaningless_at(),
                _ => NOW,
            },
            Unit::Once => match &self.0 {
                Repr::Once(state) => state.meaningless_at(),
                _ => NOW,
            },
        })
    }

    /// The time for which an identity with this state is still banned at `now`; `None` if it is not.
    #[must_use]
    pub fn banned_for(&self, now: Timestamp) -> Option<Duration> {
        match &self.0 {
            Repr::Ban(state) => state.banned_for(now.as_micros()),
            _ => None,
        }
    }

    /// The number of entries, if the state is a log of charges; the others take at most two kilobytes.
    #[doc(hidden)]
    #[must_use]
    pub fn entries(&self) -> usize {
        match &self.0 {
            Repr::SlidingLog(state) => state.entries(),
            _ => 0,
        }
    }

    /// The state as plain numbers.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        match &self.0 {
            Repr::Gcra(state) => state.snapshot(),
            Repr::FixedWindow(state) => state.snapshot(),
            Repr::SlidingWindow(state) => state.snapshot(),
            Repr::RollingWindow(state) => state.snapshot(),
            Repr::SlidingLog(state) => state.snapshot(),
            Repr::IntervalRefill(state) => state.snapshot(),
            Repr::Calendar(state) => state.snapshot(),
            Repr::Held(state) => state.snapshot(),
            Repr::Ban(state) => state.snapshot(),
            Repr::Once(state) => state.snapshot(),
        }
    }
}

impl From<Snapshot> for State {
    fn from(snapshot: Snapshot) -> Self {
        Self(match snapshot {
            Snapshot::Gcra {
                full_at_us,
                rest,
                rest_of,
                exponent,
                thirty_seconds,
                credits,
                queue,
                cold_at_us,
                cold_at_ticks,
            } => {
                let point = Point {
                    us: full_at_us,
                    rest,
                };
                let reach = Reach::new(exponent, thirty_seconds);
                let cold_at = (cold_at_us, cold_at_ticks);
                Repr::Gcra(Bucket::restore(
                    point, rest_of, reach, &credits, &queue, cold_at,
                ))
            }
            Snapshot::FixedWindow { window, count } => {
                Repr::FixedWindow(WindowCount::restore(window, count))
            }
            Snapshot::SlidingWindow {
                window,
                previous,
                current,
            } => Repr::SlidingWindow(WindowPair::restore(window, previous, current)),
            Snapshot::RollingWindow { newest, counts } => {
                Repr::RollingWindow(BucketCounts::restore(newest, counts))
            }
            Snapshot::SlidingLog { entries } => Repr::SlidingLog(ChargeLog::restore(entries)),
            Snapshot::IntervalRefill {
                window,
                ahead,
                count,
            } => Repr::IntervalRefill(OwedRefills::restore(window, ahead, count)),
            Snapshot::Calendar {
                start_us,
                end_us,
                count,
            } => Repr::Calendar(CalendarCount::restore(start_us, end_us, count)),
            Snapshot::Held {
                held,
                generation_us,
            } => Repr::Held(HeldPlaces::restore(held, generation_us)),
            Snapshot::Ban {
                since_us,
                until_us,
                level,
                strikes_us,
                kept_until_us,
            } => Repr::Ban(StrikeRecord::restore(
                since_us,
                until_us,
                level,
                strikes_us,
                kept_until_us,
            )),
            Snapshot::Once {
                since_us,
                until_us,
                replays,
            } => Repr::Once(SeenId::restore(since_us, until_us, replays)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{CreditMark, QueueMark};

    #[test]
    fn a_state_is_24_bytes() {
        assert_eq!(size_of::<State>(), 24);
    }

    #[test]
    fn a_state_comes_back_from_its_snapshot_as_it_was() {
        let credit = |at_us| CreditMark {
            at_us,
            from_us: 5,
            length_us: 3,
            last_us: 90,
        };
        let gcra = |rest, rest_of, thirty_seconds, credits| Snapshot::Gcra {
            full_at_us: 77,
            rest,
            rest_of,
            exponent: 4,
            thirty_seconds,
            credits,
            queue: QueueMark::default(),
            cold_at_us: 0,
            cold_at_ticks: 0,
        };
        for snapshot in [
            gcra(0, 0, 0, vec![]),
            gcra(2, 7, 31, vec![credit(3), credit(4)]),
            Snapshot::FixedWindow {
                window: 9,
                count: 3,
            },
            Snapshot::SlidingWindow {
                window: 9,
                previous: 2,
                current: 3,
            },
            Snapshot::RollingWindow {
                newest: 9,
                counts: vec![1, 0, 2],
            },
            Snapshot::SlidingLog {
                entries: vec![(4, 1), (9, 2)],
            },
            Snapshot::IntervalRefill {
                window: 9,
                ahead: 2,
                count: 3,
            },
            Snapshot::Calendar {
                start_us: 4,
                end_us: 9,
                count: 3,
            },
            Snapshot::Held {
                held: 3,
                generation_us: 9,
            },
        ] {
            assert_eq!(State::from(snapshot.clone()).snapshot(), snapshot);
        }
        // A rest of zero has no denominator, and a point beyond the largest time is cut off.
        let none = State::from(gcra(0, 7, 0, vec![]));
        assert_eq!(none.snapshot(), gcra(0, 0, 0, vec![]));
        let late = State::from(Snapshot::Gcra {
            full_at_us: u64::MAX,
            rest: 0,
            rest_of: 0,
            exponent: 4,
            thirty_seconds: 9,
            credits: vec![],
            queue: QueueMark::default(),
            cold_at_us: 0,
            cold_at_ticks: 0,
        });
        let Snapshot::Gcra {
            full_at_us,
            exponent,
            thirty_seconds,
            ..
        } = late.snapshot()
        else {
            panic!("{late:?}");
        };
        assert_eq!(
            (full_at_us, exponent, thirty_seconds),
            ((1 << 53) - 1, 4, 9)
        );
    }

    #[test]
    fn a_state_is_kept_until_no_clock_that_is_less_than_a_period_behind_can_miss_it() {
        let fixed = Unit::FixedWindow {
            period_us: 100,
            offset_us: 7,
        };
        let sliding = Unit::SlidingWindow { period_us: 100 };
        let rolling = Unit::RollingWindow {
            period_us: 100,
            buckets: 4,
        };
        let log = Unit::SlidingLog { period_us: 100 };
        let refill = Unit::IntervalRefill {
            period_us: 100,
            offset_us: 7,
        };
        let of_fixed = |window, count| Snapshot::FixedWindow { window, count };
        let of_sliding = |window, previous, current| Snapshot::SlidingWindow {
            window,
            previous,
            current,
        };
        let of_rolling = |newest, counts: [u64; 4]| Snapshot::RollingWindow {
            newest,
            counts: counts.to_vec(),
        };
        let of_refill = |window, ahead, count| Snapshot::IntervalRefill {
            window,
            ahead,
            count,
        };
        let of_held = |held| Snapshot::Held {
            held,
            generation_us: 9,
        };
        let of_gcra = |rest, credits: &[(u64, u64)]| Snapshot::Gcra {
            full_at_us: 77,
            rest,
            rest_of: 3,
            exponent: 4,
            thirty_seconds: 0,
            credits: { credits.iter() }
                .map(|&(at_us, last_us)| CreditMark {
                    at_us,
                    from_us: 5,
                    length_us: 3,
                    last_us,
                })
                .collect(),
            queue: QueueMark::default(),
            cold_at_us: 0,
            cold_at_ticks: 0,
        };
        for (unit, snapshot, until_us) in [
            (fixed, of_fixed(0, 0), 0),
            (fixed, of_fixed(5, 0), 507),
            (fixed, of_fixed(5, 1), 607),
            (fixed, of_fixed(0, 1), 107),
            (sliding, of_sliding(0, 0, 0), 0),
            (sliding, of_sliding(5, 0, 0), 600),
            (sliding, of_sliding(5, 1, 0), 700),
            (sliding, of_sliding(5, 0, 1), 800),
            (sliding, of_sliding(0, 0, 1), 300),
            (sliding, of_sliding(0, 1, 0), 200),
            (rolling, of_rolling(0, [0; 4]), 0),
            (rolling, of_rolling(6, [0; 4]), 250),
            (rolling, of_rolling(6, [0, 0, 1, 0]), 350),
            (rolling, of_rolling(6, [0, 1, 0, 0]), 325),
            (rolling, of_rolling(6, [2, 1, 0, 0]), 325),
            (log, Snapshot::SlidingLog { entries: vec![] }, 0),
            (
                log,
                Snapshot::SlidingLog {
                    entries: vec![(1, 1), (50, 2)],
                },
                250,
            ),
            (refill, of_refill(0, 0, 0), 0),
            (refill, of_refill(5, 0, 0), 507),
            (refill, of_refill(5, 0, 1), 607),
            (refill, of_refill(5, 3, 1), 907),
            (refill, of_refill(0, 0, 1), 107),
            (Unit::Held, of_held(0), 10_000_009),
            (Unit::Held, of_held(1), u64::MAX),
            (Unit::Gcra, of_gcra(0, &[]), 77),
            (Unit::Gcra, of_gcra(1, &[]), 78),
            (Unit::Gcra, of_gcra(0, &[(3, 90), (4, 80)]), 90),
            (Unit::Gcra, of_gcra(0, &[(3, 70)]), 77),
        ] {
            let state = State::from(snapshot.clone());
            let said = state.meaningless_at(unit);
            assert_eq!(said, Timestamp::from_micros(until_us), "{snapshot:?}");
        }
    }
}
