//! The requests of a run: when they come, and for which key.

use std::sync::Arc;

use fastrand::Rng;
use tollgate_core::Quota;

/// Two pulses of requests in each cycle, and none else: a short one, and a long one some time after the short one's start.
/// Microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Pulses {
    /// The length of the short one.
    pub short_us: u64,
    /// The length of the long one.
    pub long_us: u64,
    /// The time from the start of the one to the start of the other.
    pub gap_us: u64,
    /// The length of a cycle.
    pub cycle_us: u64,
}

/// Requests that come at random (Poisson), for keys of which few are hot and many are not (Zipf).
#[derive(Clone, Debug)]
pub struct Load {
    /// Requests a second.
    pub rate: f64,
    /// The demand for a key, as a part of its limit.
    pub usage: f64,
    /// The times in which requests come, if not always.
    pub pulses: Option<Pulses>,
    keys: Arc<Keys>,
}

/// The least limit of a key, a second.
const LEAST: u64 = 10;

impl Load {
    /// Requests at this rate for so many keys: key number *k* gets a share of them in proportion to 1 / *k* to this power. Each
    /// key's demand is half of its limit.
    #[must_use]
    pub fn zipf(rate: f64, keys: u32, power: f64) -> Self {
        Self {
            rate,
            usage: 0.5,
            pulses: None,
            keys: Arc::new(Keys::zipf(keys, power)),
        }
    }

    /// Requests at this rate for one key.
    #[must_use]
    pub fn of_one(rate: f64) -> Self {
        Self::zipf(rate, 1, 1.0)
    }

    /// Each key has this demand, as a part of its limit.
    #[must_use]
    pub fn using(mut self, usage: f64) -> Self {
        self.usage = usage;
        self
    }

    /// Requests come in pulses.
    #[must_use]
    pub fn in_pulses(mut self, pulses: Pulses) -> Self {
        self.pulses = Some(pulses);
        self
    }

    /// Requests at another rate for these keys.
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
        let Some(pulses) = self.pulses else {
            return next;
        };
        let [short, long, start, cycle] = [
            pulses.short_us,
            pulses.long_us,
            pulses.gap_us,
            pulses.cycle_us,
        ]
        .map(|us| us as f64 * 1e3);
        let begin = (next / cycle).floor() * cycle;
        let at = next - begin;
        if at < short || (start..start + long).contains(&at) {
            next
        } else if at < start {
            begin + start + gap.min(short)
        } else {
            begin + cycle + gap.min(short)
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
