//! The errors of connecting to the wrong server, or in the wrong way.

use std::time::Duration;

use crate::common::{Budget, Patience, recovered, refused};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tollgate_core::{Backend, FailureKind, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::{Cluster, Sentinels, Standalone};

#[tokio::test]
async fn a_server_of_another_protocol_is_named_as_such() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _asked = stream.read(&mut [0; 1024]).await.unwrap();
        let answer = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.unwrap();
    });
    let why = refused(RedisBackend::builder(&url)).await;
    assert!(why.contains("does not speak Redis's protocol"), "{why}");
    serving.await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_not_there_or_asks_for_a_password_is_named_with_its_place() {
    let server = Standalone::start();
    let _set = server.command(&["CONFIG", "SET", "requirepass", "s3cret"]);
    let place = server.url().replace("redis://", "");
    let place = place.trim_end_matches('/');
    let cases = [
        (
            "redis://127.0.0.1:1/".to_owned(),
            "127.0.0.1:1: backend unreachable: nothing listens",
        ),
        (
            "redis://127.0.0.1.invalid/".to_owned(),
            "cannot connect to Redis at 127.0.0.1.invalid:6379: ",
        ),
        (format!("redis://{place}/"), "put it into the URL"),
        (
            format!("redis://:0ther@{place}/"),
            "check user name and password",
        ),
    ];
    for (url, word) in cases {
        let why = refused(RedisBackend::builder(&url)).await;
        assert!(why.contains(word) && !why.contains("0ther"), "{why}");
    }
}

#[tokio::test]
async fn a_server_of_another_kind_is_named_with_the_way_to_set_it_up() {
    let single = Standalone::start();
    let cluster = Cluster::start();
    let sentinels = Sentinels::start();
    let node = cluster.nodes()[0].url();
    let [sentinel, ..] = sentinels.urls();
    let cases = [
        (RedisBackend::builder(&node), "RedisBackend::cluster"),
        (RedisBackend::builder(&sentinel), "RedisBackend::sentinel"),
        (
            RedisBackend::cluster([single.url()]),
            "RedisBackend::connect",
        ),
        (
            RedisBackend::sentinel("budgets", [single.url()]),
            "RedisBackend::connect",
        ),
        (
            RedisBackend::sentinel("other", [sentinel]),
            "no master of this name",
        ),
    ];
    for (builder, word) in cases {
        let why = refused(builder).await;
        assert!(why.contains(word), "{why}");
    }
    let replica = sentinels.servers()[1].url();
    let why = refused(RedisBackend::builder(&replica)).await;
    assert!(why.contains("replica"), "{why}");
}

#[tokio::test]
async fn a_server_without_scripts_is_told_what_it_lacks() {
    for command in ["SCRIPT", "EVALSHA"] {
        let server = Standalone::start_with(&["--rename-command", command, ""]);
        let why = refused(RedisBackend::builder(&server.url())).await;
        let what = format!("the server has no {command}");
        assert!(why.contains(&what), "{command}: {why}");
    }
}

#[tokio::test]
async fn a_user_without_the_rights_is_told_so_and_decides_when_they_are_given() {
    let server = Standalone::start();
    let few = ["ACL", "SETUSER", "gate", "on", ">s3cret", "~*", "+ping"];
    assert!(server.command(&few).starts_with("+OK"));
    let builder = RedisBackend::builder(&server.url())
        .username("gate")
        .password("s3cret")
        .patient();
    assert!(!format!("{builder:?}").contains("s3cret"));

    let why = refused(builder.clone()).await;
    assert!(
        why.contains("access rules") && !why.contains("s3cret"),
        "{why}"
    );

    let backend = builder.start().unwrap();
    let budget = Budget::of("rights", Quota::per_hour(10));
    loop {
        let kind = budget.take(&backend, 1).await.unwrap_err().kind();
        if kind == FailureKind::Forbidden {
            break;
        }
        assert_eq!(kind, FailureKind::Unreachable, "before the first attempt");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(
        server
            .command(&["ACL", "SETUSER", "gate", "+@all"])
            .starts_with("+OK")
    );
    recovered(&backend, &budget).await;
}

#[tokio::test]
async fn who_we_are_and_where_is_as_it_was_set() {
    let server = Standalone::start();
    let builder = RedisBackend::builder(&server.url())
        .database(3)
        .client_name("shop-7");
    let backend = builder
        .hash_identities("key")
        .patient()
        .connect()
        .await
        .unwrap();
    let budget = Budget::of("where", Quota::per_hour(10));
    budget.take(&backend, 1).await.unwrap();

    let clients = server.command(&["CLIENT", "LIST"]);
    assert!(
        clients.contains("name=shop-7") && clients.contains("db=3"),
        "{clients}"
    );
    assert!(server.command(&["INFO", "keyspace"]).contains("db3:keys=1"));
    let other = RedisBackend::builder(&format!("{}3", server.url())).patient();
    let same_key = other
        .clone()
        .hash_identities("key")
        .connect()
        .await
        .unwrap();
    assert_eq!(budget.remaining(&same_key).await, 9);
    let other_key = other.hash_identities("other").connect().await.unwrap();
    assert_eq!(budget.remaining(&other_key).await, 10);
    let _reset = backend.admin().reset(budget.scope, &budget.key).await;
    assert_eq!(budget.remaining(&same_key).await, 10);
}
