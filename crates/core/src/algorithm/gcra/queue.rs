//! The promised turns of a key, and the places in its queue that became free.

use super::Point;
use crate::algorithm::{GapMark, QueueMark};

/// The number of free places that one key keeps. The earliest, which ends first, makes room for one more.
const MOST: usize = 32;

/// The part of a state that is there while requests wait for their turn.
///
/// Each charge drains in a stretch of time of its own. A request that leaves before its turn frees its stretch, which becomes a
/// *gap* unless nothing stands behind it.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    /// No promised turn is later. It is the latest turn, rounded up to a microsecond, until the last of the queue leaves.
    until_us: u64,
    /// The mark of the denominator in which the gaps' rests are counted.
    of: u16,
    /// The free stretches, the earliest first. No two touch.
    gaps: Vec<Gap>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) start: Point,
    pub(super) end: Point,
}

impl Queue {
    /// Says whether a request may still wait.
    pub(super) fn is_waiting(&self, now: u64) -> bool {
        self.until_us > now
    }

    /// The time from which nothing here has a meaning.
    pub(super) fn relevant_until(&self) -> u64 {
        let last = self.gaps.last().map_or(0, |gap| gap.end.rounded_up());
        self.until_us.max(last)
    }

    /// Promises a turn.
    pub(super) fn promise(&mut self, turn_us: u64) {
        self.until_us = self.until_us.max(turn_us);
    }

    /// Ends the queue here, since the last has left. A charge passes no later than its stretch begins, under whichever quota it
    /// waits and whatever part of it has left, so no turn lies beyond the end. The turn of the new last may be as late as that: a
    /// part of it may have left, and a quota of another burst may have promised it.
    pub(super) fn end_at(&mut self, end: Point) {
        self.until_us = self.until_us.min(end.rounded_up());
    }

    /// The gaps, for a quota whose rests have this mark. Gaps of another denominator are lost: a part of theirs is not a part of
    /// this quota's.
    pub(super) fn gaps_of(&self, mark: u16) -> &[Gap] {
        if self.of == mark { &self.gaps } else { &[] }
    }

    /// Fills the gap at `index` up to `end`.
    pub(super) fn fill(&mut self, index: usize, end: Point) {
        let gap = &mut self.gaps[index];
        if gap.end <= end {
            self.gaps.remove(index);
        } else {
            gap.start = end;
        }
    }

    /// Takes out the gap that ends at `end`, the last one, and returns its start.
    pub(super) fn pop_at(&mut self, mark: u16, end: Point) -> Option<Point> {
        let last = self.gaps_of(mark).last()?;
        let start = (last.end == end).then_some(last.start)?;
        self.gaps.pop();
        Some(start)
    }

    /// Adds a gap, and joins it with those that it touches. A gap that overlaps another is ignored: its receipt is from before
    /// a reset.
    pub(super) fn free(&mut self, mark: u16, now: u64, mut gap: Gap) {
        if self.of != mark {
            self.gaps.clear();
            self.of = mark;
        }
        self.gaps.retain(|gap| gap.end.rounded_up() > now);
        let at = self.gaps.partition_point(|other| other.end <= gap.start);
        if self.gaps.get(at).is_some_and(|next| next.start < gap.end) {
            return;
        }
        if self.gaps.get(at).is_some_and(|next| next.start == gap.end) {
            gap.end = self.gaps.remove(at).end;
        }
        match at
            .checked_sub(1)
            .and_then(|before| self.gaps.get_mut(before))
        {
            Some(before) if before.end == gap.start => before.end = gap.end,
            _ => self.gaps.insert(at, gap),
        }
        if self.gaps.len() > MOST {
            self.gaps.remove(0);
        }
    }

    /// Forgets the gaps. The promised turns stay.
    pub(super) fn forget_gaps(&mut self) {
        self.gaps.clear();
    }

    pub(super) fn mark(&self) -> QueueMark {
        let gap = |gap: &Gap| GapMark {
            start_us: gap.start.us,
            start_rest: gap.start.rest,
            end_us: gap.end.us,
            end_rest: gap.end.rest,
        };
        QueueMark {
            until_us: self.until_us,
            rests_of: if self.gaps.is_empty() { 0 } else { self.of },
            gaps: self.gaps.iter().map(gap).collect(),
        }
    }

    pub(super) fn restore(mark: &QueueMark) -> Self {
        let gap = |mark: &GapMark| Gap {
            start: Point {
                us: mark.start_us,
                rest: mark.start_rest,
            },
            end: Point {
                us: mark.end_us,
                rest: mark.end_rest,
            },
        };
        Self {
            until_us: mark.until_us,
            of: mark.rests_of,
            gaps: mark.gaps.iter().map(gap).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: u16 = 7;

    fn gap(start: u64, end: u64) -> Gap {
        let point = |us| Point { us, rest: 0 };
        Gap {
            start: point(start),
            end: point(end),
        }
    }

    fn freed(gaps: &[(u64, u64)]) -> Queue {
        let mut queue = Queue::default();
        for (start, end) in gaps {
            queue.free(MARK, 0, gap(*start, *end));
        }
        queue
    }

    #[test]
    fn gaps_that_touch_are_one() {
        for gaps in [
            [(10, 20), (20, 30), (30, 40)],
            [(30, 40), (10, 20), (20, 30)],
            [(20, 30), (30, 40), (10, 20)],
        ] {
            assert_eq!(freed(&gaps).gaps, [gap(10, 40)]);
        }
        assert_eq!(
            freed(&[(30, 40), (10, 20)]).gaps,
            [gap(10, 20), gap(30, 40)]
        );
    }

    #[test]
    fn a_gap_that_overlaps_another_is_ignored() {
        for second in [(10, 20), (15, 25), (5, 11), (12, 18), (5, 25)] {
            assert_eq!(freed(&[(10, 20), second]).gaps, [gap(10, 20)], "{second:?}");
        }
    }

    #[test]
    fn the_earliest_gap_makes_room_for_one_more() {
        let many: Vec<_> = (1..=33).map(|n| (n * 10, n * 10 + 5)).collect();
        let queue = freed(&many);
        assert_eq!(queue.gaps.len(), 32);
        assert_eq!(queue.gaps[0], gap(20, 25));
    }

    #[test]
    fn a_gap_is_filled_from_its_start() {
        let mut queue = freed(&[(10, 20)]);
        queue.fill(0, Point { us: 14, rest: 0 });
        assert_eq!(queue.gaps, [gap(14, 20)]);
        queue.fill(0, Point { us: 20, rest: 0 });
        assert_eq!(queue.gaps, []);
    }

    #[test]
    fn gaps_of_another_denominator_and_of_the_past_are_forgotten() {
        let mut queue = freed(&[(10, 20), (30, 40)]);
        assert_eq!(queue.gaps_of(MARK + 1), []);
        queue.free(MARK, 19, gap(50, 60));
        assert_eq!(queue.gaps, [gap(10, 20), gap(30, 40), gap(50, 60)]);
        queue.free(MARK, 20, gap(42, 44));
        assert_eq!(queue.gaps, [gap(30, 40), gap(42, 44), gap(50, 60)]);
        let mut queue = freed(&[(10, 20), (30, 40)]);
        queue.free(MARK, 25, gap(50, 60));
        assert_eq!(queue.gaps, [gap(30, 40), gap(50, 60)]);
        queue.free(MARK + 1, 25, gap(70, 80));
        assert_eq!(queue.gaps_of(MARK + 1), [gap(70, 80)]);
    }

    #[test]
    fn only_a_gap_at_the_very_end_is_taken_out() {
        let mut queue = freed(&[(10, 20), (30, 40)]);
        let point = |us| Point { us, rest: 0 };
        assert_eq!(queue.pop_at(MARK, point(20)), None);
        assert_eq!(queue.pop_at(MARK + 1, point(40)), None);
        assert_eq!(queue.pop_at(MARK, point(40)), Some(point(30)));
        assert_eq!(queue.relevant_until(), 20);
    }
}
