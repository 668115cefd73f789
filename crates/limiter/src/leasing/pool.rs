//! The blocks of this process, and the backend from which they come.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::{Backend, Charge, Decision, Lease, Part};

use super::shelves::{Place, Shelves};
use crate::sync::AtomicBool;

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

/// The outcome of a charge at its blocks.
pub(super) struct Spending {
    pub(super) place: Place,
    /// Its part of a block that had enough.
    pub(super) part: Option<Part>,
    /// The number of a question for another block, and its amount.
    pub(super) to_ask: Option<(u64, u64)>,
}

impl Pool {
    pub(super) fn of(backend: Arc<dyn Backend>, shelves: Shelves) -> Arc<Self> {
        Arc::new(Self {
            backend,
            shelves,
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

    /// Spends a charge from a block; `None` if it is not leased.
    #[inline]
    pub(super) fn spend(&self, charge: &Charge<'_>, lease: &Lease) -> Option<Spending> {
        let now_us = self.now_us();
        let place = self.shelves.place(charge.scope, charge.key);
        let mut shelf = self.shelves.shelf(place);
        let blocks = match shelf.find(place) {
            Some(blocks) if blocks.are_for(charge, lease) => blocks,
            _ => shelf.made(place, charge, lease, now_us)?,
        };
        Some(Spending {
            place,
            part: blocks.spend(charge, now_us),
            to_ask: blocks.to_ask(now_us),
        })
    }

    /// The limiter is gone: all blocks are given back, and those that are still to come.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        for (receipt, n) in self.shelves.take_all() {
            self.backend.refund(receipt, n);
        }
    }

    /// Gives back what is left of the blocks of a budget that have ended.
    pub(super) fn give_back_ended(&self, place: Place) {
        let now_us = self.now_us();
        let mut shelf = self.shelves.shelf(place);
        let rests = shelf.find(place).map(|blocks| blocks.take_ended(now_us));
        drop(shelf);
        for (receipt, n) in rests.into_iter().flatten() {
            self.backend.refund(receipt, n);
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
