//! Warm-up: units that were left unused make the next ones cost more, because whatever serves them has grown cold.
//!
//! A quota that warms up decides by the same rule as without a warm-up. The difference is in the time that a charge takes to drain.
//! It is the plain time and a surcharge, which depends on the *idle time in store*: the time for which nothing was left to drain,
//! less what charges have spent of it. It lies between 0 and the period of the warm-up. A key that was never seen has all of that
//! in store: it is cold.
//!
//! The price of a unit follows Guava's `SmoothWarmingUp`. With interval *I*, warm-up *W* and cold factor *c*, Guava stores up to
//! `W/2I + 2W/(I + cI)` permits and fills this store in *W*. A permit of the first `W/2I` costs *I*. From there on the price rises
//! in a straight line, up to *cI* for the last one. In idle time, this is:
//!
//! * a unit spends `2I(c + 1)/(c + 5)` of the store,
//! * the last `4W/(c + 5)` of the store are cold: `y` of them, 0 to 1, are worth a surcharge of `y² · W(c − 1)/(c + 1)`, and a
//!   charge pays the difference between before and after.
//!
//! So the cost of a charge does not depend on the parts in which it is taken, and the way from cold to warm takes *W*.
//!
//! Numbers stay integers below 2^53. Idle time is counted in ticks of 2^-20 µs, and the time that a unit spends is rounded down to
//! whole ticks. The cold part of the store is a staircase of at most 2^32 steps, and a surcharge is a whole number of microseconds.
//! So a price is that of Guava within two microseconds or three. A staircase over whole permits would be coarser: the parts of
//! permits that are in store would differ by up to *c* intervals.
//!
//! A state tells the time at which all will be in store if nothing arrives, and so it may be forgotten then.

use std::cmp;

use super::{Bucket, Gcra, Point, Width};
use crate::algorithm::{Passage, Step};
use crate::{MAX_COLD_FACTOR, MAX_DRAIN, QuotaError};

/// Idle time is counted in 2^-20 µs.
const BITS: u32 = 20;

/// The most steps of the cold part of the store. A product of a step's number and of a surcharge is below 2^64.
const MOST_STEPS: u64 = 1 << 32;

/// The time at which a budget will be cold if nothing arrives: whole microseconds, and a rest in ticks of 2^-20 µs. Zero if it is
/// cold for ever, as that of a key that was never seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ColdAt {
    pub(super) us: u64,
    pub(super) ticks: u32,
}

impl ColdAt {
    /// The time from which it has no meaning.
    pub(super) fn rounded_up(self) -> u64 {
        self.us.saturating_add((self.ticks > 0).into())
    }
}

/// The figures of a warm-up.
struct Curve {
    /// The largest store, in ticks.
    full: u64,
    /// The part of the store that one unit spends, in ticks.
    each: u64,
    /// The width of a step of the cold part, in ticks.
    step: u64,
    /// The number of these steps.
    steps: u64,
    /// The surcharge for all of the cold part, in µs.
    surcharge_us: u64,
}

/// The idle time in store at some time, in ticks.
pub(super) struct Store {
    curve: Curve,
    ticks: u64,
}

impl Gcra {
    /// This quota that warms up in `warm_us`, and costs `factor` times as much while it is cold.
    pub(crate) const fn warming(self, warm_us: u64, factor: u64) -> Result<Self, QuotaError> {
        if self.waits() {
            return Err(QuotaError::WaitOfWarmUp);
        }
        if factor < 2 || factor > MAX_COLD_FACTOR {
            return Err(QuotaError::ColdFactor { factor });
        }
        let warm_up = std::time::Duration::from_micros(warm_us);
        if warm_us == 0 {
            return Err(QuotaError::ZeroWarmUp);
        }
        if self.units.get() < self.denominator as u64 {
            return Err(QuotaError::WarmUpOfFastRate);
        }
        // A state may lie ahead by eight budgets, each of which was cold. A part of a microsecond counts as often as the factor.
        let drain_us = (self.burst as u128 * self.units.get() as u128 * factor as u128)
            .div_ceil(self.denominator as u128);
        if drain_us > MAX_DRAIN.as_micros() {
            return Err(QuotaError::DrainTooLong { burst: self.burst });
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "an hour is 32 bits of microseconds, and the factor was just checked"
        )]
        let rule = Self {
            span_us: warm_us as u32,
            width: Width::Warms(factor as u8),
            ..self.reaching(drain_us)
        };
        match rule.curve() {
            Some(curve) if curve.each <= curve.step * curve.steps => Ok(rule),
            _ => Err(QuotaError::WarmUpTooShort { warm_up }),
        }
    }

    /// The period of the warm-up and the cold factor, if it has one.
    pub(crate) const fn warm_up(&self) -> Option<(u32, u8)> {
        match self.width {
            Width::Warms(factor) => Some((self.span_us, factor)),
            Width::Micros | Width::Narrow | Width::Wide | Width::Waits => None,
        }
    }

    /// The figures of a charge: what it spends of the store, the width and the number of the steps, and the surcharge for all.
    pub(crate) const fn warmth(&self, cost: u64) -> Option<[u64; 4]> {
        match self.curve() {
            Some(curve) => Some([
                curve.spent_by(cost),
                curve.step,
                curve.steps,
                curve.surcharge_us,
            ]),
            None => None,
        }
    }

    const fn curve(&self) -> Option<Curve> {
        let Some((warm_us, factor)) = self.warm_up() else {
            return None;
        };
        let (warm_us, factor) = (warm_us as u64, factor as u64);
        let each = ((self.units.get() as u128 * 2 * (factor as u128 + 1)) << BITS)
            / (self.denominator as u128 * (factor as u128 + 5));
        #[expect(clippy::cast_possible_truncation, reason = "it is the smaller one")]
        let each = if each > u64::MAX as u128 {
            u64::MAX
        } else {
            each as u64
        };
        let cold = 4 * (warm_us << BITS) / (factor + 5);
        // No warm-up is so short that it has none. A power of two, so that a half of the store is a half of the steps.
        let step = cold.div_ceil(MOST_STEPS).next_power_of_two();
        Some(Curve {
            full: warm_us << BITS,
            each: if each == 0 { 1 } else { each },
            step,
            steps: cold / step,
            surcharge_us: warm_us * (factor - 1) / (factor + 1),
        })
    }

    /// The idle time in store, of which `left` is to drain before any comes to it; `None` if the quota never warms up.
    pub(super) fn store(&self, state: &Bucket, now: u64, left: u128) -> Option<Store> {
        let curve = self.curve()?;
        let cold_at = state
            .notes
            .as_ref()
            .map(|notes| notes.cold_at)
            .unwrap_or_default();
        let idle_from = self.ticks(self.point(now, left));
        let missing = ticks_of(cold_at).saturating_sub(idle_from);
        let missing = u64::try_from(missing).unwrap_or(u64::MAX);
        let ticks = curve.full.saturating_sub(missing);
        Some(Store { curve, ticks })
    }

    /// Leaves this in store, beyond what is left to drain.
    pub(super) fn keep(&self, state: &mut Bucket, now: u64, left: u128, store: Option<&Store>) {
        if let Some(store) = store {
            let missing = store.curve.full - store.ticks;
            let cold_at = self.ticks(self.point(now, left)) + u128::from(missing);
            let us = u64::try_from(cold_at >> BITS).unwrap_or(u64::MAX);
            let ticks = (cold_at & ((1 << BITS) - 1)) as u32;
            state.notes.get_or_insert_default().cold_at = ColdAt { us, ticks };
        }
    }

    /// Takes a step as every quota does, at the price of this moment.
    pub(super) fn warming_step(&self, state: &mut Bucket, now: u64, cost: u64, take: bool) -> Step {
        let mut left: u128 = self.settle(state, now);
        let passage = self.add(left, cost).err().unwrap_or(Passage::Open);
        let mut full_at = Point::ZERO;
        if take && cost > 0 && passage == Passage::Open {
            let mut store = self.store(state, now, left);
            let after = left + self.price(store.as_mut(), cost);
            self.leave(state, now, left, after);
            self.keep(state, now, after, store.as_ref());
            (left, full_at) = (after, self.point(now, after));
        }
        let budget = self.budget_at(left, now, self.point(now, left));
        (passage, full_at, budget)
    }

    /// The time that `cost` takes to drain, with the surcharge of what it spends of the store.
    pub(super) fn price(&self, store: Option<&mut Store>, cost: u64) -> u128 {
        let surcharge_us = store.map_or(0, |store| store.spend(cost));
        self.drain::<u128>(cost) + u128::from(surcharge_us) * u128::from(self.denominator)
    }

    /// The time that comes back for `cost`, `most` at most, of a charge that earlier credits moved up by `moved_us`. What the
    /// charge spent goes into the store again. A part of it that has drained stays spent.
    pub(super) fn refund(
        &self,
        store: Option<&mut Store>,
        cost: u64,
        moved_us: u64,
        most: u128,
    ) -> u128 {
        let plain: u128 = self.drain(cost);
        let Some(store) = store else {
            return cmp::min(plain, most);
        };
        let before = store.ticks;
        let surcharge_us = store.restore(cost, moved_us);
        let refund = plain + u128::from(surcharge_us) * u128::from(self.denominator);
        let drained = self.point(0, refund.saturating_sub(most));
        let stays = most_spent_in(drained.rounded_up());
        store.ticks = cmp::max(store.ticks.saturating_sub(stays), before);
        cmp::min(refund, most)
    }

    /// A point in ticks.
    fn ticks(&self, point: Point) -> u128 {
        let rest = (u64::from(point.rest) << BITS) / u64::from(self.denominator);
        (u128::from(point.us) << BITS) + u128::from(rest)
    }
}

fn ticks_of(cold_at: ColdAt) -> u128 {
    (u128::from(cold_at.us) << BITS) + u128::from(cold_at.ticks)
}

/// No charge that takes this time spends as much of the store: a unit spends less than two of its intervals.
fn most_spent_in(us: u64) -> u64 {
    us.saturating_mul(2 << BITS)
}

impl Store {
    fn spend(&mut self, cost: u64) -> u64 {
        let before = self.surcharge_us();
        self.ticks = self.ticks.saturating_sub(self.curve.spent_by(cost));
        before - self.surcharge_us()
    }

    /// The surcharge comes back at the price of the store as it would be without the credits that moved this charge up. Their
    /// surcharge came back with them: otherwise the cold units of one charge would come back with a warm charge as well.
    ///
    /// If nothing would be in store, it is unknown how much of it this charge spent. Then nothing comes back to the store, or a
    /// later credit would return a surcharge that was never paid.
    fn restore(&mut self, cost: u64, moved_us: u64) -> u64 {
        let low = self.ticks.saturating_sub(most_spent_in(moved_us));
        if low == 0 {
            return 0;
        }
        let spent = self.curve.spent_by(cost);
        let high = cmp::min(low.saturating_add(spent), self.curve.full);
        self.ticks = cmp::min(self.ticks.saturating_add(spent), self.curve.full);
        self.curve.surcharge_us(high) - self.curve.surcharge_us(low)
    }

    fn surcharge_us(&self) -> u64 {
        self.curve.surcharge_us(self.ticks)
    }
}

impl Curve {
    /// The surcharge for all that is in store.
    const fn surcharge_us(&self, ticks: u64) -> u64 {
        let &Self {
            full,
            step,
            steps,
            surcharge_us,
            ..
        } = self;
        let cold = ticks.saturating_sub(full - step * steps) / step;
        // Rounded down twice, as in the script.
        surcharge_us * cold / steps * cold / steps
    }

    /// The part of the store that a cost spends, all of it at most.
    const fn spent_by(&self, cost: u64) -> u64 {
        let spent = self.each.saturating_mul(cost);
        if spent < self.full { spent } else { self.full }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Decider;

    const NOW: u64 = 1_000_000;

    /// As the script counts, to which the rest comes as a microsecond.
    #[test]
    fn a_rest_of_another_quota_counts_as_a_microsecond_however_far_the_charge_has_moved_up() {
        // given a cold charge of four units, one of which was given back
        let rule = Gcra::new(1, 1_000, 10).and_then(|rule| rule.warming(10_000, 3));
        let rule = rule.expect("a quota");
        let mut whole = Bucket::default();
        rule.take(&mut whole, NOW, 4);
        let full_at = whole.full_at();
        rule.give_back(&mut whole, NOW, NOW, full_at, 1);
        let mut other = whole.clone();

        // when the rest of it comes back, by a receipt that tells the same place or a part of its last microsecond
        rule.give_back(&mut whole, NOW, NOW, full_at, 3);
        let us = full_at.us - 1;
        rule.give_back(&mut other, NOW, NOW, Point { us, rest: 4 }, 3);

        // then
        assert_eq!(other.snapshot(), whole.snapshot());
    }

    #[test]
    fn a_warm_up_has_a_factor_of_a_hundred_at_most_and_a_rate_of_one_in_a_microsecond() {
        let refused = |limit, factor| {
            let rule = Gcra::new(limit, 1_000, 10).expect("a quota");
            rule.warming(1_000_000, factor).err()
        };

        assert_eq!(refused(1, MAX_COLD_FACTOR), None);
        let factor = MAX_COLD_FACTOR + 1;
        assert_eq!(refused(1, factor), Some(QuotaError::ColdFactor { factor }));
        assert_eq!(refused(1_000, 3), None);
        assert_eq!(refused(1_001, 3), Some(QuotaError::WarmUpOfFastRate));
    }

    #[test]
    fn a_unit_that_takes_years_is_longer_than_any_warm_up() {
        const HOUR_US: u64 = 3_600_000_000;
        let warm_up = std::time::Duration::from_micros(HOUR_US);
        let refused = |period_us, factor| {
            let rule = Gcra::new(1, period_us, 1).expect("a quota");
            rule.warming(HOUR_US, factor).err()
        };
        let longest = u64::try_from(MAX_DRAIN.as_micros()).expect("a time") / 2;

        // Twice the longest unit is the longest drain. The ticks of the second are 2^64 and a few.
        for (period_us, factor) in [(longest, 2), ((1 << 44) + 1, 3)] {
            let too_short = Some(QuotaError::WarmUpTooShort { warm_up });
            assert_eq!(refused(period_us, factor), too_short);
        }
        let too_long = Some(QuotaError::DrainTooLong { burst: 1 });
        assert_eq!(refused(longest + 1, 2), too_long);
    }

    #[test]
    fn a_charge_is_told_by_what_it_spends_and_by_the_steps_and_the_surcharge_of_the_store() {
        let plain = Gcra::new(1, 1_000, 10).expect("a quota");
        let rule = plain.warming(10_000, 3).expect("a quota");

        let tick = 1 << BITS;
        let store = [2, 2_500 * tick, 5_000];
        assert_eq!(
            rule.warmth(1),
            Some([1_000 * tick, store[0], store[1], store[2]])
        );
        assert_eq!(
            rule.warmth(20),
            Some([10_000 * tick, store[0], store[1], store[2]])
        );
        assert_eq!(plain.warmth(1), None);
    }

    #[test]
    fn a_charge_of_nothing_keeps_no_store_and_a_third_of_a_microsecond_is_as_many_ticks() {
        let rule = Gcra::new(3, 1_000, 10).and_then(|rule| rule.warming(10_000, 3));
        let rule = rule.expect("a quota");
        let mut state = Bucket::default();
        let before = state.snapshot();

        rule.warming_step(&mut state, NOW, 0, true);

        assert_eq!(state.snapshot(), before);
        assert_eq!(
            rule.ticks(Point { us: 5, rest: 1 }),
            (5 << BITS) + (1 << BITS) / 3
        );
    }

    #[test]
    fn a_store_means_something_until_its_last_tick() {
        let ends = |us, ticks| ColdAt { us, ticks }.rounded_up();

        assert_eq!(
            [ends(7, 0), ends(7, 1), ends(u64::MAX, 1)],
            [7, 8, u64::MAX]
        );
    }
}
