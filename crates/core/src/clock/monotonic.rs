//! Time since some moment in the past, read as cheaply as the machine allows.

#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
mod ticking;

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use rustix::time::{ClockId, Timespec, clock_gettime};
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
use std::{sync::LazyLock, time::Instant};

/// The time by the processor's counter, if the kernel uses that as well. This takes half as long as a call of the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Monotonic {
    #[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
    ticking: Option<&'static ticking::Ticking>,
}

impl Monotonic {
    pub(super) fn new() -> Self {
        Self {
            #[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
            ticking: ticking::Ticking::of_this_process(),
        }
    }

    /// Microseconds since a moment that stays the same for as long as the process runs.
    #[inline]
    pub(super) fn micros(self) -> u64 {
        #[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
        if let Some(ticking) = self.ticking {
            return ticking.micros();
        }
        system_micros()
    }
}

// Kept out of line: the counter nearly always has the answer.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[inline(never)]
fn system_micros() -> u64 {
    let now = system();
    now.tv_sec.cast_unsigned() * 1_000_000 + now.tv_nsec.cast_unsigned() / 1_000
}

/// The reading behind std's `Instant`, without its arithmetic on `Duration`s, which costs more than the reading. 64 bits,
/// because seconds and nanoseconds then have one type under every libc.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[inline]
fn system() -> Timespec {
    clock_gettime(ClockId::Monotonic)
}

/// Time since it was first asked for.
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
fn system_micros() -> u64 {
    static ZERO: LazyLock<Instant> = LazyLock::new(Instant::now);

    u64::try_from(ZERO.elapsed().as_micros()).unwrap_or(u64::MAX)
}
