//! One budget, as the design describes it and not as the crate computes it.
//!
//! A bucket is a level, an exact fraction that drains, or of which a refill takes a part at the start of each period. Every other
//! budget is a list of charges with their times, and the rule says how much of each still counts at any time. The model answers one
//! question: *how much counts at t?* The answer never grows while nothing arrives, so every other answer is the first microsecond
//! at which it is low enough.

use num_rational::BigRational;
use tollgate_core::{Algorithm, DEBT_CEILING, Quota};

use crate::support::budget::micros;

/// The record of a charge, for a credit to undo.
#[derive(Clone, Debug)]
pub(crate) struct Slip {
    at: u64,
    cost: u64,
    /// The time at which the bucket would have been full again. Of a limit on how many at once the number of resets before it.
    full_at: BigRational,
}

impl Slip {
    /// The slip for a part of a charge.
    pub(crate) fn of_cost(&self, cost: u64) -> Self {
        Self {
            cost,
            ..self.clone()
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Model {
    quota: Quota,
    taken: Taken,
    /// The time at which a bucket that warms up will be cold, in 2^-20 µs.
    cold_at: u128,
}

#[derive(Clone, Debug)]
enum Taken {
    /// The level of the bucket, and its time.
    Level(BigRational, u64),
    /// The units that are owed, and the time at which they were.
    Refilled(u64, u64),
    /// The charges and their times.
    List(Vec<(u64, u64)>),
    /// The units that are held, and how often they were reset.
    Held { units: u64, resets: u64 },
}

pub(crate) fn whole(n: u64) -> BigRational {
    BigRational::from_integer(n.into())
}

fn fraction(numerator: u64, denominator: u64) -> BigRational {
    BigRational::new(numerator.into(), denominator.into())
}

fn ceil(figure: &BigRational) -> u64 {
    u64::try_from(figure.ceil().to_integer()).expect("no figure here is that large")
}

impl Model {
    pub(crate) fn full(quota: Quota) -> Self {
        let taken = match quota.algorithm() {
            Algorithm::Gcra => Taken::Level(whole(0), 0),
            Algorithm::IntervalRefill { .. } => Taken::Refilled(0, 0),
            Algorithm::Concurrent => Taken::Held {
                units: 0,
                resets: 0,
            },
            _ => Taken::List(Vec::new()),
        };
        Self {
            quota,
            taken,
            cold_at: 0,
        }
    }

    fn warms_up(&self) -> bool {
        !self.quota.warm_up_period().is_zero()
    }

    fn warm_up(&self) -> u64 {
        micros(self.quota.warm_up_period())
    }

    /// The idle time that may be in store at most, in 2^-20 µs.
    fn full_store(&self) -> u128 {
        u128::from(self.warm_up()) << 20
    }

    /// The time from which on nothing is left to drain, as things are at `at`.
    fn idle_from(&self, at: u64) -> u128 {
        let idle_from = whole(at) + self.counts(at) / self.rate();
        let ticks = (idle_from * whole(1 << 20)).floor().to_integer();
        u128::try_from(ticks).unwrap()
    }

    /// The idle time in store.
    fn store(&self, at: u64) -> u128 {
        let missing = self.cold_at.saturating_sub(self.idle_from(at));
        self.full_store().saturating_sub(missing)
    }

    /// The idle time that this cost spends: 2(c + 1)/(c + 5) of its plain drain.
    fn spends(&self, cost: u64) -> u128 {
        let factor = self.quota.price_when_cold();
        let each = whole((2 * (factor + 1)) << 20) / whole(factor + 5) / self.rate();
        let each = u128::try_from(each.floor().to_integer()).unwrap();
        u128::from(cost) * each.max(1)
    }

    /// The surcharge for this store, as units: the square of the part of it that is cold, in whole steps.
    fn surcharge(&self, store: u128) -> BigRational {
        let (factor, warm_up) = (self.quota.price_when_cold(), self.warm_up());
        let cold = 4 * self.full_store() / u128::from(factor + 5);
        let step = cold.div_ceil(1 << 32).next_power_of_two();
        let of = u64::try_from(cold / step).unwrap();
        let warm = self.full_store() - step * u128::from(of);
        let steps = u64::try_from(store.saturating_sub(warm) / step).unwrap();
        let whole_surcharge = fraction(warm_up * (factor - 1), factor + 1).floor();
        let part = fraction(steps, of);
        let once = (whole_surcharge * &part).floor();
        (once * part).floor() * self.rate()
    }

    /// Spends of the store, and returns the surcharge.
    fn spend(&self, store: u128, cost: u64) -> (u128, BigRational) {
        let after = store.saturating_sub(self.spends(cost));
        (after, self.surcharge(store) - self.surcharge(after))
    }

    /// Puts back into the store, and returns the surcharge that comes back. An empty store does not tell whose it was.
    fn restore(&self, store: u128, cost: u64) -> (u128, BigRational) {
        let spent = if store == 0 { 0 } else { self.spends(cost) };
        let after = self.full_store().min(store + spent);
        (after, self.surcharge(after) - self.surcharge(store))
    }

    /// The most that a bucket can owe: eight budgets, and of one that warms up what its states tell of that at a cold price.
    fn ceiling(&self) -> BigRational {
        match self.quota.reach() {
            Some((exponent, thirty_seconds)) if self.warms_up() => {
                let eighth_us = (u64::from(32 + thirty_seconds) << exponent) / 32;
                whole(DEBT_CEILING * eighth_us) * self.rate()
            }
            _ => whole(DEBT_CEILING * self.quota.capacity()),
        }
    }

    fn period(&self) -> u64 {
        micros(self.quota.period())
    }

    fn rate(&self) -> BigRational {
        fraction(self.quota.limit(), self.period())
    }

    /// The amount of all charges that counts at `at`, which is no earlier than the last charge.
    pub(crate) fn counts(&self, at: u64) -> BigRational {
        match &self.taken {
            Taken::Level(level, since) => (level - whole(at - since) * self.rate()).max(whole(0)),
            Taken::Refilled(owed, since) => {
                let refilled = self.refills(*since, at) * whole(self.quota.limit());
                (whole(*owed) - refilled).max(whole(0))
            }
            Taken::List(list) => {
                let weighted = list
                    .iter()
                    .map(|&(then, n)| self.weight(then, at) * whole(n));
                weighted.fold(whole(0), |sum, n| sum + n)
            }
            Taken::Held { units, .. } => whole(*units),
        }
    }

    /// The number of periods that began behind `since`, up to `at`.
    fn refills(&self, since: u64, at: u64) -> BigRational {
        let Algorithm::IntervalRefill { offset } = self.quota.algorithm() else {
            panic!("no refills of {}", self.quota);
        };
        let period = |at| window(at, self.period(), micros(offset));
        BigRational::from_integer((period(at) - period(since)).into())
    }

    /// The part of a unit taken at `then` that still counts at `at`, in a window or log.
    fn weight(&self, then: u64, at: u64) -> BigRational {
        let period = self.period();
        let counts = match self.quota.algorithm() {
            Algorithm::FixedWindow { offset } => {
                window(then, period, micros(offset)) == window(at, period, micros(offset))
            }
            Algorithm::SlidingWindow => {
                let age = window(at, period, 0) - window(then, period, 0);
                let elapsed = at % period;
                if age == 1 {
                    return fraction(period - elapsed, period);
                }
                age == 0
            }
            Algorithm::RollingWindow { buckets } => {
                let bucket = period / u64::from(buckets);
                window(at, bucket, 0) - window(then, bucket, 0) < i128::from(buckets)
            }
            // In (at − period, at].
            Algorithm::SlidingLog => at - then < period,
            other => panic!("no model of {other:?}"),
        };
        whole(u64::from(counts))
    }

    fn limit(&self) -> BigRational {
        whole(self.quota.capacity())
    }

    pub(crate) fn passes(&self, at: u64, cost: u64) -> bool {
        cost == 0 || self.counts(at) + whole(cost) <= self.limit()
    }

    pub(crate) fn remaining(&self, at: u64) -> u64 {
        let left = (self.limit() - self.counts(at)).max(whole(0));
        u64::try_from(left.floor().to_integer()).unwrap()
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.quota.capacity()
    }

    /// True if the time at which a refused charge would pass is unknown.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.taken, Taken::Held { .. })
    }

    /// Forgets everything.
    pub(crate) fn reset(&mut self) {
        match &mut self.taken {
            Taken::Held { units, resets } => (*units, *resets) = (0, *resets + 1),
            _ => panic!("only what is held is reset here"),
        }
    }

    pub(crate) fn reset_after(&self, at: u64) -> u64 {
        if self.is_held() {
            return 0;
        }
        self.until(at, &whole(0))
    }

    /// `None`: never.
    pub(crate) fn retry_after(&self, at: u64, cost: u64) -> Option<u64> {
        (cost <= self.quota.capacity()).then(|| self.until(at, &(self.limit() - whole(cost))))
    }

    /// The time until no more than `most` counts.
    fn until(&self, at: u64, most: &BigRational) -> u64 {
        if self.counts(at) <= *most {
            return 0;
        }
        if let Taken::Level(..) = self.taken {
            return ceil(&((self.counts(at) - most) / self.rate()));
        }
        // After two periods nothing counts, or after those in which all is refilled.
        let periods = 2.max(ceil(&(self.counts(at) / whole(self.quota.limit()))));
        let (mut too_early, mut late_enough) = (0, periods * self.period());
        while late_enough - too_early > 1 {
            let middle = u64::midpoint(too_early, late_enough);
            if self.counts(at + middle) <= *most {
                late_enough = middle;
            } else {
                too_early = middle;
            }
        }
        late_enough
    }

    /// Takes `n`, whether or not it fits, up to the ceiling.
    pub(crate) fn take(&mut self, at: u64, n: u64) -> Slip {
        if let Taken::Held { units, resets } = &mut self.taken {
            *units += n;
            return Slip {
                at,
                cost: n,
                full_at: whole(*resets),
            };
        }
        let ceiling = self.ceiling();
        let counts = self.counts(at);
        let rate = self.rate();
        let mut price = whole(n);
        let mut left_in_store = 0;
        if self.warms_up() {
            // No budget owes more units than that.
            let n = n.min(DEBT_CEILING * self.quota.capacity());
            let (store, surcharge) = self.spend(self.store(at), n);
            (left_in_store, price) = (store, whole(n) + surcharge);
        }
        let (quota, period) = (self.quota, self.period());
        match &mut self.taken {
            Taken::Level(level, since) => {
                let after = (&counts + price).min(ceiling).max(counts);
                (*level, *since) = (after, at);
            }
            Taken::Refilled(owed, since) => {
                let before = u64::try_from(counts.to_integer()).unwrap();
                let most = DEBT_CEILING * quota.capacity();
                (*owed, *since) = (before.saturating_add(n).min(most).max(before), at);
            }
            Taken::List(list) => {
                // The ceiling is one on whole counts, and in a sliding window on the current count.
                let now = match quota.algorithm() {
                    Algorithm::SlidingWindow => list
                        .iter()
                        .filter(|(then, _)| then / period == at / period)
                        .map(|&(_, n)| n)
                        .sum(),
                    _ => ceil(&counts),
                };
                let room = (DEBT_CEILING * quota.capacity()).saturating_sub(now);
                // A charge that no longer counts need not be kept: two periods cover every rule.
                list.retain(|(then, _)| then + 2 * period >= at);
                list.push((at, n.min(room)));
            }
            Taken::Held { .. } => unreachable!("it was taken above"),
        }
        if self.warms_up() {
            self.keep(at, left_in_store);
        }
        Slip {
            at,
            cost: n,
            full_at: whole(at) + self.counts(at) / rate,
        }
    }

    fn keep(&mut self, at: u64, store: u128) {
        self.cold_at = self.idle_from(at) + self.full_store() - store;
    }

    /// Gives back the part of a charge that still counts. For a bucket only as long as no other credit came since the charge.
    pub(crate) fn refund(&mut self, at: u64, slip: &Slip, n: u64) {
        let mut n = n.min(slip.cost);
        if let Taken::Held { units, resets } = &mut self.taken {
            *units -= if slip.full_at == whole(*resets) { n } else { 0 };
            return;
        }
        let counts = self.counts(at);
        let rate = self.rate();
        let mut refund = whole(n);
        let (mut before, mut back_in_store) = (0, 0);
        if self.warms_up() {
            before = self.store(at);
            let (store, surcharge) = self.restore(before, n);
            (back_in_store, refund) = (store, whole(n) + surcharge);
        }
        let (mut is_restored, mut drained_us) = (false, 0);
        let was_refilled = match self.taken {
            Taken::Refilled(..) => self.refills(slip.at, at) > whole(0),
            _ => false,
        };
        match &mut self.taken {
            Taken::Level(level, since) => {
                let undrained = ((&slip.full_at - whole(at)) * &rate).max(whole(0));
                let back = refund.clone().min(undrained).min(counts.clone());
                is_restored = back > whole(0);
                drained_us = ceil(&((refund - &back) / rate));
                (*level, *since) = (counts - back, at);
            }
            Taken::Refilled(owed, since) => {
                let left = u64::try_from(counts.to_integer()).unwrap();
                let back = if was_refilled { 0 } else { n };
                (*owed, *since) = (left.saturating_sub(back), at);
            }
            Taken::List(list) => {
                for (_, taken) in list.iter_mut().filter(|(then, _)| *then == slip.at) {
                    let back = n.min(*taken);
                    *taken -= back;
                    n -= back;
                }
            }
            Taken::Held { .. } => unreachable!("it was given back above"),
        }
        if self.warms_up() && is_restored {
            // Twice the time that has drained stays spent.
            let stays = u128::from(2 * drained_us) << 20;
            self.keep(at, back_in_store.saturating_sub(stays).max(before));
        }
    }
}

/// The number of the window of `length`; the first one starts at `offset`.
fn window(at: u64, length: u64, offset: u64) -> i128 {
    (i128::from(at) - i128::from(offset)).div_euclid(i128::from(length))
}
