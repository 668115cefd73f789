//! The notes of a state beyond its point: credits that were given, turns that were promised, and idle time in store.

use super::credits::Credits;
use super::queue::Queue;
use super::warming::ColdAt;
use crate::algorithm::{CreditMark, QueueMark};

/// The rare part of a state, behind a pointer.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    pub(super) credits: Credits,
    pub(super) queue: Queue,
    pub(super) cold_at: ColdAt,
}

impl Notes {
    /// The notes of a state from outside; none if all are empty.
    pub(super) fn restore(
        credits: &[CreditMark],
        queue: &QueueMark,
        (us, ticks): (u64, u32),
    ) -> Option<Box<Self>> {
        let cold_at = ColdAt { us, ticks };
        let is_cold = cold_at == ColdAt::default();
        let is_empty = credits.is_empty() && *queue == QueueMark::default() && is_cold;
        (!is_empty).then(|| {
            Box::new(Self {
                credits: Credits::restore(credits),
                queue: Queue::restore(queue),
                cold_at,
            })
        })
    }

    /// The time from which credits and turns have no meaning.
    #[inline]
    pub(super) fn relevant_until(&self) -> u64 {
        self.credits
            .relevant_until()
            .max(self.queue.relevant_until())
    }

    /// Forgets credits and turns.
    #[cold]
    pub(super) fn keep_the_store_alone(&mut self) {
        (self.credits, self.queue) = Default::default();
    }
}
