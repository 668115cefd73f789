//! Checks in memory by one thread and by two, of few keys and of many: what sharing costs.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::thread;
use std::time::{Duration, Instant};

use governor::DefaultKeyedRateLimiter;
use tollgate::{Charge, ImmediateBackend, Key, MemoryBackend, Mode, Quota, Scope};

use super::progress::Progress;
use super::report::Threads;
use crate::measure::median;

const HOT: u32 = 8;
/// A power of two, so that an odd step visits all of them, in an order that no cache foresees.
const COLD: u32 = 1 << 20;
const STEP: u32 = 0x9e37_79b1;

/// Checks per thread and round, and rounds.
const CHECKS: u32 = 1 << 20;
const ROUNDS: [usize; 2] = [9, 3];

/// Of hot keys budgets never run out, and of cold ones either; or they are full again at each visit, so that a key is forgotten and
/// comes as a new one; or there is nothing left.
const CASES: &[(u32, usize, &str, Budget)] = &[
    (HOT, 1, "allowed", Budget(1_000_000_000)),
    (HOT, 2, "allowed", Budget(1_000_000_000)),
    (COLD, 1, "allowed", Budget(1_000)),
    (COLD, 2, "allowed", Budget(1_000)),
    (COLD, 2, "full again", Budget(1_000_000_000)),
    (HOT, 2, "denied", Budget(1)),
    (COLD, 2, "denied", Budget(1)),
];

/// So much a day.
#[derive(Clone, Copy)]
struct Budget(u32);

pub(super) const STEPS: u64 = CASES.len() as u64;

pub(super) fn measure(quick: bool, progress: &Progress) -> Vec<Threads> {
    progress.part("in process: one thread and two, few keys and many");
    let rounds = ROUNDS[usize::from(quick)];
    let case = |&(keys, threads, said, budget): &(u32, usize, &str, Budget)| {
        let (ours_per_second, governor_per_second, ours_by_governor) =
            compared(keys, threads, budget, rounds);
        progress.step();
        Threads {
            keys,
            threads,
            said: said.to_owned(),
            ours_per_second,
            governor_per_second,
            ours_by_governor,
        }
    };
    CASES.iter().map(case).collect()
}

/// Checks per second, ours and governor's, and the ratio.
fn compared(keys: u32, threads: usize, budget: Budget, rounds: usize) -> (f64, f64, f64) {
    let quota = Quota::per_day(budget.0.into());
    let scope = Scope::of("threads", 0, &quota);
    // With some to spare, so that no shard is full when all keys are there.
    let backend = MemoryBackend::builder()
        .max_keys(COLD as usize * 5 / 4)
        .build();
    let ours = |key: u32| {
        let key = Key::from(Ipv4Addr::from_bits(key));
        let charge = Charge {
            scope,
            quota: &quota,
            key: &key,
            cost: 1,
            mode: Mode::Enforce,
        };
        black_box(&backend.decide_now(&[charge]));
    };
    let limiter = DefaultKeyedRateLimiter::keyed(budget.in_governor_s_words());
    let theirs = |key: u32| {
        let _ = black_box(limiter.check_key(&Ipv4Addr::from_bits(key)));
    };
    // Not counted: the tables grow.
    per_second(&ours, keys, threads);
    per_second(&theirs, keys, threads);
    let pairs: Vec<_> = (0..rounds)
        .map(|_| {
            (
                per_second(&ours, keys, threads),
                per_second(&theirs, keys, threads),
            )
        })
        .collect();
    (
        median(pairs.iter().map(|pair| pair.0)),
        median(pairs.iter().map(|pair| pair.1)),
        median(pairs.iter().map(|pair| pair.0 / pair.1)),
    )
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

fn per_second(check: &(impl Fn(u32) + Sync), keys: u32, threads: usize) -> f64 {
    let started_at = Instant::now();
    thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                // Each at a place of its own.
                let mut at = (thread as u32).wrapping_mul(COLD / 2);
                for _ in 0..CHECKS {
                    at = at.wrapping_add(STEP);
                    check(at % keys);
                }
            });
        }
    });
    f64::from(CHECKS) * threads as f64 / started_at.elapsed().as_secs_f64()
}
