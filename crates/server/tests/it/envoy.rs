//! A real Envoy asks, with the configuration of the docs, and a real client of HTTP sees what comes of it.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get as get_service;
use tokio::net::TcpListener;
use tollgate_testkit::Envoy;

use crate::common::guide;
use crate::common::http::{Answer, send, send_key};
use crate::common::{File, Served, free_address, without_redis};

/// A machine that builds beside the test takes its time.
const PATIENCE: Duration = Duration::from_secs(30);

/// The guide's example of this language.
fn example(language: &str) -> String {
    guide::example("Envoy", language)
}

/// The service behind Envoy.
async fn shop() -> SocketAddr {
    let files = get_service(|| async { "x".repeat(600_000) });
    let app = Router::new().route("/files", files);
    let app = app.fallback(|| async { "served" });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// An Envoy with the configuration of the guide, in which some words are others.
async fn envoy(server: SocketAddr, words: &[(&str, &str)]) -> Envoy {
    let shop = shop().await;
    let mut configuration = example("yaml");
    for (guide, test) in words {
        assert!(configuration.contains(guide), "the guide has {guide}");
        configuration = configuration.replace(guide, test);
    }
    let port = |of: &str, port: u16| (format!("port_value: {of}"), format!("port_value: {port}"));
    for (guide, test) in [port("8080", shop.port()), port("8081", server.port())] {
        configuration = configuration.replace(&guide, &test);
    }
    let start = move || Envoy::start(|port| configuration.replace("10000", &port.to_string()));
    tokio::task::spawn_blocking(start).await.unwrap()
}

async fn get(envoy: &Envoy, path: &str, fields: &str) -> Answer {
    send(envoy.address(), &format!("GET {path}"), fields).await
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_limits_by_the_configuration_of_the_guide() {
    let file = File::toml(&example("toml"));
    let address = free_address().await;
    let served = Served::start(&file, address).await;
    let envoy = envoy(address, &[]).await;

    // The generic key and the address of the caller.
    for left in (0..5).rev() {
        let passed = get(&envoy, "/login", "").await;
        assert_eq!(
            (passed.status, &*passed.body),
            (200, "served"),
            "{passed:?}"
        );
        assert_eq!(passed.field("ratelimit-policy"), ["\"login\";q=5;w=3600"]);
        let state = passed.field("ratelimit")[0].to_owned();
        assert!(
            state.starts_with(&format!("\"login\";r={left};t=")),
            "{state}"
        );
        assert_eq!(
            passed.field("x-ratelimit-limit"),
            ["5, 5;w=3600;name=\"login\""]
        );
        assert_eq!(passed.field("x-ratelimit-remaining"), [left.to_string()]);
    }
    let refused = get(&envoy, "/login", "").await;
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(refused.field("content-type"), ["application/problem+json"]);
    assert_eq!(refused.field("cache-control"), ["no-store"]);
    let wait: u64 = refused.field("retry-after")[0].parse().unwrap();
    assert!((1..=720).contains(&wait), "{wait}");
    assert_eq!(
        refused.field("ratelimit"),
        [format!("\"login\";r=0;t={wait}")]
    );
    assert_eq!(refused.field("x-ratelimit-remaining"), ["0"]);
    assert_eq!(refused.field("x-ratelimit-reset"), [wait.to_string()]);
    let problem: serde_json::Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["violated-policies"], serde_json::json!(["login"]));

    // A header, whose values are identities of their own.
    for key in ["alice", "bob"] {
        let field = format!("x-api-key: {key}\r\n");
        for _ in 0..20 {
            assert_eq!(get(&envoy, "/things", &field).await.status, 200);
        }
        assert_eq!(get(&envoy, "/things", &field).await.status, 429);
    }
    // Without the header there is no descriptor.
    assert_eq!(get(&envoy, "/things", "").await.status, 200);

    // A policy on trial is shown, and refuses no request.
    for _ in 0..3 {
        assert_eq!(get(&envoy, "/search?q=x", "").await.status, 200);
    }
    let over = get(&envoy, "/search?q=x", "").await;
    assert_eq!(over.status, 200, "{over:?}");
    assert_eq!(over.field("x-ratelimit-remaining"), ["0"]);

    // What a download took is reported when it is over. Two of 600 kB are more than a megabyte, and make a debt.
    for _ in 0..2 {
        assert_eq!(get(&envoy, "/files", "").await.body.len(), 600_000);
    }
    until(&envoy, "/files", 429).await;

    let counts = served.gateway.counts();
    assert!(counts.passed >= 5 + 40 + 4 + 2 * 2, "{counts:?}");
    assert_eq!(counts.lost_reports, 0);
    assert_eq!(
        (counts.invalid, counts.undecided, counts.unknown_descriptors),
        (0, 0, 0)
    );
    served.stop().await;
}

/// The key is the caller's to choose. A search is limited whatever it is.
#[tokio::test(flavor = "multi_thread")]
async fn an_odd_value_of_a_header_lets_no_request_around_its_limits() {
    let file = File::toml(&example("toml").replace("shadow = true", ""));
    let address = free_address().await;
    let served = Served::start(&file, address).await;
    let envoy = envoy(address, &[]).await;
    let odd: [&[u8]; 5] = [b"1.2.3.4:5", b"[::1]:1", b"\xff", b"a\xc3", b"good"];
    for key in odd {
        let (mut passed, began) = (0, Instant::now());
        for _ in 0..25 {
            let answer = send_key(envoy.address(), "GET /", key).await;
            passed += u64::from(answer.status == 200);
        }
        // A unit drains every three seconds.
        let most = 20 + began.elapsed().as_secs() / 3 + 1;
        assert!((20..=most).contains(&passed), "{key:?}: {passed}");
    }
    let mut passed = 0;
    for number in 0..10 {
        let key = [b"\xff", &[b'0' + number][..]].concat();
        let answer = send_key(envoy.address(), "GET /search", &key).await;
        passed += usize::from(answer.status == 200);
    }
    assert_eq!(passed, 3);
    served.stop().await;
}

/// Asks until this status comes.
async fn until(envoy: &Envoy, path: &str, status: u16) {
    let begun = Instant::now();
    loop {
        let answer = get(envoy, path, "").await;
        if answer.status == status {
            return;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{status} does not come: {answer:?}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_goes_on_without_the_server_and_finds_it_again() {
    let file = File::toml(&example("toml"));
    let address = free_address().await;
    let served = Served::start(&file, address).await;
    let open = envoy(address, &[]).await;
    let closed = envoy(
        address,
        &[("failure_mode_deny: false", "failure_mode_deny: true")],
    )
    .await;
    for _ in 0..5 {
        assert_eq!(get(&open, "/login", "").await.status, 200);
    }
    assert_eq!(get(&open, "/login", "").await.status, 429);
    // Both ask one server, and so have one budget.
    assert_eq!(get(&closed, "/login", "").await.status, 429);

    served.stop().await;
    until(&open, "/login", 200).await;
    until(&closed, "/login", 500).await;

    // Back again, with its memory lost: five pass, in one of them or the other.
    let served = Served::start(&file, address).await;
    until(&closed, "/login", 200).await;
    until(&open, "/login", 429).await;
    until(&closed, "/login", 429).await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn envoys_own_rule_holds_while_the_server_accepts_and_never_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hung = listener.local_addr().unwrap();
    let (accepted, mut connections) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            accepted.send(connection).unwrap();
        }
    });
    let denies = ("failure_mode_deny: false", "failure_mode_deny: true");
    for (words, status) in [(&[][..], 200), (&[denies], 500)] {
        let envoy = envoy(hung, words).await;
        for _ in 0..3 {
            assert_eq!(get(&envoy, "/login", "").await.status, status);
        }
        // It was asked, and holds the connection.
        let connection = connections.recv().await.unwrap();
        let mut asked = [0; 24];
        connection.readable().await.unwrap();
        assert_eq!(connection.try_read(&mut asked).unwrap(), asked.len());
        assert!(asked.starts_with(b"PRI * HTTP/2.0"), "{asked:?}");
        while connections.try_recv().is_ok() {}
    }
}

/// Sets metadata of each request, from which a limit is taken.
const STATED_LIMIT: &str = r#"http_filters:
          - name: envoy.filters.http.set_metadata
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
              metadata:
              - metadata_namespace: contract
                value: { limit: { requests_per_unit: 2, unit: DAY } }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn envoy_may_state_the_limit() {
    let file = File::toml(&example("toml"));
    let address = free_address().await;
    let served = Served::start(&file, address).await;
    let key = "- request_headers: { header_name: x-api-key, descriptor_key: api_key }\n";
    let limit =
        "limit: { dynamic_metadata: { metadata_key: { key: contract, path: [{ key: limit }] } } }";
    let with_limit = format!("{key}                    {limit}\n");
    let words = [("http_filters:\n", STATED_LIMIT), (key, &*with_limit)];
    let envoy = envoy(address, &words).await;

    let field = "x-api-key: alice\r\n";
    for left in ["1", "0"] {
        let passed = get(&envoy, "/things", field).await;
        assert_eq!(passed.status, 200, "{passed:?}");
        assert_eq!(
            passed.field("x-ratelimit-limit"),
            ["2, 2;w=86400;name=\"api\""]
        );
        assert_eq!(passed.field("x-ratelimit-remaining"), [left]);
    }
    assert_eq!(get(&envoy, "/things", field).await.status, 429);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn envoys_own_rule_holds_while_the_backend_fails() {
    let file = File::toml(&example("toml"));
    let address = free_address().await;
    let served = Served::with(&file, address, without_redis).await;
    let open = envoy(address, &[]).await;
    let denies = ("failure_mode_deny: false", "failure_mode_deny: true");
    let closed = envoy(address, &[denies]).await;

    // The policy refuses to decide without its backend.
    assert_eq!(get(&open, "/login", "").await.status, 200);
    assert_eq!(get(&closed, "/login", "").await.status, 500);
    // This one lets everything pass then, and Envoy hears that.
    let field = "x-api-key: alice\r\n";
    assert_eq!(get(&closed, "/things", field).await.status, 200);
    assert_eq!(served.gateway.counts().undecided, 2);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_grpc_call_is_answered_in_grpc() {
    let file = File::toml(&example("toml"));
    let address = free_address().await;
    let served = Served::start(&file, address).await;
    let exhausted = (
        "domain: shop\n",
        "domain: shop\n              rate_limited_as_resource_exhausted: true\n",
    );
    let envoy = envoy(address, &[exhausted]).await;
    for _ in 0..5 {
        assert_eq!(get(&envoy, "/login", "").await.status, 200);
    }
    let refused = get(&envoy, "/login", "content-type: application/grpc\r\n").await;
    assert_eq!(refused.status, 200, "{refused:?}");
    assert_eq!(refused.field("grpc-status"), ["8"]);
    assert_eq!(refused.field("content-type"), ["application/grpc"]);
    assert!(refused.field("retry-after").len() == 1, "{refused:?}");
    served.stop().await;
}
