//! Tests of the checker on the lines of limiters: a line that fills and is closed as it should is possible, and each way to break
//! one is caught.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use tollgate_core::{Call, Quota, State, Timestamp, decide};
use tollgate_fire::{
    AskedCharge, Asker, Asking, Attempt, Budget, Door, Fallback, Findings, History, HttpAnswer,
    LineFindings, Manner, Outcome, Population, Terms, Verb, Wait, WaitingLine, check,
};

const START_US: u64 = 1_700_000_000_000_000;
const INTERVAL_US: u64 = 100_000;

/// The time from a question to its answer, in the middle of which the backend is asked.
const ANSWER_US: u64 = 4_000;

/// Ten a second, one at a time, and a wait of two seconds, under a limiter with a short line.
struct Story {
    population: Population,
    state: State,
    history: History,
    door: Door,
    now_us: u64,
}

impl Story {
    fn new(door: Door, most: usize) -> Self {
        let quota = Quota::per_second(10).burst(1);
        let quota = quota.wait_up_to(Duration::from_secs(2));
        let line = WaitingLine {
            process: 7,
            limiter: 3,
            most,
            closing_us: None,
            closed_us: None,
        };
        Self {
            population: Population::with(0, vec![quota]),
            state: State::full(&quota),
            history: History {
                quotas: vec![quota],
                lines: vec![line],
                ..History::default()
            },
            door,
            now_us: START_US,
        }
    }

    /// A request that has a place in the line, and the number of its attempt.
    fn ask(&mut self) -> usize {
        self.ask_for(Duration::MAX)
    }

    /// A request that has none.
    fn ask_without_place(&mut self) -> usize {
        self.ask_for(Duration::ZERO)
    }

    fn ask_for(&mut self, most: Duration) -> usize {
        let asked = [AskedCharge {
            budget: Budget {
                policy: 0,
                caller: 1,
            },
            cost: 1,
            manner: Manner::Enforce,
        }];
        let quota = self.history.quotas[0].waiting_at_most(most);
        let keys = self.population.keys(&asked);
        let mut charges = self.population.charges(&asked, &keys);
        charges[0].quota = &quota;
        let at = Timestamp::from_micros(self.now_us + ANSWER_US / 2);
        let decision = decide(
            at,
            Call::of(&charges),
            std::slice::from_mut(&mut self.state),
        );
        let outcome = Outcome::of(&Ok(decision)).by(&Terms::of_charges(&charges));
        let attempt = Attempt {
            asker: Asker {
                process: 7,
                door: self.door,
            },
            limiter: 3,
            verb: Verb::Decide(asked.to_vec()),
            waits_at_most_us: None,
            sent_us: self.now_us,
            heard_us: self.now_us + ANSWER_US,
            promised_us: None,
            outcome,
            fallback: None,
            told: None,
            left_us: None,
            asking: Some(Asking {
                asked_us: self.now_us + ANSWER_US / 4,
                answered_us: self.now_us + 3 * ANSWER_US / 4,
            }),
            question: None,
        };
        self.now_us += ANSWER_US;
        let wait_us = attempt.wait_us().unwrap_or_default();
        let attempt = Attempt {
            heard_us: attempt.heard_us + wait_us,
            told: (self.door == Door::Http).then(|| told(&attempt)),
            ..attempt
        };
        self.history.attempts.push(attempt);
        self.history.attempts.len() - 1
    }

    /// Closes the line. All that wait are refused and leave.
    fn close(&mut self) {
        let closing_us = self.now_us;
        self.now_us += 1_000;
        let line = &mut self.history.lines[0];
        (line.closing_us, line.closed_us) = (Some(closing_us), Some(closing_us + 10));
        for attempt in 0..self.history.attempts.len() {
            if self.history.attempts[attempt].heard_us > closing_us {
                self.stop(attempt, closing_us);
            }
        }
        // None of them stands in the line any more.
        let quota = self.history.quotas[0];
        self.state = State::full(&quota);
        self.now_us += 2 * INTERVAL_US;
    }

    /// The request is refused because its line is closed.
    fn stop(&mut self, attempt: usize, closing_us: u64) {
        let attempt = &mut self.history.attempts[attempt];
        let answered_us = attempt.asking.unwrap().answered_us;
        attempt.fallback = Some(Fallback::Stopped);
        attempt.left_us = Some(closing_us.max(answered_us));
        attempt.heard_us = closing_us.max(answered_us) + 500;
        if self.door == Door::Http {
            attempt.told = Some(HttpAnswer {
                status: 503,
                retry_after_s: None,
                remaining: vec![None],
                settled: Vec::new(),
            });
        }
    }

    fn attempt(&mut self, number: usize) -> &mut Attempt {
        &mut self.history.attempts[number]
    }

    fn line(&mut self) -> &mut WaitingLine {
        &mut self.history.lines[0]
    }

    fn findings(&self) -> Findings {
        check(&self.history)
    }

    fn wrongs(&self) -> Vec<String> {
        let findings = self.findings();
        findings.wrong.iter().map(ToString::to_string).collect()
    }

    fn is_possible(&self) -> LineFindings {
        assert_eq!(self.wrongs(), [""; 0]);
        self.findings().lines
    }

    fn is_wrong(&self, what: &str) {
        let wrongs = self.wrongs();
        assert!(
            wrongs.iter().any(|it| it.contains(what)),
            "{what:?}: {wrongs:?}"
        );
    }
}

/// The answer over HTTP that follows from a decision on one charge.
fn told(attempt: &Attempt) -> HttpAnswer {
    let Outcome::Decided(decided) = &attempt.outcome else {
        panic!("{attempt:?}");
    };
    let said = decided.verdicts[0];
    HttpAnswer {
        status: if decided.admitted { 200 } else { 429 },
        retry_after_s: (!decided.admitted).then(|| said.retry_after_us.div_ceil(1_000_000).max(1)),
        remaining: vec![Some(if decided.admitted { said.remaining } else { 0 })],
        settled: Vec::new(),
    }
}

const DOORS: [Door; 2] = [Door::Limiter, Door::Http];

#[test]
fn a_line_that_fills_and_is_closed_as_it_should_is_possible() {
    for door in DOORS {
        // given one that passes, two that wait, and two that find no room
        let mut story = Story::new(door, 2);
        story.ask();
        let waits = [story.ask(), story.ask()];
        story.ask_without_place();
        story.ask_without_place();

        // when the line is closed, and others come
        story.close();
        let passes = story.ask_without_place();
        story.ask_without_place();

        // then
        let LineFindings {
            full,
            stopped,
            closed,
        } = story.is_possible();
        assert_eq!((full, stopped, closed), (2, 2, 1), "{door:?}");
        assert_eq!(story.attempt(passes).wait_us(), Some(0));
        assert_eq!(story.attempt(waits[1]).fallback, Some(Fallback::Stopped));
    }
}

#[test]
fn a_line_in_which_one_more_waits_than_it_has_room_for_is_caught() {
    for door in DOORS {
        let mut story = Story::new(door, 3);
        // Until the first has passed, it has a place too.
        for _ in 0..4 {
            story.ask();
        }
        story.is_possible();
        story.line().most = 2;
        story.is_wrong("3 had a place in a line of 2");

        // One that leaves makes room when it leaves, and not before.
        let asked_us = 3 * ANSWER_US + ANSWER_US / 4;
        for (left_us, is_wrong) in [(asked_us - 1, false), (asked_us + 1, true)] {
            let mut story = Story::new(door, 2);
            for _ in 0..4 {
                story.ask();
            }
            story.attempt(2).left_us = Some(START_US + left_us);
            let is_found = story
                .wrongs()
                .iter()
                .any(|it| it.contains("had a place in"));
            assert_eq!(is_found, is_wrong, "{door:?}, {left_us}");
        }
    }
}

#[test]
fn a_request_that_finds_no_room_in_a_line_that_has_some_is_caught() {
    for door in DOORS {
        let mut story = Story::new(door, 2);
        story.ask();
        story.ask();
        story.ask();
        let refused = story.ask_without_place();
        story.is_possible();

        story.line().most = 3;
        story.is_wrong("at most 2 had a place in a line of 3");
        story.line().most = 2;

        // Another may have had a place of which the record does not tell, and those of another limiter have none in this line.
        let other = story.attempt(2);
        let outcome = std::mem::replace(&mut other.outcome, Outcome::Unknown("lost".to_owned()));
        let asking = other.asking.take();
        let told = other.told.take();
        other.fallback = Some(Fallback::Decided {
            admitted: true,
            remaining: vec![None],
            granted: None,
        });
        let is_found = |story: &Story| {
            let wrongs = story.wrongs();
            wrongs.iter().any(|it| it.contains("could not wait"))
        };
        assert!(!is_found(&story));
        let other = story.attempt(2);
        (other.outcome, other.asking) = (outcome, asking);
        (other.told, other.fallback) = (told, None);
        other.limiter = 4;
        assert!(is_found(&story));

        // A caller that states so little that it could not wait anyway says nothing.
        story.attempt(refused).waits_at_most_us = Some(ANSWER_US);
        assert!(!is_found(&story));
    }
}

#[test]
fn a_line_that_is_closed_and_lets_requests_wait_is_caught() {
    for door in DOORS {
        let mut story = Story::new(door, 9);
        story.ask();
        story.close();
        story.ask();
        story.is_wrong("had a place in a line that was closed");

        // None of another process had to know.
        story.line().closed_us = None;
        story.is_possible();
    }
}

#[test]
fn a_request_that_goes_on_after_its_line_was_closed_is_caught() {
    for door in DOORS {
        let mut story = Story::new(door, 9);
        for _ in 0..8 {
            story.ask();
        }
        // Its turn is half a second away.
        let goes_on = story.attempt(6).clone();
        story.close();
        story.is_possible();
        *story.attempt(6) = goes_on;
        story.is_wrong("goes on, and its line was closed");

        // Unless the machine kept its process from closing it.
        let (from_us, to_us) = (story.line().closed_us.unwrap(), START_US + 10 * INTERVAL_US);
        story.history.waits.push(Wait {
            process: 7,
            from_us,
            to_us,
        });
        story.is_possible();
    }
}

#[test]
fn a_request_that_is_refused_as_in_a_closed_line_and_was_in_an_open_one_is_caught() {
    for door in DOORS {
        let mut story = Story::new(door, 9);
        for _ in 0..3 {
            story.ask();
        }
        story.stop(2, START_US + 20_000);
        story.is_wrong("was refused as in a closed line");
    }
}

#[test]
fn a_request_that_is_refused_late_after_its_line_was_closed_is_caught() {
    for door in DOORS {
        let mut story = Story::new(door, 9);
        for _ in 0..10 {
            story.ask();
        }
        story.close();
        story.attempt(9).heard_us += 200_000;
        story.is_possible();
        story.attempt(9).heard_us += 100_000;
        story.is_wrong("after its line was closed");
    }
}

#[test]
fn a_closed_line_that_is_told_as_another_failure_is_caught() {
    let mut story = Story::new(Door::Http, 9);
    for _ in 0..4 {
        story.ask();
    }
    story.close();
    story.attempt(3).told.as_mut().unwrap().status = 429;
    story.is_wrong("told HttpAnswer");
}
