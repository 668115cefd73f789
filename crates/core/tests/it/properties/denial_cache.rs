//! Denials that are known: whatever others have charged since the state was told, the server would have denied as well.

use std::time::Duration;

use proptest::prelude::*;
use tollgate_core::{
    Ban, Call, Charge, Concurrent, Decision, Key, Mode, Once, Quota, Scope, State, Timestamp,
    Verdict, decide, deny_by_known,
};

use crate::support::budget::{Budget, warms_up};
use crate::support::history::History;
use crate::support::quotas;
use crate::support::runner::check;
use crate::support::steps::{amounts, charges, spans, starts, steps};

fn at(us: u64) -> Timestamp {
    Timestamp::from_micros(us)
}

/// The denial of a charge that a state makes certain between two times.
fn known(quota: &Quota, cost: u64, state: &State, from: u64, to: u64) -> Option<Decision> {
    let charge = Charge {
        scope: Scope::of("known", 0, quota),
        quota,
        key: &Key::from("alice"),
        cost,
        mode: Mode::Enforce,
    };
    deny_by_known(
        at(from),
        at(to),
        Call::of(&[charge]),
        std::slice::from_ref(state),
    )
}

#[test]
fn what_is_known_to_be_denied_would_be_denied_whatever_was_charged_since() {
    let inputs = (
        (quotas::any(), starts(), steps(0..24)),
        (charges(0..8), spans(), amounts()),
        (0_u64..4, 0_u64..4),
    );
    check(
        6_000,
        &inputs,
        |((quota, start, steps), (since, span, cost), margins)| {
            // Where units cost less once others have come, another's charge may let one pass: see `warming`.
            prop_assume!(!warms_up(&quota));
            let mut history = History::after(quota, start, &steps);
            let told = history.budget.state.clone();
            let told_at = history.now;
            for step in since {
                history.step(step);
            }
            history.now += span.micros(&quota, history.now);
            let now = history.now;
            let cost = cost.units(&history.budget, now);

            let (earliest, latest) = (now.saturating_sub(margins.0).max(told_at), now + margins.1);
            if let Some(denied) = known(&quota, cost, &told, earliest, latest) {
                let truth = history.budget.if_charged(now, cost);
                prop_assert!(
                    truth.is_denied(),
                    "{cost} passes, and was known to be denied"
                );
                prop_assert!(denied.is_known() && !denied.is_admitted());
            }
            Ok(())
        },
    );
}

#[test]
fn without_anything_in_between_it_is_the_decision_of_that_moment_and_none_is_missed() {
    let histories = (quotas::any(), starts(), steps(0..24), spans(), amounts());
    check(6_000, &histories, |(quota, start, steps, span, cost)| {
        let history = History::after(quota, start, &steps);
        let now = history.now + span.micros(&quota, history.now);
        let cost = cost.units(&history.budget, now);
        let truth = history.budget.if_charged(now, cost);

        let denied = known(&quota, cost, &history.budget.state, now, now);

        let verdict = denied.map(|denied| denied.verdicts()[0]);
        prop_assert_eq!(verdict, truth.is_denied().then_some(truth));
        Ok(())
    });
}

/// The last microsecond before a cost passes, and the first in which it does.
#[test]
fn it_is_known_until_the_latest_time_is_the_one_at_which_the_cost_passes() {
    let quota = Quota::per_second(10).burst(2);
    let mut budget = Budget::full(quota);
    assert!(budget.charge(1_000, 2).0.is_allowed());
    let known = |from, to| known(&quota, 1, &budget.state, from, to);

    let passes_at = 1_000 + 100_000;
    let denied = known(1_000, passes_at - 1).unwrap();
    assert_eq!(denied.retry_after(), Some(Duration::from_micros(100_000)));
    let denied = known(90_000, passes_at - 1).unwrap();
    assert_eq!(denied.retry_after(), Some(Duration::from_micros(11_000)));
    assert!(known(1_000, passes_at).is_none());
    assert!(known(passes_at, passes_at).is_none());
}

#[test]
fn another_cost_and_another_quota_are_judged_by_themselves() {
    let quota = Quota::per_hour(10);
    let mut budget = Budget::full(quota);
    assert!(budget.charge(0, 4).0.is_allowed());
    let is_known = |quota: &Quota, cost| known(quota, cost, &budget.state, 1, 2).is_some();

    assert!(is_known(&quota, 10) && is_known(&quota, 7));
    assert!(!is_known(&quota, 6) && !is_known(&quota, 1) && !is_known(&quota, 0));
    assert!(!is_known(&Quota::per_hour(20), 10));
    // Four of ten are 24 minutes of an hour, and four of six are 40.
    assert!(is_known(&Quota::per_hour(6), 4) && !is_known(&Quota::per_hour(6), 3));
    // More than there ever is.
    assert!(known(&quota, 11, &budget.state, 1, 2).unwrap().verdicts()[0].never_passes());
}

/// A request with an empty budget, of which nothing more passes, and one more charge.
struct Joint {
    quotas: [Quota; 2],
    modes: [Mode; 2],
    states: [State; 2],
    policies: [&'static str; 2],
}

const NOW: u64 = 1_000_000_000;

impl Joint {
    fn with(other: impl Into<Quota>) -> Self {
        let quotas = [Quota::per_hour(1), other.into()];
        let mut budget = Budget::full(quotas[0]);
        assert!(budget.charge(NOW, 1).0.is_allowed());
        Self {
            states: [budget.state, State::full(&quotas[1])],
            quotas,
            modes: [Mode::Enforce; 2],
            policies: ["login"; 2],
        }
    }

    fn charges<T>(&self, cost: u64, ask: impl FnOnce(&[Charge<'_>]) -> T) -> T {
        let key = Key::from("alice");
        let charge = |n: usize| Charge {
            scope: Scope::of(self.policies[n], n.try_into().unwrap(), &self.quotas[n]),
            quota: &self.quotas[n],
            key: &key,
            cost: if self.quotas[n].is_ban() { 0 } else { cost },
            mode: self.modes[n],
        };
        ask(&[charge(0), charge(1)])
    }

    fn known(&self) -> Option<Decision> {
        self.charges(1, |charges| {
            deny_by_known(at(NOW), at(NOW + 9), Call::of(charges), &self.states)
        })
    }

    fn asked(&self) -> Decision {
        let mut states = self.states.clone();
        self.charges(1, |charges| {
            decide(at(NOW), Call::of(charges), &mut states[..])
        })
    }
}

#[test]
fn of_several_charges_each_is_told_as_the_server_would_tell_it() {
    let mut joint = Joint::with(Quota::per_day(5));
    let denied = joint.known().unwrap();
    assert_eq!(denied.verdicts(), joint.asked().verdicts());
    let is_denied: Vec<_> = { denied.verdicts() }
        .iter()
        .map(Verdict::is_denied)
        .collect();
    assert_eq!(is_denied, [true, false]);

    // None is denied.
    joint.states[0] = State::full(&joint.quotas[0]);
    assert!(joint.known().is_none());
}

#[test]
fn one_that_is_denied_now_and_may_pass_by_the_latest_time_is_the_servers() {
    let quick = Quota::new(1, Duration::from_micros(5));
    let mut joint = Joint::with(quick);
    assert!(joint.known().is_some());
    let mut budget = Budget::full(quick);
    assert!(budget.charge(NOW, 1).0.is_allowed());
    joint.states[1] = budget.state;
    assert!(joint.asked().verdicts()[1].is_denied());

    assert!(joint.known().is_none());
}

#[test]
fn trials_questions_ids_places_and_states_that_are_missing_are_the_servers() {
    for mode in [Mode::Shadow, Mode::Probe] {
        let mut joint = Joint::with(Quota::per_day(5));
        joint.modes[1] = mode;
        assert!(joint.known().is_none(), "{mode:?}");
        joint.modes = [mode, Mode::Enforce];
        assert!(joint.known().is_none(), "{mode:?}");
    }
    assert!(Joint::with(Once::default()).known().is_none());
    assert!(Joint::with(Concurrent::at_most(5)).known().is_none());
    let joint = Joint::with(Quota::per_day(5));
    let known = |charges: &[Charge<'_>]| {
        deny_by_known(at(NOW), at(NOW), Call::of(charges), &joint.states[..1]).is_some()
    };
    assert!(joint.charges(1, |charges| known(&charges[..1]) && !known(charges)));
    // Two charges of one budget.
    let known = |charges: &[Charge<'_>]| {
        deny_by_known(at(NOW), at(NOW), Call::of(&[charges[0]; 2]), &joint.states).is_some()
    };
    assert!(!joint.charges(1, known));
}

#[test]
fn a_denial_that_is_a_strike_is_the_servers_and_one_of_a_banned_caller_is_known() {
    let minute = Duration::from_secs(60);
    let ban = Ban::after(1, minute).lasting(minute);
    let mut joint = Joint::with(ban);
    assert!(joint.known().is_none());
    // Another policy's ban does not count it.
    joint.policies[1] = "mail";
    assert!(joint.known().is_some());
    joint.policies[1] = "login";

    let struck = |joint: &Joint| {
        let mut states = joint.states.clone();
        joint.charges(1, |charges| {
            decide(at(NOW), Call::of(charges), &mut states[..])
        });
        states
    };
    joint.states = struck(&joint);
    assert!(joint.states[1].banned_for(at(NOW)).is_some());
    let denied = joint.known().unwrap();
    assert_eq!(denied.verdicts(), joint.asked().verdicts());
    // The ban is over before the latest time.
    let ended = |charges: &[Charge<'_>]| {
        let (now, end) = (at(NOW), at(NOW + 60_000_000));
        deny_by_known(now, end, Call::of(charges), &joint.states).is_some()
    };
    assert!(!joint.charges(0, ended));

    // A knock begins that ban anew.
    let mut joint = Joint::with(ban.extending());
    joint.states = struck(&joint);
    assert!(joint.asked().verdicts()[1].is_denied());
    assert!(joint.known().is_none());
}

/// A ban hears the denials of its own policy's budgets, and not those of others beside them.
#[test]
fn a_denial_beside_the_budget_that_a_ban_guards_is_no_strike() {
    let minute = Duration::from_secs(60);
    let quotas = [
        Quota::per_hour(1),
        Quota::per_hour(5),
        Ban::after(1, minute).lasting(minute).into(),
    ];
    let key = Key::from("alice");
    let known = |used: usize| {
        let mut states = quotas.map(|quota| State::full(&quota));
        let mut budget = Budget::full(quotas[used]);
        let all = quotas[used].capacity();
        assert!(budget.charge(NOW, all).0.is_allowed());
        states[used] = budget.state;
        let charges = [("login", 0), ("mail", 0), ("mail", 1)].iter().zip(&quotas);
        let charges = charges.map(|(&(policy, slot), quota)| Charge {
            scope: Scope::of(policy, slot, quota),
            quota,
            key: &key,
            cost: u64::from(!quota.is_ban()),
            mode: Mode::Enforce,
        });
        let charges: Vec<_> = charges.collect();
        deny_by_known(at(NOW), at(NOW), Call::of(&charges), &states).is_some()
    };

    assert!(known(0));
    // That of its own policy is.
    assert!(!known(1));
}

/// Alone in its call, as while a caller is looked up: a ban that knocks extend hears the question.
#[test]
fn a_ban_by_itself_is_known_unless_knocks_extend_it() {
    let minute = Duration::from_secs(60);
    let ban = Ban::after(1, minute).lasting(minute);
    for (ban, is_known) in [(ban, true), (ban.extending(), false)] {
        let mut joint = Joint::with(ban);
        let mut states = joint.states.clone();
        joint.charges(1, |charges| {
            decide(at(NOW), Call::of(charges), &mut states[..])
        });
        joint.states = states;
        let alone = |charges: &[Charge<'_>]| {
            let (now, state) = (at(NOW + 1), &joint.states[1..]);
            deny_by_known(now, now, Call::of(&charges[1..]), state).is_some()
        };
        assert_eq!(joint.charges(0, alone), is_known);
    }
}

#[test]
fn as_much_as_there_is_is_denied_if_the_least_is_not_there() {
    let quota = Quota::per_hour(10);
    let mut budget = Budget::full(quota);
    assert!(budget.charge(NOW, 8).0.is_allowed());
    let charge = Charge {
        scope: Scope::of("export", 0, &quota),
        quota: &quota,
        key: &Key::from("alice"),
        cost: 9,
        mode: Mode::Enforce,
    };
    let states = [budget.state];
    let known = |at_least| {
        deny_by_known(
            at(NOW),
            at(NOW),
            Call::of(&[charge]).at_least(at_least),
            &states,
        )
    };
    let asked = decide(
        at(NOW),
        Call::of(&[charge]).at_least(3),
        &mut states.clone()[..],
    );

    assert_eq!(known(3).unwrap().verdicts(), asked.verdicts());
    assert!(known(2).is_none());
}
