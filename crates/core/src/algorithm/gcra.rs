//! GCRA: a bucket that drains at limit/period and holds one burst.
//!
//! The state is one point in time: when the bucket will be empty, that is, the budget full again, if nothing else
//! arrives. A charge of *c* moves it *c* intervals of period/limit into the future; it passes if the point then lies
//! no further ahead than a burst of intervals. An interval is rarely a whole number of microseconds (at 7/s it is
//! 142,857 1/7), so it is kept as a fraction: `units / denominator`. Seen from now, everything is a whole number of
//! *parts*, each one denominator'th of a microsecond, and the rule is one addition and one comparison.
//!
//! Quotas of different rates and bursts may share a state, as while a deploy changes one. So a state also tells two facts of
//! the quota that wrote it: how long its full budget takes to drain, and the denominator of the rest. Without the first, a
//! quota could mistake another's debt for a clock that stepped back; without the second, another's fraction for a smaller one.

mod credits;
mod notes;
mod parts;
mod queue;
mod reach;
mod waiting;
mod warming;

use std::cmp;
use std::num::NonZero;
use std::time::Duration;

use self::notes::Notes;
use self::parts::{Micros, Parts};
pub(super) use self::reach::Reach;
use super::{Budget, CreditMark, DEBT_CEILING, Decider, Passage, QueueMark, Snapshot, Step};
use crate::{MAX_DRAIN, MAX_WAIT, MAX_WAIT_INTERVALS, QuotaError, Timestamp};

/// A point in time: whole microseconds, and a rest in parts of the quota that wrote it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Point {
    pub(crate) us: u64,
    pub(crate) rest: u32,
}

impl Point {
    pub(crate) const ZERO: Self = Self { us: 0, rest: 0 };

    const fn rounded_up(self) -> u64 {
        self.us + (self.rest > 0) as u64
    }
}

/// The figures of a quota: period/limit as the fraction `units / denominator`, in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Gcra {
    pub(crate) burst: u64,
    /// The time that a cost of one takes to drain, in parts.
    units: NonZero<u64>,
    /// The number of parts in a microsecond.
    denominator: u32,
    /// The longest time that a charge may wait for its turn, or the time in which the quota warms up.
    span_us: u32,
    width: Width,
    /// The reach of a full drain.
    reach: Reach,
    /// The reach that its states tell while they owe no more than a full budget.
    coarse: Reach,
    /// The mark by which a rest of this quota is known.
    mark: u16,
}

/// The width of integer that this quota's parts need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Width {
    /// One part is a microsecond, and debts fit 64 bits of them. This holds for quotas whose interval is a whole number of
    /// microseconds, which most are.
    Micros,
    /// Debts, counted in parts, fit 64 bits. This holds for almost all quotas, but not for a prime near a billion per day.
    Narrow,
    /// Debts need more than 64 bits.
    Wide,
    /// Charges may wait for their turn. Beside such a wait, the arithmetic costs nothing.
    Waits,
    /// A unit costs up to this many times as much while the quota is cold.
    Warms(u8),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Bucket {
    // The pieces of the point. A `Point` as a field would bring its padding along.
    /// The point's whole microseconds in the low bits, and the reach of the quota that wrote it above them.
    word: u64,
    rest: u32,
    /// The mark of the rest's denominator.
    of: u16,
    /// Always false. The compiler keeps the enum's tag in the unused values of a `bool`, and so in the padding; without this
    /// field every state would take 32 bytes rather than 24.
    _room_for_tag: bool,
    notes: Option<Box<Notes>>,
}

/// The number of bits for the microseconds of a point, debts included.
const US_BITS: u32 = 64 - Reach::BITS;
const US: u64 = (1 << US_BITS) - 1;

/// The largest prime of 16 bits. Denominators up to it are all told apart; of the larger ones, one pair in 65,521 looks alike.
const MARKS: u32 = 65_521;

impl Gcra {
    pub(crate) const fn new(limit: u64, period_us: u64, burst: u64) -> Result<Self, QuotaError> {
        const EXACT: u128 = 1 << 53;
        const NARROW: u128 = 1 << 63;

        let divisor = gcd(limit, period_us);
        let (units, denominator) = (period_us / divisor, limit / divisor);
        let drain_us = burst as u128 * units as u128 / denominator as u128;
        if drain_us > MAX_DRAIN.as_micros() {
            return Err(QuotaError::DrainTooLong { burst });
        }
        // Lua's numbers are doubles, and so products of costs and rests must stay exact, debts included. Times are exact
        // because of MAX_DRAIN.
        let rests = burst as u128 * DEBT_CEILING as u128 * (units % denominator) as u128;
        if rests >= EXACT || denominator > u32::MAX as u64 {
            return Err(QuotaError::Inexact { limit, burst });
        }
        #[expect(clippy::cast_possible_truncation, reason = "just checked")]
        let denominator = denominator as u32;
        #[expect(clippy::cast_possible_truncation, reason = "below MAX_DRAIN")]
        let reach = Reach::of(drain_us as u64);
        Ok(Self {
            burst,
            units: match NonZero::new(units) {
                Some(units) => units,
                // Zero, which no period is.
                None => NonZero::<u64>::MIN,
            },
            denominator,
            span_us: 0,
            width: match burst as u128 * DEBT_CEILING as u128 * (units as u128) {
                NARROW.. => Width::Wide,
                _ if denominator == 1 => Width::Micros,
                _ => Width::Narrow,
            },
            reach,
            coarse: reach.coarse(),
            mark: (denominator % MARKS) as u16,
        })
    }

    /// This quota whose charges may wait for their turn, up to `wait_us`.
    pub(crate) const fn waiting(self, wait_us: u32) -> Result<Self, QuotaError> {
        const EIGHTH: u128 = DEBT_CEILING as u128;

        if self.warm_up().is_some() {
            return Err(QuotaError::WaitOfWarmUp);
        }
        let wait = Duration::from_micros(wait_us as u64);
        if wait_us == 0 {
            return Err(QuotaError::ZeroWait);
        }
        let most = MAX_WAIT_INTERVALS.saturating_mul(self.units.get());
        if wait.as_micros() > MAX_WAIT.as_micros()
            || wait_us as u64 * self.denominator as u64 > most
        {
            return Err(QuotaError::WaitTooLong { wait });
        }
        // A state may lie ahead by eight full drains and the wait.
        let drain_us = self.burst as u128 * self.units.get() as u128 / self.denominator as u128;
        Ok(Self {
            span_us: wait_us,
            width: Width::Waits,
            ..self.reaching(drain_us + wait.as_micros().div_ceil(EIGHTH))
        })
    }

    /// This quota whose states may lie ahead by eight times this. The reach is rounded up, so that no promised turn is mistaken
    /// for a clock that stepped back.
    const fn reaching(self, eighth_us: u128) -> Self {
        const THIRTY_SECOND: u128 = 32;

        let eighth_us = eighth_us + 1;
        let reach_us = eighth_us + eighth_us.div_ceil(THIRTY_SECOND);
        #[expect(clippy::cast_possible_truncation, reason = "below twice MAX_DRAIN")]
        let reach = Reach::of(reach_us as u64);
        Self {
            reach,
            coarse: reach.coarse(),
            ..self
        }
    }

    /// The longest time that a charge may wait.
    pub(crate) const fn wait_us(&self) -> u32 {
        if self.waits() { self.span_us } else { 0 }
    }

    /// Says whether charges may wait, be it for no time at all at this moment.
    pub(crate) const fn waits(&self) -> bool {
        matches!(self.width, Width::Waits)
    }

    /// Says whether its states may lie further ahead than eight full drains: by its reach.
    const fn is_far(&self) -> bool {
        matches!(self.width, Width::Waits | Width::Warms(_))
    }

    /// The reach of its states.
    pub(crate) const fn reach(&self) -> Reach {
        self.reach
    }

    /// This quota for a charge that waits at most `most_us`.
    pub(crate) const fn waiting_at_most(mut self, most_us: u32) -> Self {
        if most_us < self.wait_us() {
            self.span_us = most_us;
        }
        self
    }

    /// The time that `cost` takes to drain.
    #[inline]
    fn drain<P: Parts>(&self, cost: u64) -> P {
        P::from(cost) * P::from(self.units.get())
    }

    /// The furthest that a state may lie ahead: the debt ceiling of the longer of two quotas, this one and the one that wrote
    /// the state. The other's drain is stored rounded down, and still is at least as long as this one's where it counts,
    /// because drains are told apart in whole microseconds.
    #[inline]
    fn ceiling<P: Parts>(&self, state: &Bucket) -> P {
        if state.reach() > self.reach || self.is_far() {
            let us = cmp::max(state.reach(), self.reach).ceiling_us();
            self.ahead(Point { us, rest: 0 }, 0)
        } else {
            self.drain(self.burst * DEBT_CEILING)
        }
    }

    /// The width that the parts of a state need. The state of a longer quota may lie so far ahead that its distance in parts of
    /// this quota fits only 128 bits.
    #[inline]
    fn width_for(&self, state: &Bucket) -> Width {
        if state.reach() > self.reach && !self.is_far() {
            Width::Wide
        } else {
            self.width
        }
    }

    /// The distance of `point` ahead of now; zero if it has passed.
    #[inline]
    fn ahead<P: Parts>(&self, point: Point, now: u64) -> P {
        P::ahead(point, now, self.denominator)
    }

    /// The distance of a state ahead of now. A rest of another denominator is less than a microsecond, and counts as one.
    #[inline]
    fn left<P: Parts>(&self, state: &Bucket, now: u64) -> P {
        let mut point = state.full_at();
        if P::TELL_RESTS && point.rest > 0 && state.of != self.mark {
            point.rest = self.denominator;
        }
        self.ahead(point, now)
    }

    /// Moves a state from `before` ahead of now to `after` ahead of now.
    fn leave<P: Parts>(&self, state: &mut Bucket, now: u64, before: P, after: P) {
        let point = self.point(now, after);
        if point == state.full_at() {
            return;
        }
        let full = self.drain(self.burst);
        let reach = if after <= full {
            self.coarse
        } else if before <= full {
            self.reach
        } else {
            cmp::max(self.reach, state.reach())
        };
        state.put(point, self.mark, reach);
        state.forget_dead_notes(now);
    }

    /// The point that lies the given number of parts ahead of now.
    #[inline]
    fn point<P: Parts>(&self, now: u64, parts: P) -> Point {
        let (us, rest) = self.micros_and_rest(parts);
        #[expect(clippy::cast_possible_truncation, reason = "below the denominator")]
        Point {
            us: now + us,
            rest: rest as u32,
        }
    }

    /// A point of a receipt as this quota counts. If one request charged a key under two quotas, the rest is of the first one, and
    /// of a microsecond or more counts as one.
    const fn counted(&self, point: Point) -> Point {
        if point.rest < self.denominator {
            point
        } else {
            Point {
                us: point.us + 1,
                rest: 0,
            }
        }
    }

    #[inline]
    fn micros_and_rest<P: Parts>(&self, parts: P) -> (u64, u64) {
        parts.micros_and_rest(self.denominator)
    }

    /// Brings the state to now, and returns how much is still to drain.
    #[inline]
    fn settle<P: Parts>(&self, state: &mut Bucket, now: u64) -> P {
        let left: P = self.left(state, now);
        if left <= self.drain(self.burst) {
            left
        } else {
            self.bring_back(state, now, left)
        }
    }

    /// Brings back a state that lies further ahead than a burst. Three causes lead here: a debt, a clock that stepped back, and
    /// an earlier quota with a larger budget. All are rare, so this code is kept out of line.
    #[cold]
    #[inline(never)]
    fn bring_back<P: Parts>(&self, state: &mut Bucket, now: u64, left: P) -> P {
        let most = self.ceiling(state);
        if left <= most {
            return left;
        }
        self.leave(state, now, left, most);
        // Turns were promised by a clock that no longer counts, and idle time was stored by it.
        if let Some(notes) = &mut state.notes {
            notes.queue = Default::default();
            notes.cold_at = Default::default();
        }
        most
    }

    /// The drain after a cost is added, or the time at which the cost will fit.
    #[inline]
    fn add<P: Parts>(&self, left: P, cost: u64) -> Result<P, Passage> {
        if cost == 0 {
            return Ok(left);
        }
        if cost > self.burst {
            return Err(Passage::NEVER);
        }
        let after = left + self.drain(cost);
        let full = self.drain(self.burst);
        if after <= full {
            return Ok(after);
        }
        let (us, rest) = self.micros_and_rest(after - full);
        Err(Passage::after(us + u64::from(rest > 0)))
    }

    /// The budget while `left` is to drain; it will be full at `full_at`.
    #[inline]
    fn budget_at<P: Parts>(&self, left: P, now: u64, full_at: Point) -> Budget {
        let full = self.drain(self.burst);
        let room = if left < full { full - left } else { P::from(0) };
        self.budget_of(room, now, full_at)
    }

    #[inline]
    fn budget_of<P: Parts>(&self, room: P, now: u64, full_at: Point) -> Budget {
        Budget {
            remaining: room.divide(self.units).0,
            reset_after_us: full_at.rounded_up() - now,
        }
    }

    /// Takes a [step](Decider::step) if this quota can be counted in 64 bits. Every request comes through here.
    #[inline]
    pub(super) fn quick_step(
        &self,
        state: &mut Bucket,
        now: u64,
        cost: u64,
        take: bool,
    ) -> Option<Step> {
        // Parts of a longer quota's state need more than 64 bits.
        if state.reach() > self.reach {
            return None;
        }
        match self.width {
            Width::Micros => Some(self.step_in::<Micros>(state, now, cost, take)),
            Width::Narrow => Some(self.narrow_step(state, now, cost, take)),
            Width::Wide | Width::Waits | Width::Warms(_) => None,
        }
    }

    /// Kept out of line, so that the path of every request stays short.
    #[inline(never)]
    fn narrow_step(&self, state: &mut Bucket, now: u64, cost: u64, take: bool) -> Step {
        self.step_in::<u64>(state, now, cost, take)
    }

    #[inline]
    fn passage_in<P: Parts>(&self, state: &mut Bucket, now: u64, cost: u64) -> Passage {
        let left: P = self.settle(state, now);
        self.add(left, cost).err().unwrap_or(Passage::Open)
    }

    #[inline]
    fn step_in<P: Parts>(&self, state: &mut Bucket, now: u64, cost: u64, take: bool) -> Step {
        if take && (1..=self.burst).contains(&cost) {
            let left: P = self.left(state, now);
            let drain = self.drain(cost);
            // Compared this way, no sum can overflow: a state may lie as far ahead as its numbers reach.
            let most = self.drain::<P>(self.burst) - drain;
            if left <= most {
                let full_at = self.point(now, left + drain);
                state.stand_at(full_at, self.mark, self.coarse);
                state.forget_dead_notes(now);
                let budget = self.budget_of(most - left, now, full_at);
                return (Passage::Open, full_at, budget);
            }
        }
        let left: P = self.settle(state, now);
        let passage = self.add(left, cost).err().unwrap_or(Passage::Open);
        let budget = self.budget_at(left, now, self.point(now, left));
        (passage, Point::ZERO, budget)
    }
}

impl Decider for Gcra {
    type State = Bucket;

    fn passage(&self, state: &mut Bucket, now: u64, cost: u64) -> Passage {
        match self.width_for(state) {
            Width::Micros => self.passage_in::<Micros>(state, now, cost),
            Width::Narrow => self.passage_in::<u64>(state, now, cost),
            Width::Wide | Width::Warms(_) => self.passage_in::<u128>(state, now, cost),
            Width::Waits => self.waiting_passage(state, now, cost),
        }
    }

    fn take(&self, state: &mut Bucket, now: u64, cost: u64) {
        let left: u128 = self.left(state, now);
        let mut store = self.store(state, now, left);
        // The ceiling is at once that of this quota alone, whatever another quota left.
        let price = self.price(store.as_mut(), cost.min(self.burst * DEBT_CEILING));
        let after = cmp::max(left, cmp::min(left + price, self.ceiling(state)));
        self.leave(state, now, left, after);
        self.keep(state, now, after, store.as_ref());
    }

    fn give_back(&self, state: &mut Bucket, now: u64, at: u64, full_at: Point, cost: u64) {
        // A charge from the future: the clock stepped back, and no credit is certain.
        if at > now || self.waits() && self.leave_queue(state, now, full_at, cost) {
            return;
        }
        let full_at = self.counted(full_at);
        let place = match &mut state.notes {
            Some(notes) if notes.queue.is_waiting(now) => return,
            Some(notes) => {
                // The charges that stand behind this one move up, and a gap among them would not be where it was.
                notes.queue.forget_gaps();
                notes.credits.moved_up(full_at, at)
            }
            None => full_at,
        };
        let place = cmp::max(place, self.point(at, self.drain::<u128>(cost)));
        let shows: u128 = self.ahead(place, now);
        let before: u128 = self.left(state, now);
        let mut store = self.store(state, now, before);
        let moved_us = full_at.us.saturating_sub(place.us);
        let back = self.refund(store.as_mut(), cost, moved_us, cmp::min(shows, before));
        if back == 0 {
            return;
        }
        let last_us = state.full_at().rounded_up();
        let from_us = self.point(now, shows - back).us;
        let length_us = self.point(0, back).rounded_up();
        self.leave(state, now, before, before - back);
        let credits = &mut state.notes.get_or_insert_default().credits;
        credits.remember(now, from_us, length_us, last_us);
        self.keep(state, now, before - back, store.as_ref());
    }

    fn budget(&self, state: &Bucket, now: u64) -> Budget {
        if self.waits() {
            return self.waiting_budget(state, now);
        }
        let left: u128 = self.left(state, now);
        self.budget_at(left, now, self.point(now, left))
    }

    /// Passage, charge and budget share their figures, so they are worked out once.
    fn step(&self, state: &mut Bucket, now: u64, cost: u64, take: bool) -> Step {
        match self.width_for(state) {
            Width::Micros => self.step_in::<Micros>(state, now, cost, take),
            Width::Narrow => self.narrow_step(state, now, cost, take),
            Width::Wide => self.step_in::<u128>(state, now, cost, take),
            Width::Waits => self.waiting_step(state, now, cost, take),
            Width::Warms(_) => self.warming_step(state, now, cost, take),
        }
    }
}

impl Bucket {
    #[inline]
    fn full_at(&self) -> Point {
        Point {
            us: self.word & US,
            rest: self.rest,
        }
    }

    #[inline]
    fn reach(&self) -> Reach {
        Reach::of_bits(self.word >> US_BITS)
    }

    /// Moves it to any point, as one that was read from outside.
    fn put(&mut self, point: Point, of: u16, reach: Reach) {
        let us = point.us.min(US);
        self.stand_at(Point { us, ..point }, of, reach);
    }

    /// Moves it to a point that fits: a budget without a debt gives one that lies at most a full drain beyond the last
    /// [`Timestamp`](crate::Timestamp).
    #[inline]
    fn stand_at(&mut self, point: Point, of: u16, reach: Reach) {
        debug_assert!(point.us <= US, "{point:?}");
        self.word = point.us + (reach.bits() << US_BITS);
        // A rest of zero has no denominator.
        (self.rest, self.of) = (point.rest, of);
    }

    /// Drops old notes. Otherwise the state of a key that is always in use would carry them for ever.
    #[inline]
    fn forget_dead_notes(&mut self, now: u64) {
        if let Some(notes) = &mut self.notes
            && notes.relevant_until() <= now
        {
            if notes.cold_at.rounded_up() <= now {
                self.notes = None;
            } else {
                notes.keep_the_store_alone();
            }
        }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let (point, reach) = (self.full_at(), self.reach());
        let notes = self.notes.as_ref();
        Snapshot::Gcra {
            full_at_us: point.us,
            rest: point.rest,
            rest_of: if point.rest > 0 { self.of } else { 0 },
            exponent: reach.exponent(),
            thirty_seconds: reach.thirty_seconds(),
            credits: notes.map_or_else(Vec::new, |notes| notes.credits.marks()),
            queue: notes.map_or_else(QueueMark::default, |notes| notes.queue.mark()),
            cold_at_us: notes.map_or(0, |notes| notes.cold_at.us),
            cold_at_ticks: notes.map_or(0, |notes| notes.cold_at.ticks),
        }
    }

    pub(super) fn restore(
        point: Point,
        of: u16,
        reach: Reach,
        credits: &[CreditMark],
        queue: &QueueMark,
        cold_at: (u64, u32),
    ) -> Self {
        let mut state = Self {
            notes: Notes::restore(credits, queue, cold_at),
            ..Self::default()
        };
        state.put(point, of, reach);
        state
    }

    pub(super) fn meaningless_at(&self) -> u64 {
        // No gap lies beyond the point, and no request waits any more for a turn beyond it.
        let notes = self.notes.as_ref();
        let relevant_until = notes.map_or(0, |notes| {
            let cold_at = notes.cold_at.rounded_up();
            notes.credits.relevant_until().max(cold_at)
        });
        self.full_at()
            .rounded_up()
            .max(relevant_until)
            .min(Timestamp::MAX.as_micros())
    }
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests;
