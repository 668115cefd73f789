//! The callers of a log, and for each rate the least burst that refuses none of a caller's requests.
//!
//! A request of a caller is refused by a rate and a burst if the bucket would hold more than the burst with it. Up to the first
//! refusal the bucket is that of a caller without a limit, so the peak of the bucket without a limit is the least burst that
//! refuses nothing. Levels are whole numbers: a request adds the period of the rate, and each microsecond takes its limit away.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use foldhash::fast::RandomState;
use tollgate::Key;

use super::rates::{ALL, RATES};

/// A caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Identity {
    V4(u32),
    /// The network of 64 bits, by which the library groups addresses.
    V6(u64),
    Text(Box<str>),
}

impl Identity {
    pub(super) fn of_address(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::V4(address.to_bits()),
            IpAddr::V6(address) => {
                Self::V6(u64::try_from(address.to_bits() >> 64).unwrap_or_default())
            }
        }
    }

    pub(super) fn words(&self) -> String {
        match self {
            Self::V4(bits) => Ipv4Addr::from_bits(*bits).to_string(),
            Self::V6(bits) => format!("{}/64", Ipv6Addr::from_bits(u128::from(*bits) << 64)),
            Self::Text(text) => text.to_string(),
        }
    }

    /// The caller as the library's limiter tells callers apart.
    pub(super) fn key(&self) -> Key {
        match self {
            Self::V4(bits) => Key::address(Ipv4Addr::from_bits(*bits).into(), 64),
            Self::V6(bits) => Key::address(Ipv6Addr::from_bits(u128::from(*bits) << 64).into(), 64),
            Self::Text(text) => Key::bytes(text.as_bytes()),
        }
    }
}

/// The half of the callers from which limits are found, and the one by which they are checked: by turns, in the order in which
/// callers come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    Found,
    Checked,
}

/// Refused requests by rate, of each half of the callers.
#[derive(Debug, Default)]
pub(super) struct Refused {
    pub(super) found: [u64; RATES],
    pub(super) checked: [u64; RATES],
}

impl Refused {
    fn of(&mut self, half: Half) -> &mut [u64; RATES] {
        match half {
            Half::Found => &mut self.found,
            Half::Checked => &mut self.checked,
        }
    }
}

/// The callers of a log.
#[derive(Debug, Default)]
pub(super) struct Callers {
    places: HashMap<Identity, u32, RandomState>,
    /// In pieces, so that growing moves nothing and takes no second copy.
    pieces: Vec<Vec<Caller>>,
}

const PIECE: usize = 1 << 12;

/// A caller at each rate.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    last_us: u64,
    pub(super) requests: u32,
    pub(super) half: Half,
    /// Requests times the period of the rate.
    levels: [u64; RATES],
    /// The least bursts so far.
    pub(super) bursts: [u32; RATES],
}

impl Caller {
    #[inline]
    fn count(&mut self, time_us: u64, cost: u64) {
        self.requests = self.requests.saturating_add(1);
        let passed_us = self.go_on(time_us);
        let states = self.levels.iter_mut().zip(&mut self.bursts);
        for (rate, (level, burst)) in ALL.iter().zip(states) {
            let drained = passed_us.saturating_mul(rate.limit);
            *level = level
                .saturating_sub(drained)
                .saturating_add(rate.period_us.saturating_mul(cost));
            if *level > u64::from(*burst) * rate.period_us {
                let needed = level.div_ceil(rate.period_us);
                *burst = u32::try_from(needed).unwrap_or(u32::MAX);
            }
        }
    }
}

impl Caller {
    /// The microseconds since the last request.
    #[inline]
    fn go_on(&mut self, time_us: u64) -> u64 {
        let passed_us = time_us.saturating_sub(self.last_us);
        self.last_us = time_us;
        passed_us
    }

    /// Counts the request as refused by each rate whose burst has no room for it. Only what passes is charged.
    fn try_bursts(
        &mut self,
        time_us: u64,
        cost: u64,
        bursts: &[u32; RATES],
        refused: &mut [u64; RATES],
    ) {
        let passed_us = self.go_on(time_us);
        for (place, rate) in ALL.iter().enumerate() {
            let drained = passed_us.saturating_mul(rate.limit);
            let level = self.levels[place].saturating_sub(drained);
            let with_it = level.saturating_add(rate.period_us.saturating_mul(cost));
            let passes = with_it <= u64::from(bursts[place]).saturating_mul(rate.period_us);
            self.levels[place] = if passes { with_it } else { level };
            refused[place] += u64::from(!passes);
        }
    }
}

impl Callers {
    /// Forgets what callers have spent, for another reading.
    pub(super) fn begin_anew(&mut self) {
        for caller in self.pieces.iter_mut().flatten() {
            (caller.last_us, caller.levels) = (0, [0; RATES]);
        }
    }

    /// Tries a burst for each rate at a request of a known caller.
    pub(super) fn try_bursts(
        &mut self,
        identity: &Identity,
        time_us: u64,
        cost: u64,
        bursts: &[u32; RATES],
        refused: &mut Refused,
    ) {
        let place = self.places.get(identity).map(|place| *place as usize);
        let caller = place.and_then(|place| self.pieces[place / PIECE].get_mut(place % PIECE));
        if let Some(caller) = caller {
            let refused = refused.of(caller.half);
            caller.try_bursts(time_us, cost, bursts, refused);
        }
    }

    /// The requests of one half.
    pub(super) fn requests(&self, half: Half) -> u64 {
        let callers = self.all().filter(|caller| caller.half == half);
        callers.map(|caller| u64::from(caller.requests)).sum()
    }

    pub(super) fn count(&mut self, identity: Identity, time_us: u64, cost: u64) {
        let next = self.places.len();
        let place = *self
            .places
            .entry(identity)
            .or_insert(u32::try_from(next).unwrap_or(u32::MAX));
        let place = place as usize;
        if place == next {
            if next.is_multiple_of(PIECE) {
                self.pieces.push(Vec::with_capacity(PIECE));
            }
            if let Some(piece) = self.pieces.last_mut() {
                piece.push(Caller {
                    last_us: time_us,
                    requests: 0,
                    half: if next.is_multiple_of(2) {
                        Half::Found
                    } else {
                        Half::Checked
                    },
                    levels: [0; RATES],
                    bursts: [0; RATES],
                });
            }
        }
        if let Some(caller) = self.pieces[place / PIECE].get_mut(place % PIECE) {
            caller.count(time_us, cost);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Caller> {
        self.pieces.iter().flatten()
    }

    /// The callers that need the largest bursts at a rate.
    pub(super) fn top(&self, rate: usize, most: usize) -> Vec<(&Identity, &Caller)> {
        let mut callers: Vec<_> = self
            .places
            .iter()
            .map(|(identity, place)| {
                let place = *place as usize;
                (identity, &self.pieces[place / PIECE][place % PIECE])
            })
            .collect();
        let need = |caller: &(&Identity, &Caller)| (caller.1.bursts[rate], caller.1.requests);
        callers.sort_unstable_by(|a, b| {
            need(b)
                .cmp(&need(a))
                .then_with(|| a.0.words().cmp(&b.0.words()))
        });
        callers.truncate(most);
        callers
    }
}

#[cfg(test)]
mod tests {
    use tollgate::{Limiter, ManualClock, MemoryBackend, Policy, Quota, Timestamp};

    use super::*;

    /// True if the library refuses one of these requests.
    fn refuses(quota: &str, times_us: &[u64]) -> bool {
        refused(quota, times_us) > 0
    }

    /// The number of these requests that the library refuses.
    fn refused(quota: &str, times_us: &[u64]) -> u64 {
        let clock = ManualClock::new();
        let backend = MemoryBackend::builder().clock(clock.clone()).build();
        let quota: Quota = quota.parse().unwrap();
        let limiter = Limiter::builder()
            .policy(Policy::new("a", quota))
            .backend(backend)
            .build()
            .unwrap();
        let is_refused = |time_us: &&u64| {
            clock.set(Timestamp::from_micros(**time_us));
            !super::super::trial::ask(&limiter, "a", "caller".into(), 1).unwrap()
        };
        times_us.iter().filter(is_refused).count() as u64
    }

    #[test]
    fn the_least_burst_refuses_nothing_and_one_less_does_by_the_library_s_own_rule() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..20 {
            let pause_us = [10, 1_000, 1_000_000, 100_000_000][random.usize(..4)];
            let mut time_us = 1_795_478_400_000_000;
            let times_us: Vec<u64> = (0..50)
                .map(|_| {
                    time_us += random.u64(..pause_us);
                    time_us
                })
                .collect();
            let mut callers = Callers::default();
            for time_us in &times_us {
                callers.count(Identity::V4(1), *time_us, 1);
            }
            let caller = callers.all().next().unwrap();
            for (rate, burst) in ALL.iter().zip(caller.bursts) {
                let quota = |burst: u32| format!("{} burst {burst}", rate.text());
                assert!(
                    !refuses(&quota(burst), &times_us),
                    "{}, seed {seed}",
                    quota(burst)
                );
                if burst > 1 {
                    assert!(
                        refuses(&quota(burst - 1), &times_us),
                        "{}, seed {seed}",
                        quota(burst - 1)
                    );
                }
            }
        }
    }

    #[test]
    fn a_burst_that_is_tried_refuses_as_many_requests_as_the_library_does_by_its_own_rule() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..20 {
            let pause_us = [10, 1_000, 1_000_000, 100_000_000][random.usize(..4)];
            let mut time_us = 1_795_478_400_000_000;
            let mut callers = Callers::default();
            let mut times_us = Vec::new();
            for _ in 0..50 {
                time_us += random.u64(..pause_us);
                times_us.push(time_us);
                callers.count(Identity::V4(1), time_us, 1);
            }
            let bursts = std::array::from_fn(|_| random.u32(1..9));
            let mut tried = Refused::default();

            callers.begin_anew();
            for time_us in &times_us {
                callers.try_bursts(&Identity::V4(1), *time_us, 1, &bursts, &mut tried);
            }

            for (place, rate) in ALL.iter().enumerate() {
                let quota = format!("{} burst {}", rate.text(), bursts[place]);
                let expected = refused(&quota, &times_us);
                assert_eq!(tried.found[place], expected, "{quota}, seed {seed}");
            }
        }
    }
}
