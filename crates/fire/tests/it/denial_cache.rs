//! Denials that a process knew without its server: which the checker believes, and which not.

#![allow(clippy::panic, reason = "a test says what it expects by panicking")]

use std::time::Duration;

use tollgate_core::{Call, Quota, State, Timestamp, decide};
use tollgate_fire::{
    AskedCharge, Asker, Attempt, Budget, Disturbance, Effect, History, Manner, Outcome, Population,
    Verb, check,
};

const MS: u64 = 1_000;

const START_US: u64 = 1_795_380_000 * 1_000 * MS;

const BUDGET: Budget = Budget {
    policy: 0,
    caller: 0,
};

/// One unit a day, and what is said of it.
struct Story {
    quota: Quota,
    state: State,
    /// The state as it was before the last reset.
    before: State,
    attempts: Vec<Attempt>,
    disturbances: Vec<Disturbance>,
}

impl Story {
    /// The unit is taken in the first millisecond, and another is denied in the tenth.
    fn exhausted() -> Self {
        let quota = Quota::new(1, Duration::from_secs(86_400));
        let mut story = Self {
            quota,
            state: State::full(&quota),
            before: State::full(&quota),
            attempts: Vec::new(),
            disturbances: Vec::new(),
        };
        for at_ms in [1, 10] {
            story.ask(at_ms);
        }
        story
    }

    fn decided(&self, state: &mut State, manner: Manner, at_ms: u64) -> (Verb, Outcome) {
        let population = Population::with(1, vec![self.quota]);
        let asked = [AskedCharge {
            budget: BUDGET,
            cost: 1,
            manner,
        }];
        let keys = [population.key(BUDGET.caller)];
        let charges = population.charges(&asked, &keys);
        let at = Timestamp::from_micros(START_US + at_ms * MS);
        let decision = decide(at, Call::of(&charges), std::slice::from_mut(state));
        (Verb::Decide(asked.to_vec()), Outcome::of(&Ok(decision)))
    }

    fn ask(&mut self, at_ms: u64) {
        let mut state = self.state.clone();
        let (verb, outcome) = self.decided(&mut state, Manner::Enforce, at_ms);
        self.state = state;
        self.note(at_ms, verb, outcome);
    }

    fn reset(&mut self, at_ms: u64) {
        self.before = std::mem::replace(&mut self.state, State::full(&self.quota));
        self.note(at_ms, Verb::Reset(BUDGET), Outcome::Reset);
    }

    /// A process decides by the state before the reset, as of this time.
    fn knows(&mut self, manner: Manner, as_of_ms: u64, at_ms: u64) {
        let (verb, outcome) = self.decided(&mut self.before.clone(), manner, as_of_ms);
        let Outcome::Decided(mut decided) = outcome else {
            panic!("it is decided");
        };
        decided.unasked = true;
        self.note(at_ms, verb, Outcome::Decided(decided));
    }

    fn note(&mut self, at_ms: u64, verb: Verb, outcome: Outcome) {
        let sent_us = START_US + at_ms * MS - 100;
        let attempt = Attempt::plain(Asker::default(), verb, sent_us, sent_us + 200, outcome);
        self.attempts.push(attempt);
    }

    /// The findings, and the number of known denials.
    fn found(&self) -> (Vec<String>, u64) {
        let findings = check(&History {
            quotas: vec![self.quota],
            attempts: self.attempts.clone(),
            disturbances: self.disturbances.clone(),
            ..History::default()
        });
        let wrongs = findings.wrong.iter().map(ToString::to_string);
        (wrongs.collect(), findings.known)
    }
}

#[test]
fn a_known_denial_may_outlive_a_reset_for_its_life_and_no_longer() {
    let wrong = "attempt 3, policy 0 of caller 0: was known to be denied a cost of 1, and at least 1 was left for as long as that is believed";
    for (later_ms, wrongs) in [
        (1, vec![]),
        (95, vec![]),
        (110, vec![wrong]),
        (5_000, vec![wrong]),
    ] {
        let mut story = Story::exhausted();
        story.reset(500);
        story.knows(Manner::Enforce, 500 + later_ms, 500 + later_ms);
        assert_eq!(
            story.found(),
            (wrongs.iter().map(ToString::to_string).collect(), 1),
            "{later_ms}"
        );
    }
    // Nothing came back.
    let mut story = Story::exhausted();
    story.before = story.state.clone();
    story.knows(Manner::Enforce, 5_000, 5_000);
    assert_eq!(story.found(), (vec![], 1));
}

/// A question that the server answered in between shows nothing of what the process still believed.
#[test]
fn an_answer_to_another_process_in_between_makes_a_known_denial_neither_right_nor_wrong() {
    for (later_ms, is_wrong) in [(60, false), (160, true)] {
        let mut story = Story::exhausted();
        story.reset(500);
        story.knows(Manner::Enforce, 500 + later_ms, 500 + later_ms);
        // The unit is there, and is taken.
        story.ask(1_000);
        let (wrongs, _) = story.found();
        assert_eq!(wrongs.len(), usize::from(is_wrong), "{wrongs:?}");
    }
}

/// The process goes by the time of the answer and its own clock, and hears of no step.
#[test]
fn a_known_denial_goes_by_the_clock_of_its_state_after_that_was_set() {
    for (later_ms, is_wrong) in [(50, false), (99, false), (150, true)] {
        let mut story = Story::exhausted();
        story.before = story.state.clone();
        let (from_us, to_us) = (START_US + 500 * MS, START_US + 501 * MS);
        let set = Disturbance::of_all(Effect::Clock(3_600_000 * 1_000), from_us, to_us);
        story.disturbances.push(set);
        story.knows(Manner::Enforce, 500 + later_ms, 500 + later_ms);
        let (wrongs, _) = story.found();
        assert_eq!(
            wrongs.len(),
            usize::from(is_wrong),
            "{later_ms}: {wrongs:?}"
        );
    }
}

#[test]
fn a_known_denial_took_nothing_and_tells_a_state_of_its_life() {
    let mut story = Story::exhausted();
    story.before = story.state.clone();
    // As it was 90 ms ago, and 120.
    story.knows(Manner::Enforce, 910, 1_000);
    assert_eq!(story.found(), (vec![], 1));
    story.knows(Manner::Enforce, 880, 1_000);
    let (wrongs, _) = story.found();
    assert!(wrongs[0].contains("was decided -"), "{wrongs:?}");

    // Only the server can tell these.
    let mut story = Story::exhausted();
    story.knows(Manner::Enforce, 500, 500);
    story.knows(Manner::Probe, 500, 500);
    let (wrongs, _) = story.found();
    let unasked = wrongs
        .iter()
        .filter(|wrong| wrong.contains("only it can tell"));
    assert_eq!(unasked.count(), 2, "{wrongs:?}");
}
