//! The blocks of this process, and the backend from which they come.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::{Backend, Decision};

use super::shelves::{Place, Shelves};

pub(super) struct Pool {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) shelves: Shelves,
    began: Instant,
    /// True if the limiter is gone, so that nothing is leased any more.
    pub(super) is_over: AtomicBool,
}

/// The position of a verdict on a leased budget in a decision of the backend. The budget's blocks are told of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) place: Place,
    pub(super) position: usize,
}

impl Pool {
    pub(super) fn of(backend: Arc<dyn Backend>) -> Arc<Self> {
        Arc::new(Self {
            backend,
            shelves: Shelves::new(),
            began: Instant::now(),
            is_over: AtomicBool::new(false),
        })
    }

    /// Microseconds since the start.
    pub(super) fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// The time at which as many microseconds have passed.
    pub(super) fn at(&self, us: u64) -> Instant {
        self.began + Duration::from_micros(us)
    }

    /// Gives back what is left of the blocks of a budget that have ended.
    pub(super) fn give_back_ended(&self, place: Place) {
        let now_us = self.now_us();
        let mut shelf = self.shelves.shelf(place);
        let rests = shelf.find(place).map(|blocks| blocks.take_ended(now_us));
        drop(shelf);
        for (receipt, n) in rests.into_iter().flatten() {
            self.backend.credit(receipt, n);
        }
    }

    /// Gives back all blocks.
    pub(super) fn give_back_all(&self) {
        for (receipt, n) in self.shelves.take_all() {
            self.backend.credit(receipt, n);
        }
    }

    /// Tells the blocks what the backend decided by itself.
    pub(super) fn tell(&self, told: &[Told], decision: &Decision) {
        for Told { place, position } in told {
            if let Some(verdict) = decision.verdicts().get(*position)
                && let Some(blocks) = self.shelves.shelf(*place).find(*place)
            {
                blocks.decided(verdict);
            }
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.backend.fmt(f)
    }
}
