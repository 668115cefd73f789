//! The requests of a run: when they come, and for which key.

use std::sync::Arc;

use fastrand::Rng;
use tollgate_core::Quota;

/// Requests that come at random (Poisson), for keys of which few are hot and many are not (Zipf).
#[derive(Clone, Debug)]
pub struct Load {
    /// Requests a second.
    pub rate: f64,
    /// The demand for a key, as a part of its limit.
    pub usage: f64,
    /// Requests come only for so many microseconds, once in so many; every other time for five times as long.
    pub pulses_us: Option<(u64, u64)>,
    keys: Arc<Keys>,
}

/// The least limit of a key, a second.
const LEAST: u64 = 10;

impl Load {
    /// So many requests a second for so many keys: key number *k* gets a share of them in proportion to 1 / *k* to this power. Each
    /// key's demand is half of its limit.
    #[must_use]
    pub fn zipf(rate: f64, keys: u32, power: f64) -> Self {
        Self {
            rate,
            usage: 0.5,
            pulses_us: None,
            keys: Arc::new(Keys::zipf(keys, power)),
        }
    }

    /// So many requests a second for one key.
    #[must_use]
    pub fn of_one(rate: f64) -> Self {
        Self::zipf(rate, 1, 1.0)
    }

    /// With this demand for each key, as a part of its limit.
    #[must_use]
    pub fn using(mut self, usage: f64) -> Self {
        self.usage = usage;
        self
    }

    /// With requests only in the first `on_us` of each `period_us`, and of every other one for five times as long.
    #[must_use]
    pub fn in_pulses(mut self, on_us: u64, period_us: u64) -> Self {
        self.pulses_us = Some((on_us, period_us));
        self
    }

    /// With the same keys at another rate.
    #[must_use]
    pub fn at(&self, rate: f64) -> Self {
        Self {
            rate,
            ..self.clone()
        }
    }

    /// The requests for a key, a second.
    #[must_use]
    pub fn demand(&self, key: u32) -> f64 {
        self.rate * self.keys.shares[key as usize]
    }

    /// The quota of a key, of which each of so many splits gets an equal part: a burst of one second's limit.
    #[must_use]
    pub fn quota(&self, key: u32, splits: u32) -> Quota {
        let limit = (self.demand(key) / self.usage).ceil() as u64;
        Quota::per_second(limit.max(LEAST).div_ceil(u64::from(splits)))
    }

    /// The number of keys.
    #[must_use]
    pub fn keys(&self) -> u32 {
        self.keys.shares.len() as u32
    }

    pub(crate) fn key(&self, random: &mut Rng) -> u32 {
        self.keys.draw(random)
    }

    /// The time of the next request, in nanoseconds.
    pub(crate) fn next(&self, now_ns: f64, random: &mut Rng) -> f64 {
        let gap = -(1.0 - random.f64()).ln() / self.rate * 1e9;
        let next = now_ns + gap;
        let Some((on_us, period_us)) = self.pulses_us else {
            return next;
        };
        let (on, period) = (on_us as f64 * 1e3, period_us as f64 * 1e3);
        let number = (next / period).floor();
        let is_long = number.rem_euclid(2.0) >= 1.0;
        let lasts = if is_long { 5.0 * on } else { on };
        let pulse = number * period;
        if next - pulse < lasts {
            next
        } else {
            pulse + period + gap.min(on)
        }
    }
}

/// Keys by their shares of all requests, drawn in constant time (Walker's alias method).
#[derive(Debug)]
struct Keys {
    shares: Vec<f64>,
    /// For each place the chance of its own key, and the key that it has otherwise.
    places: Vec<(f64, u32)>,
}

impl Keys {
    fn zipf(keys: u32, power: f64) -> Self {
        let weights = (1..=keys).map(|rank| f64::from(rank).powf(-power));
        let weights: Vec<_> = weights.collect();
        let sum: f64 = weights.iter().sum();
        let shares: Vec<_> = weights.iter().map(|weight| weight / sum).collect();

        let scaled = |share: &f64| share * f64::from(keys);
        let mut places: Vec<_> = (shares.iter().map(scaled)).zip(0..keys).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) =
            (0..keys).partition(|&key| places[key as usize].0 < 1.0);
        while let (Some(&of), Some(&from)) = (small.last(), large.last()) {
            small.pop();
            places[of as usize].1 = from;
            places[from as usize].0 -= 1.0 - places[of as usize].0;
            if places[from as usize].0 < 1.0 {
                large.pop();
                small.push(from);
            }
        }
        for key in small.into_iter().chain(large) {
            places[key as usize] = (1.0, key);
        }
        Self { shares, places }
    }

    fn draw(&self, random: &mut Rng) -> u32 {
        let place = random.usize(..self.places.len());
        let (own, other) = self.places[place];
        if random.f64() < own {
            place as u32
        } else {
            other
        }
    }
}
