//! Envoy's rate limit service while it runs: its file, the files of envoy/ratelimit, and its backend.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollgate::key::ClientIp;
use tollgate::{Figure, OnFailure, Policy, RedisBackend, Share};
use tollgate_server::proto::RateLimitRequest;
use tollgate_server::proto::rate_limit_response::Code;
use tollgate_server::proto::rate_limit_response::rate_limit::Unit;
use tollgate_server::proto::rate_limit_service_client::RateLimitServiceClient;
use tollgate_testkit::Standalone;
use tonic::transport::Channel;

use crate::common::asking::{
    Asker, RULES, account, at_a_standstill, descriptor, request, stating, statuses, user,
};
use crate::common::{File, without_redis};

#[tokio::test]
async fn without_a_backend_the_rule_of_the_policy_decides() {
    let with = |rule: &str| {
        RULES.replace(
            "on_demand = true",
            &format!("on_demand = true\non_failure = {rule}"),
        )
    };
    let mut closed = Asker::with(&File::toml(&with("'deny'")), without_redis).await;
    assert_eq!(
        closed.wrong(request([account("acme")])).await,
        "Unavailable: the limiter cannot decide"
    );
    // No rule, no budget, no question.
    assert_eq!(
        closed
            .ask([descriptor(&[("colour", "red")])])
            .await
            .overall_code(),
        Code::Ok
    );
    assert_eq!(closed.served.gateway.counts().undecided, 1);

    let mut open = Asker::with(&File::toml(&with("'allow'")), without_redis).await;
    let answer = open.ask([account("acme")]).await;
    assert_eq!(
        (answer.overall_code(), statuses(&answer)),
        (Code::Ok, vec!["OK".to_owned()])
    );
    // A report that is lost is counted.
    open.ask([descriptor(&[("used", "tokens"), ("account", "acme")])])
        .await;
    assert_eq!(open.served.gateway.counts().lost_reports, 1);

    let mut local = Asker::with(&File::toml(&with("'local'")), without_redis).await;
    for _ in 0..3 {
        assert_eq!(
            local.ask([user("acme", "alice")]).await.overall_code(),
            Code::Ok
        );
    }
    assert_eq!(
        local.ask([user("acme", "alice")]).await.overall_code(),
        Code::OverLimit
    );
}

/// What Envoy does without an answer is Envoy's to say, unless the operator says it here.
#[tokio::test]
async fn without_a_backend_a_file_of_envoy_ratelimit_leaves_the_decision_to_envoy() {
    // As Envoy Gateway writes it.
    let file = File::yaml(
        "name: shop\n\
         domain: shop\n\
         descriptors:\n\
         - key: user\n  \
           rate_limit: null\n  \
           quota_mode: false\n  \
           descriptors:\n  \
           - key: path\n    \
             rate_limit: { unit: hour, requests_per_unit: 3 }\n",
    );
    let asked = || RateLimitRequest {
        domain: "shop".to_owned(),
        ..request([descriptor(&[("user", "alice"), ("path", "/")])])
    };

    let mut stated = Asker::without_redis(&file, None).await;
    assert_eq!(
        stated.wrong(asked()).await,
        "Unavailable: the limiter cannot decide"
    );
    let mut open = Asker::without_redis(&file, Some(OnFailure::Allow)).await;
    for _ in 0..5 {
        assert_eq!(open.send(asked()).await.unwrap().overall_code(), Code::Ok);
    }
    let mut local = Asker::without_redis(&file, Some(OnFailure::Local(Share::WHOLE))).await;
    for code in [Code::Ok, Code::Ok, Code::Ok, Code::OverLimit] {
        assert_eq!(local.send(asked()).await.unwrap().overall_code(), code);
    }

    // In TOML too.
    let open = RULES.replace("on_demand = true", "on_demand = true\non_failure = 'allow'");
    let mut closed = Asker::without_redis(&File::toml(&open), Some(OnFailure::Deny)).await;
    assert_eq!(
        closed.wrong(request([account("acme")])).await,
        "Unavailable: the limiter cannot decide"
    );
}

#[tokio::test]
async fn a_gateway_and_a_service_have_one_budget_in_redis() {
    let rules = r#"
        [[policies]]
        name = "login"
        quotas = "5/h"
        key = "client-ip"

        [[envoy]]
        domain = "shop"
        descriptor = [{ key = "remote_address" }]
        policy = "login"
    "#;
    let redis = Standalone::start();
    let backend = RedisBackend::builder(&redis.url()).connect().await.unwrap();
    let mut asker = Asker::with(&File::toml(rules), |builder| builder.backend(backend)).await;
    let backend = RedisBackend::builder(&redis.url()).connect().await.unwrap();
    let login = Policy::new("login", "5/h").key(ClientIp);
    let service = tollgate::Limiter::builder()
        .policy(login)
        .backend(backend)
        .build()
        .unwrap();

    // The service knows the caller by its address, and the gateway by a text.
    let caller = service.client_key("2001:db8::1".parse().unwrap());
    service.check("login", caller).cost(3).await.unwrap();
    let at = |address: &str| descriptor(&[("remote_address", address)]);
    // The neighbour in its network is the same caller, by the policy's own rule.
    assert_eq!(
        statuses(&asker.ask([at("2001:db8::2")]).await),
        ["OK 1 of 5 login per HOUR"]
    );
    // An address of a link has its zone behind it.
    assert_eq!(
        statuses(&asker.ask([at("fe80::7%eth0")]).await),
        ["OK 4 of 5 login per HOUR"]
    );
    assert_eq!(
        statuses(&asker.ask([at("192.0.2.1")]).await),
        ["OK 4 of 5 login per HOUR"]
    );
    // No address: the budget of all callers without one.
    for left in (1..=4).rev() {
        let answer = asker.ask([at(&format!("unix:socket{left}"))]).await;
        assert_eq!(
            statuses(&answer),
            [format!("OK {left} of 5 login per HOUR")]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_is_followed_and_a_wrong_one_changes_nothing() {
    let file = File::toml(RULES);
    let mut asker = Asker::with(&file, at_a_standstill).await;
    assert_eq!(
        statuses(&asker.ask([account("acme")]).await),
        ["OK 9 of 10 account per HOUR"]
    );
    let gateway = Arc::clone(&asker.served.gateway);

    for (wrong, reason) in [
        (
            RULES.replace("policy = \"trial\"", "policy = \"tril\""),
            ":34: the rule at line 34: charges \"tril\"",
        ),
        (RULES.replace("10/h", "10/x"), ":4: policy \"account\""),
        (
            RULES.replace("10/h", "5 at once"),
            "a gateway does not say when a request is over",
        ),
    ] {
        file.write(&wrong);
        let refused = gateway.reload().unwrap_err().to_string();
        assert!(refused.contains(reason), "{refused}");
        assert_eq!(asker.left(account("acme")).await, 9);
    }

    // A policy with another name and the rule for it take effect together: no request finds one without the other.
    let renamed = RULES.replace("\"account\"\nquotas", "\"konto\"\nquotas");
    let renamed = renamed.replace("policy = \"account\"", "policy = \"konto\"");
    let mut other = asker.client.clone();
    let ended = Arc::new(AtomicBool::new(false));
    let asks_until = Arc::clone(&ended);
    let asking = tokio::spawn(async move {
        let mut answers = 0;
        while !asks_until.load(Ordering::Relaxed) {
            let asked = other.should_rate_limit(request([account("busy")])).await;
            asked.unwrap();
            answers += 1;
        }
        answers
    });
    for number in 0..200 {
        file.write(if number % 2 == 0 { &renamed } else { RULES });
        gateway.reload().unwrap();
    }
    ended.store(true, Ordering::Relaxed);
    assert!(asking.await.unwrap() > 0);
    file.write(&renamed);
    gateway.reload().unwrap();
    assert_eq!(
        statuses(&asker.ask([account("new")]).await),
        ["OK 9 of 10 konto per HOUR"]
    );
}

#[tokio::test]
async fn a_file_of_envoy_ratelimit_is_served_as_it_is() {
    let yaml = "
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 2, name: per-user }
  - key: vip
    rate_limit: { unit: hour, requests_per_unit: 5, replaces: [{ name: per-user }] }
  - key: path
    value: /free
    rate_limit: { unlimited: true }
  - key: path
    value: /img*
    rate_limit: { unit: minute, requests_per_unit: 3 }
  - key: banned
    rate_limit: { unit: second, requests_per_unit: 0 }
";
    let mut asker = Asker::with(&File::yaml(yaml), at_a_standstill).await;
    let one = |key: &str, value: &str| descriptor(&[(key, value)]);
    assert_eq!(
        statuses(
            &asker
                .ask([
                    one("user", "alice"),
                    one("path", "/free"),
                    one("path", "/img/1")
                ])
                .await
        ),
        [
            "OK 1 of 2 shop/user per HOUR",
            "OK",
            "OK 2 of 3 e-shop/path./img--f2222a3a3efd48a2 per MINUTE"
        ]
    );
    // Each value of a wildcard has a budget of its own, and a rule that replaces another leaves its budget alone.
    let answer = asker
        .ask([
            one("user", "alice"),
            one("vip", "alice"),
            one("path", "/img/2"),
        ])
        .await;
    assert_eq!(
        statuses(&answer),
        [
            "OK",
            "OK 4 of 5 shop/vip per HOUR",
            "OK 2 of 3 e-shop/path./img--f2222a3a3efd48a2 per MINUTE"
        ]
    );
    assert_eq!(asker.left(one("user", "alice")).await, 1);
    // A limit that the gateway states counts without a rule, by the descriptor as a whole.
    for left in [1, 0] {
        let stated = stating(one("colour", "red"), 2, Unit::Week);
        let answer = asker.ask([stated]).await;
        assert_eq!(statuses(&answer), [format!("OK {left} of 2 shop per WEEK")]);
    }
    let other = stating(one("colour", "blue"), 2, Unit::Week);
    assert_eq!(
        statuses(&asker.ask([other]).await),
        ["OK 1 of 2 shop per WEEK"]
    );
    assert_eq!(
        asker.ask([one("banned", "x")]).await.overall_code(),
        Code::OverLimit
    );
}

/// The calls that the backend has sent, and the requests in them.
fn figures(asker: &Asker) -> (u64, u64) {
    let (mut calls, mut requests) = (0, 0);
    let limiter = asker.served.gateway.limiter();
    limiter
        .backend()
        .admin()
        .figures(&mut |figure, value| match figure {
            Figure::Calls => calls = value,
            Figure::Requests => requests = value,
            _ => {}
        });
    (calls, requests)
}

/// One thread runs all, so that requests are taken in the order in which they come.
#[tokio::test]
async fn requests_of_several_gateways_that_come_while_a_call_is_held_share_the_next_ones() {
    const TOGETHER: u64 = 64;
    const PATIENT: Duration = Duration::from_secs(60);

    let redis = Standalone::start();
    let backend = RedisBackend::builder(&redis.url()).connections(1);
    let backend = backend.deadline(PATIENT).connect().await.unwrap();
    let mut asker = Asker::with(&File::toml(RULES), |builder| builder.backend(backend)).await;
    let mut gateways = vec![asker.client.clone()];
    for _ in 0..3 {
        let channel = Channel::from_shared(format!("http://{}", asker.served.address));
        let channel = channel.unwrap().connect().await.unwrap();
        gateways.push(RateLimitServiceClient::new(channel));
    }
    // The server has the script, and is known to be near: it gets one call at a time.
    for _ in 0..8 {
        asker.ask([account("first")]).await;
    }
    let before = figures(&asker);

    redis.stall();
    let mut asking = JoinSet::new();
    let mut ask = |place: usize, caller: u64| {
        let mut client = gateways[place % gateways.len()].clone();
        let request = request([account(&caller.to_string())]);
        asking.spawn(async move { client.should_rate_limit(request).await.unwrap() });
    };
    ask(0, 0);
    let begun = Instant::now();
    while figures(&asker).0 == before.0 {
        assert!(begun.elapsed() < PATIENT);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for caller in 1..=2 * TOGETHER {
        ask(usize::try_from(caller).unwrap(), caller);
    }
    // The requests of each gateway have come where a later one has its answer, for which no backend is asked.
    for gateway in &gateways {
        for _ in 0..3 {
            let unknown = request([descriptor(&[("colour", "red")])]);
            gateway.clone().should_rate_limit(unknown).await.unwrap();
        }
    }
    redis.go_on();
    let answers = asking.join_all().await;

    assert!(
        answers
            .iter()
            .all(|answer| answer.get_ref().overall_code() == Code::Ok)
    );
    let (calls, requests) = figures(&asker);
    assert_eq!(requests - before.1, 1 + 2 * TOGETHER);
    // The one that was held, and two that were full.
    assert_eq!(calls - before.0, 1 + 2);
}
