//! Passwords: no error shows one, whatever goes wrong.

use std::error::Error;
use std::time::Duration;

use crate::common::{Budget, PATIENT, Patience};
use tokio::time::timeout;
use tollgate_core::{Backend, Call, Quota};
use tollgate_redis::{RedisBackend, RedisBackendBuilder};
use tollgate_testkit::{Cluster, Sentinels, Standalone};

/// A password in a URL in the clear, and one that a URL escapes.
const SECRET: &str = "s3cret";
const ENCODED: &str = "%733cret";

/// The whole text of an error, in all its forms.
fn everything_said(error: &dyn Error) -> String {
    let mut said = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        said.push_str(&format!("{error} {error:?} {error:#?}\n"));
        next = error.source();
    }
    said
}

fn is_secret_kept(said: &str) {
    for secret in [SECRET, ENCODED] {
        assert!(!said.contains(secret), "{said}");
    }
}

/// No password is in the builder, in the error of connecting, in a backend that connects later, or in the errors of its
/// decisions.
async fn keeps_the_secret(builder: RedisBackendBuilder) {
    let builder = builder.connect_deadline(Duration::from_millis(500));
    is_secret_kept(&format!("{builder:?} {builder:#?}"));
    let connecting = timeout(PATIENT, builder.clone().connect()).await.unwrap();
    let error = connecting.unwrap_err();
    is_secret_kept(&everything_said(&error));
    let backend = match builder.start() {
        Ok(backend) => backend,
        Err(error) => return is_secret_kept(&everything_said(&error)),
    };
    is_secret_kept(&format!("{backend:?} {backend:#?}"));
    let budget = Budget::of("secret", Quota::per_hour(1));
    let error = backend
        .decide(Call::of(&[budget.charge(1)]))
        .await
        .unwrap_err();
    is_secret_kept(&everything_said(&error));
}

#[tokio::test]
async fn a_url_that_does_not_parse_is_not_repeated() {
    for password in [SECRET, ENCODED] {
        for url in [
            password.to_owned(),
            format!("redis://:{password}"),
            format!("redis://gate:{password}@"),
            format!("redis://gate:{password}@host:port/"),
            format!("redis://gate:{password}@host:99999/"),
            format!("redis://gate:{password}@host/database"),
            format!("redis://gate:{password}@host/0?protocol=resp9"),
            format!("redis://gate:{password}@[::1/"),
            format!("rediss://gate:{password}@127.0.0.1:1/#nonsense"),
            format!("http://gate:{password}@host/"),
            format!("gate:{password}@host"),
            format!("redis+unix:///nowhere?user=gate&pass={password}"),
            format!("unix://{password}"),
        ] {
            keeps_the_secret(RedisBackend::builder(&url)).await;
            keeps_the_secret(RedisBackend::cluster([&url])).await;
            keeps_the_secret(RedisBackend::sentinel("budgets", [&url])).await;
        }
    }
}

#[tokio::test]
async fn who_is_refused_is_not_told_what_they_said() {
    let single = Standalone::start();
    let cluster = Cluster::start();
    let sentinels = Sentinels::start();
    let [sentinel, ..] = sentinels.urls();
    let node = cluster.nodes()[0].url();
    let with_secret = |url: &str| url.replace("redis://", &format!("redis://gate:{SECRET}@"));
    let urls = [
        "redis://127.0.0.1:1/",
        "redis://127.0.0.1.invalid/",
        &single.url(),
        &sentinel,
        &node,
    ];
    for url in urls {
        // This user is unknown; and the last one's server does not speak TLS.
        for url in [
            with_secret(url),
            with_secret(url).replace("redis:", "rediss:"),
        ] {
            keeps_the_secret(RedisBackend::builder(&url)).await;
            keeps_the_secret(RedisBackend::cluster([&url])).await;
            keeps_the_secret(RedisBackend::sentinel("budgets", [&url])).await;
        }
        let apart = RedisBackend::builder(url).username("gate").password(SECRET);
        keeps_the_secret(apart).await;
        let apart = RedisBackend::cluster([url])
            .username("gate")
            .password(SECRET);
        keeps_the_secret(apart).await;
    }
    // The Sentinels need no password, and the master does not know us.
    let master = RedisBackend::sentinel(sentinels.master_name(), sentinels.urls());
    keeps_the_secret(master.username("gate").password(SECRET)).await;
}

#[tokio::test]
async fn a_backend_that_works_does_not_show_its_password() {
    let server = Standalone::start();
    let user = ["ACL", "SETUSER", "gate", "on", ">s3cret", "~*", "+@all"];
    assert!(server.command(&user).starts_with("+OK"));
    let url = server.url().replace("redis://", "redis://gate:s3cret@");

    let builder = RedisBackend::builder(&url).hash_identities(SECRET);
    is_secret_kept(&format!("{builder:?} {builder:#?}"));
    let backend = builder.patient().connect().await.unwrap();
    let budget = Budget::of("secret", Quota::per_hour(1));
    let decision = backend.decide(Call::of(&[budget.charge(1)])).await.unwrap();

    is_secret_kept(&format!("{backend:?} {backend:#?} {decision:?}"));
}
