//! Cases that were found under fire, each of a correct limiter that the checker once took for a wrong one.

#![allow(clippy::panic, reason = "a test says what it expects by panicking")]

use std::time::Duration;

use tollgate_core::{Algorithm, Call, Quota, Receipt, State, Timestamp, decide};
use tollgate_fire::{
    AskedCharge, Asker, Attempt, Budget, History, Manner, Outcome, Population, Verb, check,
};

const S: u64 = 1_000_000;

/// A multiple of every period in here.
const START_US: u64 = 1_795_380_000 * S;

const BUDGET: Budget = Budget {
    policy: 0,
    caller: 0,
};

/// One budget, as a limiter keeps it, and the history of what was asked.
struct Story {
    quota: Quota,
    state: State,
    attempts: Vec<Attempt>,
}

impl Story {
    fn of(quota: Quota) -> Self {
        Self {
            quota,
            state: State::full(&quota),
            attempts: Vec::new(),
        }
    }

    /// Takes a charge at this second, and notes the answer unless it is lost. Returns what gives the charge back.
    fn charge(&mut self, at_s: u64, cost: u64, is_heard: bool) -> Option<(Verb, Receipt)> {
        self.charge_at(at_s * S + 100, cost, is_heard)
    }

    fn charge_at(&mut self, at_us: u64, cost: u64, is_heard: bool) -> Option<(Verb, Receipt)> {
        let population = Population::with(1, vec![self.quota]);
        let asked = [AskedCharge {
            budget: BUDGET,
            cost,
            manner: Manner::Enforce,
        }];
        let keys = [population.key(BUDGET.caller)];
        let charges = population.charges(&asked, &keys);
        let at = Timestamp::from_micros(START_US + at_us);
        let decision = decide(
            at,
            Call::of(&charges),
            std::slice::from_mut(&mut self.state),
        );
        let receipt = Receipt::of(&charges[0], &decision.verdicts()[0], at);
        let outcome = if is_heard {
            Outcome::of(&Ok(decision))
        } else {
            Outcome::Unknown("lost".to_owned())
        };
        let said = match &outcome {
            Outcome::Decided(decided) => decided.verdicts.first().copied(),
            _ => None,
        };
        self.note(at_us - 100, Verb::Decide(asked.to_vec()), outcome);
        Some((Verb::Credit(BUDGET, said?, cost), receipt?))
    }

    /// Asks for as much as there is, of which nothing is taken, and no answer is heard.
    fn ask_in_vain(&mut self, at_s: u64, cost: u64) {
        let asked = AskedCharge {
            budget: BUDGET,
            cost,
            manner: Manner::Enforce,
        };
        let silence = Outcome::Unknown("lost".to_owned());
        self.note(at_s * S, Verb::Grant(vec![asked], 1), silence);
    }

    fn refund(&mut self, at_s: u64, charge: Option<(Verb, Receipt)>) {
        let Some((verb, receipt)) = charge else {
            panic!("it was taken");
        };
        let Verb::Credit(_, _, n) = verb else {
            panic!("it is a credit");
        };
        receipt.credit_to(
            &mut self.state,
            Timestamp::from_micros(START_US + at_s * S + 100),
            n,
        );
        self.note(at_s * S, verb, Outcome::Told);
    }

    fn debit(&mut self, at_s: u64, receipt: &Receipt, n: u64) {
        let at = Timestamp::from_micros(START_US + at_s * S + 100);
        receipt.debit_from(&mut self.state, at, n);
        self.note(at_s * S, Verb::Debit(BUDGET, n), Outcome::Told);
    }

    fn reset(&mut self, at_s: u64) {
        self.state = State::full(&self.quota);
        self.note(at_s * S, Verb::Reset(BUDGET), Outcome::Reset);
    }

    fn note(&mut self, at_us: u64, verb: Verb, outcome: Outcome) {
        let sent_us = START_US + at_us;
        let attempt = Attempt::plain(Asker::default(), verb, sent_us, sent_us + 200, outcome);
        self.attempts.push(attempt);
    }

    /// The findings of the checker.
    fn wrongs(&self) -> Vec<String> {
        let findings = check(&History {
            quotas: vec![self.quota],
            attempts: self.attempts.clone(),
            ..History::default()
        });
        findings.wrong.iter().map(ToString::to_string).collect()
    }
}

/// Seed 20261129: the credit of a charge from before a reset made room in the bound for a later charge, and so the credit of that
/// charge found nothing to give back.
#[test]
fn credits_of_a_lost_charge_and_of_a_later_one_both_count() {
    let quota = Quota::new(10, Duration::from_secs(1_000)).using(Algorithm::FixedWindow {
        offset: Duration::ZERO,
    });
    let mut story = Story::of(quota);
    let lost = story.charge(1, 1, true);
    story.reset(10);
    let later = story.charge(20, 1, true);
    story.refund(30, lost);
    story.charge(40, 9, true);
    story.refund(50, later);

    // when two units pass, which are all that is left
    story.charge(60, 2, true);
    assert_eq!(story.wrongs(), [""; 0]);

    // then a third one would be too many
    story.state = State::full(&quota);
    story.charge(70, 1, true);
    assert_eq!(
        story.wrongs(),
        ["attempt 7, policy 0 of caller 0: admitted a cost of 1 when at most 0 was left"]
    );
}

/// Seed 20261129: grants without an answer, of which each may have taken all there was, had used up what the checker allows for
/// such charges in a day. So it did not allow for the one of a later minute.
#[test]
fn a_charge_without_an_answer_counts_however_many_there_were_before() {
    let mut story = Story::of(Quota::new(10, Duration::from_secs(1_000)));
    story.charge(1, 10, false);
    for at_s in [11, 21, 31, 41, 51] {
        story.ask_in_vain(at_s, 10);
    }
    // when five units have drained since, of which four are taken
    story.charge(510, 4, false);
    story.charge(520, 8, true);
    assert_eq!(story.wrongs(), [""; 0]);

    // then a wait that is longer than the largest truth is noticed
    let Some(Attempt {
        outcome: Outcome::Decided(last),
        ..
    }) = story.attempts.last_mut()
    else {
        panic!("it was decided");
    };
    last.verdicts[0].retry_after_us += 200 * S;
    last.verdicts[0].reset_after_us += 200 * S;
    assert_eq!(story.wrongs().len(), 1);
}

/// Seed 80: the checker knew to the microsecond when a budget would be cold, and where the price is five times as high a part of a
/// microsecond makes three of them.
#[test]
fn a_part_of_a_microsecond_of_warmth_is_in_the_price() {
    let quota = Quota::per_second(14).burst(12);
    let quota = quota.warm_up(Duration::from_millis(910)).cold_factor(5);
    let mut story = Story::of(quota);
    for (at_us, cost) in [(8_664_912, 7), (13_712_241, 12), (16_047_480, 7)] {
        story.charge_at(at_us, cost, true);
    }
    assert_eq!(story.wrongs(), [""; 0]);
}

/// Seed 106: two debits took more than twice the quota between them, and the bound on debits of unknown time stopped at that.
#[test]
fn debits_at_one_time_take_as_much_as_they_say() {
    for algorithm in [
        Algorithm::SlidingWindow,
        Algorithm::FixedWindow {
            offset: Duration::ZERO,
        },
        Algorithm::SlidingLog,
        Algorithm::Gcra,
    ] {
        let quota = Quota::new(3, Duration::from_secs(20)).using(algorithm);
        // Neither, one and both are no longer of unknown time.
        for lasts_s in [3, 6, 8] {
            let mut story = Story::of(quota);
            let Some((_, receipt)) = story.charge(1, 1, true) else {
                panic!("it was taken");
            };
            story.debit(4, &receipt, 1);
            story.debit(6, &receipt, 8);
            story.charge(4 + lasts_s, 1, true);
            story.charge(25, 1, true);
            assert_eq!(story.wrongs(), [""; 0], "{quota} after {lasts_s} s");
        }
    }
}
