//! The time for which the machine keeps a client from a processor.

use std::collections::HashMap;
use std::time::Duration;

use super::record::{Line, say};
use crate::wall::now_us;

/// The interval at which a process checks that it gets a processor.
const TICK: Duration = Duration::from_millis(10);

/// Records when a busy machine keeps the process waiting: its lateness is then no defect.
pub(super) async fn watch_the_machine() -> std::io::Result<()> {
    let mut before_us = HashMap::new();
    loop {
        let due_at = tokio::time::Instant::now() + TICK;
        tokio::time::sleep_until(due_at).await;
        let late_us = u64::try_from(due_at.elapsed().as_micros()).unwrap_or(u64::MAX);
        let waited_us = waited_us();
        let since_us =
            |(thread, us): (&u64, &u64)| us - before_us.get(thread).unwrap_or(us).min(us);
        // One thread may wait while another ticks.
        let longest_us = waited_us.iter().map(since_us).max();
        let kept_us = longest_us.unwrap_or_default().max(late_us);
        if u128::from(kept_us) > TICK.as_micros() {
            let to_us = now_us();
            say(&Line::Late(to_us.saturating_sub(kept_us), to_us))?;
        }
        before_us = waited_us;
    }
}

/// The time for which each thread of the process was ready to run and did not, if the system tells it.
fn waited_us() -> HashMap<u64, u64> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let waited = threads.flatten().filter_map(|thread| {
        let number = thread.file_name().to_str()?.parse().ok()?;
        let said = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let nanoseconds: u64 = said.split_whitespace().nth(1)?.parse().ok()?;
        Some((number, nanoseconds / 1_000))
    });
    waited.collect()
}
