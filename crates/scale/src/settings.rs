//! The fleet of a run, and what happens to it.

use tollgate_core::Lease;

use crate::load::Load;

/// The way in which regions share budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One home for all regions.
    Home,
    /// Servers in each region, which have an equal part of each budget.
    Split,
    /// A store in each region that leases from home, and from which the region's processes lease. It is simulated only.
    Nested {
        /// The time of a region's lease.
        within_ms: u64,
    },
}

/// The settings of a run. Times are microseconds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The seed of all that is random.
    pub seed: u64,
    /// The number of processes, which take turns at the regions.
    pub processes: u32,
    /// The number of servers: at home, or in each region of a split fleet.
    pub nodes: u32,
    /// The number of hash tags over which keys spread. A fleet with one server has none.
    pub partitions: u16,
    /// The number of regions; the first is home.
    pub regions: u32,
    /// The way in which they share budgets.
    pub shape: Shape,
    /// The terms by which processes lease.
    pub lease: Option<Lease>,
    /// The requests.
    pub load: Load,
    /// The time before anything is counted.
    pub warm_up_us: u64,
    /// The time that is counted.
    pub run_us: u64,
    /// A random process crashes in each of these times, and starts again a second later.
    pub crash_every_us: Option<u64>,
    /// The last region is cut off from the others between these times.
    pub cut_us: Option<(u64, u64)>,
    /// The round trip within a region.
    pub near_us: u64,
    /// The round trip between two regions.
    pub far_us: u64,
    /// The time within which a request is answered, or has failed.
    pub deadline_us: u64,
    /// A defect for tests: blocks end so much too late.
    pub late_us: u64,
    /// The requests of so many of the hottest keys are written down, to be checked.
    pub tracked: u32,
}

impl Settings {
    /// One region with one server, a round trip of half a millisecond, and no lease.
    #[must_use]
    pub fn of(load: Load) -> Self {
        Self {
            seed: 1,
            processes: 4,
            nodes: 1,
            partitions: 64,
            regions: 1,
            shape: Shape::Home,
            lease: None,
            load,
            warm_up_us: 500_000,
            run_us: 2_000_000,
            crash_every_us: None,
            cut_us: None,
            near_us: 500,
            far_us: 80_000,
            deadline_us: 100_000,
            late_us: 0,
            tracked: 4,
        }
    }

    /// Processes lease by these terms.
    #[must_use]
    pub fn leased(mut self, lease: Lease) -> Self {
        self.lease = Some(lease);
        self
    }
}
