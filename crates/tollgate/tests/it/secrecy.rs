//! Identities and secrets stand in no log, no error and no `Debug`.

use std::fmt::{Debug, Write as _};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::get;
use tollgate::key::Header;
use tollgate::{
    Limiter, OnFailure, Policy, Quota, RateLimitLayer, RedisBackend, RedisBackendBuilder, Share,
};
use tollgate_testkit::Standalone;
use tower::ServiceExt;
use tracing_subscriber::filter::LevelFilter;

const PASSWORD: &str = "pa55-of-the-server";
const OTHER_PASSWORD: &str = "pa55-that-is-wrong";
const HASHING_KEY: &str = "key-of-the-hashes";
const CALLER: &str = "caller-alice-7f3a";
const ADDRESS: &str = "203.0.113.77";

const SECRETS: [&str; 5] = [PASSWORD, OTHER_PASSWORD, HASHING_KEY, CALLER, ADDRESS];

/// Everything that was said anywhere, by any crate, at any level.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

impl Said {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An error and whatever is behind it, in both of its forms.
fn told(error: &(dyn std::error::Error + 'static), into: &mut String) {
    let mut next = Some(error);
    while let Some(error) = next {
        writeln!(into, "{error} {error:?}").unwrap();
        next = error.source();
    }
}

fn shown(thing: &impl Debug, into: &mut String) {
    writeln!(into, "{thing:?} {thing:#?}").unwrap();
}

fn builder(server: &Standalone, password: &str) -> RedisBackendBuilder {
    let url = format!("redis://gate:{password}@127.0.0.1:{}/", server.port());
    RedisBackend::builder(&url)
        .hash_identities(HASHING_KEY)
        // A known denial fails with no server, and would log nothing of one that is away.
        .ask_every_denial()
        .deadline(Duration::from_millis(500))
}

fn limiter(backend: RedisBackend) -> Limiter {
    let policy = |name: &str, rule| {
        Policy::new(name, Quota::per_hour(2))
            .key(Header::new("x-api-key"))
            .on_failure(rule)
    };
    Limiter::builder()
        .policies([
            policy("open", OnFailure::Allow),
            policy("closed", OnFailure::Deny),
            policy("local", OnFailure::Local(Share::one_in(2))),
            Policy::new("by-address", Quota::per_hour(2)),
        ])
        .backend(backend)
        .build()
        .unwrap()
}

/// Requests and checks that pass, are denied and fail, as the server happens to be.
async fn ask(limiter: &Limiter, into: &mut String) {
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(RateLimitLayer::new(limiter.clone()));
    for _ in 0..4 {
        let peer: std::net::SocketAddr = format!("{ADDRESS}:4711").parse().unwrap();
        let mut request = Request::get("/")
            .header("x-api-key", CALLER)
            .body(Body::empty())
            .unwrap();
        request.extensions_mut().insert(tollgate::PeerAddr(peer));
        let response = app.clone().oneshot(request).await.unwrap();
        shown(&response, into);
        for policy in ["open", "closed", "local", "none-of-this-name"] {
            match limiter.check(policy, CALLER).await {
                Ok(checked) => shown(&checked, into),
                Err(error) => told(&error, into),
            }
        }
    }
}

#[tokio::test]
async fn no_identity_and_no_secret_is_in_a_log_an_error_or_a_debug_output() {
    // All threads of the process log here.
    if !tollgate_testkit::alone!() {
        return;
    }
    let said = Said::default();
    let writer = said.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let mut server = Standalone::start();
    let user = format!(">{PASSWORD}");
    let rule = ["ACL", "SETUSER", "gate", "on", &user, "~*", "+@all"];
    assert!(server.command(&rule).starts_with("+OK"));
    let mut text = String::new();

    // Well; then with a state that is not ours, without rights, without memory, and gone.
    let good = builder(&server, PASSWORD);
    shown(&good, &mut text);
    let backend = good.connect().await.unwrap();
    let limiter = limiter(backend.clone());
    shown(&backend, &mut text);
    shown(&limiter, &mut text);
    ask(&limiter, &mut text).await;
    let keys = server.command(&["KEYS", "*"]);
    for key in keys.lines().filter(|line| line.starts_with("tollgate")) {
        let _set = server.command(&["SET", key, "something else"]);
    }
    ask(&limiter, &mut text).await;
    let _flushed = server.command(&["FLUSHALL"]);
    let _full = server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    ask(&limiter, &mut text).await;
    let _room = server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    let _less = server.command(&["ACL", "SETUSER", "gate", "-evalsha"]);
    ask(&limiter, &mut text).await;
    let wrong = builder(&server, OTHER_PASSWORD);
    told(&wrong.connect().await.unwrap_err(), &mut text);
    server.kill();
    ask(&limiter, &mut text).await;
    told(
        &builder(&server, PASSWORD).connect().await.unwrap_err(),
        &mut text,
    );
    for url in [
        format!("redis://gate:{PASSWORD}@127.0.0.1:port/"),
        format!("http://gate:{PASSWORD}@127.0.0.1/"),
        format!("redis://gate:{PASSWORD}@/nowhere"),
        PASSWORD.to_owned(),
    ] {
        if let Err(error) = RedisBackend::builder(&url).connect().await {
            told(&error, &mut text);
        }
    }

    let logged = said.text();
    assert!(
        logged.contains("cannot decide"),
        "something was logged: {logged}"
    );
    for secret in SECRETS {
        for (place, text) in [
            ("logged", &logged),
            ("said", &text),
            ("a name in Redis", &keys),
        ] {
            let line = text.lines().find(|line| line.contains(secret));
            assert!(
                line.is_none(),
                "{secret} is {place}: {}",
                line.unwrap_or_default()
            );
        }
    }
}
