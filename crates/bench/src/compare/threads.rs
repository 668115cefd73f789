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

const CASES: &[(u32, usize, bool)] = &[
    (HOT, 1, true),
    (HOT, 2, true),
    (COLD, 1, true),
    (COLD, 2, true),
    (HOT, 2, false),
    (COLD, 2, false),
];

pub(super) const STEPS: u64 = CASES.len() as u64;

pub(super) fn measure(quick: bool, progress: &Progress) -> Vec<Threads> {
    progress.part("in process: one thread and two, few keys and many");
    let rounds = ROUNDS[usize::from(quick)];
    let case = |&(keys, threads, allowed): &(u32, usize, bool)| {
        let measured = compared(keys, threads, allowed, rounds);
        progress.step();
        measured
    };
    CASES.iter().map(case).collect()
}

fn compared(keys: u32, threads: usize, allowed: bool, rounds: usize) -> Threads {
    let quota = if allowed {
        Quota::per_day(1_000_000_000)
    } else {
        Quota::per_day(1)
    };
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
    let limiter = DefaultKeyedRateLimiter::keyed(same(allowed));
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
    Threads {
        keys,
        threads,
        allowed,
        ours_per_second: median(pairs.iter().map(|pair| pair.0)),
        governor_per_second: median(pairs.iter().map(|pair| pair.1)),
        ours_by_governor: median(pairs.iter().map(|pair| pair.0 / pair.1)),
    }
}

/// The same quota in governor's words.
fn same(allowed: bool) -> governor::Quota {
    let (period, burst) = if allowed {
        (Duration::from_nanos(86_400), 1_000_000_000)
    } else {
        (Duration::from_secs(86_400), 1)
    };
    let burst = NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN);
    let quota = governor::Quota::with_period(period);
    quota
        .unwrap_or(governor::Quota::per_second(NonZeroU32::MIN))
        .allow_burst(burst)
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
