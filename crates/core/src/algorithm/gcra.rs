//! GCRA: a bucket that drains at limit/period and holds one burst.
//!
//! The state is one point in time: when the bucket will be empty, that is, the budget full again, if nothing else
//! arrives. A charge of *c* moves it *c* intervals of period/limit into the future; it passes if the point then lies
//! no further ahead than a burst of intervals. An interval is rarely a whole number of microseconds (at 7/s it is
//! 142,857 1/7), so it is kept as a fraction: `units / denominator`. Seen from now, everything is a whole number of
//! *parts*, each one denominator'th of a microsecond, and the rule is one addition and one comparison.

use std::cmp;

use super::{Budget, CreditMarks, DEBT_CEILING, Decider, Passage, Snapshot};
use crate::{MAX_DRAIN, QuotaError, Timestamp};

/// A point in time: whole microseconds, and a rest in parts of the quota that left it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Point {
    pub(crate) us: u64,
    pub(crate) rest: u32,
}

impl Point {
    pub(crate) const ZERO: Self = Self { us: 0, rest: 0 };

    pub(crate) const fn parts(self) -> (u64, u32) {
        (self.us, self.rest)
    }

    const fn rounded_up(self) -> u64 {
        self.us + (self.rest > 0) as u64
    }
}

/// The figures of a quota: period/limit as the fraction `units / denominator`, in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Gcra {
    pub(crate) burst: u64,
    /// What a cost of one takes to drain, in parts.
    units: u64,
    /// Parts in a microsecond.
    denominator: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    // The point, in its pieces: a `Point` as a field would bring its padding along.
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
        // For Lua, whose numbers are doubles: products of costs and rests stay exact, debts included. Times do because of
        // MAX_DRAIN.
        let rests = burst as u128 * DEBT_CEILING as u128 * (units % denominator) as u128;
        if rests >= EXACT || denominator > u32::MAX as u64 {
            return Err(QuotaError::Inexact { limit, burst });
        }
        #[expect(clippy::cast_possible_truncation, reason = "just checked")]
        let denominator = denominator as u32;
        Ok(Self {
            burst,
            units,
            denominator,
        })
    }

    /// What `cost` takes to drain, in parts.
    #[inline]
    fn drain(&self, cost: u64) -> u128 {
        u128::from(cost) * u128::from(self.units)
    }

    /// How far `point` lies ahead of now, in parts; nothing if it has passed.
    #[inline]
    fn ahead(&self, point: Point, now: u64) -> u128 {
        match point.us.checked_sub(now) {
            // A quota of the same scope and another rate may have left a rest that is more than a microsecond of ours.
            Some(us) => {
                u128::from(us) * u128::from(self.denominator)
                    + u128::from(point.rest.min(self.denominator))
            }
            None => 0,
        }
    }

    /// The point that lies so many parts ahead of now.
    #[inline]
    fn point(&self, now: u64, parts: u128) -> Point {
        let (us, rest) = divide(parts, u64::from(self.denominator));
        #[expect(clippy::cast_possible_truncation, reason = "below the denominator")]
        Point {
            us: now + us,
            rest: rest as u32,
        }
    }

    /// Whole microseconds in so many parts, rounded up.
    #[inline]
    fn micros(&self, parts: u128) -> u64 {
        let (us, rest) = divide(parts, u64::from(self.denominator));
        us + u64::from(rest > 0)
    }

    /// What is to drain, in parts, once a cost has been added to it, or when that will fit.
    #[inline]
    fn add(&self, left: u128, cost: u64) -> Result<u128, Passage> {
        if cost == 0 {
            return Ok(left);
        }
        if cost > self.burst {
            return Err(Passage::NEVER);
        }
        let (after, full) = (left + self.drain(cost), self.drain(self.burst));
        if after <= full {
            Ok(after)
        } else {
            Err(Passage::after(self.micros(after - full)))
        }
    }

    #[inline]
    fn budget_at(&self, left: u128) -> Budget {
        let room = self.drain(self.burst).saturating_sub(left);
        Budget {
            remaining: divide(room, self.units).0,
            reset_after_us: self.micros(left),
        }
    }
}

impl Decider for Gcra {
    type State = State;

    #[inline]
    fn advance(&self, state: &mut State, now: u64) {
        // Further ahead than a burst only with a debt, after a clock stepped back, or under a quota that holds less than
        // the one before.
        let left = self.ahead(state.full_at(), now);
        if left > self.drain(self.burst) {
            let ceiling = self.drain(self.burst * DEBT_CEILING);
            state.set_full_at(self.point(now, cmp::min(left, ceiling)));
        }
    }

    fn passage(&self, state: &State, now: u64, cost: u64) -> Passage {
        match self.add(self.ahead(state.full_at(), now), cost) {
            Ok(_) => Passage::Open,
            Err(closed) => closed,
        }
    }

    fn take(&self, state: &mut State, now: u64, cost: u64) {
        let left = self.ahead(state.full_at(), now);
        let ceiling = self.drain(self.burst * DEBT_CEILING);
        let after = cmp::min(left + self.drain(cost), ceiling);
        state.set_full_at(self.point(now, cmp::max(left, after)));
    }

    fn give_back(&self, state: &mut State, now: u64, at: u64, full_at: Point, cost: u64) {
        let mut shows = self.ahead(full_at, now);
        if let Some(credits) = &state.credits {
            if at <= credits.worthless_until {
                return;
            }
            if at <= credits.capped_until {
                shows = cmp::min(shows, self.ahead(credits.lowest, now));
            }
        }
        let before = self.ahead(state.full_at(), now);
        let back = cmp::min(self.drain(cost), shows);
        // A charge from the future: the clock stepped back, and nothing is certain.
        if back == 0 || before == 0 || at > now {
            return;
        }
        let relevant_until = state.full_at().rounded_up();
        let after = self.point(now, before.saturating_sub(back));
        state.set_full_at(after);
        state.remember_credit(now, after, relevant_until);
    }

    fn budget(&self, state: &State, now: u64) -> Budget {
        self.budget_at(self.ahead(state.full_at(), now))
    }

    fn full_at(&self, state: &State) -> Point {
        state.full_at()
    }

    /// What passage, charge and budget have in common is worked out once: this is on every request's way.
    #[inline]
    fn step(&self, state: &mut State, now: u64, cost: u64, take: bool) -> (Passage, Point, Budget) {
        self.advance(state, now);
        let left = self.ahead(state.full_at(), now);
        match self.add(left, cost) {
            Ok(after) if take && cost > 0 => {
                let full_at = self.point(now, after);
                state.set_full_at(full_at);
                (Passage::Open, full_at, self.budget_at(after))
            }
            Ok(_) => (Passage::Open, Point::ZERO, self.budget_at(left)),
            Err(closed) => (closed, Point::ZERO, self.budget_at(left)),
        }
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

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot::Gcra {
            full_at_us: self.us,
            rest: self.rest,
            credits: self.credits.as_ref().map(|credits| CreditMarks {
                worthless_until_us: credits.worthless_until,
                capped_until_us: credits.capped_until,
                lowest: (credits.lowest.us, credits.lowest.rest),
                relevant_until_us: credits.relevant_until,
            }),
        }
    }

    pub(super) fn restore(us: u64, rest: u32, credits: Option<CreditMarks>) -> Self {
        Self {
            us,
            rest,
            _room_for_tag: false,
            credits: credits.map(|marks| {
                Box::new(Credits {
                    worthless_until: marks.worthless_until_us,
                    capped_until: marks.capped_until_us,
                    lowest: Point {
                        us: marks.lowest.0,
                        rest: marks.lowest.1,
                    },
                    relevant_until: marks.relevant_until_us,
                })
            }),
        }
    }

    /// A credit at `now` left the point at `left_at`.
    fn remember_credit(&mut self, now: u64, left_at: Point, relevant_until: u64) {
        let before = self.credits.take();
        let relevant_before = before.as_ref().map_or(0, |credits| credits.relevant_until);
        let (worthless_until, lowest) = match &before {
            Some(credits) if credits.lowest.us >= now => {
                (credits.worthless_until, cmp::min(credits.lowest, left_at))
            }
            Some(credits) => (credits.capped_until, left_at),
            None => (0, left_at),
        };
        let credits = Credits {
            worthless_until,
            capped_until: now,
            lowest,
            relevant_until: cmp::max(relevant_before, relevant_until),
        };
        // The box is used again.
        self.credits = Some(match before {
            Some(mut room) => {
                *room = credits;
                room
            }
            None => Box::new(credits),
        });
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

/// Quotient and remainder. A division of 128 bits is many times dearer than one of 64, and almost never needed.
#[inline]
fn divide(dividend: u128, divisor: u64) -> (u64, u64) {
    if let Ok(dividend) = u64::try_from(dividend) {
        return (dividend / divisor, dividend % divisor);
    }
    let wide = u128::from(divisor);
    // Quotients are times or counts, which are below 2^53 by construction of the quota.
    let quotient = u64::try_from(dividend / wide).unwrap_or(u64::MAX);
    (quotient, u64::try_from(dividend % wide).unwrap_or(0))
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
