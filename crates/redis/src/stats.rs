//! What a backend tells about itself.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::wire::Call;

/// What a [`RedisBackend`](crate::RedisBackend) has sent and received so far. Requests by calls is how well it coalesces.
///
/// Counts, and nothing that would need a clock or a histogram on the way: whoever wants rates takes the difference of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Calls of the script.
    pub calls: u64,
    /// Requests that they carried: decisions, credits, debits and resets.
    pub requests: u64,
    /// Bytes of these calls, as they stand in the protocol.
    pub bytes_out: u64,
    /// Bytes of what the server answered. Errors are not counted.
    pub bytes_in: u64,
    /// Credits that failed, or of which nobody knows: what they were to give back may have stayed charged. Beside those that
    /// were asked for, a cluster has its own: a request was denied in one slot, and had taken in another.
    pub lost_give_backs: u64,
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
    pub(crate) fn sent(&self, call: &Call<'_>, sha: &str, requests: usize) {
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
        }
    }
}

fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// A text of the protocol: `$`, its length, its bytes, and the ends of both lines.
fn on_the_wire(length: usize) -> usize {
    1 + digits(length) + 2 + length + 2
}

fn digits(number: usize) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}
