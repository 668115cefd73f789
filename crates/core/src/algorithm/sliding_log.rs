//! Each charge is remembered until it is a period old. Exact: any window of one period admits at most the limit.
//!
//! Entries stand in the order of time, whatever the clock does. While the clock is less than a period behind the newest entry,
//! new charges count as charged with that entry. Only a charge drops expired entries, and its time is no earlier than that of
//! any charge that dropped some before. So a clock that steps back and forth, however often, gains its largest step once and no
//! more.

use std::collections::VecDeque;

use super::{Budget, Decider, Passage, Point, Snapshot, count_up};
use crate::MAX_LOG_LIMIT;

/// The most entries of admitted charges: one for each unit of the largest limit.
const MAX_ENTRIES: usize = 1024;
const _: () = assert!(MAX_ENTRIES as u64 == MAX_LOG_LIMIT);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SlidingLog {
    pub(crate) limit: u64,
    pub(crate) period_us: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ChargeLog(Box<Log>);

#[derive(Clone, Debug, Default)]
struct Log {
    /// The oldest first, one for each microsecond in which anything was charged. The first may have expired.
    entries: VecDeque<Entry>,
    /// The sum of all entries.
    sum: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u64,
    count: u64,
}

impl SlidingLog {
    /// The time until a charge made at `at` stops counting. The window is open at its start: (now − period, now].
    fn expires_after(&self, now: u64, at: u64) -> u64 {
        at + self.period_us - now
    }

    /// The number of expired entries, and the sum of the others.
    fn live(&self, log: &Log, now: u64) -> (usize, u64) {
        let expired = log
            .entries
            .iter()
            .take_while(|entry| entry.at + self.period_us <= now);
        expired.fold((0, log.sum), |(count, sum), entry| {
            (count + 1, sum - entry.count)
        })
    }
}

impl Decider for SlidingLog {
    type State = ChargeLog;

    fn advance(&self, ChargeLog(log): &mut ChargeLog, now: u64) {
        let is_far_behind = |newest: &Entry| newest.at >= now + self.period_us;
        if !log.entries.back().is_some_and(is_far_behind) {
            return;
        }
        // The clock stepped back by a period or more: entries ahead of it count as charged now.
        let mut ahead = 0;
        while let Some(newest) = log.entries.back()
            && newest.at > now
        {
            ahead += newest.count;
            log.entries.pop_back();
        }
        log.push(now, ahead);
    }

    fn passage(&self, ChargeLog(log): &mut ChargeLog, now: u64, cost: u64) -> Passage {
        if cost == 0 {
            return Passage::Open;
        }
        if cost > self.limit {
            return Passage::NEVER;
        }
        let (expired, mut sum) = self.live(log, now);
        let most = self.limit - cost;
        if sum <= most {
            return Passage::Open;
        }
        let mut freed_by = now;
        for entry in log.entries.iter().skip(expired) {
            freed_by = entry.at;
            sum -= entry.count;
            if sum <= most {
                break;
            }
        }
        Passage::after(self.expires_after(now, freed_by))
    }

    fn take(&self, ChargeLog(log): &mut ChargeLog, now: u64, cost: u64) {
        let (expired, sum) = self.live(log, now);
        let added = count_up(sum, cost, self.limit) - sum;
        if added > 0 {
            log.entries.drain(..expired);
            // While the clock is behind, the charge is as late as the newest entry.
            let at = log.entries.back().map_or(now, |newest| newest.at.max(now));
            log.make_room(at);
            log.push(at, added);
            log.sum = sum + added;
        }
    }

    fn give_back(
        &self,
        ChargeLog(log): &mut ChargeLog,
        now: u64,
        at: u64,
        full_at: Point,
        cost: u64,
    ) {
        // The time of the entry, which is later than that of the charge if the clock was behind.
        let entered_at = full_at.us;
        let index = log.entries.partition_point(|entry| entry.at < entered_at);
        let Some(entry) = log
            .entries
            .get_mut(index)
            .filter(|entry| entry.at == entered_at && at <= now && entry.at + self.period_us > now)
        else {
            return;
        };
        let back = cost.min(entry.count);
        entry.count -= back;
        log.sum -= back;
        if entry.count == 0 {
            log.entries.remove(index);
        }
    }

    /// The time at which the newest charge was entered.
    fn full_at(&self, ChargeLog(log): &ChargeLog) -> Point {
        Point {
            us: log.entries.back().map_or(0, |newest| newest.at),
            rest: 0,
        }
    }

    fn budget(&self, ChargeLog(log): &ChargeLog, now: u64) -> Budget {
        let (expired, sum) = self.live(log, now);
        let newest = log.entries.back().filter(|_| expired < log.entries.len());
        Budget {
            remaining: self.limit.saturating_sub(sum),
            reset_after_us: newest.map_or(0, |newest| self.expires_after(now, newest.at)),
        }
    }
}

impl Log {
    /// Lets a debt wait for the latest of its debits. Only admitted charges have entries of their own, because they may be
    /// credited. Their number never exceeds the limit, and every entry behind them is debt.
    fn make_room(&mut self, at: u64) {
        if self.entries.len() > MAX_ENTRIES
            && let Some(newest) = self.entries.back_mut()
        {
            newest.at = at;
        }
    }

    /// Adds to the newest entry, or appends one. Does not touch the sum.
    fn push(&mut self, at: u64, count: u64) {
        match self.entries.back_mut() {
            Some(newest) if newest.at == at => newest.count += count,
            _ => self.entries.push_back(Entry { at, count }),
        }
    }
}

impl ChargeLog {
    pub(super) fn entries(&self) -> usize {
        self.0.entries.len()
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot::SlidingLog {
            entries: self
                .0
                .entries
                .iter()
                .map(|entry| (entry.at, entry.count))
                .collect(),
        }
    }

    pub(super) fn restore(entries: Vec<(u64, u64)>) -> Self {
        let sum = entries.iter().map(|(_, count)| count).sum();
        let entries = entries
            .into_iter()
            .map(|(at, count)| Entry { at, count })
            .collect();
        Self(Box::new(Log { entries, sum }))
    }

    pub(super) fn meaningless_at(&self, period_us: u64) -> u64 {
        self.0
            .entries
            .back()
            .map_or(0, |newest| newest.at + 2 * period_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_of_debts_is_no_longer_than_one_of_charges_and_owes_as_much() {
        // given as many charges as a log can have, each in a microsecond of its own
        let rule = SlidingLog {
            limit: MAX_LOG_LIMIT,
            period_us: 1_000_000,
        };
        let mut state = ChargeLog::default();
        for now in 1..=MAX_LOG_LIMIT {
            assert_eq!(rule.step(&mut state, now, 1, true).0, Passage::Open);
        }

        // when it is debited as often as it can be
        let last = 8 * MAX_LOG_LIMIT;
        for now in MAX_LOG_LIMIT + 1..=last {
            rule.take(&mut state, now, 1);
        }

        // then the debt is there, all of it for a period after the last, and each charge can still be given back
        let ChargeLog(log) = &mut state;
        assert_eq!((log.sum, log.entries.len()), (last, MAX_ENTRIES + 1));
        assert_eq!(log.entries.back().map(|entry| entry.at), Some(last));
        for at in 1..=MAX_LOG_LIMIT {
            rule.give_back(&mut state, last, at, Point { us: at, rest: 0 }, 1);
        }
        assert_eq!(state.0.entries.len(), 1);
        assert_eq!(state.0.sum, last - MAX_LOG_LIMIT);
    }

    #[test]
    fn an_entry_counts_until_it_is_a_period_old_and_is_given_back_until_then() {
        let rule = SlidingLog {
            limit: 5,
            period_us: 100,
        };
        for (later_us, left, given_back) in [(99, 2, true), (100, 5, false), (101, 5, false)] {
            // given
            let mut state = ChargeLog::default();
            rule.step(&mut state, 1_000, 3, true);
            let now = 1_000 + later_us;

            // then it counts in the period, which is open at its start
            assert_eq!(rule.budget(&state, now).remaining, left, "{later_us}");
            assert_eq!(rule.live(&state.0, now).0, usize::from(left == 5));

            // when some of it is given back, and then more than there is
            for (cost, kept) in [(1, 2), (7, 0)] {
                let mut state = state.clone();
                let entered = Point { us: 1_000, rest: 0 };
                rule.give_back(&mut state, now, 1_000, entered, cost);

                // then it comes back while it counts
                let kept = if given_back { kept } else { 3 };
                assert_eq!(state.0.sum, kept, "{later_us}");
                assert_eq!(state.0.entries.len(), usize::from(kept > 0));
            }
        }
        // Nothing comes back by a clock that is behind the charge, or in place of another charge.
        let mut state = ChargeLog::default();
        rule.step(&mut state, 1_000, 3, true);
        for (now, at, entered) in [
            (999, 1_000, 1_000),
            (1_001, 1_000, 999),
            (1_001, 1_000, 1_001),
        ] {
            let entered = Point {
                us: entered,
                rest: 0,
            };
            rule.give_back(&mut state, now, at, entered, 1);
            assert_eq!(state.0.sum, 3);
        }
    }

    #[test]
    fn a_log_whose_clock_is_a_period_behind_moves_to_now_with_its_counts() {
        let rule = SlidingLog {
            limit: 9,
            period_us: 100,
        };
        for (now, entries) in [
            (901, vec![(900, 1), (950, 2), (1_000, 3)]),
            (900, vec![(900, 6)]),
            (899, vec![(899, 6)]),
            (800, vec![(800, 6)]),
        ] {
            let mut state = ChargeLog::restore(vec![(900, 1), (950, 2), (1_000, 3)]);
            rule.advance(&mut state, now);
            let moved = state.0.entries.iter().map(|entry| (entry.at, entry.count));
            assert_eq!(moved.collect::<Vec<_>>(), entries);
            assert_eq!(state.0.sum, 6);
        }
    }
}
