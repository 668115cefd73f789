//! Identities that an operator spells otherwise than requests do, in lists, tiers, bans, checks and resets.

use std::net::IpAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use http::StatusCode;
use tollgate::key::{
    BasicUser, BearerToken, Cookie, Header, Host, KeyList, MatchedRoute, Metadata, Method,
    PathParam,
};
use tollgate::{
    Ban, Block, ConfigError, Key, Limiter, MethodRouterExt, OnMissing, Policy, Quota,
    RateLimitLayer, Tiers,
};

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

/// The entries of a list, of which each blocks a request, and the requests that others send.
struct Blocked<'a> {
    policy: Policy,
    entries: &'a [&'a str],
    /// The headers of requests that are blocked by each of the entries.
    blocked: &'a [(&'static str, &'a str)],
    passes: (&'static str, &'a str),
}

#[tokio::test]
async fn an_entry_may_stand_as_requests_send_it() {
    let cookies = Policy::new("cookies", Quota::per_day(100)).key(Cookie::new("sid"));
    let hosts = Policy::new("hosts", Quota::per_day(100)).key(Host);
    let headers = Policy::new("headers", Quota::per_day(100)).key(Header::new("x-api-key"));
    let long = "a".repeat(Key::MAX_LEN);
    let (encoded, sent) = (format!("{long}%3D"), format!("sid={long}="));
    let rows = [
        Blocked {
            policy: headers,
            entries: &["key-1", " key-1 ", "key-1\r"],
            blocked: &[("x-api-key", "key-1")],
            passes: ("x-api-key", "key-12"),
        },
        // A long one is kept as a digest.
        Blocked {
            policy: cookies.clone(),
            entries: &[&encoded],
            blocked: &[("cookie", &sent)],
            passes: ("cookie", "sid=abc"),
        },
        Blocked {
            policy: cookies,
            entries: &["abc==", "abc%3D%3D", "\"abc==\""],
            blocked: &[("cookie", "sid=abc%3D%3D"), ("cookie", "sid=abc==")],
            passes: ("cookie", "sid=abc"),
        },
        Blocked {
            policy: hosts.clone(),
            entries: &["api.example", "API.example:8080", "api.example.."],
            blocked: &[("host", "api.example"), ("host", "Api.Example.:80")],
            passes: ("host", "example"),
        },
        Blocked {
            policy: hosts,
            entries: &["[2001:db8::1]", "[2001:DB8:0::1]", "[2001:db8::0.0.0.1]:80"],
            blocked: &[("host", "[2001:db8::1]"), ("host", "[2001:DB8:0:0::1]:80")],
            passes: ("host", "[2001:db8::2]"),
        },
    ];
    for row in rows {
        for entry in row.entries {
            let list = KeyList::from_iter([*entry]);
            let listed = row.policy.clone().block_keys(&list, Block::Forbidden);
            let ban = Ban::after(5, HOUR).lasting(HOUR);
            let banned = Limiter::from(row.policy.clone().ban(ban));
            let name = banned.policies()[0].name().to_owned();
            banned.ban(&name, *entry, HOUR).await.unwrap();
            for (limiter, refusal) in [(Limiter::from(listed), 403), (banned, 429)] {
                let app = Router::new().route("/", get(async || "seen"));
                let served = Served::new(app.layer(RateLimitLayer::new(&limiter))).await;
                let blocked = row.blocked.iter().map(|sent| (sent, refusal));
                for ((header, value), expected) in blocked.chain([(&row.passes, 200)]) {
                    let request = http::Request::get(format!("http://{}/", served.0));
                    let request = request.header(*header, *value);
                    let request = request.body(axum::body::Body::empty()).unwrap();
                    let status = served.request(request).await.status();
                    assert_eq!(status, expected, "{entry}: {value}");
                }
            }
        }
    }
}

/// An entry that holds for another caller than requests under it are found as would let that one in, or refuse an innocent one.
#[tokio::test]
async fn an_entry_is_the_caller_whom_requests_are_found_as() {
    let app = |policy: Policy| {
        let limiter = Limiter::from(policy);
        Router::new()
            .route("/", get(async || "seen"))
            .layer(RateLimitLayer::new(&limiter))
    };
    let blocking = |policy: Policy, entry: Key| {
        let list = KeyList::from_iter([entry]);
        app(policy.block_keys(&list, Block::Forbidden))
    };
    let status = async |app: Router, header: &'static str, value: &'static str| {
        let served = Served::new(app).await;
        let request = http::Request::get(format!("http://{}/", served.0)).header(header, value);
        let request = request.body(axum::body::Body::empty()).unwrap();
        served.request(request).await.status()
    };
    let policy = |name: &str| Policy::new(name, Quota::per_day(100));

    // Bytes that look like blanks belong to the identity.
    let binary = || policy("binary").key(Metadata::new("id-bin"));
    let app_of = |entry: &[u8]| blocking(binary(), Key::bytes(entry));
    assert_eq!(status(app_of(b"\nabc"), "id-bin", "CmFiYw==").await, 403);
    assert_eq!(status(app_of(b"\nabc"), "id-bin", "YWJj").await, 200);
    // A cookie that is encoded twice is nobody's that an entry names.
    let cookies = || {
        policy("cookies")
            .key(Cookie::new("sid"))
            .on_missing(OnMissing::Deny)
    };
    let app_of = |entry: &str| blocking(cookies(), Key::from(entry));
    assert_eq!(
        status(app_of("50%20off"), "cookie", "sid=50%20off").await,
        403
    );
    assert_eq!(status(app_of("else"), "cookie", "sid=50%20off").await, 200);
    assert_eq!(
        status(app_of("else"), "cookie", "sid=50%2520off").await,
        403
    );
    // An address is one, in whatever notation.
    let nat64: IpAddr = "64:ff9b::127.0.0.1".parse().unwrap();
    assert_eq!(
        status(blocking(policy("address"), nat64.into()), "x", "y").await,
        403
    );
    // What is exempt is read likewise.
    let exempt = KeyList::from_iter(["API.Example.com:80"]);
    let limit = || Policy::new("hosts", Quota::per_day(1)).exempt_by(Host, &exempt);
    let served = Served::new(app(limit())).await;
    for _ in 0..3 {
        let request = http::Request::get(format!("http://{}/", served.0));
        let request = request.header("host", "api.example.com");
        let request = request.body(axum::body::Body::empty()).unwrap();
        assert_eq!(served.request(request).await.status(), 200);
    }
}

#[test]
fn an_entry_that_no_request_has_is_refused() {
    let methods = Policy::new("methods", Quota::per_day(1)).key(Method);
    let hosts = Policy::new("hosts", Quota::per_day(1)).key(Host);
    let headers = Policy::new("headers", Quota::per_day(1)).key(Header::new("x-api-key"));
    let routes = Policy::new("routes", Quota::per_day(1)).key(MatchedRoute);
    let users = Policy::new("users", Quota::per_day(1)).key(BasicUser);
    let tokens = Policy::new("tokens", Quota::per_day(1)).key(BearerToken);
    for (policy, entries) in [
        (methods, &["HEAD", "get", "PURGE"][..]),
        (hosts, &["user@api.example", "a b", "[::1", ""]),
        (headers, &["", " "]),
        (routes, &["/u/:id", "u", "/u/{"]),
        (users, &["alice:pw", ""]),
        (tokens, &["Bearer leaked", "a,b", "a b"]),
    ] {
        for entry in entries {
            let list = KeyList::from_iter([*entry]);
            let policy = policy.clone().block_keys(&list, Block::Forbidden);
            let error = Limiter::builder().policy(policy).build().unwrap_err();
            assert!(
                matches!(&error, ConfigError::Identity { .. }),
                "{entry}: {error}"
            );
        }
    }
}

#[test]
fn a_header_that_http_2_lacks_is_no_identity() {
    let policy = Policy::new("hosts", Quota::per_day(1)).key(Header::new("Host"));
    let error = Limiter::builder().policy(policy).build().unwrap_err();
    assert!(
        error.to_string().contains("use the key of the host"),
        "{error}"
    );
}

#[tokio::test]
async fn where_the_case_of_paths_does_not_count_entries_have_none_either() {
    let list = KeyList::from_iter(["Alice"]);
    let ban = Ban::after(5, HOUR).lasting(HOUR);
    let policy = users().route("/Users/{user}").ban(ban);
    let policy = policy.block_keys(&list, Block::Forbidden);
    let limiter = Limiter::builder().policy(policy).ignore_path_case();
    let limiter = limiter.build().unwrap();
    let served = serve(&limiter).await;
    limiter.ban("users", "Bob", HOUR).await.unwrap();
    for (user, expected) in [("Alice", 403), ("alice", 403), ("BOB", 429), ("carol", 200)] {
        assert_eq!(status(served, user).await, expected, "{user}");
    }
    // A limit at the handler reads as the layer does.
    let policy = Policy::new("users", Quota::per_day(1)).key(PathParam::new("user"));
    let policy = policy.on_demand().block_keys(&list, Block::Forbidden);
    let on_demand = Limiter::builder().policy(policy).ignore_path_case();
    let user = get(async || "seen").rate_limit_by("users");
    let app = Router::new().route("/users/{user}", user);
    let layer = RateLimitLayer::new(on_demand.build().unwrap());
    let at_handler = Served::new(app.layer(layer)).await;
    for (user, expected) in [("ALICE", 403), ("Dora", 200), ("dora", 429), ("DORA", 429)] {
        assert_eq!(status(at_handler, user).await, expected, "{user}");
    }
    assert_eq!(
        limiter.check("users", "Carol").await.unwrap().remaining(),
        98
    );
}

/// Under a wildcard slashes that are doubled or at an end are no other caller.
#[tokio::test]
async fn slashes_and_numbers_in_a_wildcard_are_one_spelling() {
    for entry in ["7", "/007/", "+7//"] {
        let list = KeyList::from_iter([entry]);
        let policy = Policy::new("files", Quota::per_day(100)).route("/files/{*path}");
        let policy = policy
            .key(PathParam::new("path"))
            .block_keys(&list, Block::Forbidden);
        let limiter = Limiter::from(policy);
        let path = |Path(path): Path<String>| async move { path };
        let app = Router::new().route("/files/{*path}", get(path));
        let served = Served::new(app.layer(RateLimitLayer::new(&limiter))).await;
        for path in ["7", "007/", "/7", "%2F007%2F"] {
            let status = served.get(&format!("/files/{path}")).await.status();
            assert_eq!(status, 403, "{entry}: {path}");
        }
    }
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
