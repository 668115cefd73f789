//! The words of a limit about itself: its refusals, its trials, its failure rule, and the limits that cannot be.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::header::RETRY_AFTER;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tollgate::key::{Global, Header};
use tollgate::{
    Admin, Answer, Backend, BackendError, Call, CheckOutcome, Concurrent, ConfigError, Decision,
    FailureKind, Key, Limiter, MemoryBackend, OnFailure, Policy, Quota, RateLimitLayer, Settlement,
    Share,
};

use crate::common::held::{Held, Streams, TWO};
use crate::common::served::Served;
use crate::concurrency::{Client, serve, status};

#[tokio::test]
async fn a_refused_caller_is_told_no_time_unless_there_is_a_hint() {
    for hint in [None, Some(Duration::from_millis(1_500))] {
        let policy = Policy::new("held", TWO);
        let policy = match hint {
            Some(hint) => policy.retry_hint(hint),
            None => policy,
        };
        let (held, streams) = (Held::under(policy), Streams::default());
        let opened = streams.clone();
        let stream = get(async move || Body::from_stream(opened.open()));
        let address = serve(Router::new().route("/", stream).layer(held.layer())).await;
        let mut clients = [Client::to(address).await, Client::to(address).await];
        let [one, other] = &mut clients;
        let passed = [one.get("/").await, other.get("/").await];
        let fields = |response: &Response<_>, name: &str| {
            let value = response.headers().get(name);
            value.map(|value| value.to_str().unwrap().to_owned())
        };
        let policy = Some("\"held\";q=2;qu=\"concurrent-requests\"".to_owned());
        assert_eq!(
            fields(&passed[0], "ratelimit"),
            Some("\"held\";r=1".to_owned())
        );
        assert_eq!(fields(&passed[0], "ratelimit-policy"), policy);

        let refused = Client::to(address).await.get("/").await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(fields(&refused, "ratelimit-policy"), policy);
        let (state, wait) = match hint {
            None => ("\"held\";r=0", None),
            Some(_) => ("\"held\";r=0;t=2", Some("2".to_owned())),
        };
        assert_eq!(fields(&refused, "ratelimit").as_deref(), Some(state));
        assert_eq!(fields(&refused, RETRY_AFTER.as_str()), wait);
        let body = refused.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["violated-policies"][0], "held");
        assert!(body["detail"].as_str().unwrap().contains("under way"));
    }
}

#[tokio::test]
async fn a_check_is_a_guard() {
    let held = Held::under(Policy::new("held", (Quota::per_hour(10), TWO)));
    let ask = || held.limiter.check("held", Key::global());
    let first: CheckOutcome = ask().await.unwrap();
    let second = ask().await.unwrap();
    let third = ask().await.unwrap();
    assert!(!third.is_allowed() && third.retry_after().is_none());
    drop((second, third));
    assert_eq!((held.free().await, held.released()), (1, 1));

    // Receipts replace the guard. A credit in part gives back that part.
    let heavy = ask().cost(1).await.unwrap();
    let receipts = heavy.into_receipts();
    assert_eq!((receipts.len(), held.free().await), (2, 0));
    for receipt in receipts {
        held.limiter.refund(receipt, 1);
    }
    drop(first);
    assert_eq!(held.free().await, 2);
    // A check that is not awaited to its end holds nothing.
    drop(ask());
    assert_eq!(held.free().await, 2);
}

#[tokio::test]
async fn a_policy_on_trial_holds_for_itself_and_refuses_nobody() {
    let held = Held::under(Policy::new("held", Concurrent::at_most(1)).shadow());
    let streams = Streams::default();
    let opened = streams.clone();
    let stream = get(async move || Body::from_stream(opened.open()));
    let app = Router::new().route("/", stream).layer(held.layer());
    let address = serve(app).await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = Client::to(address).await;
        let answer = client.get("/").await;
        assert_eq!(answer.status(), StatusCode::OK);
        clients.push((client, answer));
    }
    assert_eq!(held.free().await, 0);
    clients.clear();
    held.comes_to(1).await;
    // Two were over the limit, and held nothing.
    assert_eq!(held.released(), 1);
}

/// Decides nothing, and says that it could hold.
#[derive(Debug)]
struct Failing(MemoryBackend);

impl Backend for Failing {
    fn decide(&self, _call: Call<'_>) -> Answer<Decision> {
        let error = BackendError::new(FailureKind::Unreachable, "on purpose");
        Answer::now(Err(error))
    }

    fn settle(&self, settlement: Settlement<'_>) {
        let is_refund = matches!(settlement, Settlement::Refund(..));
        assert!(!is_refund, "nothing was taken here");
    }

    fn admin(&self) -> &dyn Admin {
        self.0.admin()
    }
}

#[tokio::test]
async fn each_failure_rule_has_an_outcome() {
    let share = OnFailure::Local(Share::one_in(2));
    for (rule, expected) in [
        (OnFailure::Allow, [200, 200, 200]),
        (OnFailure::Deny, [503, 503, 503]),
        // Half of two: one at once in this process.
        (share, [200, 429, 429]),
    ] {
        let policy = Policy::new("held", TWO).on_failure(rule);
        let (held, streams) = (
            Held::on(policy, Failing(MemoryBackend::new())),
            Streams::default(),
        );
        let opened = streams.clone();
        let stream = get(async move || Body::from_stream(opened.open()));
        let address = serve(Router::new().route("/", stream).layer(held.layer())).await;
        let mut clients = Vec::new();
        for expected in expected {
            let mut client = Client::to(address).await;
            let answer = client.get("/").await;
            assert_eq!(answer.status().as_u16(), expected, "{rule:?}");
            clients.push((client, answer));
        }
        clients.clear();
        if rule == share {
            // This process gets its own places back.
            let mut tries = 0;
            while status(address, "/").await != StatusCode::OK {
                tries += 1;
                assert!(tries < 5_000, "held for ever");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            assert!(held.released() >= 1);
        } else {
            assert_eq!(held.released(), 0);
        }
    }
}

#[tokio::test]
async fn if_something_is_held_of_every_key_in_memory_the_failure_rule_acts() {
    for (rule, passes) in [(OnFailure::Allow, true), (OnFailure::Deny, false)] {
        let backend = MemoryBackend::builder().max_keys(64).build();
        let limiter = Limiter::builder()
            .policy(Policy::new("held", TWO).on_failure(rule))
            .backend(backend)
            .build()
            .unwrap();
        let mut held = Vec::new();
        let mut undecided = 0;
        for caller in 0..500 {
            match limiter.check("held", format!("caller {caller}")).await {
                Ok(checked) => {
                    undecided += usize::from(checked.undecided().is_some());
                    held.push(checked);
                }
                Err(error) => assert!(!passes, "{error}"),
            }
        }
        assert!(held.len() - undecided <= 64);
        assert_eq!(undecided > 0, passes);
        // Known callers are decided as ever.
        let known = limiter.check("held", "caller 0").await.unwrap();
        assert!(known.is_allowed() && known.undecided().is_none());
        assert!(
            !limiter
                .check("held", "caller 0")
                .await
                .unwrap()
                .is_allowed()
        );
    }
}

/// Whoever fills the part of the memory that is for permits gets around no other policy.
#[tokio::test]
async fn permits_of_one_policy_cost_another_policy_no_budget() {
    let backend = MemoryBackend::builder().max_keys(64).build();
    let login = Policy::new("login", Quota::per_hour(3)).key(Global);
    let streams = Policy::new("streams", TWO).key(Header::new("x-user"));
    let limiter = Limiter::builder().policies([login.clone(), streams.clone()]);
    let limiter = limiter.backend(backend).build().unwrap();
    let mut held = Vec::new();
    for caller in 0..500 {
        let checked = limiter.check("streams", format!("caller {caller}")).await;
        held.push(checked.unwrap());
    }
    assert!(held.iter().any(|checked| checked.undecided().is_some()));

    // The two are one decision for a request, which finds no room for a permit.
    let handler = get(|| async {}).layer(RateLimitLayer::new(&limiter));
    let served = Served::new(Router::new().route("/", handler)).await;
    let mut statuses = Vec::new();
    for user in 0..40 {
        let request = Request::get(format!("http://{}/", served.0));
        let request = request.header("x-user", format!("new {user}"));
        let response = served.request(request.body(Body::empty()).unwrap()).await;
        statuses.push(response.status());
    }
    let passed = statuses.iter().filter(|status| status.is_success());
    assert_eq!(passed.count(), 3, "{statuses:?}");
    let remaining = limiter.check("login", Key::global()).probe().await;
    assert_eq!(remaining.unwrap().remaining(), 0);
}

#[test]
fn limits_that_cannot_be_are_refused_with_the_reason() {
    assert_eq!(
        Policy::try_new("held", "0 at once")
            .unwrap_err()
            .to_string(),
        "policy \"held\": quota \"0 at once\": a limit of 0 admits nothing; \"none\" refuses every request; to limit no request, \
         leave the policy out"
    );
    let heavy = Policy::new("held", TWO).cost(3);
    let refused: ConfigError = Limiter::builder().policy(heavy).build().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "policy \"held\": a cost of 3 never passes: a full budget of \"held\" holds 2"
    );
    let messages = Policy::new("held", TWO).per_message(tollgate::Messages::received());
    let refused = Limiter::builder().policy(messages).build().unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("policy \"held\": charges messages, which cannot hold"),
        "{refused}"
    );
}
