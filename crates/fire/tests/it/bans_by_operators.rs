//! Tests of the checker on bans and pardons by operators, and on strikes by responses: what core does is possible, under faults
//! too, and each way to do it wrongly is caught.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use tollgate_core::{Call, Quota, State, Timestamp, decide};
use tollgate_fire::{Guarded, History, Knock, OperatorAct, OperatorCall, Outcome, Population};

use crate::banned::{Defect, SEEDS, START_US, Trial, judged};

#[test]
fn what_operators_do_and_responses_that_are_strikes_are_possible_and_all_is_judged_strictly() {
    for seed in SEEDS {
        let found = judged(&Trial::operated(seed, Defect::None).run(false));

        assert_eq!(found.wrong, [""; 0], "seed {seed}");
        assert_eq!((found.after_loss, found.after_step), (0, 0), "seed {seed}");
        assert!(
            found.by_hand > 15 && found.lengthened > 2 && found.kept_longer > 0,
            "seed {seed}: {found:?}"
        );
        assert!(
            found.pardoned > 2 && found.by_response > 10 && found.begun > 0,
            "seed {seed}: {found:?}"
        );
        assert!(found.in_doubt * 20 < found.strict, "seed {seed}: {found:?}");
    }
}

#[test]
fn what_operators_do_and_responses_that_are_strikes_are_possible_under_faults() {
    let (mut strict, mut decided) = (0, 0);
    for seed in SEEDS {
        let found = judged(&Trial::operated(seed, Defect::None).run(true));

        assert_eq!(found.wrong, [""; 0], "seed {seed}");
        strict += found.strict;
        decided += found.knocks + found.by_hand;
    }
    assert!(strict * 2 > decided, "{strict} of {decided}");
}

/// The number of seeds at which a defect is caught.
fn caught(defect: Defect, are_faulty: bool) -> usize {
    let caught = SEEDS.filter(|seed| {
        let found = judged(&Trial::operated(*seed, defect).run(are_faulty));
        !found.wrong.is_empty()
    });
    caught.count()
}

#[test]
fn every_way_to_ban_or_to_pardon_or_to_strike_wrongly_is_caught() {
    for defect in Defect::BY_HAND {
        let caught = caught(defect, false);
        assert!(caught * 4 > 3 * SEEDS.count(), "{defect:?}: {caught}");
    }
}

#[test]
fn every_way_to_ban_or_to_pardon_or_to_strike_wrongly_is_caught_under_faults() {
    for defect in Defect::BY_HAND {
        let caught = caught(defect, true);
        assert!(caught > 10, "{defect:?}: {caught}");
    }
}

/// The ways to break a ban are caught beside operators, too.
#[test]
fn every_way_to_break_a_ban_is_caught_beside_operators() {
    for defect in Defect::ALL {
        let caught = caught(defect, false);
        assert!(caught * 4 > 3 * SEEDS.count(), "{defect:?}: {caught}");
    }
}

/// One call carries a request that is banned, a pardon, and a request that is not.
#[test]
fn a_pardon_in_the_middle_of_a_call_ends_the_ban_of_those_before_it() {
    // given a ban by strikes, and a call
    let population = Population::of(1);
    let guarded = Guarded::of(&population, 0, true);
    let mut states = guarded.charges().map(|charge| State::full(charge.quota));
    let mut knocks = Vec::new();
    let mut knock = |at_us: u64, states: &mut [State; 2]| {
        let at_us = START_US + at_us;
        let at = Timestamp::from_micros(at_us);
        let decision = decide(at, Call::of(&guarded.charges()), &mut states[..]);
        let is_banned = decision.verdicts()[1].is_denied();
        knocks.push(Knock {
            process: 0,
            caller: 0,
            is_important: true,
            sent_us: at_us,
            heard_us: at_us + 100,
            outcome: Outcome::of(&Ok(decision)),
            fails: false,
            status: None,
        });
        is_banned
    };
    for at_us in 0..11 {
        knock(at_us, &mut states);
    }
    assert!(knock(5_000, &mut states));
    states[1] = State::full(&Quota::from(Guarded::BAN));
    assert!(!knock(5_000, &mut states));
    let pardon = OperatorCall {
        process: 0,
        caller: 0,
        act: OperatorAct::Unban,
        sent_us: START_US + 4_990,
        heard_us: START_US + 5_010,
        outcome: Outcome::Reset,
    };

    // when their answers are recorded in either order
    let last = knocks.len() - 1;
    for _ in 0..2 {
        let with = |operated: Vec<OperatorCall>| History {
            knocks: knocks.clone(),
            operated,
            ..History::default()
        };

        // then it is possible with the pardon, and not without
        let found = judged(&with(vec![pardon.clone()]));
        assert_eq!(found.wrong, [""; 0]);
        assert_eq!((found.knocks, found.pardoned), (13, 1));
        assert_eq!(judged(&with(Vec::new())).wrong.len(), 1);
        knocks.swap(last - 1, last);
    }
}

/// A history with one change.
fn changed(change: impl FnOnce(&mut History)) -> Vec<String> {
    let mut history = Trial::operated(1, Defect::None).run(false);
    change(&mut history);
    judged(&history).wrong
}

fn last_ban(history: &mut History) -> &mut OperatorCall {
    let mut calls = history.operated.iter_mut().rev();
    let is_ban = |call: &&mut OperatorCall| matches!(call.act, OperatorAct::Ban { lasting_us } if lasting_us > 300_000);
    calls.find(is_ban).unwrap()
}

#[test]
fn every_number_of_a_ban_by_hand_that_is_changed_is_caught() {
    type Change = fn(&mut tollgate_fire::DecisionRecord);
    let changes: [Change; 5] = [
        |decided| decided.verdicts[0].reset_after_us += 1,
        |decided| decided.verdicts[0].reset_after_us -= 1,
        |decided| decided.verdicts[0].remaining = 1,
        |decided| decided.verdicts[0].taken = 0,
        |decided| decided.admitted = false,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let wrong = changed(|history| match &mut last_ban(history).outcome {
            Outcome::Decided(decided) => change(decided),
            other => panic!("{other:?}"),
        });

        assert!(!wrong.is_empty(), "change {number}");
    }
}

#[test]
fn a_call_of_an_operator_that_was_not_made_or_failed_and_was_done_is_caught() {
    let is_pardon = |call: &OperatorCall| call.act == OperatorAct::Unban;
    let none_pardons = changed(|history| history.operated.retain(|call| !is_pardon(call)));
    let none_bans = changed(|history| history.operated.retain(is_pardon));
    let all_fail = changed(|history| {
        for call in &mut history.operated {
            call.outcome = Outcome::Failed("refused".to_owned());
        }
    });

    for wrong in [none_pardons, none_bans, all_fail] {
        assert_eq!(wrong.len(), 1, "{wrong:?}");
    }
}

#[test]
fn an_answer_of_a_service_that_its_limiter_did_not_give_is_caught() {
    let statuses = [(401, 200), (200, 401), (429, 401), (200, 429)];
    for (told, other) in statuses {
        let wrong = changed(|history| {
            let mut knocks = history.knocks.iter_mut();
            let knock = knocks.find(|knock| knock.status == Some(told)).unwrap();
            knock.status = Some(other);
        });

        assert!(wrong[0].starts_with("knock not answered"), "{wrong:?}");
    }
}

/// A knock that passes by its limiter, and a ban that is told and never asked for, leave no decision behind.
#[test]
fn an_answer_without_a_decision_is_caught() {
    let unasked = || Outcome::Failed(Outcome::UNASKED.to_owned());
    let let_in = |outcome: Outcome, status: u16| {
        changed(|history| {
            let knock = history.knocks[9].clone();
            history.knocks.push(Knock {
                outcome,
                status: Some(status),
                ..knock
            });
        })
    };
    let banned = changed(|history| {
        let call = last_ban(history).clone();
        history.operated.push(OperatorCall {
            outcome: unasked(),
            ..call
        });
    });

    assert_eq!(let_in(unasked(), 503), [""; 0]);
    let lost = || Outcome::Unknown("lost".to_owned());
    for wrong in [let_in(unasked(), 200), let_in(lost(), 200)] {
        assert!(wrong[0].starts_with("knock not answered"), "{wrong:?}");
    }
    assert!(banned[0].starts_with("ban by hand that no"), "{banned:?}");
}
