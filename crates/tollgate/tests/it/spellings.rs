//! Identities that an operator spells otherwise than requests do, in lists, tiers, bans, checks and resets.

use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use http::StatusCode;
use tollgate::key::{Header, Host, KeyList, PathParam};
use tollgate::{Ban, Block, ConfigError, Key, Limiter, Policy, Quota, RateLimitLayer, Tiers};

use crate::common::served::Served;

const HOUR: Duration = Duration::from_secs(3_600);
const UUID: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";

async fn serve(limiter: &Limiter) -> Served {
    let user = |Path(user): Path<String>| async move { user };
    let app = Router::new().route("/users/{user}", get(user));
    Served::new(app.layer(RateLimitLayer::new(limiter))).await
}

fn users() -> Policy {
    Policy::new("users", Quota::per_day(100)).key(PathParam::new("user"))
}

async fn status(served: Served, user: &str) -> StatusCode {
    served.get(&format!("/users/{user}")).await.status()
}

#[tokio::test]
async fn a_list_blocks_the_caller_in_whatever_spelling() {
    let blocked = KeyList::from_iter(["00123", "+49171", "{67E55044-10B1-426F-9247-BB680E5FE0C8}"]);
    let limiter = Limiter::from(users().block_keys(&blocked, Block::Forbidden));
    let served = serve(&limiter).await;
    for user in ["123", "0123", "49171", "+49171", UUID] {
        assert_eq!(status(served, user).await, 403, "{user}");
    }
    assert_eq!(status(served, "1230").await, 200);

    // The list changes while it is in use.
    blocked.remove("00123");
    blocked.insert("-07");
    assert_eq!(status(served, "123").await, 200);
    assert_eq!(status(served, "-7").await, 403);
    assert_eq!(status(served, "49171").await, 403);
}

#[tokio::test]
async fn an_exemption_is_one_in_whatever_spelling() {
    let quota = Quota::per_day(1);
    let policy = Policy::new("users", quota).key((PathParam::new("user"), Host));
    let internal = Key::tuple([&Key::from("007"), &Key::from("LocalHost.")]);
    let limiter = Limiter::from(policy.exempt_keys(KeyList::from_iter([internal])));
    let served = serve(&limiter).await;
    let get = |user: &str| {
        let request = http::Request::get(format!("http://{}/users/{user}", served.0));
        let request = request.header("host", "localhost");
        served.request(request.body(axum::body::Body::empty()).unwrap())
    };
    for _ in 0..3 {
        assert_eq!(get("7").await.status(), 200);
    }
    assert_eq!(get("8").await.status(), 200);
    assert_eq!(get("8").await.status(), 429);
}

#[tokio::test]
async fn a_ban_by_hand_keeps_the_caller_out_in_whatever_spelling() {
    let ban = Ban::after(5, HOUR).lasting(HOUR);
    let limiter = Limiter::from(users().ban(ban));
    let served = serve(&limiter).await;
    limiter.ban("users", "+49171", HOUR).await.unwrap();
    assert_eq!(status(served, "49171").await, 429);
    assert!(limiter.banned("users", "049171").await.unwrap().is_some());
    assert!(
        !limiter
            .check("users", "0049171")
            .await
            .unwrap()
            .is_allowed()
    );

    limiter.unban("users", "00049171").await.unwrap();
    assert_eq!(status(served, "49171").await, 200);

    assert_eq!(
        limiter.check("users", "49171").await.unwrap().remaining(),
        98
    );
    limiter.reset("users", "+49171").await.unwrap();
    assert_eq!(
        limiter.check("users", "49171").await.unwrap().remaining(),
        99
    );
}

#[tokio::test]
async fn a_tier_holds_in_whatever_spelling_and_names_a_caller_once() {
    let tiers = |by: [(&str, &str); 2]| {
        let tiers = Tiers::by_key(by.map(|(key, tier)| (Key::from(key), tier)));
        let tiers = tiers.tier("gold", Quota::per_day(1_000));
        users().tiers(tiers.tier("silver", Quota::per_day(500)))
    };
    let limiter = Limiter::from(tiers([("007", "gold"), ("+8", "silver")]));
    let served = serve(&limiter).await;
    let response = served.get("/users/7").await;
    assert_eq!(response.headers()["ratelimit"], "\"users\";r=999;t=87");

    let twice = Limiter::builder().policy(tiers([("007", "gold"), ("7", "silver")]));
    let error = twice.build().unwrap_err();
    assert!(matches!(&error, ConfigError::Identity { .. }), "{error}");
    assert!(error.to_string().contains("in other words"), "{error}");
}

/// Under a key that is taken as it is, another spelling is another caller.
#[tokio::test]
async fn a_text_that_is_taken_as_it_is_has_one_spelling() {
    let policy = Policy::new("api", Quota::per_day(100)).key(Header::new("x-api-key"));
    let blocked = KeyList::from_iter(["00123"]);
    let limiter = Limiter::from(policy.block_keys(&blocked, Block::Forbidden));
    assert!(limiter.check("api", "123").await.unwrap().is_allowed());
    assert!(!limiter.check("api", "00123").await.unwrap().is_allowed());
}
