//! Earlier credits, as far as later ones must know them, so that no two return the same drain time.

use std::cmp;

use super::{CreditMark, Point};

/// The number of credits that one key tells apart: the last dozen one by one, and hundreds before them in groups. Merged credits err on
/// the strict side.
const TOLD_APART: usize = 32;

/// Longer than the debt of any budget takes to drain, and a number that Lua still counts exactly.
const LONGEST: u64 = 1 << 52;

/// Two credits may be merged if together they are at most one part in this many of all that came later.
const COARSENESS: u64 = 2;

/// The credits of one key that an open receipt could still need, the oldest first.
///
/// Think of the charges as standing in a queue, each in the stretch of time in which it drains. A credit takes a stretch out,
/// and every charge behind it moves up. A receipt names the place at which its charge stood when it was made. The charge can
/// still return the time between now and the place to which it has moved since. No charge drains before it was made, and so its place
/// is never nearer than its own drain from then on, whatever was taken out before it. This makes a credit exact where the list is
/// not: for charges of one microsecond with another credit, and for credits that were merged.
///
/// Times are whole microseconds, rounded so that a place is never later than it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Credits {
    list: Vec<Credit>,
    /// The time until which an open receipt could need any of them.
    until_us: u64,
}

#[derive(Clone, Copy, Debug)]
struct Credit {
    /// The time at which it was given. Charges of that very microsecond may have come before it, and count as if they had.
    at_us: u64,
    /// The start of the stretch that was taken out.
    from_us: u64,
    /// The length of the stretch.
    length_us: u64,
    /// The last place at which any charge stood when it was given.
    last_us: u64,
}

impl Credits {
    /// The present place of a charge that was made at `at_us` and then stood at `place`.
    pub(super) fn moved_up(&self, place: Point, at_us: u64) -> Point {
        let since = self.list.iter().filter(|credit| at_us <= credit.at_us);
        since.fold(place, |place, credit| {
            let from = Point {
                us: credit.from_us,
                rest: 0,
            };
            if place <= from {
                return place;
            }
            cmp::max(
                from,
                Point {
                    us: place.us.saturating_sub(credit.length_us),
                    ..place
                },
            )
        })
    }

    /// Remembers that a stretch was taken out at `at_us`, while no charge stood beyond `last_us`.
    pub(super) fn remember(&mut self, at_us: u64, from_us: u64, length_us: u64, last_us: u64) {
        self.list.retain(|credit| credit.last_us > at_us);
        if self.list.len() == TOLD_APART {
            let older = self.to_merge();
            let merged = self.list.remove(older);
            self.list[older].merge(merged);
        }
        self.list.push(Credit {
            at_us,
            from_us,
            length_us,
            last_us,
        });
        self.until_us = latest(&self.list);
    }

    /// The older of the two neighbours to merge: the oldest two that together are small beside all that came after them. So old
    /// credits are known less exactly than new ones. A request that was under way while hundreds of others came and went still
    /// gets nearly all that it is owed.
    fn to_merge(&self) -> usize {
        let (mut found, mut after) = (0, 0);
        for older in (0..self.list.len() - 1).rev() {
            let newer = self.list[older + 1].length_us;
            if (self.list[older].length_us + newer) * COARSENESS <= after {
                found = older;
            }
            after += newer;
        }
        found
    }

    pub(super) fn marks(&self) -> Vec<CreditMark> {
        let mark = |credit: &Credit| CreditMark {
            at_us: credit.at_us,
            from_us: credit.from_us,
            length_us: credit.length_us,
            last_us: credit.last_us,
        };
        self.list.iter().map(mark).collect()
    }

    pub(super) fn restore(marks: &[CreditMark]) -> Self {
        let credit = |mark: &CreditMark| Credit {
            at_us: mark.at_us,
            from_us: mark.from_us,
            length_us: mark.length_us,
            last_us: mark.last_us,
        };
        let list: Vec<_> = marks.iter().map(credit).collect();
        let until_us = latest(&list);
        Self { list, until_us }
    }

    /// The time until which an open receipt could need them.
    #[inline]
    pub(super) fn relevant_until(&self) -> u64 {
        self.until_us
    }
}

fn latest(list: &[Credit]) -> u64 {
    let lasts = list.iter().map(|credit| credit.last_us);
    lasts.max().unwrap_or(0)
}

impl Credit {
    /// Merges an older credit into this one: a charge before either moves up by both.
    fn merge(&mut self, older: Self) {
        self.from_us = cmp::min(self.from_us, older.from_us);
        self.length_us = cmp::min(self.length_us + older.length_us, LONGEST);
        self.last_us = cmp::max(self.last_us, older.last_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One credit more than are told apart; the first two have these lengths and start at these places.
    fn merged(older: CreditMark, newer: CreditMark) -> Credits {
        let mut credits = Credits::default();
        for credit in [older, newer] {
            credits.remember(
                credit.at_us,
                credit.from_us,
                credit.length_us,
                credit.last_us,
            );
        }
        for _ in 1..TOLD_APART {
            credits.remember(30, 5_000, 1_000, 9_000);
        }
        credits
    }

    #[test]
    fn merged_credits_are_the_later_and_the_earlier_from_together() {
        let early = CreditMark {
            at_us: 10,
            from_us: 1_000,
            length_us: 7,
            last_us: 8_000,
        };
        let late = CreditMark {
            at_us: 20,
            from_us: 4_000,
            length_us: 5,
            last_us: 8_500,
        };
        for (from_us, last_us) in [(1_000, 4_000), (4_000, 1_000)]
            .into_iter()
            .flat_map(|froms| [(froms, (8_000, 8_500)), (froms, (8_500, 8_000))])
        {
            // given two credits, either of which may begin earlier or last longer
            let older = CreditMark {
                from_us: from_us.0,
                last_us: last_us.0,
                ..early
            };
            let newer = CreditMark {
                from_us: from_us.1,
                last_us: last_us.1,
                ..late
            };

            // when there are more than are told apart
            let credits = merged(older, newer);

            // then they are one credit, which errs on the strict side in each of its parts
            let first = credits.marks()[0];
            assert_eq!(credits.list.len(), TOLD_APART);
            assert_eq!(
                first,
                CreditMark {
                    at_us: 20,
                    from_us: 1_000,
                    length_us: 12,
                    last_us: 8_500
                }
            );
            // A charge between the two beginnings moves up, and no further than to the earlier one.
            for (place, moved) in [(900, 900), (1_005, 1_000), (3_000, 2_988)] {
                let place = Point { us: place, rest: 3 };
                let expected = if moved == 1_000 {
                    Point { us: moved, rest: 0 }
                } else {
                    Point { us: moved, ..place }
                };
                assert_eq!(credits.moved_up(place, 15), expected);
            }
        }
    }

    #[test]
    fn a_credit_is_forgotten_once_all_have_drained_that_stood_when_it_was_given() {
        let mut credits = Credits::default();
        for last_us in [29, 30, 31] {
            credits.remember(10, 20, 5, last_us);
        }

        credits.remember(30, 40, 5, 50);

        let lasts = credits.list.iter().map(|credit| credit.last_us);
        assert_eq!(lasts.collect::<Vec<_>>(), [31, 50]);
    }

    #[test]
    fn the_oldest_two_are_merged_that_are_at_most_half_of_what_came_after_them() {
        for (lengths, merged) in [
            (vec![8, 7, 30], vec![15, 30]),
            (vec![20, 8, 7, 29, 1], vec![20, 15, 29, 1]),
            (vec![20, 8, 7, 29], vec![20, 8, 7, 29]),
        ] {
            // given as many credits as are told apart, most of them of no length
            let mut credits = Credits::default();
            let empty = std::iter::repeat_n(&0, TOLD_APART - lengths.len());
            for length in lengths.iter().chain(empty) {
                credits.remember(10, 100, *length, 9_000);
            }

            // when one more is given, which does not yet count as coming after them
            credits.remember(10, 100, 1_000, 9_000);

            // then two of them are one
            let kept = credits.list.iter().map(|credit| credit.length_us);
            let kept: Vec<_> = kept.filter(|length| *length > 0).collect();
            assert_eq!(credits.list.len(), TOLD_APART);
            assert_eq!(kept[..], [&merged[..], &[1_000]].concat());
        }
    }
}
