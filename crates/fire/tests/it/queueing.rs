//! Tests of the checker on requests that wait for their turn: a line that core keeps is possible, and each way to break one is
//! caught.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use tollgate_core::{Call, QueueMark, Quota, Receipt, Snapshot, State, Timestamp, decide};
use tollgate_fire::{
    AskedCharge, Asker, Attempt, Budget, DecisionRecord, Disturbance, Door, Effect, Findings,
    History, Manner, Outcome, Population, Terms, Verb, check,
};

const START_US: u64 = 1_700_000_000_000_000;
const INTERVAL_US: u64 = 100_000;

const BUDGET: Budget = Budget {
    policy: 0,
    caller: 1,
};

/// Ten a second, one at a time, and a wait of two seconds: the requests of one caller, decided by core.
struct Story {
    population: Population,
    state: State,
    history: History,
    /// The receipt of each attempt, if it has one.
    receipts: Vec<Option<Receipt>>,
    now_us: u64,
}

impl Story {
    fn new() -> Self {
        let quota = Quota::per_second(10).burst(1);
        let quota = quota.wait_up_to(Duration::from_secs(2));
        Self {
            population: Population::with(0, vec![quota]),
            state: State::full(&quota),
            history: History {
                quotas: vec![quota],
                ..History::default()
            },
            receipts: Vec::new(),
            now_us: START_US,
        }
    }

    /// A number of requests in line, of which the first passes at once.
    fn of(requests: usize) -> Self {
        let mut story = Self::new();
        for _ in 0..requests {
            story.ask();
        }
        story
    }

    fn pause(&mut self, us: u64) {
        self.now_us += us;
    }

    /// A request, and the number of its attempt.
    fn ask(&mut self) -> usize {
        self.ask_by(self.history.quotas[0])
    }

    /// A request of a caller that waits this long at most.
    fn ask_for(&mut self, most_us: u64) -> usize {
        let most = Duration::from_micros(most_us);
        let attempt = self.ask_by(self.history.quotas[0].waiting_at_most(most));
        self.history.attempts[attempt].waits_at_most_us = Some(most_us);
        attempt
    }

    /// A request by a quota that may be another than usual.
    fn ask_by(&mut self, quota: Quota) -> usize {
        let asked = [AskedCharge {
            budget: BUDGET,
            cost: 1,
            manner: Manner::Enforce,
        }];
        let keys = self.population.keys(&asked);
        let mut charges = self.population.charges(&asked, &keys);
        charges[0].quota = &quota;
        let at = Timestamp::from_micros(self.now_us);
        let decision = decide(
            at,
            Call::of(&charges),
            std::slice::from_mut(&mut self.state),
        );
        let receipt = decision.receipts(&charges).next();
        let outcome = Outcome::of(&Ok(decision)).by(&Terms::of_charges(&charges));
        self.note(Verb::Decide(asked.to_vec()), outcome, receipt)
    }

    /// Gives all of an attempt's charge back, before its turn or after.
    fn refund(&mut self, attempt: usize) -> usize {
        let receipt = self.receipts[attempt].take().unwrap();
        let at = Timestamp::from_micros(self.now_us);
        receipt.credit_to(&mut self.state, at, 1);
        self.note_credit(attempt)
    }

    fn note_credit(&mut self, attempt: usize) -> usize {
        let said = self.decided(attempt).verdicts[0];
        self.note(Verb::Credit(BUDGET, said, 1), Outcome::Told, None)
    }

    /// Every decision is heard a tenth of an interval after its question.
    fn note(&mut self, verb: Verb, outcome: Outcome, receipt: Option<Receipt>) -> usize {
        self.history.attempts.push(Attempt::plain(
            Asker::default(),
            verb,
            self.now_us,
            self.now_us + INTERVAL_US / 10,
            outcome,
        ));
        self.receipts.push(receipt);
        self.now_us += INTERVAL_US / 10;
        self.history.attempts.len() - 1
    }

    fn decided(&mut self, attempt: usize) -> &mut DecisionRecord {
        match &mut self.history.attempts[attempt].outcome {
            Outcome::Decided(decided) => decided,
            other => panic!("{other:?}"),
        }
    }

    /// Removes an attempt from the record, as if it had never been.
    fn forget(&mut self, attempt: usize) {
        let caller = &mut self.history.attempts[attempt].verb;
        *caller = Verb::Debit(
            Budget {
                policy: 0,
                caller: 99,
            },
            1,
        );
    }

    /// The line ends this many intervals earlier, and no request seems to wait.
    fn shorten(&mut self, intervals: u64) {
        let Snapshot::Gcra {
            full_at_us,
            rest,
            rest_of,
            exponent,
            thirty_seconds,
            ..
        } = self.state.snapshot()
        else {
            panic!("{:?}", self.state);
        };
        self.state = State::from(Snapshot::Gcra {
            full_at_us: full_at_us - intervals * INTERVAL_US,
            rest,
            rest_of,
            exponent,
            thirty_seconds,
            credits: Vec::new(),
            queue: QueueMark::default(),
            cold_at_us: 0,
            cold_at_ticks: 0,
        });
    }

    fn disturb(&mut self, effect: Effect) {
        let (from_us, to_us) = (self.now_us, self.now_us + 10);
        self.now_us += 10_000;
        let disturbance = Disturbance::of_all(effect, from_us, to_us);
        self.history.disturbances.push(disturbance);
    }

    fn findings(&self) -> Findings {
        check(&self.history)
    }

    fn wrongs(&self) -> Vec<String> {
        let findings = self.findings();
        findings.wrong.iter().map(ToString::to_string).collect()
    }

    fn is_wrong(&self, what: &str) {
        let wrongs = self.wrongs();
        assert!(
            wrongs.iter().any(|it| it.contains(what)),
            "{what:?}: {wrongs:?}"
        );
    }

    fn is_possible(&self) {
        assert_eq!(self.wrongs(), [""; 0]);
    }
}

#[test]
fn a_line_in_which_some_leave_and_others_take_their_places_is_possible() {
    let mut story = Story::of(6);
    story.refund(3);
    story.ask();
    story.ask();
    story.refund(0);
    story.ask();

    story.is_possible();
    let turns = story.findings().turns;
    assert_eq!((turns.waited, turns.left, turns.in_gaps), (8, 1, 1));
    assert_eq!((turns.strict, turns.after_loss, turns.in_doubt), (9, 0, 0));
}

#[test]
fn a_request_that_goes_on_before_its_turn_is_caught() {
    for (took_us, is_wrong) in [
        (2 * INTERVAL_US, false),
        // A millisecond by the process's own clock, and more by the server's.
        (2 * INTERVAL_US - INTERVAL_US / 5 - 1_000, false),
        (2 * INTERVAL_US - INTERVAL_US / 5 - 3_000, true),
        (0, true),
    ] {
        let mut story = Story::of(3);
        let attempt = &mut story.history.attempts[2];
        attempt.asker.door = Door::Limiter;
        attempt.heard_us = attempt.sent_us + took_us;

        assert_eq!(!story.wrongs().is_empty(), is_wrong, "{took_us} µs");

        // The process that asks the backend itself waits by itself, and one that leaves does not go on.
        let attempt = &mut story.history.attempts[2];
        attempt.left_us = Some(attempt.heard_us);
        story.is_possible();
        let attempt = &mut story.history.attempts[2];
        (attempt.left_us, attempt.asker.door) = (None, Door::Backend);
        story.is_possible();
    }
}

#[test]
fn a_wait_is_told_to_the_microsecond() {
    for change in [-1, 1] {
        let mut story = Story::of(4);
        let said = &mut story.decided(2).verdicts[0];
        said.wait_us = said.wait_us.saturating_add_signed(change);

        story.is_wrong("a wait of");
    }
}

#[test]
fn a_turn_that_is_not_kept_for_who_was_promised_it_is_caught() {
    let mut story = Story::of(4);
    let before = story.state.clone();
    story.ask();
    story.state = before;
    story.ask();

    story.is_wrong("too early");
    story.is_wrong("may");
    story.is_wrong("pass between");
}

#[test]
fn who_overtakes_without_a_departure_is_caught() {
    // given a request that takes the place of another that left
    let gap = || {
        let mut story = Story::of(6);
        story.refund(3);
        story.ask();
        story
    };
    gap().is_possible();

    // when no request left
    let mut story = gap();
    story.forget(6);
    story.is_wrong("too early");

    // or no request was there
    story.forget(3);
    story.is_wrong("overtakes");

    // but for one whose answer was lost, and which may have been there
    let mut story = gap();
    story.forget(6);
    let lost = Outcome::Unknown("no answer".to_owned());
    story.history.attempts[3].outcome = lost;
    story.is_possible();
    assert_eq!(story.findings().turns.in_doubt, 1);
}

#[test]
fn a_credit_excuses_no_earlier_turn_while_anybody_waits() {
    // given a line, and a credit of the first request, which has passed
    let mut story = Story::of(4);
    story.refund(0);
    story.ask();
    story.is_possible();

    // when it moves up the requests that come later
    let mut story = Story::of(4);
    story.note_credit(0);
    story.shorten(1);
    story.ask();

    // then
    story.is_wrong("too early");
}

/// The line ends where the last of those that left stood, and not at the latest turn that was promised.
#[test]
fn a_credit_excuses_an_earlier_turn_after_all_that_waited_have_left() {
    let mut story = Story::of(4);
    for attempt in [3, 2, 1] {
        story.refund(attempt);
    }
    let next = story.ask();
    story.pause(INTERVAL_US);
    story.refund(next);
    let last = story.ask();

    assert_eq!(story.decided(last).verdicts[0].wait_us, 0);
    story.is_possible();
}

#[test]
fn one_who_leaves_moves_up_nobody() {
    let mut story = Story::of(6);
    story.note_credit(3);
    story.shorten(1);
    story.ask();

    story.is_wrong("too early");
}

#[test]
fn a_refusal_while_there_is_room_in_the_line_is_caught() {
    let mut story = Story::of(24);
    let denied = story.decided(23);
    assert!(!denied.admitted);
    let whole = denied.clone();
    story.is_possible();

    // Too early, too late, and for no reason.
    for change in [-1, 1, 1_000_000] {
        let said = &mut story.decided(23).verdicts[0];
        said.retry_after_us = said.retry_after_us.saturating_add_signed(change);
        story.is_wrong("retry after");
        *story.decided(23) = whole.clone();
    }
    let said = &mut story.decided(23).verdicts[0];
    said.reset_after_us += 1_000_000;
    said.retry_after_us += 1_000_000;
    story.is_wrong("the line ends");
}

/// The terms of the quota, with a wait of a caller's own.
fn waiting(wait_us: u64) -> Terms {
    let quota = Quota::per_second(10).burst(1);
    Terms {
        wait_us,
        ..Terms::of(&quota)
    }
}

#[test]
fn a_request_that_waits_for_longer_than_its_caller_states_is_caught() {
    // given callers: the third states less than its wait, and the fourth more
    let story = || {
        let mut story = Story::of(4);
        let refused = story.ask_for(2 * INTERVAL_US);
        assert!(!story.decided(refused).admitted);
        let waits = story.ask_for(6 * INTERVAL_US);
        assert!(story.decided(waits).admitted);
        (story, waits)
    };
    let (story, waits) = story();
    story.is_possible();
    let findings = story.findings();
    assert_eq!((findings.stated, findings.impatient), (2, 1));

    // when it states less than it waits, whatever the backend was told
    let mut story = story;
    let wait_us = story.decided(waits).verdicts[0].wait_us;
    story.history.attempts[waits].waits_at_most_us = Some(wait_us);
    story.decided(waits).verdicts[0].terms = Some(waiting(wait_us));
    story.is_possible();
    story.history.attempts[waits].waits_at_most_us = Some(wait_us - 1);
    story.is_wrong("its caller for");

    // or the backend was told less, and lets it wait all the same
    story.decided(waits).verdicts[0].terms = Some(waiting(wait_us - 1));
    story.is_wrong("a wait of");
}

#[test]
fn a_refusal_of_a_request_whose_caller_waits_for_long_enough_is_caught() {
    let mut story = Story::of(4);
    let refused = story.ask_for(2 * INTERVAL_US);
    story.is_possible();

    // Its turn is further away than that by this much.
    let retry_after_us = story.decided(refused).verdicts[0].retry_after_us;
    for more_us in [1, retry_after_us] {
        let most_us = 2 * INTERVAL_US + more_us;
        story.history.attempts[refused].waits_at_most_us = Some(most_us);
        story.decided(refused).verdicts[0].terms = Some(waiting(most_us));
        story.is_wrong("retry after");
    }
}

#[test]
fn a_backend_that_is_asked_by_other_terms_than_the_callers_is_caught() {
    for (door, most_us, is_wrong) in [
        (Door::Backend, 200_000, false),
        (Door::Backend, 200_001, true),
        (Door::Backend, 199_999, true),
        // The question took ten milliseconds, and a timer two.
        (Door::Limiter, 212_000, false),
        (Door::Limiter, 212_001, true),
        (Door::Limiter, 199_999, true),
    ] {
        let mut story = Story::of(4);
        let refused = story.ask_for(200_000);
        let attempt = &mut story.history.attempts[refused];
        attempt.asker.door = door;
        attempt.waits_at_most_us = Some(most_us);

        let wrongs = story.wrongs();
        let is_found = wrongs.iter().any(|it| it.contains("asked by Terms"));
        assert_eq!(is_found, is_wrong, "{door:?}, {most_us}: {wrongs:?}");
    }
}

/// A quota of another burst and wait, and the same rate.
fn replacement(story: &mut Story) -> Quota {
    let other = Quota::per_second(10).burst(3);
    let other = other.wait_up_to(Duration::from_millis(700));
    story.history.replacements.insert(0, vec![other]);
    other
}

#[test]
fn a_line_goes_on_when_its_quota_is_replaced() {
    // given a line by one quota: some requests leave it, and others come by another quota
    let mut story = Story::of(6);
    let other = replacement(&mut story);
    story.ask_by(other);
    story.refund(3);
    story.ask_by(other);
    for _ in 0..8 {
        story.ask_by(other);
    }
    story.ask();
    story.pause(3 * INTERVAL_US);
    story.ask_by(other);
    story.refund(6);
    story.ask();

    // then
    story.is_possible();
    let turns = story.findings().turns;
    assert!(turns.waited >= 12 && turns.in_gaps >= 1, "{turns:?}");
}

#[test]
fn a_replaced_quota_that_forgets_the_line_is_caught() {
    let mut story = Story::of(6);
    let other = replacement(&mut story);
    story.state = State::full(&other);
    story.ask_by(other);
    story.is_wrong("too early");

    // One that is not among the quotas does not excuse it.
    let mut story = Story::of(6);
    let other = replacement(&mut story);
    story.history.replacements.clear();
    story.ask_by(other);
    story.is_wrong("asked by Terms");
}

#[test]
fn a_turn_by_a_replaced_quota_is_one_by_its_own_burst() {
    let mut story = Story::of(6);
    let other = replacement(&mut story);
    let attempt = story.ask_by(other);
    story.is_possible();

    // By the usual quota it would be two intervals later.
    story.decided(attempt).verdicts[0].terms = None;
    story.is_wrong("a wait of");
}

#[test]
fn a_loss_excuses_one_more_burst_and_line_and_is_counted() {
    for effect in [Effect::Loss, Effect::MaybeLoss] {
        let lost = |losses: usize, is_told: bool| {
            let mut story = Story::of(20);
            for _ in 0..losses {
                let quota = story.history.quotas[0];
                story.state = State::full(&quota);
                if is_told {
                    story.disturb(effect);
                }
                for _ in 0..20 {
                    story.ask();
                }
            }
            story
        };
        for losses in [1, 2] {
            let story = lost(losses, true);
            story.is_possible();
            assert!(story.findings().turns.after_loss >= 15);
            lost(losses, false).is_wrong("too early");
        }
        // Two are not excused by one.
        let mut story = lost(2, true);
        story.history.disturbances.truncate(1);
        story.is_wrong("too early");
    }
    // A reset by a client.
    let mut story = Story::of(20);
    let quota = story.history.quotas[0];
    story.state = State::full(&quota);
    story.pause(10_000);
    story.note(Verb::Reset(BUDGET), Outcome::Reset, None);
    story.ask();
    story.is_possible();
}

#[test]
fn after_a_step_of_the_clock_turns_are_compared_with_those_of_the_same_clock() {
    let step_us = 5_000_000;
    let mut story = Story::of(5);
    story.disturb(Effect::Clock(step_us));
    let ahead = |story: &mut Story, attempt: usize| {
        let sent_us = &mut story.history.attempts[attempt];
        sent_us.sent_us -= step_us.unsigned_abs();
        sent_us.heard_us -= step_us.unsigned_abs();
    };
    story.pause(step_us.unsigned_abs());
    for _ in 0..4 {
        let attempt = story.ask();
        ahead(&mut story, attempt);
    }
    story.is_possible();
    assert_eq!(story.findings().turns.after_step, 4);

    let before = story.state.clone();
    let attempt = story.ask();
    ahead(&mut story, attempt);
    story.state = before;
    let attempt = story.ask();
    ahead(&mut story, attempt);
    story.is_wrong("too early");
}

/// A case that was found under fire, with other figures (seed 20261123): a line is lost, one of it leaves when another line stands
/// in its place, and then the last of that one leaves. So a place is free behind the line, and the next takes it.
#[test]
fn one_who_leaves_after_a_loss_may_free_a_place_behind_the_line() {
    let story = |is_told: bool| {
        let mut story = Story::of(8);
        story.pause(INTERVAL_US / 2);
        let quota = story.history.quotas[0];
        story.state = State::full(&quota);
        if is_told {
            story.disturb(Effect::MaybeLoss);
        }
        let last = (0..7).map(|_| story.ask()).last().unwrap();
        story.refund(7);
        story.refund(last);
        let next = story.ask();
        let said = story.decided(next).verdicts[0];
        assert!(said.full_at.0 > said.at_us + said.reset_after_us);
        story.ask();
        story
    };

    story(true).is_possible();
    story(false).is_wrong("outside of a line");
}

#[test]
fn a_place_that_was_given_back_and_that_the_next_does_not_get_is_caught() {
    // given a line of which one leaves, in the middle or at its end
    for left in [9, 14] {
        let story = || {
            let mut story = Story::of(15);
            // So that its own stretch lies ahead for long enough.
            assert!(story.decided(left).verdicts[0].wait_us > 8 * INTERVAL_US);
            story.pause(INTERVAL_US / 2);
            story
        };

        // when the next comes soon
        let mut kept = story();
        kept.refund(left);
        kept.pause(3 * INTERVAL_US);
        let next = kept.ask();

        // then it gets the place
        kept.is_possible();
        assert_eq!(kept.findings().turns.owed_place, 1);

        // and otherwise that is caught, whether it waits for longer or is refused
        let mut lost = story();
        lost.note_credit(left);
        lost.pause(3 * INTERVAL_US);
        lost.ask();
        lost.is_wrong("had been given back");
        let wait_us = kept.decided(next).verdicts[0].wait_us;
        let mut refused = story();
        refused.note_credit(left);
        refused.pause(3 * INTERVAL_US);
        refused.ask_for(wait_us);
        refused.is_wrong("had been given back");

        // but not if more was charged, which stands where the place of the last was
        let mut debited = story();
        debited.refund(left);
        debited.note(Verb::Debit(BUDGET, 1), Outcome::Told, None);
        debited.pause(3 * INTERVAL_US);
        debited.ask();
        assert_eq!(debited.findings().turns.owed_place, 0);

        // if its client was cut off, so that the credit may be late, or if another may have taken it
        lost.disturb(Effect::Trouble);
        let from_us = lost.history.attempts[15].sent_us;
        lost.history.disturbances[0] = Disturbance::trouble(from_us, from_us + 10);
        assert_eq!(lost.findings().turns.owed_place, 0);
        kept.history.attempts[0].outcome = Outcome::Unknown("no answer".to_owned());
        assert_eq!(kept.findings().turns.owed_place, 0);
    }
}
