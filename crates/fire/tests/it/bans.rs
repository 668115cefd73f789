//! Tests of the checker on bans and classes: what core does is possible, under faults too, and each way to break a ban or to spend
//! a kept share is caught.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use tollgate_core::{Call, State, Timestamp, decide};
use tollgate_fire::{Guarded, History, Knock, Outcome, Population, check};

use crate::banned::{Defect, SEEDS, START_US, STEPS, Trial, judged};

#[test]
fn bans_that_core_keeps_are_possible_and_without_faults_all_is_judged_strictly() {
    for seed in SEEDS {
        let found = judged(&Trial::new(seed, Defect::None).run(false));

        assert_eq!(found.wrong, [""; 0], "seed {seed}");
        assert_eq!(found.strict, STEPS as u64, "seed {seed}");
        assert_eq!(
            (found.after_loss, found.after_step, found.in_doubt),
            (0, 0, 0)
        );
        assert!(
            found.begun > 3 && found.banned > 50 && found.kept_out > 10 && found.from_kept > 10,
            "seed {seed}: {found:?}"
        );
    }
}

#[test]
fn bans_that_core_keeps_are_possible_under_faults_and_most_is_judged_strictly() {
    let mut sums = [0; 5];
    for seed in SEEDS {
        let found = judged(&Trial::new(seed, Defect::None).run(true));

        assert_eq!(found.wrong, [""; 0], "seed {seed}");
        let excused = [found.after_loss, found.after_step, found.in_doubt];
        let these = [found.knocks, found.strict].into_iter().chain(excused);
        for (sum, times) in sums.iter_mut().zip(these) {
            *sum += times;
        }
    }
    let [knocks, strict, ..] = sums;
    assert!(strict * 2 > knocks, "{sums:?}");
    assert!(sums.iter().all(|times| *times > 10), "{sums:?}");
    println!("{sums:?}");
}

#[test]
fn every_way_to_break_a_ban_or_to_spend_what_is_kept_is_caught() {
    for defect in Defect::ALL {
        for seed in SEEDS.take(10) {
            let found = judged(&Trial::new(seed, defect).run(false));

            assert_eq!(found.wrong.len(), 1, "{defect:?}, seed {seed}: {found:?}");
        }
    }
}

#[test]
fn every_way_to_break_a_ban_or_to_spend_what_is_kept_is_caught_under_faults() {
    for defect in Defect::ALL {
        let caught = SEEDS.filter(|seed| {
            let found = judged(&Trial::new(*seed, defect).run(true));
            !found.wrong.is_empty()
        });
        let caught = caught.count();
        println!("{defect:?}: {caught} of {}", SEEDS.count());
        assert!(caught > 10, "{defect:?}: {caught}");
    }
}

/// A number in one answer that is another than core's.
#[test]
fn every_number_that_is_changed_is_caught() {
    type Change = fn(&mut tollgate_fire::DecisionRecord) -> bool;
    let is_banned = |decided: &tollgate_fire::DecisionRecord| !decided.verdicts[1].passes;
    let changes: [Change; 5] = [
        |decided| {
            decided.verdicts[1].remaining += 1;
            true
        },
        |decided| {
            decided.verdicts[0].reset_after_us += 1;
            true
        },
        |decided| {
            decided.verdicts[1].retry_after_us += 1;
            !decided.verdicts[1].passes
        },
        |decided| {
            decided.verdicts[1].retry_after_us -= 1;
            !decided.verdicts[1].passes
        },
        |decided| {
            decided.admitted = !decided.admitted;
            true
        },
    ];
    let history = Trial::new(1, Defect::None).run(false);
    let banned = history
        .knocks
        .iter()
        .rposition(|knock| match &knock.outcome {
            Outcome::Decided(decided) => is_banned(decided),
            _ => false,
        });
    for (number, change) in changes.into_iter().enumerate() {
        let mut history = history.clone();
        let Outcome::Decided(decided) = &mut history.knocks[banned.unwrap()].outcome else {
            panic!("it was decided");
        };

        assert!(change(decided), "change {number}");

        assert!(!judged(&history).wrong.is_empty(), "change {number}");
    }
}

/// A case that was found under fire, with other figures: one call carries the last strike of an unimportant request, and an
/// important one that the ban refuses although its class has room.
#[test]
fn a_ban_that_begins_in_a_call_refuses_the_important_of_that_call() {
    // given requests of which the last two are decided in one call
    let population = Population::of(1);
    let of = |is_important: bool| Guarded::of(&population, 0, is_important);
    let mut states = of(true).charges().map(|charge| State::full(charge.quota));
    let unimportant = (0..9).map(|number| (number, false));
    let knocks = unimportant.chain([(8, true)]).map(|(at_us, is_important)| {
        let at = Timestamp::from_micros(START_US + at_us);
        let decision = decide(at, Call::of(&of(is_important).charges()), &mut states[..]);
        Knock {
            process: 0,
            caller: 0,
            is_important,
            sent_us: START_US + at_us,
            heard_us: START_US + 100,
            outcome: Outcome::of(&Ok(decision)),
            fails: false,
            status: None,
        }
    });
    let mut knocks: Vec<_> = knocks.collect();

    // when their answers are recorded in either order
    for _ in 0..2 {
        let history = History {
            knocks: knocks.clone(),
            ..History::default()
        };
        let findings = check(&history).banned;

        // then the strike comes first
        assert_eq!(findings.wrong, [""; 0]);
        assert_eq!(
            (findings.knocks, findings.begun, findings.banned),
            (10, 1, 1)
        );
        knocks.swap(8, 9);
    }
}
