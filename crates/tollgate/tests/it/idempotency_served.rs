//! Ids of requests over HTTP, behind a real server, in memory and on a real Redis.

use std::sync::Arc;
use std::time::Duration;

use crate::common::served::{Served, Whole};
use crate::common::{PATIENT, at_a_standstill, in_redis};
use axum::Router;
use axum::body::Body;
use axum::routing::post;
use http::{HeaderValue, Request};
use proptest::collection::vec;
use proptest::option;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tollgate::key::Header;
use tollgate::{
    Limiter, LimiterBuilder, OnFailure, Once, Policy, Quota, RateLimitLayer, RedisBackend,
};
use tollgate_testkit::{Fault, Proxy, Standalone};

/// A limiter of orders on this backend, by the name of a caller and an id.
fn orders(backend: impl FnOnce(LimiterBuilder) -> LimiterBuilder) -> Limiter {
    let policy = Policy::new("orders", Quota::per_day(100)).key(Header::new("x-api-key"));
    let policy = policy.once_by(Header::new("idempotency-key"));
    backend(Limiter::builder().policy(policy)).build().unwrap()
}

/// A limiter in memory, one on Redis, and the server.
async fn everywhere() -> ([Limiter; 2], Standalone) {
    let server = Standalone::start();
    let redis = in_redis(&server.url()).await;
    let memory = at_a_standstill().0;
    let limiters = [
        orders(|builder| builder.backend(memory)),
        orders(|builder| builder.backend(redis)),
    ];
    (limiters, server)
}

/// A server that takes orders. Each adds a permit to the semaphore.
async fn serve(limiter: &Limiter) -> (Served, Arc<Semaphore>) {
    let taken = Arc::new(Semaphore::new(0));
    let counter = Arc::clone(&taken);
    let take = move || async move {
        counter.add_permits(1);
        "taken"
    };
    let app = Router::new().route("/orders", post(take));
    let served = Served::new(app.layer(RateLimitLayer::new(limiter))).await;
    (served, taken)
}

async fn order(served: Served, caller: &str, ids: &[&[u8]]) -> Whole {
    let request = Request::post(format!("http://{}/orders", served.0)).header("x-api-key", caller);
    let request = ids.iter().fold(request, |request, id| {
        request.header("idempotency-key", HeaderValue::from_bytes(id).unwrap())
    });
    let response = served.request(request.body(Body::empty()).unwrap()).await;
    assert_eq!(response.status(), 200);
    response
}

/// The rest, as the answer says.
fn left(response: &Whole) -> u64 {
    let field = response.headers()["ratelimit"].to_str().unwrap();
    let remaining = field.split(';').find_map(|part| part.strip_prefix("r="));
    remaining.unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_retry_after_a_lost_answer_is_not_charged_again() {
    let (limiters, _server) = everywhere().await;
    for limiter in limiters {
        let (served, taken) = serve(&limiter).await;
        let head = "POST /orders HTTP/1.1\r\nhost: a\r\nx-api-key: alice\r\nidempotency-key: order-7\r\n\
                    content-length: 0\r\n\r\n";
        let mut lost = TcpStream::connect(served.0).await.unwrap();
        lost.write_all(head.as_bytes()).await.unwrap();
        taken.acquire().await.unwrap().forget();
        drop(lost);

        for left_over in [99, 99, 98] {
            assert_eq!(
                left(&order(served, "alice", &[b"order-7"]).await),
                left_over
            );
        }

        // The id is another caller's as well, and spares that one nothing.
        assert_eq!(left(&order(served, "bob", &[b"order-7"]).await), 99);
        assert_eq!(taken.available_permits(), 4);
    }
}

/// A limiter of orders on the Redis at this address, which refuses while that does not answer.
async fn strict(url: &str, deadline: Duration) -> Limiter {
    let backend = RedisBackend::builder(url).deadline(deadline);
    let backend = backend.connect_deadline(PATIENT).connect();
    let policy = Policy::new("orders", Quota::per_day(100)).on_failure(OnFailure::Deny);
    let limiter = Limiter::builder().policy(policy.once(Once::default()));
    limiter.backend(backend.await.unwrap()).build().unwrap()
}

/// The rest of a caller, of which nothing is taken.
async fn rest(limiter: &Limiter, caller: &str) -> u64 {
    let checked = limiter.check("orders", caller).probe().await.unwrap();
    checked.remaining()
}

/// Waits until the caller has this much left.
async fn until_left(limiter: &Limiter, caller: &str, left: u64) {
    let so = async {
        while rest(limiter, caller).await != left {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, so).await.unwrap();
}

const PATIENCE: Duration = Duration::from_secs(30);

/// The server has decided, and the connection breaks off before its answer arrives, in the middle of it, or after a silence.
#[tokio::test]
async fn a_check_whose_answer_from_redis_is_lost_is_charged_once_and_its_replays_are_bounded() {
    let server = Standalone::start();
    let direct = strict(&server.url(), PATIENCE).await;
    // Then the lost answer is that of a decision, and not of a missing script.
    direct.check("orders", "anybody").id("first").await.unwrap();
    let faults = [
        ("broken", Fault::Drop, PATIENCE),
        ("in half", Fault::Truncate, PATIENCE),
        ("silent", Fault::Stall, Duration::from_secs(3)),
    ];
    for (caller, fault, deadline) in faults {
        let proxy = Proxy::before(server.port());
        let limiter = strict(&proxy.url(), deadline).await;
        let ask = || limiter.check("orders", caller).id("order-7").into_future();
        assert_eq!(rest(&limiter, caller).await, 100);

        proxy.fail_with(fault);
        ask().await.unwrap_err();
        proxy.fail_with(Fault::None);
        proxy.cut();

        // The caller heard nothing of it.
        assert_eq!(rest(&direct, caller).await, 99, "{caller}");
        for left in [99, 99, 98, 98, 98, 97] {
            let again = async {
                loop {
                    // Nothing is sent until there is a connection again.
                    match ask().await {
                        Ok(checked) => return checked,
                        Err(_not_yet) => sleep(Duration::from_millis(10)).await,
                    }
                }
            };
            let checked = timeout(PATIENCE, again).await.unwrap();
            assert!(checked.is_allowed());
            assert_eq!(checked.remaining(), left, "{caller}");
        }
    }
}

/// An answer that comes after its caller has gone gives back the charge, and forgets the id in the same step: the next request is
/// charged, and no charge is left twice.
#[tokio::test]
async fn a_check_whose_answer_from_redis_is_late_is_charged_once() {
    let server = Standalone::start();
    let direct = strict(&server.url(), PATIENCE).await;
    let proxy = Proxy::before(server.port());
    let limiter = strict(&proxy.url(), Duration::from_secs(1)).await;
    assert_eq!(rest(&limiter, "late").await, 100);

    proxy.fail_with(Fault::Delay(Duration::from_secs(2)));
    let asked = limiter.check("orders", "late").id("order-7").await;
    asked.unwrap_err();
    proxy.fail_with(Fault::None);

    until_left(&direct, "late", 100).await;
    for left in [99, 99, 99, 98] {
        let checked = direct.check("orders", "late").id("order-7").await;
        assert_eq!(checked.unwrap().remaining(), left);
    }
}

/// The statuses of requests in any order with these ids, of which the same may come again and again.
async fn statuses(served: Served, caller: &str, ids: &[Option<u8>]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for id in ids {
        let request = Request::post(format!("http://{}/orders", served.0));
        let mut request = request.header("x-api-key", caller);
        if let Some(id) = id {
            request = request.header("idempotency-key", format!("{id}"));
        }
        let answer = served.request(request.body(Body::empty()).unwrap()).await;
        statuses.push(answer.status().as_u16());
    }
    statuses
}

/// Each charge pays for itself and for two replays, whatever ids a client makes up.
#[tokio::test]
async fn no_ids_let_a_client_pass_more_often_than_its_charges_and_their_replays() {
    const BUDGET: u64 = 4;
    let server = Standalone::start();
    let redis = in_redis(&server.url()).await;
    let memory = at_a_standstill().0;
    let policy = || {
        Policy::new("orders", Quota::per_day(BUDGET))
            .key(Header::new("x-api-key"))
            .once_by(Header::new("idempotency-key"))
    };
    let limiters = [
        Limiter::builder().policy(policy()).backend(memory),
        Limiter::builder().policy(policy()).backend(redis),
    ];
    let mut runner = TestRunner::deterministic();
    let histories = vec(option::weighted(0.9, 0_u8..6), 40);
    for limiter in limiters {
        let (served, _) = serve(&limiter.build().unwrap()).await;
        let constant = statuses(served, "constant", &[Some(7); 40]).await;
        let passed = constant.iter().filter(|status| **status == 200).count();
        assert_eq!(passed, 3 * 4, "one id again and again");
        for n in 0..24 {
            let ids = histories.new_tree(&mut runner).unwrap().current();
            let answers = statuses(served, &format!("caller-{n}"), &ids).await;
            let passed = |of: &dyn Fn(&Option<u8>) -> bool| {
                let both = ids.iter().zip(&answers);
                let mut passed = 0;
                for (id, status) in both {
                    assert!(matches!(status, 200 | 429), "{status}");
                    passed += u64::from(of(id) && *status == 200);
                }
                passed
            };
            // Without an id each is charged, and with one every third.
            let charged = passed(&Option::is_none)
                + (0..6)
                    .map(|id| passed(&|of| *of == Some(id)).div_ceil(3))
                    .sum::<u64>();
            assert!(charged <= BUDGET, "{charged} charges: {ids:?}, {answers:?}");
            // A history of forty spends the budget.
            assert_eq!(charged, BUDGET, "{ids:?}, {answers:?}");
        }
    }
}

/// The ids of a request.
type Ids<'a> = &'a [&'a [u8]];

#[tokio::test]
async fn odd_ids_gain_their_sender_nothing() {
    let long = vec![b'7'; 8_000];
    let (limiters, _server) = everywhere().await;
    for limiter in limiters {
        let (served, _) = serve(&limiter).await;
        // The ids of two requests, and how much of the budget these take.
        let cases: [(&str, [Ids<'_>; 2], u64); 8] = [
            ("none", [&[], &[]], 2),
            ("empty", [&[b""], &[b""]], 2),
            ("an empty one and another", [&[b"", b"a"], &[b"", b"a"]], 2),
            ("the first of two counts", [&[b"a", b"b"], &[b"a", b"c"]], 1),
            ("another first of two", [&[b"a", b"b"], &[b"b", b"a"]], 2),
            ("long", [&[&long], &[&long]], 1),
            ("of other lengths", [&[&long], &[&long[1..]]], 2),
            ("not ASCII", [&[b"\xe4\xff"], &[b"\xe4\xff"]], 1),
        ];
        for (caller, ids, taken) in cases {
            order(served, caller, ids[0]).await;
            let second = order(served, caller, ids[1]).await;
            assert_eq!(left(&second), 100 - taken, "{caller}");
        }
    }
}
