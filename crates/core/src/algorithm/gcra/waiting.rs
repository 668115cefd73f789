//! Turns: a charge that does not fit now and may wait is taken now and passes later.
//!
//! Think of each charge as draining in a *stretch* of time of its own, behind all that were taken before it. Two rules hold
//! for every charge, whichever request waits, leaves or comes next:
//!
//! 1. No two stretches overlap.
//! 2. A charge that passes at *t* drains between *t* and *t* + a full drain.
//!
//! They are all that the worst case needs. What passes within a time ℓ drains within ℓ + a full drain, each microsecond for one
//! charge, and so is at most burst + rate · ℓ. (A turn is rounded up to a microsecond, by which ℓ may be longer.)
//!
//! A request with several waits passes at the end of the longest, and so later than the shorter ones say: see `GUARANTEES.md`.
//!
//! A stretch at the end of the queue keeps the second rule if the charge waits until the end of the stretch is a full drain
//! away. A request that leaves before that frees a stretch. It is handed to the next charge that fits into what is still ahead
//! of now, and the charges behind it stay where they are: moving them up would break the second rule, since their turns were
//! promised. A credit *of a charge that has passed* moves others up, and therefore gives nothing back while any request waits.

use std::cmp;

use super::queue::Gap;
use super::{Bucket, Gcra, Point};
use crate::algorithm::{Budget, Passage, Step};

/// A stretch in which a charge can drain, in parts ahead of now.
struct Stretch {
    end: u128,
    /// The time until the charge passes.
    wait: u128,
    /// The number of the gap that it lies in; none for the end of the queue.
    gap: Option<usize>,
}

impl Gcra {
    /// Asks if a cost passes now or may wait.
    pub(super) fn waiting_passage(&self, state: &mut Bucket, now: u64, cost: u64) -> Passage {
        let left = self.settle(state, now);
        match self.stretch(state, now, left, cost) {
            Ok(stretch) => self.passage_after(stretch.wait),
            Err(closed) => closed,
        }
    }

    /// Takes a step as every quota does, with the choice to wait.
    pub(super) fn waiting_step(&self, state: &mut Bucket, now: u64, cost: u64, take: bool) -> Step {
        let left = self.settle(state, now);
        let (passage, full_at) = match self.stretch(state, now, left, cost) {
            Ok(stretch) => {
                let mut full_at = Point::ZERO;
                if take && cost > 0 {
                    full_at = self.point(now, stretch.end);
                    self.reserve(state, now, left, &stretch);
                }
                (self.passage_after(stretch.wait), full_at)
            }
            Err(closed) => (closed, Point::ZERO),
        };
        (passage, full_at, self.waiting_budget(state, now))
    }

    /// The budget with the gaps that a charge could use now.
    pub(super) fn waiting_budget(&self, state: &Bucket, now: u64) -> Budget {
        let left: u128 = self.left(state, now);
        let full = self.drain::<u128>(self.burst);
        let gaps = self.gaps(state).iter().map(|gap| {
            let (start, end) = self.ends(gap, now);
            cmp::min(end, full).saturating_sub(start)
        });
        let room = gaps.fold(full.saturating_sub(left), cmp::max);
        self.budget_of(room, now, self.point(now, left))
    }

    /// Frees the stretch of a charge whose turn has not come, or its last part. Returns false if the turn has come, and nothing
    /// has happened.
    pub(super) fn leave_queue(
        &self,
        state: &mut Bucket,
        now: u64,
        full_at: Point,
        cost: u64,
    ) -> bool {
        let end: u128 = self.ahead(full_at, now);
        if end <= self.drain(self.burst) {
            return false;
        }
        let start = end - cmp::min(self.drain(cost), end);
        if start == end {
            return true;
        }
        let gap = Gap {
            start: self.point(now, start),
            end: self.point(now, end),
        };
        let left: u128 = self.left(state, now);
        match end.cmp(&left) {
            // Nothing stands behind it: the queue ends earlier, before the gap that it now ends with. No two gaps touch.
            cmp::Ordering::Equal => {
                let notes = state.notes.as_mut();
                let before = notes.and_then(|notes| notes.queue.pop_at(self.mark, gap.start));
                let end = before.unwrap_or(gap.start);
                if let Some(notes) = state.notes.as_mut() {
                    notes.queue.end_at(end);
                }
                self.leave(state, now, left, self.ahead(end, now));
            }
            cmp::Ordering::Less => {
                let notes = state.notes.get_or_insert_default();
                notes.queue.free(self.mark, now, gap);
            }
            // The queue no longer reaches so far: it was reset, or the clock stepped back.
            cmp::Ordering::Greater => {}
        }
        true
    }

    /// The point at which a charge that takes this much less would be drained.
    pub(crate) fn earlier(&self, full_at: Point, cost: u64) -> Point {
        let end: u128 = self.ahead(full_at, 0);
        self.point(0, end.saturating_sub(self.drain(cost)))
    }

    /// The first stretch into which `cost` fits: now at the end of the queue, in a gap, or later at the end of the queue.
    fn stretch(&self, state: &Bucket, now: u64, left: u128, cost: u64) -> Result<Stretch, Passage> {
        let (length, full) = (self.drain::<u128>(cost), self.drain::<u128>(self.burst));
        if cost > self.burst {
            return Err(Passage::NEVER);
        }
        let stretch = |start: u128, gap| Stretch {
            end: start + length,
            wait: (start + length).saturating_sub(full),
            gap,
        };
        let mut found = stretch(left, None);
        if cost == 0 {
            found.wait = 0;
        }
        if found.wait > 0 {
            let gaps = self.gaps(state).iter().enumerate();
            let mut fitting = gaps.filter_map(|(index, gap)| {
                let (start, end) = self.ends(gap, now);
                (start + length <= end).then(|| stretch(start, Some(index)))
            });
            found = fitting.next().unwrap_or(found);
        }
        let patience = u128::from(self.span_us) * u128::from(self.denominator);
        if found.wait > patience {
            return Err(Passage::after(self.micros_up(found.wait - patience)));
        }
        Ok(found)
    }

    fn reserve(&self, state: &mut Bucket, now: u64, left: u128, stretch: &Stretch) {
        if stretch.wait > 0 {
            let turn_us = now + self.micros_up(stretch.wait);
            state.notes.get_or_insert_default().queue.promise(turn_us);
        }
        match (stretch.gap, &mut state.notes) {
            (Some(gap), Some(notes)) => notes.queue.fill(gap, self.point(now, stretch.end)),
            _ => self.leave(state, now, left, stretch.end),
        }
    }

    fn passage_after(&self, wait: u128) -> Passage {
        match self.micros_up(wait) {
            0 => Passage::Open,
            us => Passage::Later(us),
        }
    }

    /// This length in microseconds, rounded up.
    fn micros_up(&self, parts: u128) -> u64 {
        let (us, rest) = self.micros_and_rest(parts);
        us + u64::from(rest > 0)
    }

    fn gaps<'a>(&self, state: &'a Bucket) -> &'a [Gap] {
        let notes = state.notes.as_ref();
        notes.map_or(&[], |notes| notes.queue.gaps_of(self.mark))
    }

    /// The ends of a gap, ahead of now.
    fn ends(&self, gap: &Gap, now: u64) -> (u128, u128) {
        (self.ahead(gap.start, now), self.ahead(gap.end, now))
    }
}
