//! Helpers of all measurements: the processor time of a thread, and the median.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The processor time of this thread. Unlike the time of day it stands still while other threads run.
pub(crate) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
}

/// The duration, in nanoseconds of this thread.
pub(crate) fn nanos(work: impl FnOnce()) -> f64 {
    let start = thread_time();
    work();
    (thread_time() - start).as_nanos() as f64
}

/// The median: a few interrupted rounds do not move it.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values
        .into_iter()
        .filter(|value| value.is_finite())
        .collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
