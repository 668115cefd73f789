//! The figures of a backend.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::wire::ScriptCall;

/// The traffic of a [`RedisBackend`](crate::RedisBackend) so far. Requests divided by calls shows how well it coalesces.
///
/// Counts, and nothing that would need a clock or a histogram: for rates, take the difference of two.
///
/// How many decisions a call carried between two scrapes of metrics:
///
/// ```
/// use tollgate::RedisStats;
///
/// fn decisions_per_call(before: RedisStats, now: RedisStats) -> Option<u64> {
///     (now.requests - before.requests).checked_div(now.calls - before.calls)
/// }
///
/// assert_eq!(decisions_per_call(RedisStats::default(), RedisStats::default()), None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Calls of the script.
    pub calls: u64,
    /// Requests in these calls: decisions, credits, debits and resets.
    pub requests: u64,
    /// Bytes of these calls, in the protocol.
    pub bytes_out: u64,
    /// Bytes of the server's answers, without errors.
    pub bytes_in: u64,
    /// Credits that failed, or whose outcome is unknown: their charges may have stayed. They are credits of callers and, in a
    /// cluster, those of a request that one slot denied after another had taken.
    pub lost_give_backs: u64,
    /// Units that this process holds now, of all [`Concurrent`](tollgate_core::Concurrent) limits together. It falls back to 0
    /// when nothing is under way.
    pub held: u64,
    /// Keys that this process has told what it holds of them: about three for each lease and key.
    pub tells: u64,
    /// Keys of which the server no longer knew that this process holds something. Either the process was stopped or cut off for
    /// longer than its lease, or the server lost data. Others may have taken the places, so more than the limit may be held.
    pub lost_leases: u64,
    /// Units of other processes whose leases had run out, and which a call of this one made free: those processes have died, or
    /// were stopped or cut off for longer than their leases, or the server's clock stepped forward. Each is counted by one process
    /// of the fleet. A key of which no other process holds anything is gone with its last entry, and is not counted.
    pub reclaimed: u64,
    /// The number of times that another process wrote in this one's name: it was copied with its memory. This one goes on under
    /// another name. Until then, for at most a lease, the places of one of the two may be missing from the count; for a lease
    /// after that, they may count twice.
    pub twins: u64,
    /// Decisions that the server was not asked for, since it had denied and could not have admitted by then: see
    /// [`ask_every_denial`](crate::RedisBackendBuilder::ask_every_denial).
    pub known_denials: u64,
}

/// The counts as they grow. Nothing depends on their order.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    calls: AtomicU64,
    requests: AtomicU64,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
    lost_give_backs: AtomicU64,
}

impl Counters {
    pub(crate) fn sent(&self, call: &ScriptCall<'_>, sha: &str, requests: usize) {
        let keys = call.keys.iter().map(|key| on_the_wire(key.len()));
        let runs = call.runs.iter().map(|run| on_the_wire(run.len()));
        let words = 3 + call.keys.len() + call.runs.len();
        let bytes = 3
            + digits(words)
            + on_the_wire("EVALSHA".len())
            + on_the_wire(sha.len())
            + on_the_wire(digits(call.keys.len()))
            + keys.chain(runs).sum::<usize>();
        add(&self.calls, 1);
        add(&self.requests, requests);
        add(&self.bytes_out, bytes);
    }

    pub(crate) fn received(&self, reply: usize) {
        add(&self.bytes_in, on_the_wire(reply));
    }

    pub(crate) fn lost(&self) {
        add(&self.lost_give_backs, 1);
    }

    pub(crate) fn read(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            calls: read(&self.calls),
            requests: read(&self.requests),
            bytes_out: read(&self.bytes_out),
            bytes_in: read(&self.bytes_in),
            lost_give_backs: read(&self.lost_give_backs),
            ..Stats::default()
        }
    }
}

fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// The size of a text in the protocol: `$`, its length, its bytes, and the ends of both lines.
fn on_the_wire(length: usize) -> usize {
    1 + digits(length) + 2 + length + 2
}

fn digits(number: usize) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}
