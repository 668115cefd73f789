//! Envoy's rate limit service, asked over a socket by the client that its protocol makes: descriptors, charges and answers.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use tollgate_server::proto::rate_limit_response::Code;
use tollgate_server::proto::rate_limit_response::rate_limit::Unit;

use crate::common::asking::{
    Asker, RULES, account, descriptor, field, hits, request, stating, statuses, user,
};

#[tokio::test]
async fn every_descriptor_has_a_status_also_one_without_a_rule_and_those_are_counted() {
    let mut asker = Asker::of(RULES).await;
    let answer = asker
        .ask([
            account("acme"),
            descriptor(&[("colour", "red")]),
            user("acme", "alice"),
        ])
        .await;
    assert_eq!(answer.overall_code(), Code::Ok);
    assert_eq!(
        statuses(&answer),
        [
            "OK 9 of 10 account per HOUR",
            "OK",
            "OK 2 of 3 user per HOUR"
        ]
    );
    assert_eq!(
        answer.statuses[0].duration_until_reset.unwrap().seconds,
        360
    );

    let mut elsewhere = request([account("acme"), account("acme")]);
    elsewhere.domain = "other".to_owned();
    let answer = asker.send(elsewhere).await.unwrap();
    assert_eq!(
        (answer.overall_code(), answer.statuses.len()),
        (Code::Ok, 2)
    );
    let counts = asker.served.gateway.counts();
    assert_eq!(
        (
            counts.passed,
            counts.unknown_descriptors,
            counts.unknown_domains
        ),
        (2, 1, 1)
    );
}

#[tokio::test]
async fn all_descriptors_are_charged_or_none_is() {
    let mut asker = Asker::of(RULES).await;
    let call = || [account("acme"), user("acme", "alice")];
    for _ in 0..3 {
        assert_eq!(asker.ask(call()).await.overall_code(), Code::Ok);
    }
    let refused = asker.ask(call()).await;
    assert_eq!(refused.overall_code(), Code::OverLimit);
    // The account has room, and pays nothing for the call of its user.
    assert_eq!(
        statuses(&refused),
        [
            "OK 7 of 10 account per HOUR",
            "OVER_LIMIT 0 of 3 user per HOUR"
        ]
    );
    assert_eq!(asker.left(account("acme")).await, 7);
    // The time is that at which the call would pass.
    let wait = refused.statuses[1].duration_until_reset.unwrap().seconds;
    assert_eq!((wait, field(&refused, "retry-after")), (1200, Some("1200")));
    assert_eq!(field(&refused, "ratelimit"), Some("\"user\";r=0;t=1200"));
    assert_eq!(
        field(&refused, "ratelimit-policy"),
        Some("\"account\";q=10;w=3600, \"user\";q=3;w=3600")
    );
    assert_eq!(
        field(&refused, "content-type"),
        Some("application/problem+json")
    );
    assert_eq!(field(&refused, "cache-control"), Some("no-store"));
    let problem: serde_json::Value = serde_json::from_slice(&refused.raw_body).unwrap();
    assert_eq!(problem["violated-policies"], serde_json::json!(["user"]));
    assert_eq!(asker.served.gateway.counts().refused, 1);
}

#[tokio::test]
async fn descriptors_of_one_budget_are_one_charge_of_all_their_hits() {
    let mut asker = Asker::of(RULES).await;
    let twice = [account("acme"), account("acme"), account("emca")];
    let answer = asker.ask(twice).await;
    assert_eq!(
        statuses(&answer),
        [
            "OK 8 of 10 account per HOUR",
            "OK 8 of 10 account per HOUR",
            "OK 9 of 10 account per HOUR"
        ]
    );
    // Together they ask for more than there is.
    let over = asker
        .ask([hits(account("acme"), 5), hits(account("acme"), 4)])
        .await;
    assert_eq!(statuses(&over), ["OVER_LIMIT 0 of 10 account per HOUR"; 2]);
    assert_eq!(asker.left(account("acme")).await, 8);
}

#[tokio::test]
async fn hits_are_those_of_the_descriptor_or_else_of_the_request_of_which_0_means_one() {
    let mut asker = Asker::of(RULES).await;
    let of_request = |number: u32| {
        let mut request = request([account("acme"), hits(account("emca"), 4)]);
        request.hits_addend = number;
        request
    };
    let (none, three) = (of_request(0), of_request(3));
    let answer = asker.send(none).await.unwrap();
    assert_eq!(
        statuses(&answer),
        ["OK 9 of 10 account per HOUR", "OK 6 of 10 account per HOUR"]
    );
    let answer = asker.send(three).await.unwrap();
    assert_eq!(
        statuses(&answer),
        ["OK 6 of 10 account per HOUR", "OK 2 of 10 account per HOUR"]
    );
    // An explicit 0 is a look: it takes nothing, and passes also when nothing is left.
    asker.ask([hits(account("acme"), 6)]).await;
    let look = asker.ask([hits(account("acme"), 0)]).await;
    assert_eq!(statuses(&look), ["OK 0 of 10 account per HOUR"]);
    assert_eq!(look.overall_code(), Code::Ok);
    // More than a budget ever holds never passes, and no time is told.
    let never = asker
        .ask([
            hits(account("new"), u64::MAX),
            hits(account("new"), u64::MAX),
        ])
        .await;
    assert_eq!(statuses(&never), ["OVER_LIMIT 0 of 10 account per HOUR"; 2]);
    assert_eq!(never.statuses[0].duration_until_reset, None);
    assert_eq!(field(&never, "retry-after"), None);
    assert_eq!(asker.left(account("new")).await, 10);
}

#[tokio::test]
async fn a_gateway_may_state_a_limit_of_its_own() {
    let mut asker = Asker::of(RULES).await;
    let answer = asker
        .ask([stating(account("acme"), 1000, Unit::Hour)])
        .await;
    assert_eq!(statuses(&answer), ["OK 999 of 1000 account per HOUR"]);
    let answer = asker.ask([stating(account("acme"), 5, Unit::Minute)]).await;
    // What was spent stays spent: a part of a unit here.
    assert_eq!(statuses(&answer), ["OK 3 of 5 account per MINUTE"]);
    // A limit of 0 refuses, and no waiting helps.
    let nothing = asker
        .ask([
            stating(account("acme"), 0, Unit::Day),
            user("acme", "alice"),
        ])
        .await;
    assert_eq!(nothing.overall_code(), Code::OverLimit);
    assert_eq!(statuses(&nothing)[0], "OVER_LIMIT");
    assert!(nothing.raw_body.is_empty() && field(&nothing, "retry-after").is_none());
    assert_eq!(asker.left(user("acme", "alice")).await, 3);

    let wrong = request([stating(account("a"), 5, Unit::Unknown)]);
    assert_eq!(
        asker.wrong(wrong).await,
        "InvalidArgument: descriptor 1: it states a limit in unit 0: the units are 1 (SECOND) to 7 (WEEK)"
    );
}

#[tokio::test]
async fn a_report_is_debited_and_refuses_nothing() {
    let mut asker = Asker::of(RULES).await;
    let report = |number| {
        hits(
            descriptor(&[("used", "tokens"), ("account", "acme")]),
            number,
        )
    };
    let answer = asker.ask([report(4)]).await;
    // The status is that from before: a report decides nothing.
    assert_eq!(
        (answer.overall_code(), &*statuses(&answer)[0]),
        (Code::Ok, "OK 10 of 10 account per HOUR")
    );
    assert_eq!(asker.left(account("acme")).await, 6);
    // More than there is makes a debt, which lasts: three and a half hours for the 35 too many, and a part for one.
    assert_eq!(asker.ask([report(41)]).await.overall_code(), Code::Ok);
    let refused = asker.ask([account("acme")]).await;
    assert_eq!(statuses(&refused), ["OVER_LIMIT 0 of 10 account per HOUR"]);
    assert_eq!(field(&refused, "retry-after"), Some("12960"));
    // What was spent was spent, whatever becomes of the request.
    let refused = asker.ask([account("acme"), report(10)]).await;
    assert_eq!(refused.overall_code(), Code::OverLimit);
    assert_eq!(asker.served.gateway.counts().lost_reports, 0);
    let refused = asker.ask([account("acme")]).await;
    assert_eq!(field(&refused, "retry-after"), Some("16560"));
}

#[tokio::test]
async fn a_policy_on_trial_is_shown_and_never_refuses() {
    let mut asker = Asker::of(RULES).await;
    let trial = || descriptor(&[("trial", "x")]);
    asker.ask([trial()]).await;
    let over = asker.ask([trial(), account("acme")]).await;
    assert_eq!(over.overall_code(), Code::Ok);
    assert_eq!(
        statuses(&over),
        ["OK 0 of 1 trial per HOUR", "OK 9 of 10 account per HOUR"]
    );
    // Callers are told nothing of a trial.
    assert_eq!(
        field(&over, "ratelimit-policy"),
        Some("\"account\";q=10;w=3600")
    );
}

#[tokio::test]
async fn a_policy_of_several_quotas_makes_a_charge_of_each() {
    let rules = [
        ("pair", r#"{ hour = "5/h", day = "6/day" }"#),
        ("log", r#""5/h sliding-log""#),
        ("month", r#""5/month in Europe/Berlin""#),
    ];
    let rules = rules.map(|(name, quotas)| {
        format!(
            "[[policies]]\nname = '{name}'\nquotas = {quotas}\non_demand = true\n\
             [[envoy]]\ndomain = 'shop'\ndescriptor = [{{ key = '{name}' }}]\npolicy = '{name}'\n"
        )
    });
    let mut asker = Asker::of(&rules.concat()).await;
    let one = |key: &str, value: &str| descriptor(&[(key, value)]);
    // The tightest of both is shown.
    let answer = asker.ask([one("pair", "alice")]).await;
    assert_eq!(statuses(&answer), ["OK 4 of 5 pair-hour per HOUR"]);
    let many = |count: usize| request((0..count).map(|number| one("pair", &number.to_string())));
    assert!(asker.send(many(16)).await.is_ok());
    let refused = asker.ask(many(17).descriptors).await;
    assert_eq!(refused.overall_code(), Code::OverLimit);

    // A stated limit is counted as the policy counts, if that can be.
    let stated = stating(one("log", "alice"), 7, Unit::Hour);
    assert_eq!(
        statuses(&asker.ask([stated]).await),
        ["OK 6 of 7 log per HOUR"]
    );
    let too_many = asker
        .wrong(request([stating(one("log", "alice"), 100_000, Unit::Hour)]))
        .await;
    assert!(
        too_many.starts_with("InvalidArgument: it states a limit of 100000 per HOUR: "),
        "{too_many}"
    );
    let stated = stating(one("month", "alice"), 7, Unit::Month);
    assert_eq!(
        statuses(&asker.ask([stated]).await),
        ["OK 6 of 7 month per MONTH"]
    );
}
