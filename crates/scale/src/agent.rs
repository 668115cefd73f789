//! An agent asks servers and leases: a process, or the store of a region.

use std::collections::{HashMap, VecDeque};

use tollgate_core::{Blocks, Receipt, Verdict};

/// The most requests of one call.
const MOST_REQUESTS: usize = 64;

/// The connections to each server.
const CONNECTIONS: usize = 2;

/// The most calls that one connection carries.
const MOST_CALLS: u64 = 16;

/// The aim of a job.
#[derive(Debug)]
pub(crate) enum Work {
    /// To decide a request.
    Decide,
    /// To lease so much.
    Lease { number: u64, amount: u64 },
    /// To give back.
    Credit(Box<(Receipt, u64)>),
}

/// The one that waits for the answer to a job.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    /// The agent that asks.
    Own,
    /// A process below the store that asks.
    Below { agent: usize, epoch: u32 },
}

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) key: u32,
    pub(crate) work: Work,
    pub(crate) came_ns: u64,
    pub(crate) origin: Origin,
}

/// An agent's way to one server.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) queue: VecDeque<Job>,
    under_way: usize,
    most: usize,
}

impl Lane {
    /// A connection carries one call for each millisecond of the round trip.
    pub(crate) fn new(round_trip_us: u64) -> Self {
        let calls = (round_trip_us / 1_000).clamp(1, MOST_CALLS);
        Self {
            queue: VecDeque::new(),
            under_way: 0,
            most: CONNECTIONS * calls as usize,
        }
    }

    /// The jobs that leave in a call now: those of the first one's tag.
    pub(crate) fn depart(&mut self, tag: impl Fn(u32) -> u16) -> Option<Vec<Job>> {
        if self.under_way >= self.most {
            return None;
        }
        let first = tag(self.queue.front()?.key);
        let mut jobs = Vec::new();
        let mut others = VecDeque::new();
        while let Some(job) = self.queue.pop_front() {
            if tag(job.key) == first {
                jobs.push(job);
                if jobs.len() == MOST_REQUESTS {
                    break;
                }
            } else {
                others.push_back(job);
            }
        }
        while let Some(job) = others.pop_back() {
            self.queue.push_front(job);
        }
        self.under_way += 1;
        Some(jobs)
    }

    pub(crate) fn arrived(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }
}

/// The part of a hot key that an agent knows.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) blocks: Option<Blocks>,
    /// The latest answer, if it was a denial, and the time until which that is known to hold.
    pub(crate) denial: Option<(Verdict, u64)>,
}

#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) region: u32,
    /// Counts its lives.
    pub(crate) epoch: u32,
    pub(crate) is_alive: bool,
    pub(crate) lanes: HashMap<usize, Lane>,
    pub(crate) locals: HashMap<u32, Local>,
}

impl Agent {
    pub(crate) fn new(region: u32) -> Self {
        Self {
            region,
            epoch: 0,
            is_alive: true,
            lanes: HashMap::new(),
            locals: HashMap::new(),
        }
    }

    /// All that it knew and waited for is gone.
    pub(crate) fn crash(&mut self) {
        self.epoch += 1;
        self.is_alive = false;
        self.lanes.clear();
        self.locals.clear();
    }
}
