//! Envoy's rate limit service, asked over a socket by the client that its protocol makes.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{File, Served, without_redis};
use tokio::net::TcpStream;
use tollgate::key::ClientIp;
use tollgate::{LimiterBuilder, ManualClock, MemoryBackend, Policy, RedisBackend};
use tollgate_server::proto::rate_limit_descriptor::{Entry, RateLimitOverride};
use tollgate_server::proto::rate_limit_response::rate_limit::Unit;
use tollgate_server::proto::rate_limit_response::{Code, DescriptorStatus};
use tollgate_server::proto::rate_limit_service_client::RateLimitServiceClient;
use tollgate_server::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use tollgate_testkit::Standalone;
use tonic::transport::Channel;
use tonic::{Code as Grpc, Status};

const ANYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A machine that builds beside the test takes its time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Two policies, and rules for a user, an account and reports.
const RULES: &str = r#"
[[policies]]
name = "account"
quotas = "10/h"
on_demand = true

[[policies]]
name = "user"
quotas = "3/h"
on_demand = true

[[policies]]
name = "trial"
quotas = "1/h"
on_demand = true
shadow = true

[[envoy]]
domain = "shop"
descriptor = [{ key = "account" }]
policy = "account"

[[envoy]]
domain = "shop"
descriptor = [{ key = "account" }, { key = "user" }]
policy = "user"

[[envoy]]
domain = "shop"
descriptor = [{ key = "used", value = "tokens" }, { key = "account" }]
policy = "account"
report = true

[[envoy]]
domain = "shop"
descriptor = [{ key = "trial" }]
policy = "trial"
"#;

/// A backend whose clock stands still.
fn at_a_standstill(builder: LimiterBuilder) -> LimiterBuilder {
    builder.backend(MemoryBackend::builder().clock(ManualClock::new()).build())
}

struct Asker {
    served: Served,
    client: RateLimitServiceClient<Channel>,
}

impl Asker {
    async fn of(rules: &str) -> Self {
        Self::with(&File::toml(rules), at_a_standstill).await
    }

    async fn with(file: &File, finish: impl FnOnce(LimiterBuilder) -> LimiterBuilder) -> Self {
        let served = Served::with(file, ANYWHERE, finish).await;
        let channel = Channel::from_shared(format!("http://{}", served.address));
        let channel = channel.unwrap().connect().await.unwrap();
        let client = RateLimitServiceClient::new(channel);
        Self { served, client }
    }

    async fn ask(
        &mut self,
        descriptors: impl IntoIterator<Item = RateLimitDescriptor>,
    ) -> RateLimitResponse {
        self.send(request(descriptors)).await.unwrap()
    }

    async fn send(&mut self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        let answer = self.client.should_rate_limit(request).await?;
        Ok(answer.into_inner())
    }

    /// The code and the words with which a request is refused that makes no sense.
    async fn wrong(&mut self, request: RateLimitRequest) -> String {
        let status = self.send(request).await.unwrap_err();
        format!("{:?}: {}", status.code(), status.message())
    }

    async fn left(&mut self, descriptor: RateLimitDescriptor) -> u32 {
        let peek = hits(descriptor, 0);
        self.ask([peek]).await.statuses[0].limit_remaining
    }
}

fn request(descriptors: impl IntoIterator<Item = RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest {
        domain: "shop".to_owned(),
        descriptors: descriptors.into_iter().collect(),
        hits_addend: 0,
    }
}

fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entries = entries.iter().map(|(key, value)| Entry {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
    });
    RateLimitDescriptor {
        entries: entries.collect(),
        ..RateLimitDescriptor::default()
    }
}

fn hits(descriptor: RateLimitDescriptor, hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor {
        hits_addend: Some(hits),
        ..descriptor
    }
}

fn stating(descriptor: RateLimitDescriptor, requests: u32, unit: Unit) -> RateLimitDescriptor {
    RateLimitDescriptor {
        limit: Some(RateLimitOverride {
            requests_per_unit: requests,
            unit: unit.into(),
        }),
        ..descriptor
    }
}

fn account(name: &str) -> RateLimitDescriptor {
    descriptor(&[("account", name)])
}

fn user(account: &str, name: &str) -> RateLimitDescriptor {
    descriptor(&[("account", account), ("user", name)])
}

/// A status in few words: the code, the limit and what is left of it.
fn words(status: &DescriptorStatus) -> String {
    let code = status.code().as_str_name();
    match &status.current_limit {
        None => code.to_owned(),
        Some(limit) => format!(
            "{code} {} of {} {} per {}",
            status.limit_remaining,
            limit.requests_per_unit,
            limit.name,
            limit.unit().as_str_name()
        ),
    }
}

fn statuses(answer: &RateLimitResponse) -> Vec<String> {
    answer.statuses.iter().map(words).collect()
}

fn field<'a>(answer: &'a RateLimitResponse, name: &str) -> Option<&'a str> {
    let mut fields = answer.response_headers_to_add.iter();
    let found = fields.find(|field| field.key == name);
    found.map(|field| &*field.value)
}

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

    let wrong = [
        (
            vec![stating(account("a"), 5, Unit::Unknown)],
            "InvalidArgument: descriptor 1: it states a limit in unit 0: the units are 1 (SECOND) to 7 (WEEK)",
        ),
        (
            vec![account("a"), stating(account("a"), 5, Unit::Hour)],
            "InvalidArgument: descriptor 2: it states another limit for the budget of a descriptor before it",
        ),
    ];
    for (descriptors, expected) in wrong {
        assert_eq!(asker.wrong(request(descriptors)).await, expected);
    }
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
async fn a_request_that_makes_no_sense_is_an_invalid_argument_with_its_reason() {
    let mut asker = Asker::of(RULES).await;
    let mut without_domain = request([account("acme")]);
    without_domain.domain.clear();
    let many = |count: usize| request((0..count).map(|number| account(&number.to_string())));
    let negative = RateLimitDescriptor {
        is_negative_hits: true,
        ..account("acme")
    };
    let cases = [
        (without_domain, "the request has no domain"),
        (request([]), "the request has no descriptors"),
        (
            request([account("acme"), descriptor(&[])]),
            "descriptor 2: it has no entries",
        ),
        (
            request([descriptor(&[("", "x")])]),
            "descriptor 1: an entry has an empty key",
        ),
        (
            request([negative]),
            "descriptor 1: its hits are negative, and nothing is given back: a credit without the receipt of a charge has no bound",
        ),
        (
            many(33),
            "descriptor 33: with it the request charges more than 32 budgets, and at most 32 are decided together",
        ),
        (
            many(5_000),
            "descriptor 33: with it the request charges more than 32 budgets, and at most 32 are decided together",
        ),
    ];
    let number = u64::try_from(cases.len()).unwrap();
    for (request, expected) in cases {
        assert_eq!(
            asker.wrong(request).await,
            format!("InvalidArgument: {expected}")
        );
    }
    assert_eq!(asker.served.gateway.counts().invalid, number);
    // Nothing of it was charged, and as many as fit are decided.
    assert_eq!(
        asker.ask(many(32).descriptors).await.overall_code(),
        Code::Ok
    );
    assert_eq!(asker.left(account("31")).await, 9);
}

#[tokio::test]
async fn hostile_descriptors_have_an_answer() {
    let mut asker = Asker::of(RULES).await;
    // Long values are identities of their own.
    let long = |end: &str| account(&format!("{}{end}", "x".repeat(50_000)));
    let answer = asker.ask([long("a"), long("a"), long("b")]).await;
    assert_eq!(
        statuses(&answer),
        [
            "OK 8 of 10 account per HOUR",
            "OK 8 of 10 account per HOUR",
            "OK 9 of 10 account per HOUR"
        ]
    );
    // Values that would join to the same text are different identities, and so is an empty one.
    for (account, name) in [("a_b", "c"), ("a", "b_c"), ("", "ab_c"), ("ab_c", "")] {
        let answer = asker.ask([user(account, name)]).await;
        assert_eq!(statuses(&answer), ["OK 2 of 3 user per HOUR"]);
    }
    // Ten thousand entries are more than any rule has.
    let entries = vec![("account", "x"); 10_000];
    assert_eq!(statuses(&asker.ask([descriptor(&entries)]).await), ["OK"]);
    // An entry twice is not the entry once.
    let twice = descriptor(&[("account", "x"), ("account", "x")]);
    assert_eq!(statuses(&asker.ask([twice]).await), ["OK"]);
    // Ten thousand descriptors of one budget are one charge.
    let answer = asker.ask(vec![account("crowd"); 10_000]).await;
    assert_eq!(
        (answer.overall_code(), answer.statuses.len()),
        (Code::OverLimit, 10_000)
    );
    // A message above the bound is refused, and the connection goes on.
    let status = asker
        .send(request([account(&"x".repeat(300_000))]))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Grpc::OutOfRange, "{status}");
    assert_eq!(asker.ask([account("next")]).await.overall_code(), Code::Ok);
}

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
    assert_eq!(
        statuses(&asker.ask([at("192.0.2.1")]).await),
        ["OK 4 of 5 login per HOUR"]
    );
    let wrong = asker.wrong(request([at("unix:socket")])).await;
    assert!(
        wrong.starts_with("InvalidArgument: descriptor 1: policy \"login\": "),
        "{wrong}"
    );
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

#[tokio::test]
async fn a_client_that_hangs_stops_neither_other_clients_nor_the_end() {
    let mut asker = Asker::of(RULES).await;
    let silent = TcpStream::connect(asker.served.address).await.unwrap();
    assert_eq!(asker.ask([account("acme")]).await.overall_code(), Code::Ok);
    let begun = Instant::now();
    asker.served.stop().await;
    assert!(begun.elapsed() < PATIENCE);
    drop(silent);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_come_together_share_calls_to_redis() {
    const REQUESTS: usize = 1_000;

    let redis = Standalone::start();
    let backend = RedisBackend::builder(&redis.url()).connections(1);
    let backend = backend.connect().await.unwrap();
    let asker = Asker::with(&File::toml(RULES), |builder| builder.backend(backend)).await;
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..REQUESTS {
        let mut client = asker.client.clone();
        let request = request([account(&number.to_string())]);
        asking.spawn(async move { client.should_rate_limit(request).await.unwrap() });
    }
    asking.join_all().await;

    let stats = redis.command(&["INFO", "commandstats"]);
    let (_, calls) = stats.split_once("cmdstat_evalsha:calls=").unwrap();
    let calls: usize = calls.split_once(',').unwrap().0.parse().unwrap();
    assert!(calls < REQUESTS / 2, "{calls} calls");
}

#[tokio::test]
async fn a_policy_of_several_quotas_makes_a_charge_of_each() {
    let rules = r#"
        [[policies]]
        name = "pair"
        quotas = { hour = "5/h", day = "6/day" }
        on_demand = true

        [[policies]]
        name = "log"
        quotas = "5/h sliding-log"
        on_demand = true

        [[policies]]
        name = "month"
        quotas = "5/month in Europe/Berlin"
        on_demand = true

        [[envoy]]
        domain = "shop"
        descriptor = [{ key = "pair" }]
        policy = "pair"

        [[envoy]]
        domain = "shop"
        descriptor = [{ key = "log" }]
        policy = "log"

        [[envoy]]
        domain = "shop"
        descriptor = [{ key = "month" }]
        policy = "month"
    "#;
    let mut asker = Asker::of(rules).await;
    let one = |key: &str, value: &str| descriptor(&[(key, value)]);
    // The tightest of both is shown.
    let answer = asker.ask([one("pair", "alice")]).await;
    assert_eq!(statuses(&answer), ["OK 4 of 5 pair-hour per HOUR"]);
    let many = |count: usize| request((0..count).map(|number| one("pair", &number.to_string())));
    assert!(asker.send(many(16)).await.is_ok());
    assert_eq!(
        asker.wrong(many(17)).await,
        "InvalidArgument: the checks could charge 34 quotas, and at most 32 are decided together"
    );

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
