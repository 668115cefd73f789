//! The measurements, as they stand in `report.json`. Tables and floors are made of these alone.

use serde::{Deserialize, Serialize};

/// The limiter that all others are compared with.
pub(crate) const OURS: &str = "Tollgate";

/// The whole result of a run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) quick: bool,
    pub(crate) setting: Setting,
    pub(crate) layers: Vec<Row>,
    pub(crate) threads: Vec<Threads>,
    pub(crate) redis: Vec<InFlight>,
    pub(crate) redis_sizes: Vec<Sizes>,
    pub(crate) redis_costs: Vec<ServerCost>,
    /// The costs of what is held. Earlier reports have none.
    #[serde(default)]
    pub(crate) redis_held: Vec<HeldCost>,
    pub(crate) http: Vec<Served>,
    /// The servers with limits on how many at once. Earlier reports have none.
    #[serde(default)]
    pub(crate) at_once: Vec<Served>,
    pub(crate) growth: Growth,
    /// Sentences about the measurements that this machine could not make.
    pub(crate) not_measured: Vec<String>,
}

/// The machine and the versions.
#[derive(Serialize, Deserialize)]
pub(crate) struct Setting {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) system: String,
    pub(crate) versions: Vec<String>,
}

/// One task of several limiters.
#[derive(Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) what: String,
    /// The name of our scenario.
    pub(crate) scenario: String,
    /// Ours first.
    pub(crate) by: Vec<Cost>,
}

/// The costs of one request, above that request without a limiter.
#[derive(Serialize, Deserialize)]
pub(crate) struct Cost {
    pub(crate) who: String,
    /// Counted by valgrind; `None` without it.
    pub(crate) instructions: Option<i64>,
    pub(crate) allocations: Option<i64>,
    pub(crate) nanos: f64,
    /// The ratio of ours to this one, the median of all rounds: below one, ours is cheaper.
    pub(crate) ours_by_this: f64,
}

/// Checks in memory by one thread or more.
#[derive(Serialize, Deserialize)]
pub(crate) struct Threads {
    pub(crate) keys: u32,
    pub(crate) threads: usize,
    /// The outcome of the checks.
    pub(crate) said: String,
    /// Governor's keys have no room for IPv6 addresses, and Tollgate's have: not like for like.
    pub(crate) against_version_4: bool,
    pub(crate) ours_per_second: f64,
    pub(crate) governor_per_second: f64,
    /// The median of all rounds: above one, ours is faster.
    pub(crate) ours_by_governor: f64,
}

/// Decisions by a Redis server, with this many under way.
#[derive(Serialize, Deserialize)]
pub(crate) struct InFlight {
    pub(crate) in_flight: usize,
    /// The number of callers that take turns.
    pub(crate) callers: u64,
    /// Ours first.
    pub(crate) by: Vec<Pace>,
}

/// The rate, and the latency of each decision.
#[derive(Serialize, Deserialize)]
pub(crate) struct Pace {
    pub(crate) who: String,
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

/// The server's cost of a decision.
#[derive(Serialize, Deserialize)]
pub(crate) struct Sizes {
    pub(crate) who: String,
    /// Of redis-server, with 64 under way.
    pub(crate) instructions: Option<u64>,
    pub(crate) bytes_to_server: f64,
    pub(crate) bytes_from_server: f64,
    pub(crate) bytes_per_key: u64,
}

/// The instructions of redis-server for one of Tollgate's decisions, in one case.
#[derive(Serialize, Deserialize)]
pub(crate) struct ServerCost {
    pub(crate) case: String,
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
}

/// The instructions of redis-server for an acquire and its release together, in the case of a decision of this name.
#[derive(Serialize, Deserialize)]
pub(crate) struct HeldCost {
    pub(crate) case: String,
    pub(crate) holders: usize,
    pub(crate) instructions: u64,
}

/// A server driven by wrk.
#[derive(Serialize, Deserialize)]
pub(crate) struct Served {
    pub(crate) who: String,
    pub(crate) per_second: f64,
    /// The server's processor time per request.
    pub(crate) processor_us: f64,
    /// The processor time per request that wrk and redis-server share, if there is no third core.
    pub(crate) wrk_us: f64,
    pub(crate) redis_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// The medians of all rounds.
    pub(crate) rate_by_bare: f64,
    pub(crate) processor_by_bare: f64,
    pub(crate) p50_by_bare: f64,
    pub(crate) p99_by_bare: f64,
}

/// The growth of costs.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Growth {
    pub(crate) keys: Vec<Keys>,
    pub(crate) policies: Vec<Steps>,
    pub(crate) charges: Vec<Steps>,
    pub(crate) pauses: Vec<Pause>,
}

/// Checks among this many keys, in random order.
#[derive(Serialize, Deserialize)]
pub(crate) struct Keys {
    pub(crate) who: String,
    pub(crate) keys: u32,
    pub(crate) nanos: f64,
    /// Resident memory, the key included.
    pub(crate) bytes_per_key: f64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Steps {
    pub(crate) count: u32,
    pub(crate) nanos: f64,
}

/// The longest single call, in the time of its thread; the least of a few runs.
#[derive(Serialize, Deserialize)]
pub(crate) struct Pause {
    pub(crate) who: String,
    pub(crate) what: String,
    pub(crate) longest_us: f64,
    /// The loop without a limiter: the machine's own interruptions.
    pub(crate) nothing_us: f64,
}
