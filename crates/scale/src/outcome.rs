//! The figures of a run.

use tollgate_core::{Decision, Quota};

/// A request of a tracked key that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pass {
    /// The time at which it passed.
    pub at_us: u64,
    /// Its cost.
    pub cost: u64,
}

/// A decision of a server on a request of a tracked key.
#[derive(Clone, Debug)]
pub struct Moment {
    /// The time of the question.
    pub asked_us: u64,
    /// The number of the process.
    pub process: u32,
    /// The decision, with its time.
    pub decision: Decision,
}

/// The requests of the region that is cut off, in a tenth of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// All that were answered or failed.
    pub all: u64,
    /// Those that had no decision.
    pub failed: u64,
}

/// A key whose requests were written down.
#[derive(Clone, Debug)]
pub struct Tracked {
    /// Its quota.
    pub quota: Quota,
    /// Its requests that passed, by their times.
    pub passes: Vec<Pass>,
    /// The server's decisions, in the order in which it made them.
    pub moments: Vec<Moment>,
}

/// The figures of a run: counts of requests that came after the warm-up.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Requests that were decided, or failed.
    pub requests: u64,
    /// Requests that were decided out of a block.
    pub by_block: u64,
    /// Requests that were denied by a known denial.
    pub by_known: u64,
    /// Requests that passed.
    pub admitted: u64,
    /// Requests without a decision in time.
    pub failed: u64,
    /// Requests that waited for a server in another region.
    pub far: u64,
    /// Calls of scripts at all servers.
    pub calls: u64,
    /// Questions for blocks.
    pub questions: u64,
    /// Rests that were given back.
    pub credits: u64,
    /// Calls of scripts of processes to the busiest server, a second.
    pub hottest_calls: f64,
    /// The busy part of the busiest server's time.
    pub hottest: f64,
    /// The servers that had anything to do.
    pub nodes_in_use: u32,
    /// Half of the requests that wait do so for no longer than this.
    pub median_wait_us: u64,
    /// 99 of a hundred requests that wait do so for no longer than this.
    pub longest_wait_us: u64,
    /// The requests for tracked keys that passed.
    pub tracked_admitted: u64,
    /// The requests for tracked keys that one limiter for all, asked without any delay, would have let through.
    pub ideal: u64,
    /// The tracked keys.
    pub tracked: Vec<Tracked>,
    /// The cut-off region, in tenths of seconds from the start.
    pub spans: Vec<Span>,
}

impl Outcome {
    /// Calls for each decision.
    #[must_use]
    pub fn calls_per_decision(&self) -> f64 {
        self.calls as f64 / (self.requests - self.failed).max(1) as f64
    }

    /// The part of all requests that wait for a server.
    #[must_use]
    pub fn waiting(&self) -> f64 {
        let waiting = self.requests - self.by_block - self.by_known;
        waiting as f64 / self.requests.max(1) as f64
    }

    /// The part of the budget that callers asked for, could have had, and were denied.
    #[must_use]
    pub fn under_use(&self) -> f64 {
        1.0 - self.tracked_admitted as f64 / self.ideal.max(1) as f64
    }
}
