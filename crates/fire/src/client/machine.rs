//! The time for which the machine keeps a process from a processor.

use std::collections::HashMap;
use std::time::Duration;

use super::record::{Line, say};
use crate::wall::now_us;

/// The interval at which a process checks that it gets a processor.
const TICK: Duration = Duration::from_millis(10);

/// The process that asks, in the system's words.
const SELF: &str = "self";

/// Records when a busy machine keeps the process waiting: its lateness is then no defect.
pub(crate) async fn watch_the_machine() -> std::io::Result<()> {
    let mut before = WaitedThreads::default();
    loop {
        let due_at = tokio::time::Instant::now() + TICK;
        tokio::time::sleep_until(due_at).await;
        let late_us = u64::try_from(due_at.elapsed().as_micros()).unwrap_or(u64::MAX);
        let now = waited_us(SELF);
        // One thread may wait while another ticks.
        let kept_us = now.longest_since(&before).max(late_us);
        if u128::from(kept_us) > TICK.as_micros() {
            let to_us = now_us();
            say(&Line::Late(to_us.saturating_sub(kept_us), to_us))?;
        }
        before = now;
    }
}

/// The time for which each thread of a process has been ready to run, and did not.
#[derive(Debug, Default)]
pub(crate) struct WaitedThreads(HashMap<u64, u64>);

impl WaitedThreads {
    /// The longest of these times since that look, in µs.
    pub(crate) fn longest_since(&self, before: &Self) -> u64 {
        let since_us = |(thread, us): (&u64, &u64)| us - before.0.get(thread).unwrap_or(us).min(us);
        self.0.iter().map(since_us).max().unwrap_or_default()
    }
}

/// These times now, if the system tells them.
pub(crate) fn waited_us(process: &str) -> WaitedThreads {
    let threads = std::fs::read_dir(format!("/proc/{process}/task"));
    let waited = threads
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|thread| {
            let number = thread.file_name().to_str()?.parse().ok()?;
            let said = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            let nanoseconds: u64 = said.split_whitespace().nth(1)?.parse().ok()?;
            Some((number, nanoseconds / 1_000))
        });
    WaitedThreads(waited.collect())
}
