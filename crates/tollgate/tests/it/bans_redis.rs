//! Strikes by responses in a fleet: layers over backends of their own, and one Redis.

use std::convert::Infallible;
use std::time::Duration;

use crate::common::{Body, from};
use http::{Request, Response};
use tokio::time::{sleep, timeout};
use tollgate::key::{Global, Header};
use tollgate::{Ban, Key, Limiter, Policy, Quota, RateLimitLayer, RedisBackend};
use tollgate_testkit::Standalone;
use tower::{Layer, ServiceExt, service_fn};

const HOUR: Duration = Duration::from_secs(3_600);
/// A busy machine keeps this.
const PATIENCE: Duration = Duration::from_secs(30);

/// The strikes that ban.
const STRIKES: usize = 3;

/// More an hour than any test asks for, and a ban by failed logins.
fn login() -> Policy {
    Policy::new("login", Quota::per_hour(1_000_000))
        .ban(Ban::after(3, HOUR))
        .strike_if(|response| response.status() == 401)
}

/// The limiter of a process.
async fn process(server: &Standalone, policy: Policy, connections: usize) -> Limiter {
    let backend = RedisBackend::builder(&server.url())
        .connections(connections)
        .deadline(PATIENCE)
        .connect_deadline(PATIENCE);
    let backend = backend.connect().await.unwrap();
    let builder = Limiter::builder().policy(policy).backend(backend);
    builder.build().unwrap()
}

/// The status of the answer to a login that fails if it passes the limiter.
async fn guess(limiter: &Limiter, request: Request<Body>) -> u16 {
    let service = service_fn(async |_: Request<Body>| {
        let answer = Response::builder().status(401).body(Body::default());
        Ok::<_, Infallible>(answer.unwrap())
    });
    let layer = RateLimitLayer::new(limiter.clone());
    let answer = layer.layer(service).oneshot(request).await;
    answer.unwrap().status().as_u16()
}

#[tokio::test]
async fn responses_that_are_strikes_ban_in_every_process_of_the_fleet() {
    // given two processes
    let server = Standalone::start();
    let [one, other] = [
        process(&server, login().key(Global), 1).await,
        process(&server, login().key(Global), 1).await,
    ];

    // when as many logins fail in one of them as ban
    for _ in 0..STRIKES {
        assert_eq!(guess(&one, from("192.0.2.1")).await, 401);
    }

    // then both refuse the caller as soon as the strikes have arrived
    let banned = async {
        while other
            .banned("login", Key::global())
            .await
            .unwrap()
            .is_none()
        {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, banned).await.unwrap();
    assert_eq!(guess(&other, from("192.0.2.1")).await, 429);
    assert_eq!(guess(&one, from("192.0.2.1")).await, 429);
}

/// A strike leaves with a call of its own. The next request of the caller may leave on the other connection, and be decided first.
/// The request after that finds one of the two connections free, and so at least one of the two strikes decided.
#[tokio::test]
async fn of_a_caller_that_waits_for_each_answer_one_request_overtakes_the_strikes_at_most() {
    const CALLERS: usize = 100;
    let server = Standalone::start();
    for connections in [1, 2] {
        let policy = login().key(Header::new("account"));
        let limiter = process(&server, policy, connections).await;
        let mut most = 0;
        for caller in 0..CALLERS {
            let mut passed = 0;
            let login = || {
                let request = Request::get("/");
                let request = request.header("account", format!("{connections}-{caller}"));
                request.body(Body::default()).unwrap()
            };
            while guess(&limiter, login()).await == 401 {
                passed += 1;
                assert!(passed < 1_000, "the strikes never arrive");
            }
            assert!(passed >= STRIKES, "{passed}");
            most = most.max(passed - STRIKES);
        }

        println!("{connections} connections: {most} beyond the strikes");
        assert!(most < connections, "{most} with {connections} connections");
    }
}
