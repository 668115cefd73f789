//! The notes of a state beyond its point: credits that were given, and turns that were promised.

use super::credits::Credits;
use super::queue::Queue;
use crate::algorithm::{CreditMark, QueueMark};

/// The rare part of a state, behind a pointer.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    pub(super) credits: Credits,
    pub(super) queue: Queue,
}

impl Notes {
    /// The notes of a state from outside; none if both are empty.
    pub(super) fn restore(credits: &[CreditMark], queue: &QueueMark) -> Option<Box<Self>> {
        let is_empty = credits.is_empty() && *queue == QueueMark::default();
        (!is_empty).then(|| {
            Box::new(Self {
                credits: Credits::restore(credits),
                queue: Queue::restore(queue),
            })
        })
    }

    /// The time from which they have no meaning.
    #[inline]
    pub(super) fn relevant_until(&self) -> u64 {
        self.credits
            .relevant_until()
            .max(self.queue.relevant_until())
    }
}
