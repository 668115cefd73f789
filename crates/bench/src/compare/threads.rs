//! Checks in memory by one thread and by two, of few keys and of many: the cost of sharing.

use std::hash::Hash;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::thread;
use std::time::{Duration, Instant};

use governor::DefaultKeyedRateLimiter;
use tollgate::{Call, Charge, ImmediateBackend, Key, MemoryBackend, Mode, Quota, Scope};

use super::part;
use super::report::Threads;
use crate::measure::median;

const HOT: u32 = 8;
/// A power of two, so that an odd step visits all keys, in an order that no cache foresees.
const COLD: u32 = 1 << 20;
const STEP: u32 = 0x9e37_79b1;

/// The checks per thread and round, and the number of rounds.
const CHECKS: u32 = 1 << 20;
const ROUNDS: [usize; 2] = [9, 3];

/// The budgets of hot keys never run out, nor do those of cold ones. Or they are full again at each visit, so that a key is
/// dropped and comes back as a new one. Or nothing is left of them.
const CASES: &[Case] = &[
    Case::new(HOT, 1, "allowed", Budget(1_000_000_000)),
    Case::new(HOT, 2, "allowed", Budget(1_000_000_000)),
    Case::new(COLD, 1, "allowed", Budget(1_000)),
    Case::new(COLD, 2, "allowed", Budget(1_000)),
    Case::new(COLD, 2, "allowed", Budget(1_000)).against_version_4(),
    Case::new(COLD, 2, "full again", Budget(1_000_000_000)),
    Case::new(HOT, 2, "denied", Budget(1)),
    Case::new(COLD, 2, "denied", Budget(1)),
    Case::new(COLD, 2, "denied", Budget(1)).against_version_4(),
];

struct Case {
    keys: u32,
    threads: usize,
    said: &'static str,
    budget: Budget,
    /// Governor with keys that have no room for IPv6, which Tollgate cannot do: its slots take half as much.
    against_version_4: bool,
}

/// The units per day.
#[derive(Clone, Copy)]
struct Budget(u32);

pub(super) fn measure(quick: bool) -> Vec<Threads> {
    part("in process: one thread and two, few keys and many");
    let rounds = ROUNDS[usize::from(quick)];
    let measured = |case: &Case| {
        if case.against_version_4 {
            case.measured::<Ipv4Addr>(rounds)
        } else {
            // As tower_governor and axum-governor have them.
            case.measured::<IpAddr>(rounds)
        }
    };
    CASES.iter().map(measured).collect()
}

impl Case {
    const fn new(keys: u32, threads: usize, said: &'static str, budget: Budget) -> Self {
        Self {
            keys,
            threads,
            said,
            budget,
            against_version_4: false,
        }
    }

    const fn against_version_4(self) -> Self {
        Self {
            against_version_4: true,
            ..self
        }
    }

    /// A check by a governor whose keys are `K`.
    fn measured<K>(&self, rounds: usize) -> Threads
    where
        K: Clone + Eq + Hash + From<Ipv4Addr> + Send + Sync,
    {
        let quota = Quota::per_day(self.budget.0.into());
        let scope = Scope::of("threads", 0, &quota);
        // With some room to spare, so that no shard is full when all keys are there.
        let backend = MemoryBackend::builder()
            .max_keys(COLD as usize * 5 / 4)
            .build();
        let ours = |caller: u32| {
            let key = Key::from(IpAddr::V4(Ipv4Addr::from_bits(caller)));
            let charge = Charge {
                scope,
                quota: &quota,
                key: &key,
                cost: 1,
                mode: Mode::Enforce,
            };
            black_box(&backend.decide_now(Call::of(&[charge])));
        };
        let limiter = DefaultKeyedRateLimiter::<K>::keyed(self.budget.in_governor_s_words());
        let theirs = |caller: u32| {
            let _ = black_box(limiter.check_key(&Ipv4Addr::from_bits(caller).into()));
        };
        // The first rounds are not counted, because the tables grow.
        self.per_second(&ours);
        self.per_second(&theirs);
        let pairs: Vec<_> = (0..rounds)
            .map(|_| (self.per_second(&ours), self.per_second(&theirs)))
            .collect();
        Threads {
            keys: self.keys,
            threads: self.threads,
            said: self.said.to_owned(),
            against_version_4: self.against_version_4,
            ours_per_second: median(pairs.iter().map(|pair| pair.0)),
            governor_per_second: median(pairs.iter().map(|pair| pair.1)),
            ours_by_governor: median(pairs.iter().map(|pair| pair.0 / pair.1)),
        }
    }

    fn per_second(&self, check: &(impl Fn(u32) + Sync)) -> f64 {
        let started_at = Instant::now();
        thread::scope(|scope| {
            for thread in 0..self.threads {
                scope.spawn(move || {
                    // Each starts at a place of its own.
                    let mut at = (thread as u32).wrapping_mul(COLD / 2);
                    for _ in 0..CHECKS {
                        at = at.wrapping_add(STEP);
                        check(at % self.keys);
                    }
                });
            }
        });
        f64::from(CHECKS) * self.threads as f64 / started_at.elapsed().as_secs_f64()
    }
}

impl Budget {
    fn in_governor_s_words(self) -> governor::Quota {
        let burst = NonZeroU32::new(self.0).unwrap_or(NonZeroU32::MIN);
        let quota = governor::Quota::with_period(Duration::from_secs(86_400) / burst.get());
        quota
            .unwrap_or(governor::Quota::per_second(NonZeroU32::MIN))
            .allow_burst(burst)
    }
}
