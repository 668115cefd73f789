//! The choice of the keys that are told, and of the time. It reads no clock, so that it can be tried with any.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use crate::holder::books::Books;
use crate::name::Name;
use crate::sync::Instant;

/// The most keys of a round that are told in one go: half of a call, so that callers have room beside them.
pub(crate) const IN_ONE_GO: usize = 32;

/// The pause after a telling out of turn, and the part of a short lease that it takes. While a server fails each call, all of its
/// keys are in doubt all the time.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSES_IN_A_LEASE: u32 = 30;

/// The times at which keys are told: those in doubt soon, and all others in a round after each beat. Neither keeps the other
/// waiting. A process that is often in doubt about some keys must not lose the leases of the rest.
#[derive(Debug)]
pub(crate) struct Schedule {
    beat_at: Instant,
    /// No doubt is heard before.
    quiet_until: Instant,
    pause: Duration,
    round: Round,
}

/// The keys that are still to be told after a beat, go by go.
#[derive(Debug)]
struct Round {
    names: VecDeque<Name>,
    next_go: Instant,
    pause: Duration,
}

impl Schedule {
    /// The times for a lease, of which the first beat comes then.
    pub(crate) fn new(lease: Duration, now: Instant, beat_at: Instant) -> Self {
        Self {
            beat_at,
            quiet_until: now,
            pause: PAUSE.min(lease / PAUSES_IN_A_LEASE),
            round: Round::of(Vec::new(), now, Duration::ZERO),
        }
    }

    pub(crate) fn is_beat(&self, now: Instant) -> bool {
        now >= self.beat_at
    }

    /// Says whether a doubt is heard now.
    pub(crate) fn hears_doubt(&self, now: Instant) -> bool {
        now >= self.quiet_until
    }

    /// The time until which nothing has to be told, if no doubt is heard.
    pub(crate) fn wakes_at(&self, now: Instant) -> Instant {
        let mut at = self.beat_at;
        if !self.round.names.is_empty() {
            at = at.min(self.round.next_go);
        }
        if !self.hears_doubt(now) {
            at = at.min(self.quiet_until);
        }
        at
    }

    /// The keys to tell now, those in doubt first. At a beat a round begins, over half of the time until the next one, which comes
    /// after `interval`.
    pub(crate) fn choose(
        &mut self,
        books: &mut Books,
        now: Instant,
        is_in_doubt: bool,
        interval: Duration,
    ) -> Vec<Name> {
        let is_beat = self.is_beat(now);
        let mut names = if is_beat || is_in_doubt {
            books.take_doubts()
        } else {
            Vec::new()
        };
        self.round.leave_out(&names);
        if is_in_doubt {
            self.quiet_until = now + self.pause;
        }
        if is_beat {
            self.beat_at = now + interval;
            // The rest of the last round is late.
            names.extend(books.take_held(self.round.names.drain(..)));
            self.round = Round::of(books.held_keys(), now, interval / 2);
        }
        names.extend(books.take_held(self.round.leave(now)));
        names
    }
}

impl Round {
    fn of(names: Vec<Name>, now: Instant, over: Duration) -> Self {
        let goes = u32::try_from(names.len() / IN_ONE_GO + 1).unwrap_or(u32::MAX);
        Self {
            names: names.into(),
            next_go: now,
            pause: over / goes,
        }
    }

    /// Drops the keys that are told for another reason. A key that is told twice in a generation looks like one that another
    /// process tells under this name.
    fn leave_out(&mut self, told: &[Name]) {
        if !told.is_empty() && !self.names.is_empty() {
            let told: HashSet<_> = told.iter().collect();
            self.names.retain(|name| !told.contains(name));
        }
    }

    /// The keys whose time has come: a go, and those that were missed meanwhile.
    fn leave(&mut self, now: Instant) -> impl Iterator<Item = Name> {
        let mut count = 0;
        while count < self.names.len() && self.next_go <= now {
            count += IN_ONE_GO;
            self.next_go += self.pause;
        }
        let count = count.min(self.names.len());
        self.names.drain(..count)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const LEASE: Duration = Duration::from_secs(30);
    const INTERVAL: Duration = Duration::from_secs(10);
    const KEYS: u64 = 1_000;
    const ALL: Duration = Duration::from_secs(95);

    fn name(number: u64) -> Name {
        number.to_be_bytes().to_vec()
    }

    /// Books in which one unit is held of each of the keys.
    fn books() -> Books {
        let mut books = Books::default();
        for number in 0..KEYS {
            books.count(&name(number), 0, 1);
        }
        books
    }

    /// The times at which each key was told, in 95 seconds. Each telling takes `takes`. Every `doubts` a further key is in
    /// doubt, of which nothing is held.
    fn tellings(takes: Duration, doubts: Option<Duration>) -> HashMap<Name, Vec<Duration>> {
        let began = Instant::now();
        let (mut now, end) = (began, began + ALL);
        let mut books = books();
        let mut schedule = Schedule::new(LEASE, now, now + INTERVAL);
        let mut next_doubt = doubts.map(|every| now + every);
        let mut told: HashMap<Name, Vec<Duration>> = HashMap::new();
        loop {
            // As the task waits.
            let wakes_at = schedule.wakes_at(now);
            let rung = next_doubt.filter(|at| schedule.hears_doubt(now) && *at <= wakes_at);
            now = now.max(rung.unwrap_or(wakes_at));
            if now >= end {
                break;
            }
            while let (Some(at), Some(every)) = (next_doubt, doubts)
                && at <= now
            {
                books.doubt(name(KEYS + 1));
                next_doubt = Some(at + every);
            }
            for name in schedule.choose(&mut books, now, rung.is_some(), INTERVAL) {
                books.was_told(&name);
                told.entry(name).or_default().push(now - began);
            }
            now += takes;
        }
        told
    }

    #[test]
    fn keys_are_told_in_each_interval_over_half_of_it_however_many_doubts_there_are() {
        let cases = [
            (None, Duration::ZERO, "no doubts"),
            (Some(Duration::from_millis(10)), Duration::ZERO, "doubts"),
            // As each doubt waits for the calls of earlier generations.
            (
                Some(Duration::from_millis(10)),
                Duration::from_millis(2_500),
                "a slow server",
            ),
        ];
        for (doubts, takes, case) in cases {
            let told = tellings(takes, doubts);
            for number in 0..KEYS {
                let times = &told[&name(number)];
                let mut ends = times.clone();
                ends.extend([Duration::ZERO, ALL]);
                ends.sort();
                // Far from a lease.
                let is_close = |pair: &[Duration]| pair[1] - pair[0] <= INTERVAL * 2;
                assert!(ends.windows(2).all(is_close), "{case}: {times:?}");
                assert!((7..=9).contains(&times.len()), "{case}: {times:?}");
                let is_early = |at: &Duration| at.as_millis() % 10_000 <= 5_000;
                assert!(
                    takes > Duration::ZERO || times.iter().all(is_early),
                    "{case}: {times:?}"
                );
            }
        }
    }

    #[test]
    fn a_doubt_is_told_at_once_and_the_next_after_a_pause() {
        let told = tellings(Duration::ZERO, Some(Duration::from_millis(10)));
        let times = &told[&name(KEYS + 1)];
        assert_eq!(times[0], Duration::from_millis(10));
        for pair in times.windows(2) {
            let since = pair[1] - pair[0];
            assert!(since <= PAUSE + Duration::from_millis(10), "{pair:?}");
        }
        // A beat tells them as well.
        assert!(times.len() <= 95 + 10, "{}", times.len());
    }

    #[test]
    fn keys_in_doubt_go_first_and_at_once_at_a_beat_and_the_rest_go_by_go() {
        let mut books = books();
        let now = Instant::now();
        let mut schedule = Schedule::new(LEASE, now, now);
        let in_doubt: Vec<_> = (0..100).map(|number| name(number * 7)).collect();
        for name in &in_doubt {
            books.doubt(name.clone());
        }

        let first = schedule.choose(&mut books, now, false, INTERVAL);
        let between = schedule.wakes_at(now);
        let second = schedule.choose(&mut books, between, false, INTERVAL);

        assert!(first[..100].iter().all(|name| in_doubt.contains(name)));
        assert_eq!((first.len(), second.len()), (100 + IN_ONE_GO, IN_ONE_GO));
        assert!(between > now && between <= now + INTERVAL / 2 / 28);
        assert!(!second.iter().any(|name| first.contains(name)));
    }

    #[test]
    fn keys_that_are_being_told_or_are_given_back_meanwhile_are_not_told_again() {
        let mut books = books();
        let now = Instant::now();
        let mut schedule = Schedule::new(LEASE, now, now);
        let first = schedule.choose(&mut books, now, false, INTERVAL);
        assert_eq!(first.len(), IN_ONE_GO);

        // Half of the others end, and one is told because of a doubt.
        let rest: Vec<_> = (0..KEYS)
            .map(name)
            .filter(|name| !first.contains(name))
            .collect();
        let (ended, kept) = rest.split_at(rest.len() / 2);
        for name in ended {
            books.count(name, 0, -1);
        }
        books.doubt(kept[0].clone());
        let doubted = schedule.choose(&mut books, now, true, INTERVAL);
        assert_eq!(doubted, kept[..1]);
        let told = schedule.choose(&mut books, now + INTERVAL / 2, false, INTERVAL);

        assert_eq!(told.len(), kept.len() - 1);
        assert!(told.iter().all(|name| kept[1..].contains(name)));
        // The next beat leaves alone what is on its way.
        for name in first.iter().chain(&doubted) {
            books.was_told(name);
        }
        let mut again = schedule.choose(&mut books, now + INTERVAL, false, INTERVAL);
        again.extend(schedule.choose(&mut books, now + INTERVAL * 3 / 2, false, INTERVAL));
        again.sort();
        let mut expected = [&first[..], &doubted].concat();
        expected.sort();
        assert_eq!(again, expected);
    }

    #[test]
    fn a_key_that_was_told_because_of_a_doubt_is_not_told_again_by_the_round() {
        let mut books = books();
        let now = Instant::now();
        let mut schedule = Schedule::new(LEASE, now, now);
        let mut told = schedule.choose(&mut books, now, false, INTERVAL);
        let open: Vec<_> = (0..KEYS)
            .map(name)
            .filter(|name| !told.contains(name))
            .collect();
        for name in &open[..100] {
            books.doubt(name.clone());
        }

        told.extend(schedule.choose(&mut books, now, true, INTERVAL));
        for name in &told {
            books.was_told(name);
        }
        told.extend(schedule.choose(&mut books, now + INTERVAL / 2, false, INTERVAL));

        told.sort();
        assert_eq!(told, (0..KEYS).map(name).collect::<Vec<_>>());
    }
}
