//! Refunds beside idempotency keys, over sockets, in memory and on a real Redis: whatever order a client forces on its requests, the
//! handler runs at most as often as the budget admits, plus the replays of each charge that stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::in_redis;
use crate::common::served::Served;
use axum::Router;
use axum::body::Body;
use axum::routing::post;
use http::{Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tollgate::key::{Global, Header};
use tollgate::{
    Backend, Concurrent, Limiter, LimiterBuilder, MemoryBackend, Policy, Quota, RateLimitLayer,
};
use tollgate_testkit::{Fault, Proxy, Standalone};

const REPLAYS: u64 = 2;

/// A server of logins, of which only the wrong ones count.
struct Logins {
    served: Served,
    /// A permit for each request that the handler has begun.
    begun: Arc<Semaphore>,
    wrong: Arc<AtomicU64>,
}

impl Logins {
    async fn new(backend: Arc<dyn Backend>, quota: Quota) -> Self {
        let policy = Policy::new("login", quota)
            .count_if(|response| response.status() == StatusCode::UNAUTHORIZED);
        Self::of(backend, policy).await
    }

    async fn of(backend: Arc<dyn Backend>, policy: Policy) -> Self {
        Self::beside(backend, policy, []).await
    }

    /// With other policies, which have no ids.
    async fn beside(
        backend: Arc<dyn Backend>,
        policy: Policy,
        others: impl IntoIterator<Item = Policy>,
    ) -> Self {
        let policy = policy.key(Global).once_by(Header::new("idempotency-key"));
        let limiter = Limiter::builder().policy(policy).backend(backend);
        let others = others.into_iter().map(|other| other.key(Global));
        let limiter = others.fold(limiter, LimiterBuilder::policy);
        let limiter = limiter.build().unwrap();
        let (begun, wrong) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicU64::new(0)));
        let (beginning, guesses) = (Arc::clone(&begun), Arc::clone(&wrong));
        let login = move |body: Body| async move {
            beginning.add_permits(1);
            let body = axum::body::to_bytes(body, 100).await.unwrap_or_default();
            if body[..] == *b"right" {
                return StatusCode::OK;
            }
            guesses.fetch_add(1, Ordering::SeqCst);
            StatusCode::UNAUTHORIZED
        };
        let app = Router::new().route("/login", post(login));
        Self {
            served: Served::new(app.layer(RateLimitLayer::new(&limiter))).await,
            begun,
            wrong,
        }
    }

    fn request(&self, id: &str, body: &str) -> Request<Body> {
        let request = Request::post(format!("http://{}/login", self.served.0));
        let request = request.header("idempotency-key", id);
        request.body(Body::from(body.to_owned())).unwrap()
    }

    /// Sends a request with this id up to the last byte of its body, if the limiter lets it pass.
    async fn hold_back(&self, id: &str) -> Option<TcpStream> {
        let mut held = TcpStream::connect(self.served.0).await.unwrap();
        let head = format!(
            "POST /login HTTP/1.1\r\nhost: a\r\nidempotency-key: {id}\r\ncontent-length: 5\r\n\r\nrigh"
        );
        held.write_all(head.as_bytes()).await.unwrap();
        let mut refused = [0; 1];
        tokio::select! {
            begun = self.begun.acquire() => {
                begun.unwrap().forget();
                Some(held)
            }
            read = held.read(&mut refused) => {
                read.unwrap();
                None
            }
        }
    }
}

async fn everywhere() -> ([Arc<dyn Backend>; 2], Standalone) {
    let server = Standalone::start();
    let redis = in_redis(&server.url()).await;
    ([Arc::new(MemoryBackend::new()), Arc::new(redis)], server)
}

#[tokio::test]
async fn a_login_that_succeeds_in_the_end_makes_no_wrong_guess_free() {
    const QUOTA: u64 = 3;
    let (backends, _server) = everywhere().await;
    for backend in backends {
        let logins = Logins::new(backend, Quota::per_day(QUOTA)).await;
        for round in 0..12 {
            let id = format!("login-{round}");
            let held = logins.hold_back(&id).await;
            for _ in 0..REPLAYS {
                let answer = logins.served.request(logins.request(&id, "wrong")).await;
                let passes = held.is_some() || round < QUOTA;
                let status = if passes { 401 } else { 429 };
                assert_eq!(answer.status(), status, "round {round}");
                if passes {
                    logins.begun.acquire().await.unwrap().forget();
                }
            }
            if let Some(mut held) = held {
                held.write_all(b"t").await.unwrap();
                let mut answer = [0; 15];
                held.read_exact(&mut answer).await.unwrap();
                assert_eq!(&answer, b"HTTP/1.1 200 OK");
            }
            // The charge of this login stays, since guesses passed on it.
            assert_eq!(
                logins.wrong.load(Ordering::SeqCst),
                QUOTA.min(round + 1) * REPLAYS
            );
        }
    }
}

/// A part of a charge is no more than the whole: a login that succeeds costs one, and a wrong one a hundred.
#[tokio::test]
async fn a_charge_that_is_settled_to_less_makes_no_wrong_guess_free() {
    let (backends, _server) = everywhere().await;
    for backend in backends {
        let policy = Policy::new("settled", Quota::per_day(300)).cost(100);
        let policy = policy.settle_by(|response| (response.status() == 200).then_some(1));
        let logins = Logins::of(backend, policy).await;
        let mut passed = 0;
        for round in 0..6 {
            let id = format!("login-{round}");
            for word in ["right", "wrong", "wrong"] {
                let answer = logins.served.request(logins.request(&id, word)).await;
                passed += u64::from(answer.status() != StatusCode::TOO_MANY_REQUESTS);
                // Redis is asked for the refund later.
                sleep(Duration::from_millis(20)).await;
            }
        }
        let wrong = logins.wrong.load(Ordering::SeqCst);
        // Two of a hundred fit beside what the right ones cost, and each has its replays.
        assert!(
            (1..=2 * (1 + REPLAYS)).contains(&wrong),
            "{wrong} of {passed}"
        );
    }
}

fn in_line() -> Policy {
    let quota = Quota::per_second(20).burst(1);
    Policy::new("smooth", quota.wait_up_to(Duration::from_secs(10)))
}

/// Replays wait in line behind their first attempt, which hangs up before its turn.
#[tokio::test]
async fn hanging_up_in_a_line_makes_no_replay_free() {
    const QUOTA: u64 = 3;
    let (backends, _server) = everywhere().await;
    for backend in backends {
        let day = Policy::new("day", Quota::per_day(QUOTA));
        let logins = Arc::new(Logins::beside(backend, day, [in_line()]).await);
        for round in 0..12 {
            let id = format!("login-{round}");
            let mut first = TcpStream::connect(logins.served.0).await.unwrap();
            let head = format!(
                "POST /login HTTP/1.1\r\nhost: a\r\nidempotency-key: {id}\r\ncontent-length: 0\r\n\r\n"
            );
            first.write_all(head.as_bytes()).await.unwrap();
            sleep(Duration::from_millis(5)).await;
            let replays: Vec<_> = (0..REPLAYS)
                .map(|_| {
                    let (logins, id) = (Arc::clone(&logins), id.clone());
                    tokio::spawn(async move {
                        let replay = logins.request(&id, "wrong");
                        logins.served.request(replay).await.status()
                    })
                })
                .collect();
            sleep(Duration::from_millis(5)).await;
            drop(first);
            for replay in replays {
                replay.await.unwrap();
            }
        }
        let wrong = logins.wrong.load(Ordering::SeqCst);
        assert!((1..=QUOTA * (1 + REPLAYS)).contains(&wrong), "{wrong}");
    }
}

/// A refund closes the id, whatever the request went through before: a turn, a place, both or none.
#[tokio::test]
async fn a_refund_behind_a_turn_or_a_place_makes_no_wrong_guess_free() {
    const QUOTA: u64 = 3;
    let place = || Policy::new("places", Concurrent::at_most(100));
    for others in [
        vec![],
        vec![in_line()],
        vec![place()],
        vec![in_line(), place()],
    ] {
        let (backends, _server) = everywhere().await;
        for backend in backends {
            let day = Policy::new("day", Quota::per_day(QUOTA))
                .count_if(|response| response.status() == StatusCode::UNAUTHORIZED);
            let logins = Logins::beside(backend, day, others.clone()).await;
            for round in 0..8 {
                let id = format!("login-{round}");
                for word in ["right", "wrong", "wrong"] {
                    logins.served.request(logins.request(&id, word)).await;
                    // Redis is asked for the refund later.
                    sleep(Duration::from_millis(10)).await;
                }
            }
            let wrong = logins.wrong.load(Ordering::SeqCst);
            let policies = others.len();
            assert!(
                (1..=QUOTA * (1 + REPLAYS)).contains(&wrong),
                "{wrong} beside {policies}"
            );
        }
    }
}

/// Without a replay a refund is what it was: logins that succeed cost nothing, with ids as without.
#[tokio::test]
async fn logins_that_succeed_cost_nothing_whatever_their_ids() {
    let (backends, _server) = everywhere().await;
    for backend in backends {
        let logins = Logins::new(backend, Quota::per_day(2)).await;
        for round in 0..20 {
            let id = format!("login-{}", round % 3);
            let answer = logins.served.request(logins.request(&id, "right")).await;
            assert_eq!(answer.status(), 200, "round {round}");
            // Credits of one microsecond are strict, and Redis is asked for them later.
            sleep(Duration::from_millis(2)).await;
        }
    }
}

/// A client that hangs up while Redis decides, and asks again with the same id.
#[tokio::test]
async fn hanging_up_while_a_request_is_decided_makes_no_retry_free() {
    const QUOTA: u64 = 10;
    for is_http_2 in [false, true] {
        let server = Standalone::start();
        let proxy = Proxy::before(server.port());
        let backend = Arc::new(in_redis(&proxy.url()).await);
        let logins = Logins::new(backend, Quota::per_day(QUOTA)).await;
        proxy.fail_with(Fault::Delay(Duration::from_millis(15)));
        let client = Client::builder(TokioExecutor::new())
            .http2_only(is_http_2)
            .build_http::<Body>();
        let mut denied = 0;
        for round in 0..5 * QUOTA {
            let id = format!("login-{round}");
            let hasty = client.request(logins.request(&id, "wrong"));
            // Before, while and after Redis decides.
            let patience = Duration::from_millis(round % 25);
            let heard = timeout(patience, hasty).await;
            let again = client.request(logins.request(&id, "wrong")).await.unwrap();
            denied += u64::from(again.status() == StatusCode::TOO_MANY_REQUESTS);
            drop(heard);
        }
        sleep(Duration::from_millis(100)).await;

        let wrong = logins.wrong.load(Ordering::SeqCst);
        assert!(wrong <= QUOTA * (1 + REPLAYS), "{wrong} guesses");
        assert!(denied > QUOTA, "{denied} denied");
    }
}
