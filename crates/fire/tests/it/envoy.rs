//! Answers through Envoy that follow from the decisions of the gateway process, and such that do not.

use std::time::Duration;

use tollgate_core::{Call, Quota, State, Timestamp, decide};
use tollgate_fire::{
    AskedCharge, Asker, Asking, Attempt, Budget, Door, ENVOY_PROCESS, GATEWAY_PROCESS, History,
    HttpAnswer, Manner, Outcome, Population, Verb, Wait, check,
};

const MS: u64 = 1_000;
const S: u64 = 1_000 * MS;
const START_US: u64 = 1_795_380_000 * S;

/// Two in a hundred seconds.
fn quota() -> Quota {
    Quota::new(2, Duration::from_secs(100))
}

/// Three requests, a second apart: two pass, and one is refused.
fn three() -> Vec<Attempt> {
    let (quota, mut state) = (quota(), State::full(&quota()));
    let population = Population::with(1, vec![quota]);
    let budget = Budget {
        policy: 0,
        caller: 0,
    };
    let asked = [AskedCharge {
        budget,
        cost: 1,
        manner: Manner::Enforce,
    }];
    let attempts = [
        (200, Some(1), None),
        (200, Some(0), None),
        (429, Some(0), Some(48)),
    ];
    let attempts = (0..)
        .zip(attempts)
        .map(|(number, (status, left, retry_after_s))| {
            let sent_us = START_US + number * S;
            let keys = [population.key(0)];
            let charges = population.charges(&asked, &keys);
            let at = Timestamp::from_micros(sent_us + MS);
            let decision = decide(at, Call::of(&charges), std::slice::from_mut(&mut state));
            let asker = Asker {
                process: 0,
                door: Door::Envoy,
            };
            let verb = Verb::Decide(asked.to_vec());
            Attempt {
                told: Some(HttpAnswer {
                    status,
                    retry_after_s,
                    remaining: vec![left],
                    settled: vec![None],
                }),
                asking: Some(Asking {
                    asked_us: sent_us + MS,
                    answered_us: sent_us + MS,
                }),
                question: Some(number),
                ..Attempt::plain(
                    asker,
                    verb,
                    sent_us,
                    sent_us + 2 * MS,
                    Outcome::of(&Ok(decision)),
                )
            }
        });
    attempts.collect()
}

fn history(attempts: Vec<Attempt>) -> History {
    History {
        quotas: vec![quota()],
        attempts,
        deadline_us: Some(250 * MS),
        ..History::default()
    }
}

fn wrongs(history: &History) -> Vec<String> {
    let findings = check(history);
    findings.wrong.iter().map(ToString::to_string).collect()
}

/// The outcome of one attempt of the three, changed.
fn with(attempt: usize, change: impl FnOnce(&mut Attempt)) -> History {
    let mut attempts = three();
    change(&mut attempts[attempt]);
    history(attempts)
}

fn says(attempt: &mut Attempt, status: u16) {
    attempt.told = Some(HttpAnswer {
        status,
        retry_after_s: None,
        remaining: vec![None],
        settled: vec![None],
    });
}

fn away(history: History, process: u32, from_us: u64, to_us: u64) -> History {
    let wait = Wait {
        process,
        from_us: START_US + from_us,
        to_us: START_US + to_us,
    };
    History {
        away: vec![wait],
        waits: vec![wait],
        ..history
    }
}

#[test]
fn answers_that_follow_from_the_decisions_are_possible() {
    let findings = check(&history(three()));

    assert_eq!(wrongs(&history(three())), [""; 0]);
    assert_eq!(
        (
            findings.through_envoy.passed,
            findings.through_envoy.refused
        ),
        (2, 1)
    );
    assert_eq!(findings.over_http, 0);
    // Fields name the policy that has least left, which may be another.
    assert_eq!(wrongs(&with(0, |it| says(it, 200))), [""; 0]);
}

#[test]
fn an_answer_that_does_not_follow_from_the_decision_is_caught() {
    for (attempt, status) in [(0, 429), (2, 200), (0, 500), (2, 500), (0, 503)] {
        let wrongs = wrongs(&with(attempt, |it| says(it, status)));
        assert_eq!(wrongs.len(), 1, "{status} to {attempt}: {wrongs:?}");
    }
    let told = |attempt: usize, change: fn(&mut HttpAnswer)| {
        with(attempt, |it| {
            if let Some(told) = &mut it.told {
                change(told);
            }
        })
    };
    let changed = [
        told(0, |told| told.remaining = vec![Some(2)]),
        told(2, |told| told.retry_after_s = Some(47)),
        told(2, |told| told.retry_after_s = None),
        with(0, |it| it.told = None),
    ];
    for changed in changed {
        assert_eq!(wrongs(&changed).len(), 1, "{:?}", changed.attempts);
    }
}

#[test]
fn an_answer_without_a_decision_is_caught_and_a_failure_is_none() {
    let lost = || Outcome::Unknown("only 500 was said".to_owned());
    let undecided = |status, is_ruled: bool| {
        with(1, |it| {
            says(it, status);
            it.outcome = lost();
            it.asking = it.asking.filter(|_| is_ruled);
        })
    };
    for status in [200, 429, 500] {
        assert_eq!(wrongs(&undecided(status, false)).len(), 1, "{status}");
    }
    // The gateway process has written down that its backend failed.
    let failed = undecided(500, true);
    assert_eq!(wrongs(&failed), [""; 0]);
    assert_eq!(check(&failed).through_envoy.undecided, 1);
    assert_eq!(wrongs(&undecided(200, true)).len(), 1);
}

#[test]
fn a_gateway_or_an_envoy_that_is_away_explains_a_question_without_an_answer() {
    for process in [GATEWAY_PROCESS, ENVOY_PROCESS] {
        let cut_off = |from_us, to_us| {
            let history = with(1, |it| says(it, 500));
            away(history, process, from_us, to_us)
        };
        let meanwhile = cut_off(S + MS, S + 300 * MS);
        assert_eq!(wrongs(&meanwhile), [""; 0]);
        let findings = check(&meanwhile).through_envoy;
        assert_eq!((findings.cut_off, findings.decided_in_vain), (1, 1));
        for (from_us, to_us) in [(S / 2, S - MS), (S + 3 * MS, 2 * S)] {
            assert_eq!(wrongs(&cut_off(from_us, to_us)).len(), 1, "{from_us}");
        }
    }
}

#[test]
fn a_question_may_be_decided_after_envoys_patience_but_not_after_the_gateway_has_told() {
    let late = |told_us: u64| {
        let history = with(1, |it| {
            says(it, 500);
            it.sent_us -= S / 2;
            it.heard_us = it.sent_us + S / 10;
            it.asking = Some(Asking {
                asked_us: it.sent_us + MS,
                answered_us: START_US + told_us,
            });
        });
        away(history, GATEWAY_PROCESS, S / 2, S)
    };
    assert_eq!(wrongs(&late(S + MS)), [""; 0]);
    assert_eq!(wrongs(&late(S / 2 + 2 * MS)).len(), 1);
}

#[test]
fn an_answer_that_does_not_come_is_caught() {
    let hangs = |took_us: u64| {
        with(2, |it| {
            says(it, 500);
            it.heard_us = it.sent_us + took_us;
        })
    };
    // Envoy's own timeout explains nothing by itself.
    assert_eq!(wrongs(&hangs(S)).len(), 1);
    let kept = |took_us, kept_us| {
        let history = hangs(took_us);
        let wait = Wait {
            process: GATEWAY_PROCESS,
            from_us: START_US + 2 * S,
            to_us: START_US + 2 * S + kept_us,
        };
        History {
            waits: vec![wait],
            ..history
        }
    };
    assert_eq!(wrongs(&kept(S, 250 * MS)), [""; 0]);
    assert_eq!(wrongs(&kept(S, 200 * MS)).len(), 1);
    // Nor does it explain that no answer comes at all.
    let silent = |took_us: u64| {
        let mut history = kept(took_us, 0);
        for attempt in &mut history.attempts[2..] {
            attempt.told = None;
        }
        history
    };
    assert_eq!(wrongs(&silent(5 * S)).len(), 2);
}
