//! One limiter alone in a process of its own, so that its memory is the process's memory.

use std::fs;
use std::hash::Hash;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::time::Duration;

use clap::{Args, ValueEnum};
use governor::DefaultKeyedRateLimiter;
use tollgate::{
    Call, Charge, ImmediateBackend, Key, ManualClock, MemoryBackend, Mode, Quota, Scope,
};

use crate::Result;
use crate::measure::{nanos, thread_time};

#[derive(Args)]
pub(crate) struct Grow {
    who: Who,
    what: What,
    keys: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Who {
    Tollgate,
    Governor,
    /// Governor with keys that have no room for IPv6: its slots take half as much
    GovernorOfVersion4,
    /// The loop around them, as busy as they are, with nothing to remember
    Nothing,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Checks of known keys, in random order
    Check,
    /// New keys, one after the other, as many as there is memory for
    Grow,
    /// New keys, with the limiter's own bound on their number
    Flood,
    /// New keys after all known ones have expired
    Expire,
}

/// Enough that ten million callers have something left for the whole run.
const QUOTA: Quota = Quota::per_day(1_000);

/// About a microsecond: an empty loop would be over before anything could interrupt it.
const WORK: u32 = 500;

/// Odd, so that no two numbers become one.
const STEP: u32 = 0x9e37_79b1;

/// The number of checks that are timed together.
const CHECKS: u32 = 1_000_000;

impl Grow {
    /// Prints one line of JSON.
    pub(crate) fn run(&self) -> Result<()> {
        match self.who {
            Who::Nothing => self.with(&|key| {
                let mut number = key.to_bits();
                for _ in 0..WORK {
                    number = black_box(number.wrapping_mul(STEP));
                }
            }),
            Who::Tollgate => self.with_ours(),
            Who::Governor => self.with_governor::<IpAddr>(),
            Who::GovernorOfVersion4 => self.with_governor::<Ipv4Addr>(),
        }
    }

    fn with_ours(&self) -> Result<()> {
        let clock = ManualClock::new();
        let mut backend = MemoryBackend::builder();
        if self.what != What::Flood {
            backend = backend.max_keys(self.keys as usize * 5 / 4);
        }
        if self.what == What::Expire {
            backend = backend.clock(clock.clone());
        }
        let backend = backend.build();
        let scope = Scope::of("growth", 0, &QUOTA);
        let check = |key: Ipv4Addr| {
            let key = Key::from(IpAddr::V4(key));
            let charge = Charge {
                scope,
                quota: &QUOTA,
                key: &key,
                cost: 1,
                mode: Mode::Enforce,
            };
            black_box(&backend.decide_now(Call::of(&[charge])));
        };
        if self.what == What::Expire {
            (0..self.keys).map(address).for_each(check);
            clock.advance(Duration::from_secs(86_400));
        }
        self.with(&check)
    }

    /// It keeps every key until `retain_recent` is called, which is its expiry.
    fn with_governor<K: Clone + Eq + Hash + From<Ipv4Addr>>(&self) -> Result<()> {
        if self.what == What::Expire {
            // Full again at once.
            let limiter =
                DefaultKeyedRateLimiter::<K>::keyed(governor::Quota::per_second(NonZeroU32::MAX));
            for key in 0..self.keys {
                let _ = limiter.check_key(&address(key).into());
            }
            let longest = nanos(|| limiter.retain_recent());
            println!("{}", serde_json::json!({ "longest_us": longest / 1e3 }));
            return Ok(());
        }
        let burst = NonZeroU32::new(1_000).unwrap_or(NonZeroU32::MIN);
        let quota = governor::Quota::with_period(Duration::from_millis(86_400));
        let quota = quota.ok_or("a quota without a period")?.allow_burst(burst);
        let limiter = DefaultKeyedRateLimiter::<K>::keyed(quota);
        self.with(&|key| {
            let _ = black_box(limiter.check_key(&key.into()));
        })
    }

    fn with(&self, check: &impl Fn(Ipv4Addr)) -> Result<()> {
        let line = match self.what {
            What::Check => self.checks(check)?,
            What::Grow | What::Flood => {
                serde_json::json!({ "longest_us": longest_us(0..self.keys, check) })
            }
            What::Expire => {
                let new = self.keys..self.keys.saturating_mul(2);
                serde_json::json!({ "longest_us": longest_us(new, check) })
            }
        };
        println!("{line}");
        Ok(())
    }

    fn checks(&self, check: &impl Fn(Ipv4Addr)) -> Result<serde_json::Value> {
        let before = resident()?;
        (0..self.keys).map(address).for_each(check);
        let bytes = resident()?.saturating_sub(before);
        let mut random = 1_u64;
        let took = nanos(|| {
            for _ in 0..CHECKS {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                // The upper half: the lower bits of such a sequence repeat.
                let key = ((random >> 32) * u64::from(self.keys)) >> 32;
                check(address(key as u32));
            }
        });
        Ok(serde_json::json!({
            "nanos": took / f64::from(CHECKS),
            "bytes_per_key": bytes as f64 / f64::from(self.keys),
        }))
    }
}

/// A different address for each number; neighbours lie far apart.
fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(number.wrapping_mul(STEP))
}

/// The longest of these calls, in the time of this thread: the limiter is not charged for a stolen processor.
fn longest_us(keys: std::ops::Range<u32>, check: &impl Fn(Ipv4Addr)) -> f64 {
    let mut longest = Duration::ZERO;
    let mut before = thread_time();
    for key in keys {
        check(address(key));
        let now = thread_time();
        longest = longest.max(now - before);
        before = now;
    }
    longest.as_secs_f64() * 1e6
}

/// The bytes of memory of this process, if the kernel tells.
fn resident() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.ok_or("/proc/self/status does not tell VmRSS")?;
    Ok(kilobytes.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}
