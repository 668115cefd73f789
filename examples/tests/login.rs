//! The example `login`: failed logins ban the guesser, and keep no other caller out until the account's budget is spent.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "a program of its own")]
#[path = "../login.rs"]
mod login;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use http::{Request, header};
use tollgate::{Limiter, ManualClock, MemoryBackend};
use tower::Service;

const SECOND: Duration = Duration::from_secs(1);

/// The example's server, in time that moves with its attempts alone.
struct Server {
    app: Router,
    clock: ManualClock,
}

/// An answer to an attempt.
#[derive(Debug)]
struct Answer {
    status: u16,
    retry_after: Option<u64>,
    body: String,
}

impl Server {
    fn start() -> Self {
        let clock = ManualClock::new();
        let backend = MemoryBackend::builder().clock(clock.clone()).build();
        let limiter = Limiter::builder().policies(login::policies());
        let limiter = limiter.backend(backend).build().unwrap();
        Self {
            app: login::app(&limiter),
            clock,
        }
    }

    /// An attempt from the address 203.0.113.`host`.
    async fn attempt(&self, host: u8, user: &str, password: &str) -> Answer {
        // A credit and a later charge of one microsecond cannot be told apart, and count as the strict order.
        self.clock.advance(Duration::from_micros(1));
        let peer = IpAddr::from(Ipv4Addr::new(203, 0, 113, host));
        let request = Request::post("/login")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/problem+json")
            .extension(ConnectInfo(SocketAddr::from((peer, 4_711))))
            .body(Body::from(format!("user={user}&password={password}")));
        let response = self.app.clone().call(request.unwrap()).await.unwrap();
        let retry_after = response.headers().get(header::RETRY_AFTER);
        Answer {
            status: response.status().as_u16(),
            retry_after: retry_after.map(|seconds| seconds.to_str().unwrap().parse().unwrap()),
            body: {
                let body = to_bytes(response.into_body(), 4_096).await.unwrap();
                String::from_utf8(body.to_vec()).unwrap()
            },
        }
    }

    async fn logs_in(&self, host: u8, user: &str) -> u16 {
        self.attempt(host, user, "open+sesame").await.status
    }

    /// The statuses of so many guesses.
    async fn guesses<const N: usize>(&self, host: u8, user: &str) -> [u16; N] {
        let mut statuses = [0; N];
        for status in &mut statuses {
            *status = self.attempt(host, user, "guess").await.status;
        }
        statuses
    }
}

#[tokio::test]
async fn right_passwords_cost_nothing() {
    let server = Server::start();
    for _ in 0..100 {
        let answer = server.attempt(1, "ali", "open+sesame").await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.retry_after, None);
        assert_eq!(answer.body, "welcome, ali\n");
    }
}

#[tokio::test]
async fn five_guesses_ban_this_address_from_this_account_and_no_other_caller() {
    let server = Server::start();
    // Both spellings are one account.
    assert_eq!(server.guesses(1, "ali").await, [401; 3]);
    assert_eq!(server.guesses(1, "%20ALI").await, [401; 2]);

    // Even the right password does not pass, for a quarter of an hour.
    let banned = server.attempt(1, "ali", "open+sesame").await;
    assert_eq!((banned.status, banned.retry_after), (429, Some(900)));
    assert!(
        banned.body.contains("abnormal-usage-detected"),
        "{}",
        banned.body
    );

    // The owner comes from another address, and other owners from this one.
    assert_eq!(server.logs_in(2, "ali").await, 200);
    assert_eq!(server.logs_in(1, "bob").await, 200);

    // Knocking does not feed the ban, and it ends when it was said.
    server.clock.advance(899 * SECOND);
    let knock = server.attempt(1, "ali", "guess").await;
    assert_eq!((knock.status, knock.retry_after), (429, Some(1)));
    server.clock.advance(SECOND);
    assert_eq!(server.logs_in(1, "ali").await, 200);
}

#[tokio::test]
async fn an_address_has_ten_guesses_a_minute_at_all_accounts_together() {
    let server = Server::start();
    assert_eq!(server.guesses(1, "ali").await, [401; 4]);
    assert_eq!(server.guesses(1, "bob").await, [401; 4]);
    assert_eq!(server.guesses(1, "eve").await, [401, 401, 429]);

    assert_eq!(server.logs_in(1, "eve").await, 429);
    assert_eq!(server.logs_in(2, "eve").await, 200);
    server.clock.advance(6 * SECOND);
    assert_eq!(server.logs_in(1, "eve").await, 200);
}

/// The price that the example states.
#[tokio::test]
async fn strangers_that_spend_the_budget_of_an_account_keep_its_owner_out_until_a_unit_is_back() {
    let server = Server::start();
    for host in 1..=4 {
        assert_eq!(server.guesses(host, "ali").await, [401; 5], "{host}");
    }

    let owner = server.attempt(9, "ali", "open+sesame").await;
    assert_eq!((owner.status, owner.retry_after), (429, Some(180)));
    assert!(
        owner.body.contains("quota-exceeded"),
        "no ban: {}",
        owner.body
    );

    server.clock.advance(180 * SECOND);
    assert_eq!(server.logs_in(9, "ali").await, 200);
    // And as often as the owner likes, if no stranger guesses meanwhile.
    assert_eq!(server.logs_in(9, "ali").await, 200);
}
