//! Strikes, and the ban that follows them.
//!
//! A strike counts for a time. Once as many count as the ban allows, the identity is banned, and the strikes are forgotten. The
//! next ban lasts twice as long, up to a bound, and each quiet spell after a ban takes one doubling back. While a ban is in
//! force nothing strikes, so that it does not feed itself.
//!
//! The time is the server's. A clock that steps back to before a ban began starts it anew, and so it lasts for its own length
//! and no longer. Strikes ahead of now count as made now.

mod span;

use std::time::Duration;

pub(crate) use self::span::Span;

use super::{Budget, Decider, Passage, Point, Snapshot, Step};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Penalty {
    pub(crate) strikes: u8,
    pub(crate) onset: Onset,
    pub(crate) within: Span,
    pub(crate) lasting: Span,
    pub(crate) longest: Span,
    pub(crate) forgiven: Span,
}

/// The cause of a ban, and the effect of requests while it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Onset {
    /// Strikes. A banned caller that knocks changes nothing.
    Struck,
    /// Strikes. A banned caller that knocks begins the ban anew.
    Extended,
    /// An operator, at once, and whatever stands there already.
    Imposed,
    /// No denial of the same call, and no knock: such a call adds its strike later.
    Unheard,
}

/// A key without strikes allocates nothing, and most keys have none.
#[derive(Clone, Debug, Default)]
pub(super) struct StrikeRecord(Option<Box<Record>>);

#[derive(Clone, Debug, Default)]
struct Record {
    /// The start and the end of the last ban; both 0 if there was none.
    since: u64,
    until: u64,
    /// The number of doublings of the next ban, if nothing is forgiven until then.
    level: u8,
    /// The times of the strikes that may count, the oldest first.
    strikes: Vec<u64>,
    /// The time at which all of this means nothing any more.
    kept_until: u64,
}

impl Penalty {
    /// Adds strikes, and bans if these are enough.
    fn strike(&self, record: &mut Record, now: u64, strikes: u64) {
        record.forget(now, self.within.us());
        for _ in 0..strikes.min(self.strikes.into()) {
            record.strikes.push(now);
        }
        if record.strikes.len() >= self.strikes.into() {
            self.ban(record, now);
        }
    }

    fn ban(&self, record: &mut Record, now: u64) {
        let level = self.level(record, now);
        let length = self.length(level);
        record.level = level + u8::from(length < self.longest.us());
        record.strikes.clear();
        (record.since, record.until) = (now, now + length);
    }

    /// The doublings that no quiet spell has taken back.
    fn level(&self, record: &Record, now: u64) -> u8 {
        let spells = now.saturating_sub(record.until) / self.forgiven.us();
        u8::try_from(u64::from(record.level).saturating_sub(spells)).unwrap_or(0)
    }

    /// The length of a ban after this many doublings.
    fn length(&self, level: u8) -> u64 {
        (0..level).fold(self.lasting.us(), |length, _| {
            length.saturating_mul(2).min(self.longest.us())
        })
    }

    /// The time at which the record means nothing any more: strikes have expired, the ban is over and its doublings forgiven.
    fn kept_until(&self, record: &Record) -> u64 {
        let newest = record.strikes.last();
        let counts = newest.map_or(0, |at| at.saturating_add(self.within.us()));
        let forgiven = u64::from(record.level).saturating_mul(self.forgiven.us());
        counts.max(record.until.saturating_add(forgiven))
    }

    /// Counts a denial of the charges that this ban guards, unless it is in force.
    pub(super) fn strike_once(&self, state: &mut StrikeRecord, now: u64) {
        self.step(state, now, 1, true);
    }

    /// Begins a ban in force anew, if knocks extend it.
    fn knock(&self, state: &mut StrikeRecord, now: u64) {
        if let Some(record) = &mut state.0
            && self.onset == Onset::Extended
        {
            let length = record.until - record.since;
            (record.since, record.until) = (now, now + length);
            record.kept_until = self.kept_until(record);
        }
    }
}

impl Decider for Penalty {
    type State = StrikeRecord;

    fn advance(&self, state: &mut StrikeRecord, now: u64) {
        let Some(record) = &mut state.0 else { return };
        if now < record.since {
            // The clock stepped back.
            let length = record.until - record.since;
            (record.since, record.until) = (now, now + length);
        }
        for strike in &mut record.strikes {
            *strike = (*strike).min(now);
        }
    }

    /// Asks if the identity is free, whatever the cost: a cost of 0 asks, and a cost adds as many strikes.
    fn passage(&self, state: &mut StrikeRecord, now: u64, _cost: u64) -> Passage {
        match &state.0 {
            Some(record) if now < record.until && self.onset != Onset::Imposed => {
                Passage::after(record.until - now)
            }
            _ => Passage::Open,
        }
    }

    fn take(&self, state: &mut StrikeRecord, now: u64, cost: u64) {
        let record = state.0.get_or_insert_default();
        if self.onset == Onset::Imposed {
            if now + self.lasting.us() > record.until {
                record.level = self.level(record, now);
                (record.since, record.until) = (now, now + self.lasting.us());
            }
        } else {
            self.strike(record, now, cost);
        }
        record.kept_until = self.kept_until(record);
    }

    /// A ban in force hears the knock.
    fn step(&self, state: &mut StrikeRecord, now: u64, cost: u64, take: bool) -> Step {
        self.advance(state, now);
        let mut passage = self.passage(state, now, cost);
        if take && passage != Passage::Open {
            self.knock(state, now);
            passage = self.passage(state, now, cost);
        } else if take && cost > 0 {
            self.take(state, now, cost);
        }
        (passage, Point::ZERO, self.budget(state, now))
    }

    fn debit(&self, state: &mut StrikeRecord, now: u64, cost: u64) {
        self.step(state, now, cost, true);
    }

    /// Does nothing: no strike is taken back.
    fn give_back(
        &self,
        _state: &mut StrikeRecord,
        _now: u64,
        _at: u64,
        _full_at: Point,
        _cost: u64,
    ) {
    }

    /// The strikes that are left, and the time after which none counts.
    fn budget(&self, state: &StrikeRecord, now: u64) -> Budget {
        let most = u64::from(self.strikes);
        let Some(record) = &state.0 else {
            return Budget {
                remaining: most,
                reset_after_us: 0,
            };
        };
        if now < record.until {
            return Budget {
                remaining: 0,
                reset_after_us: record.until - now,
            };
        }
        let live = record.live(now, self.within.us());
        Budget {
            remaining: most.saturating_sub(live.len() as u64),
            reset_after_us: live.last().map_or(0, |at| at + self.within.us() - now),
        }
    }
}

impl Record {
    /// The strikes that count now. A strike counts for the time (at, at + within].
    fn live(&self, now: u64, within_us: u64) -> &[u64] {
        let expired = self.strikes.partition_point(|at| at + within_us <= now);
        &self.strikes[expired..]
    }

    fn forget(&mut self, now: u64, within_us: u64) {
        let expired = self.strikes.len() - self.live(now, within_us).len();
        self.strikes.drain(..expired);
    }
}

impl StrikeRecord {
    /// The time for which the next question would be told to wait.
    pub(super) fn banned_for(&self, now: u64) -> Option<Duration> {
        let record = self.0.as_deref().filter(|record| now < record.until)?;
        // A clock that stepped back to before the ban starts it anew.
        Some(Duration::from_micros(record.until - record.since.max(now)))
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let record = self.0.as_deref();
        let of = |read: fn(&Record) -> u64| record.map_or(0, read);
        Snapshot::Ban {
            since_us: of(|record| record.since),
            until_us: of(|record| record.until),
            level: record.map_or(0, |record| record.level),
            strikes_us: record.map_or_else(Vec::new, |record| record.strikes.clone()),
            kept_until_us: of(|record| record.kept_until),
        }
    }

    pub(super) fn restore(
        since: u64,
        until: u64,
        level: u8,
        strikes: Vec<u64>,
        kept_until: u64,
    ) -> Self {
        let is_empty = until == 0 && level == 0 && strikes.is_empty();
        Self((!is_empty).then(|| {
            Box::new(Record {
                since,
                until,
                level,
                strikes,
                kept_until,
            })
        }))
    }

    pub(super) fn meaningless_at(&self) -> u64 {
        self.0.as_ref().map_or(0, |record| record.kept_until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000_000;
    const NOW: u64 = 1_000 * MINUTE;
    /// Three within ten minutes, for 15 minutes, up to two hours, forgiven after a day.
    const RULE: Penalty = Penalty {
        strikes: 3,
        onset: Onset::Struck,
        within: Span::of_us(10 * MINUTE),
        lasting: Span::of_us(15 * MINUTE),
        longest: Span::of_us(120 * MINUTE),
        forgiven: Span::of_us(1_440 * MINUTE),
    };

    fn is_banned(rule: &Penalty, state: &mut StrikeRecord, now: u64) -> bool {
        rule.advance(state, now);
        rule.passage(state, now, 0) != Passage::Open
    }

    fn banned_at(rule: &Penalty, state: &mut StrikeRecord, now: u64) -> u64 {
        for _ in 0..rule.strikes {
            rule.strike_once(state, now);
        }
        match rule.passage(state, now, 0) {
            Passage::Closed(super::super::RetryAfter::Micros(us)) => us,
            passage => panic!("{passage:?}"),
        }
    }

    #[test]
    fn strikes_count_for_their_time_and_the_last_one_bans() {
        let mut state = StrikeRecord::default();
        RULE.strike_once(&mut state, NOW);
        RULE.strike_once(&mut state, NOW + MINUTE);
        // The first is just too old.
        RULE.strike_once(&mut state, NOW + 10 * MINUTE);
        assert!(!is_banned(&RULE, &mut state, NOW + 10 * MINUTE));
        RULE.strike_once(&mut state, NOW + 11 * MINUTE - 1);
        assert!(is_banned(&RULE, &mut state, NOW + 11 * MINUTE));
        let ends = NOW + 26 * MINUTE - 1;
        assert!(is_banned(&RULE, &mut state, ends - 1));
        assert!(!is_banned(&RULE, &mut state, ends));
        assert_eq!(RULE.budget(&state, ends).remaining, 3);
    }

    #[test]
    fn each_ban_lasts_twice_as_long_up_to_the_longest_and_a_quiet_spell_takes_one_doubling_back() {
        let (mut state, mut now) = (StrikeRecord::default(), NOW);
        for minutes in [15, 30, 60, 120, 120] {
            let length = banned_at(&RULE, &mut state, now);
            assert_eq!(length, minutes * MINUTE);
            now += length;
        }
        // Just short of a spell, and then one, and then many.
        now += RULE.forgiven.us() - 1;
        assert_eq!(banned_at(&RULE, &mut state, now), 120 * MINUTE);
        now += 120 * MINUTE + RULE.forgiven.us();
        assert_eq!(banned_at(&RULE, &mut state, now), 60 * MINUTE);
        assert_eq!(
            state.meaningless_at(),
            now + 60 * MINUTE + 3 * RULE.forgiven.us()
        );
        now += 60 * MINUTE + 3 * RULE.forgiven.us();
        assert_eq!(banned_at(&RULE, &mut state, now), 15 * MINUTE);
    }

    #[test]
    fn a_ban_does_not_feed_itself_unless_it_is_to() {
        for (onset, ends) in [(Onset::Struck, 15), (Onset::Extended, 29)] {
            let rule = Penalty { onset, ..RULE };
            let mut state = StrikeRecord::default();
            banned_at(&rule, &mut state, NOW);
            for minute in 1..15 {
                rule.step(&mut state, NOW + minute * MINUTE, 0, false);
                rule.step(&mut state, NOW + minute * MINUTE, 0, true);
            }
            let ends = NOW + ends * MINUTE;
            assert!(is_banned(&rule, &mut state, ends - 1), "{onset:?}");
            assert!(!is_banned(&rule, &mut state, ends), "{onset:?}");
            assert_eq!(rule.budget(&state, ends).remaining, 3, "{onset:?}");
        }
    }

    fn imposed(minutes: u64) -> Penalty {
        Penalty {
            onset: Onset::Imposed,
            lasting: Span::of_us(minutes * MINUTE),
            ..RULE
        }
    }

    /// The state as it is read back, once it was written down.
    fn read_back(state: &StrikeRecord) -> StrikeRecord {
        match state.snapshot() {
            Snapshot::Ban {
                since_us,
                until_us,
                level,
                strikes_us,
                kept_until_us,
            } => StrikeRecord::restore(since_us, until_us, level, strikes_us, kept_until_us),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_state_that_was_written_down_is_read_back_as_it_was() {
        let after = |act: fn(&mut StrikeRecord)| {
            let mut state = StrikeRecord::default();
            act(&mut state);
            state
        };
        let states = [
            after(|_| {}),
            after(|state| RULE.strike_once(state, NOW)),
            after(|state| {
                RULE.strike_once(state, NOW - MINUTE);
                RULE.strike_once(state, NOW);
            }),
            // Banned: for the first time, for the second, by hand, and for ever as long.
            after(|state| {
                banned_at(&RULE, state, NOW);
            }),
            after(|state| {
                banned_at(&RULE, state, NOW - 20 * MINUTE);
                banned_at(&RULE, state, NOW);
            }),
            after(|state| {
                imposed(60).step(state, NOW, 1, true);
            }),
            after(|state| {
                let longest = RULE.lasting;
                banned_at(&Penalty { longest, ..RULE }, state, NOW);
            }),
        ];
        for mut state in states {
            let mut read = read_back(&state);
            assert_eq!(read.snapshot(), state.snapshot());
            assert_eq!(read.meaningless_at(), state.meaningless_at());
            for minutes in [0, 9, 15, 40] {
                let now = NOW + minutes * MINUTE;
                let steps =
                    [&mut read, &mut state].map(|state| RULE.step(state, now, minutes % 2, true).0);
                assert_eq!(steps[0], steps[1], "{minutes} minutes later: {state:?}");
                assert_eq!(read.snapshot(), state.snapshot());
            }
        }
    }

    #[test]
    fn a_state_that_says_anything_is_kept_for_as_long_as_it_says_and_an_empty_one_is_gone() {
        for (since, until, level, strikes, kept_until, is_kept) in [
            (0, 0, 0, vec![], 7, false),
            (3, 0, 0, vec![], 7, false),
            (0, 0, 0, vec![1], 7, true),
            (0, 0, 1, vec![], 7, true),
            (3, 4, 0, vec![], 7, true),
        ] {
            let state = StrikeRecord::restore(since, until, level, strikes.clone(), kept_until);
            let expected = Snapshot::Ban {
                since_us: if is_kept { since } else { 0 },
                until_us: until,
                level,
                strikes_us: strikes,
                kept_until_us: if is_kept { kept_until } else { 0 },
            };
            assert_eq!(state.snapshot(), expected);
            assert_eq!(state.meaningless_at(), if is_kept { kept_until } else { 0 });
        }
    }

    #[test]
    fn an_operators_ban_forgives_no_doubling_and_takes_back_no_quiet_spell() {
        let after_two = || {
            let mut state = StrikeRecord::default();
            for _ in 0..2 {
                banned_at(&RULE, &mut state, NOW);
                state.0.as_mut().unwrap().until = NOW;
            }
            state
        };
        // A short one in between, however short: both doublings are remembered for two days from its end.
        let mut state = after_two();
        imposed(1).step(&mut state, NOW, 1, true);
        let ends = NOW + MINUTE;
        assert_eq!(state.meaningless_at(), ends + 2 * RULE.forgiven.us());
        assert_eq!(banned_at(&RULE, &mut state, ends), 60 * MINUTE);
        // After a quiet day one of them is forgiven, whatever an operator does then.
        let mut state = after_two();
        let day = NOW + RULE.forgiven.us();
        imposed(1).step(&mut state, day, 1, true);
        assert_eq!(banned_at(&RULE, &mut state, day + MINUTE), 30 * MINUTE);
    }

    #[test]
    fn an_operator_bans_at_once_and_shortens_no_ban() {
        let mut state = StrikeRecord::default();
        imposed(60).step(&mut state, NOW, 1, true);
        imposed(5).step(&mut state, NOW, 1, true);
        assert!(is_banned(&RULE, &mut state, NOW + 60 * MINUTE - 1));
        imposed(60).step(&mut state, NOW + MINUTE, 1, true);
        assert!(is_banned(&RULE, &mut state, NOW + 61 * MINUTE - 1));
        assert!(!is_banned(&RULE, &mut state, NOW + 61 * MINUTE));
        // It doubles nothing.
        assert_eq!(banned_at(&RULE, &mut state, NOW + 61 * MINUTE), 15 * MINUTE);
    }

    #[test]
    fn a_debit_is_as_many_strikes_and_a_ban_in_force_hears_none() {
        let mut state = StrikeRecord::default();
        RULE.debit(&mut state, NOW, 1);
        assert_eq!(RULE.budget(&state, NOW).remaining, 2);
        RULE.debit(&mut state, NOW, 2);
        RULE.debit(&mut state, NOW + MINUTE, 3);
        let budget = RULE.budget(&state, NOW + MINUTE);
        assert_eq!((budget.remaining, budget.reset_after_us), (0, 14 * MINUTE));
        let ends = NOW + 15 * MINUTE;
        assert!(is_banned(&RULE, &mut state, ends - 1));
        assert!(!is_banned(&RULE, &mut state, ends));
        assert_eq!(RULE.budget(&state, ends).remaining, 3);
    }

    #[test]
    fn a_clock_that_steps_back_lengthens_a_ban_by_its_own_length_and_no_more() {
        let mut state = StrikeRecord::default();
        banned_at(&RULE, &mut state, NOW);
        let now = NOW - 900 * MINUTE;
        assert!(is_banned(&RULE, &mut state, now));
        assert!(is_banned(&RULE, &mut state, now + 15 * MINUTE - 1));
        assert!(!is_banned(&RULE, &mut state, now + 15 * MINUTE));
    }

    #[test]
    fn strikes_ahead_of_a_clock_that_stepped_back_count_as_made_now() {
        let mut state = StrikeRecord::default();
        RULE.strike_once(&mut state, NOW);
        RULE.strike_once(&mut state, NOW);
        let now = NOW / 2;
        RULE.advance(&mut state, now);
        assert_eq!(RULE.budget(&state, now).remaining, 1);
        assert_eq!(RULE.budget(&state, now).reset_after_us, 10 * MINUTE);
        assert_eq!(RULE.budget(&state, now + 10 * MINUTE).remaining, 3);
    }

    #[test]
    fn a_state_without_strikes_allocates_nothing_and_means_nothing() {
        let mut state = StrikeRecord::default();
        assert!(!is_banned(&RULE, &mut state, NOW));
        RULE.step(&mut state, NOW, 0, true);
        assert!(state.0.is_none());
        assert_eq!(state.meaningless_at(), 0);
    }
}
