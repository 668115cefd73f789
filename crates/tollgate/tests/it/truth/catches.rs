//! Each way around that once was open, opened again by a policy or a layer that reads as little as it did then: the judge sees
//! it. It says nothing of the same policy without the weakness, so that it is the weakness that it sees.

use http::Method;
use tollgate::OnMissing;

use crate::truth::book::Place;
use crate::truth::campaign::{Campaign, Case, Report, runtime};
use crate::truth::judge::{Kind, Look, Wrong};
use crate::truth::policies::{NAMED, Rule};
use crate::truth::readings::Who;
use crate::truth::services::Grpc;
use crate::truth::weaknesses::Weakness;

/// Always the same services, and so many of them that each weakness shows several times.
const SEED: u64 = 15;
const SERVICES: usize = 30;
const GRPC: Grpc = Grpc {
    health: false,
    interceptor: false,
    web: false,
    is_nested: false,
    weak_messages: false,
};

/// The findings if services have this policy, and no other.
fn wrongs(rule: &Rule, change: impl Fn(&mut Case)) -> Vec<Wrong> {
    let campaign = Campaign::of(SEED);
    let runtime = runtime();
    let asked = (0..SERVICES).flat_map(|number| {
        let mut case = campaign.case(number);
        case.rules = vec![rule.clone()];
        case.spec.grpc = Some(GRPC);
        change(&mut case);
        case.ask(&runtime, &mut Report::default())
    });
    asked.collect()
}

/// The findings with the weakness. Without it there are none.
fn seen(rule: &Rule, weakness: Weakness) -> Vec<Wrong> {
    let sound = wrongs(rule, |_| {});
    assert!(sound.is_empty(), "{:?}", sound.first());
    let weak = Rule {
        weakness: Some(weakness),
        ..rule.clone()
    };
    wrongs(&weak, |_| {})
}

/// Asserts that the judge saw this.
#[track_caller]
fn assert_seen(seen: &[Wrong], is_it: impl Fn(&Kind, Place) -> bool) {
    let mut wrongs = seen.iter();
    assert!(
        wrongs.any(|wrong| is_it(&wrong.kind, wrong.place)),
        "{:?}",
        seen.first()
    );
}

fn per(who: Who) -> Rule {
    Rule {
        who,
        ..Rule::every("policy")
    }
}

#[test]
fn the_judge_catches_calls_of_grpc_that_are_free_because_they_look_like_preflights() {
    let rule = Rule {
        grpc: vec!["shop.v1.*"],
        ..per(Who::Peer)
    };

    let seen = seen(&rule, Weakness::LooksLikeAPreflight);

    assert_seen(&seen, |kind, place| {
        *kind == Kind::Uncharged(Who::Peer, Look::Preflight) && place.is_grpc
    });
}

#[test]
fn the_judge_catches_preflights_that_reach_a_handler_for_free() {
    let rule = per(Who::Peer);

    let seen = seen(&rule, Weakness::LooksLikeAPreflight);

    for handler in ["any", "options", "fallback", "method/fallback"] {
        assert_seen(&seen, |kind, place| {
            *kind == Kind::Uncharged(Who::Peer, Look::Preflight) && place.name == handler
        });
    }
}

#[test]
fn the_judge_catches_preflights_that_another_caller_pays_for_at_an_annotated_handler() {
    let rule = Rule {
        on_demand: true,
        ..Rule::every(NAMED)
    };
    let rule = Rule {
        who: Who::Peer,
        ..rule
    };

    let seen = seen(&rule, Weakness::LooksLikeAPreflight);

    assert_seen(&seen, |kind, place| {
        *kind == Kind::TwoBudgets(Who::Peer) && place.own == Some(NAMED)
    });
}

#[test]
fn the_judge_catches_messages_that_are_free_because_of_what_their_call_says_it_is() {
    let rule = Rule {
        grpc: vec!["shop.v1.*"],
        per_message: true,
        ..Rule::every("messages")
    };

    let sound = wrongs(&rule, |_| {});
    let weak = Grpc {
        weak_messages: true,
        ..GRPC
    };
    let seen = wrongs(&rule, |case| case.spec.grpc = Some(weak));

    assert!(sound.is_empty(), "{:?}", sound.first());
    assert_seen(&seen, |kind, _| *kind == Kind::FreeMessages);
}

#[test]
fn the_judge_catches_what_is_free_because_its_path_begins_like_a_health_check() {
    let rule = Rule {
        exempts_health_checks: true,
        ..per(Who::Peer)
    };

    let seen = seen(&rule, Weakness::LooksLikeAHealthCheck);

    assert_seen(&seen, |kind, place| {
        *kind == Kind::Uncharged(Who::Peer, Look::HealthCheck) && !place.is_grpc
    });
}

#[test]
fn the_judge_catches_one_cookie_in_two_spellings_as_two_callers() {
    let seen = seen(&per(Who::Cookie), Weakness::CookieAsSent);

    assert_seen(&seen, |kind, _| *kind == Kind::TwoBudgets(Who::Cookie));
}

#[test]
fn the_judge_catches_a_caller_who_is_there_twice_and_passes_for_nobody() {
    let rule = Rule {
        on_missing: OnMissing::Pass,
        ..per(Who::Query)
    };

    let seen = seen(&rule, Weakness::TwiceIsNone);

    assert_seen(&seen, |kind, _| {
        matches!(kind, Kind::Uncharged(Who::Query, _))
    });
}

#[test]
fn the_judge_catches_a_second_host_that_switches_a_policy_off() {
    let rule = Rule {
        hosts: vec!["api.example.com"],
        methods: vec![Method::GET, Method::POST],
        ..per(Who::Peer)
    };

    let seen = seen(&rule, Weakness::HostTwiceIsNone);

    assert_seen(&seen, |kind, _| {
        *kind == Kind::Uncharged(Who::Peer, Look::Host)
    });
}

#[test]
fn the_judge_catches_blanks_around_a_header_as_another_caller() {
    let seen = seen(&per(Who::Header), Weakness::HeaderAsSent);

    assert_seen(&seen, |kind, _| *kind == Kind::TwoBudgets(Who::Header));
}
