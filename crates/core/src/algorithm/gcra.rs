//! GCRA: a bucket that drains at limit/period and holds one burst.
//!
//! The state is one point in time: when the bucket will be empty, that is, the budget full again, if nothing else
//! arrives. A charge of *c* moves it *c* intervals of period/limit into the future; it passes if the point then lies
//! no further ahead than a burst of intervals. An interval is rarely a whole number of microseconds (at 7/s it is
//! 142,857 1/7), so a point is whole microseconds and a rest in fractions of the quota's own denominator.

use std::cmp;

use super::{Budget, DEBT_CEILING, Decider, Passage};
use crate::{MAX_DRAIN, QuotaError, Timestamp};

/// A point in time, or a span of it: whole microseconds and a rest in denominators of the quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Point {
    pub(crate) us: u64,
    pub(crate) rest: u32,
}

impl Point {
    pub(crate) const ZERO: Self = Self { us: 0, rest: 0 };

    const fn whole(us: u64) -> Self {
        Self { us, rest: 0 }
    }

    const fn rounded_up(self) -> u64 {
        self.us + (self.rest > 0) as u64
    }
}

/// The figures of a quota: period/limit as the fraction `units / denominator`, and what follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Gcra {
    pub(crate) burst: u64,
    /// Microseconds per cost, times the denominator.
    units: u64,
    denominator: u32,
    /// What a cost of one takes to drain.
    interval: Point,
    /// What a burst takes to drain.
    full: Point,
}

/// The point, in its parts: a [`Point`] as a field would bring its padding along.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    us: u64,
    rest: u32,
    /// Always false. The compiler keeps the tag of the enum around in the values that a `bool` has not, and so in the
    /// padding; without it every state would be 32 bytes rather than 24.
    _room_for_tag: bool,
    credits: Option<Box<Credits>>,
}

/// What earlier credits returned, as far as later ones must know it, so that no two return the same drain time.
///
/// A credit may return at most the time for which the charge still shows in the state. Later charges only push the point
/// further away, so a charge shows at least until the point where it left it. A credit pulls the point back, and
/// whatever was charged before it shows at least until where the *credit* left the point. Of several credits the lowest
/// such point counts; once it has passed, what was charged before them is worth nothing, and a new one is kept.
#[derive(Clone, Debug)]
struct Credits {
    /// What was charged until then has drained.
    worthless_until: u64,
    /// What was charged until then shows no longer than `lowest`.
    capped_until: u64,
    lowest: Point,
    /// The furthest point that any receipt out there can name.
    relevant_until: u64,
}

impl Gcra {
    pub(crate) const fn new(limit: u64, period_us: u64, burst: u64) -> Result<Self, QuotaError> {
        const EXACT: u128 = 1 << 53;

        let divisor = gcd(limit, period_us);
        let (units, denominator) = (period_us / divisor, limit / divisor);
        let drain_us = burst as u128 * units as u128 / denominator as u128;
        if drain_us > MAX_DRAIN.as_micros() {
            return Err(QuotaError::DrainTooLong { burst });
        }
        // Products of costs and rests stay exact for a double, debts included. Times do because of MAX_DRAIN.
        let rests = burst as u128 * DEBT_CEILING as u128 * (units % denominator) as u128;
        if rests >= EXACT || denominator > u32::MAX as u64 {
            return Err(QuotaError::Inexact { limit, burst });
        }
        #[expect(clippy::cast_possible_truncation, reason = "just checked")]
        let denominator = denominator as u32;
        let mut gcra = Self {
            burst,
            units,
            denominator,
            interval: Point {
                us: units / denominator as u64,
                #[expect(clippy::cast_possible_truncation, reason = "below the denominator")]
                rest: (units % denominator as u64) as u32,
            },
            full: Point::ZERO,
        };
        gcra.full = gcra.span(burst);
        Ok(gcra)
    }

    /// What `cost` takes to drain. At most the ceiling for debts.
    #[inline]
    const fn span(&self, cost: u64) -> Point {
        if cost == 1 {
            return self.interval;
        }
        let rests = cost * self.interval.rest as u64;
        Point {
            us: cost * self.interval.us + rests / self.denominator as u64,
            #[expect(clippy::cast_possible_truncation, reason = "below the denominator")]
            rest: (rests % self.denominator as u64) as u32,
        }
    }

    #[inline]
    fn add(&self, a: Point, b: Point) -> Point {
        let rest = u64::from(a.rest) + u64::from(b.rest);
        let carry = u64::from(rest >= u64::from(self.denominator));
        #[expect(clippy::cast_possible_truncation, reason = "below the denominator")]
        let rest = (rest - carry * u64::from(self.denominator)) as u32;
        Point {
            us: a.us + b.us + carry,
            rest,
        }
    }

    /// `a − b`, or nothing if `b` is the later one.
    #[inline]
    fn subtract(&self, a: Point, b: Point) -> Point {
        if a <= b {
            return Point::ZERO;
        }
        if a.rest >= b.rest {
            Point {
                us: a.us - b.us,
                rest: a.rest - b.rest,
            }
        } else {
            Point {
                us: a.us - b.us - 1,
                rest: a.rest + (self.denominator - b.rest),
            }
        }
    }

    /// A point that a quota of another rate may have left, in this one's denominator: less than a microsecond earlier, so
    /// that credits stay on the strict side.
    fn readable(&self, point: Point) -> Point {
        if point.rest < self.denominator {
            point
        } else {
            Point::whole(point.us)
        }
    }

    /// How much cost drains within `room`.
    #[inline]
    fn fitting(&self, room: Point) -> u64 {
        let denominator = u64::from(self.denominator);
        let scaled = room
            .us
            .checked_mul(denominator)
            .and_then(|scaled| scaled.checked_add(u64::from(room.rest)));
        if let Some(scaled) = scaled {
            return scaled / self.units;
        }
        // A division of 128 bits is many times dearer than one of 64, and almost never needed.
        let scaled = u128::from(room.us) * u128::from(denominator) + u128::from(room.rest);
        u64::try_from(scaled / u128::from(self.units)).unwrap_or(self.burst)
    }
}

impl Decider for Gcra {
    type State = State;

    #[inline]
    fn advance(&self, state: &mut State, now: u64) {
        if state.rest >= self.denominator {
            // Left by a quota of the same scope and another rate. Less than a microsecond, rounded to the strict side.
            state.set_full_at(Point::whole(state.us + 1));
        }
        // Only after a clock stepped back, or under a quota that holds less than the one before: seldom, so the span
        // is worked out when it is needed.
        if state.us > now.saturating_add(self.full.us) {
            let ceiling = self.add(Point::whole(now), self.span(self.burst * DEBT_CEILING));
            state.set_full_at(cmp::min(state.full_at(), ceiling));
        }
    }

    fn passage(&self, state: &State, now: u64, cost: u64) -> Passage {
        if cost == 0 {
            return Passage::Open;
        }
        if cost > self.burst {
            return Passage::NEVER;
        }
        let now = Point::whole(now);
        let after = self.add(cmp::max(state.full_at(), now), self.span(cost));
        let furthest = self.add(now, self.full);
        if after <= furthest {
            return Passage::Open;
        }
        Passage::after(self.subtract(after, furthest).rounded_up())
    }

    fn take(&self, state: &mut State, now: u64, cost: u64) {
        let most = self.burst * DEBT_CEILING;
        let now = Point::whole(now);
        let after = self.add(
            cmp::max(state.full_at(), now),
            self.span(cmp::min(cost, most)),
        );
        state.set_full_at(if cost <= self.burst && after <= self.add(now, self.full) {
            after
        } else {
            cmp::max(
                state.full_at(),
                cmp::min(after, self.add(now, self.span(most))),
            )
        });
    }

    fn give_back(&self, state: &mut State, now: u64, at: u64, full_at: Point, cost: u64) {
        let mut shows_until = self.readable(full_at);
        if let Some(credits) = &mut state.credits {
            credits.lowest = self.readable(credits.lowest);
            if at <= credits.worthless_until {
                return;
            }
            if at <= credits.capped_until {
                shows_until = cmp::min(shows_until, credits.lowest);
            }
        }
        let here = Point::whole(now);
        let before = state.full_at();
        let back = cmp::min(self.span(cost), self.subtract(shows_until, here));
        // A charge from the future: the clock stepped back, and nothing is certain.
        if back == Point::ZERO || before <= here || at > now {
            return;
        }
        let after = cmp::max(self.subtract(before, back), here);
        state.set_full_at(after);
        let relevant_until = before.rounded_up();
        match &mut state.credits {
            Some(credits) if credits.lowest > here => {
                credits.lowest = cmp::min(credits.lowest, after);
                credits.capped_until = now;
                credits.relevant_until = cmp::max(credits.relevant_until, relevant_until);
            }
            Some(credits) => {
                **credits = Credits {
                    worthless_until: credits.capped_until,
                    capped_until: now,
                    lowest: after,
                    relevant_until: cmp::max(credits.relevant_until, relevant_until),
                };
            }
            None => {
                state.credits = Some(Box::new(Credits {
                    worthless_until: 0,
                    capped_until: now,
                    lowest: after,
                    relevant_until,
                }));
            }
        }
    }

    fn budget(&self, state: &State, now: u64) -> Budget {
        let now = Point::whole(now);
        let room = self.subtract(self.add(now, self.full), cmp::max(state.full_at(), now));
        let remaining = self.fitting(room);
        Budget {
            remaining,
            reset_after_us: self.subtract(state.full_at(), now).rounded_up(),
        }
    }

    fn full_at(&self, state: &State) -> Point {
        state.full_at()
    }

    /// The sums that passage, charge and budget have in common are worked out once: this is on every request's way.
    #[inline]
    fn step(&self, state: &mut State, now: u64, cost: u64, take: bool) -> (Passage, Point, Budget) {
        self.advance(state, now);
        let here = Point::whole(now);
        let furthest = self.add(here, self.full);
        let mut left = cmp::max(state.full_at(), here);
        let mut full_at = Point::ZERO;
        let passage = if cost == 0 {
            Passage::Open
        } else if cost > self.burst {
            Passage::NEVER
        } else {
            let after = self.add(left, self.span(cost));
            if after <= furthest {
                if take {
                    state.set_full_at(after);
                    left = after;
                    full_at = after;
                }
                Passage::Open
            } else {
                Passage::after(self.subtract(after, furthest).rounded_up())
            }
        };
        let budget = Budget {
            remaining: self.fitting(self.subtract(furthest, left)),
            reset_after_us: self.subtract(left, here).rounded_up(),
        };
        (passage, full_at, budget)
    }
}

impl State {
    #[inline]
    fn full_at(&self) -> Point {
        Point {
            us: self.us,
            rest: self.rest,
        }
    }

    #[inline]
    fn set_full_at(&mut self, point: Point) {
        self.us = point.us;
        self.rest = point.rest;
    }

    pub(super) fn meaningless_at(&self) -> u64 {
        let relevant_until = self
            .credits
            .as_ref()
            .map_or(0, |credits| credits.relevant_until);
        self.full_at()
            .rounded_up()
            .max(relevant_until)
            .min(Timestamp::MAX.as_micros())
    }
}

impl Default for Point {
    fn default() -> Self {
        Self::ZERO
    }
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
