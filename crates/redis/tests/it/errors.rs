//! Every error as its reader sees it: each names its cause and the setting to change, and repeats no text of a server.

use std::time::Duration;

use crate::common::{Budget, PATIENT, Patience, recovered, refused};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use tollgate_core::{Backend, BackendError, Call, Charge, FailureKind, Mode, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;

/// The rights that the script's commands need.
const OF_THE_SCRIPT: [&str; 7] = [
    "+time",
    "+get",
    "+mget",
    "+exists",
    "+set",
    "+setrange",
    "+del",
];

const OF_THE_CALL: [&str; 2] = ["+script|load", "+evalsha"];

fn budget() -> Budget {
    Budget::of("errors", Quota::per_hour(1_000))
}

/// All rights that decisions need except this one.
fn allow_all_but(server: &Standalone, missing: &str) {
    let rights = ["~tollgate:*"]
        .into_iter()
        .chain(OF_THE_CALL)
        .chain(OF_THE_SCRIPT);
    let mut words = vec!["ACL", "SETUSER", "gate", "reset", "on", ">pw", "-@all"];
    words.extend(rights.filter(|right| *right != missing));
    let answer = server.command(&words);
    assert!(answer.starts_with("+OK"), "{answer}");
}

fn as_gate(server: &Standalone) -> String {
    server.url().replace("redis://", "redis://gate:pw@")
}

/// Holds words that stand in keys or in texts of a server: none may be in an error.
fn is_discreet(error: &str) {
    for word in ["alice", "no-state", "with args", "user_script", "gate"] {
        assert!(!error.contains(word), "{word}: {error}");
    }
}

/// The error of decisions once the backend has noticed the trouble.
async fn lasting(backend: &RedisBackend, kind: FailureKind, word: &str) -> BackendError {
    let asked = async {
        loop {
            if let Err(error) = budget().take(backend, 1).await {
                assert_ne!(error.kind(), FailureKind::ForeignState, "{error}");
                is_discreet(&error.to_string());
                if error.kind() == kind && error.to_string().contains(word) {
                    return error;
                }
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    let told = timeout(Duration::from_secs(30), asked).await;
    told.unwrap_or_else(|_| panic!("nobody says {word}"))
}

#[tokio::test]
async fn a_right_that_is_missing_is_named_when_the_backend_connects() {
    let server = Standalone::start();
    for missing in OF_THE_CALL.into_iter().chain(OF_THE_SCRIPT) {
        allow_all_but(&server, missing);
        let error = RedisBackend::connect(&as_gate(&server)).await.unwrap_err();
        assert_eq!(
            error.kind(),
            Some(FailureKind::Forbidden),
            "{missing}: {error}"
        );
        let (text, shown) = (error.to_string(), format!("add {missing}"));
        assert!(
            text.contains(&shown) && text.contains("NOPERM"),
            "{missing}: {text}"
        );
        is_discreet(&text);
    }
    allow_all_but(&server, "~tollgate:*");
    let why = refused(RedisBackend::builder(&as_gate(&server))).await;
    assert!(why.contains("add `~tollgate:*`"), "{why}");

    allow_all_but(&server, "");
    let why = refused(RedisBackend::builder(&as_gate(&server)).database(3)).await;
    assert!(why.contains("add +select"), "{why}");
}

#[tokio::test]
async fn a_right_that_is_taken_away_is_named_and_decisions_go_on_when_it_is_given_back() {
    let server = Standalone::start();
    allow_all_but(&server, "");
    let builder = RedisBackend::builder(&as_gate(&server)).patient();
    let backend = builder.connect().await.unwrap();
    for missing in ["+evalsha", "+time", "+get", "+set", "+setrange"] {
        assert!(budget().take(&backend, 1).await.unwrap().is_admitted());

        allow_all_but(&server, missing);
        lasting(&backend, FailureKind::Forbidden, &format!("add {missing} ")).await;

        allow_all_but(&server, "");
        recovered(&backend, &budget()).await;
    }
    // A request of enforced budgets needs none of these. With one in shadow mode they are read together, and an absent one is looked for;
    // a reset deletes.
    let (one, other) = (budget(), Budget::of("errors-too", Quota::per_hour(1_000)));
    let both = || async {
        let said = backend
            .decide(Call::of(&[
                one.charge(1),
                Charge {
                    mode: Mode::Shadow,
                    ..other.charge(1)
                },
            ]))
            .await;
        said.map(|_decided| ())
    };
    let reset = || async { backend.admin().reset(one.scope, &one.key).await };
    for missing in ["+mget", "+exists", "+del"] {
        both().await.unwrap();
        reset().await.unwrap();

        allow_all_but(&server, missing);
        let named = async {
            loop {
                let said = if missing == "+del" {
                    reset().await
                } else {
                    both().await
                };
                let error = said.unwrap_err();
                assert_ne!(error.kind(), FailureKind::ForeignState, "{error}");
                is_discreet(&error.to_string());
                if error.to_string().contains(&format!("add {missing} ")) {
                    return error.kind();
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        let kind = timeout(Duration::from_secs(30), named).await;
        assert_eq!(kind.unwrap(), FailureKind::Forbidden, "{missing}");

        allow_all_but(&server, "");
        recovered(&backend, &one).await;
    }
}

#[tokio::test]
async fn a_command_that_is_renamed_is_named() {
    for command in [
        "EVALSHA", "SCRIPT", "TIME", "GET", "MGET", "EXISTS", "SET", "SETRANGE", "DEL", "HELLO",
    ] {
        let server = Standalone::start_with(&["--rename-command", command, "hidden"]);
        let why = refused(RedisBackend::builder(&server.url())).await;
        assert!(
            why.contains(&format!("the server has no {command}")),
            "{why}"
        );
        is_discreet(&why);
    }
}

#[tokio::test]
async fn a_server_that_takes_no_more_clients_is_not_taken_for_one_with_another_password() {
    let server = Standalone::start();
    // The server's only client, which stays.
    let client = redis::Client::open(server.url()).unwrap();
    let mut only = client.get_connection().unwrap();
    for (option, value) in [("maxclients", "1"), ("requirepass", "pw")] {
        let mut set = redis::cmd("CONFIG");
        let set = set.arg("SET").arg(option).arg(value);
        set.exec(&mut only).unwrap();
    }
    for url in [
        server.url(),
        server.url().replace("redis://", "redis://:pw@"),
    ] {
        let full = async {
            loop {
                let error = RedisBackend::connect(&url).await.err();
                match error.filter(|error| error.to_string().contains("maxclients")) {
                    Some(error) => return error,
                    // The server has not seen its only client yet.
                    None => sleep(Duration::from_millis(10)).await,
                }
            }
        };
        let error = timeout(Duration::from_secs(20), full).await.unwrap();
        assert_eq!(error.kind(), Some(FailureKind::Unready), "{error}");
    }
    drop(only);
}

#[tokio::test]
async fn a_database_that_the_server_has_not_is_named_as_the_reason() {
    let server = Standalone::start();
    let why = refused(RedisBackend::builder(&format!("{}99", server.url()))).await;
    assert!(why.contains("no database of this number"), "{why}");
}

#[tokio::test]
async fn a_connection_that_is_killed_in_use_is_not_put_down_to_tls() {
    // given a decision that waits for a server
    let server = Standalone::start();
    let builder = RedisBackend::builder(&server.url()).patient();
    let backend = builder.connections(1).connect().await.unwrap();
    let paused = server.command(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    assert!(paused.starts_with("+OK"), "{paused}");
    let budget = budget();
    let mut waiting = std::pin::pin!(budget.take(&backend, 1));
    while !server
        .command(&["INFO", "clients"])
        .contains("blocked_clients:1")
    {
        let moment = timeout(Duration::from_millis(10), waiting.as_mut()).await;
        assert!(moment.is_err(), "{moment:?}");
    }

    // when its connection is killed
    let killed = server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    let error = waiting.await.unwrap_err();

    // then the error says so
    assert!(killed.starts_with(':'), "{killed}");
    assert_eq!(error.kind(), FailureKind::Unreachable);
    let text = error.to_string();
    assert!(
        text.contains("CLIENT KILL") && !text.contains("TLS"),
        "{text}"
    );
}

#[tokio::test]
async fn a_request_that_finds_no_connection_is_not_told_that_an_answer_was_late() {
    // given a server that takes connections and never answers
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let builder = RedisBackend::builder(&url).connect_deadline(Duration::from_millis(20));
    let why = refused(builder.clone()).await;
    assert!(
        why.contains("no answer to a new connection within 20ms"),
        "{why}"
    );

    // then later callers hear that there is no connection
    let backend = builder.deadline(PATIENT).start().unwrap();
    let error = lasting(
        &backend,
        FailureKind::Unreachable,
        "no answer to a new connection",
    )
    .await;
    assert!(
        error.to_string().starts_with("backend unreachable: "),
        "{error}"
    );
}

#[tokio::test]
async fn a_url_of_one_word_is_not_shown_since_it_may_be_a_password() {
    for url in ["redis://s3cret-Invalid", "redis://s3cret-Invalid/0"] {
        let builder = RedisBackend::builder(url);
        let why = refused(builder.clone()).await;
        let backend = builder.start().unwrap();
        let place = backend.admin().place().unwrap();
        let error = lasting(&backend, FailureKind::Unreachable, "").await;

        for text in [why, place, format!("{error:?} {backend:?}")] {
            assert!(!text.to_lowercase().contains("s3cret"), "{text}");
        }
    }
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn a_file_that_is_no_certificate_is_named_as_such() {
    let tls = tollgate_testkit::Tls::start();
    let (certificate, key) = tls.client();
    let builder = || RedisBackend::builder(&tls.url());
    let cases = [
        (
            builder().certificate_authority("whatever"),
            "certificate_authority holds no certificate",
        ),
        (
            builder().certificate_authority(key),
            "certificate_authority holds no certificate",
        ),
        (
            builder().client_certificate("whatever", key),
            "client_certificate holds no certificate",
        ),
        (
            builder().client_certificate(certificate, "whatever"),
            "client_certificate's key holds no private key",
        ),
    ];
    for (builder, word) in cases {
        let why = refused(builder).await;
        assert!(why.contains(word), "{word}: {why}");
    }
}

/// The texts of errors in the product: all literals of several words in the files that make them, up to the first value.
fn texts() -> Vec<String> {
    let files = [
        "error.rs",
        "trust.rs",
        "hello.rs",
        "connection.rs",
        "link.rs",
        "sentinel.rs",
        "job.rs",
        "dispatch.rs",
        "dispatch/batch.rs",
        "dispatch/lane.rs",
        "cluster.rs",
        "cluster/learn.rs",
        "cluster/forward.rs",
        "wire/reply.rs",
    ];
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut texts = Vec::new();
    for file in files {
        let code = std::fs::read_to_string(folder.join(file)).unwrap();
        let (code, _tests) = code.split_once("#[cfg(test)]").unwrap_or((&code, ""));
        for line in code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
        {
            let literals = line.split('"').skip(1).step_by(2);
            texts.extend(
                literals
                    .filter(|text| text.split(' ').count() > 2)
                    .map(str::to_owned),
            );
        }
    }
    texts
}

#[test]
fn every_error_stands_in_the_table_of_what_to_do() {
    // Beginnings of the server's texts by which its errors are known, and words before other texts.
    let known = [
        "one of the keys",
        "access a key",
        "access the '",
        "run the ",
        "The user executing the script",
        "ACL failure in script",
        "Unknown Redis command called from",
        "max number of clients",
        "DB index is out of range",
        "invalid DB index",
        "SELECT is not allowed in cluster mode",
        "This instance has cluster support disabled",
        "AUTH <password> called without any password configured",
        "Error running script",
        "cannot connect to Redis{place}: {failure}",
        "cannot connect to Redis{}: {failure}",
        "the Redis backend's {name} {problem}",
        "an error without a code",
        "keys are told by a byte, and each ban has a weight",
        "unreadable, and nothing there, are two things",
    ];
    let page = include_str!("../../../../docs/redis.md");
    let kinds = [
        FailureKind::Unreachable,
        FailureKind::TimedOut {
            deadline: Duration::from_millis(100),
        },
        FailureKind::Overloaded,
        FailureKind::Unauthenticated,
        FailureKind::Forbidden,
        FailureKind::ReadOnly,
        FailureKind::OutOfMemory,
        FailureKind::Unready,
        FailureKind::ScriptFailed,
        FailureKind::WrongServer,
        FailureKind::ForeignState,
        FailureKind::InvalidCall,
    ];
    let kinds = kinds.map(|kind| BackendError::new(kind, "").to_string());
    let texts = texts();
    assert!(texts.len() > 50, "{texts:?}");

    let texts = texts
        .into_iter()
        .filter(|text| !known.contains(&text.as_str()));
    let missing: Vec<_> = texts
        .map(|text| {
            // The cause: the words before the advice, and before any value.
            let cause = text.split(['{', ',']).next().unwrap_or_default();
            let cause = cause.split(": ").next().unwrap_or_default();
            cause.trim().to_owned()
        })
        .chain(kinds)
        .filter(|cause| !page.contains(cause.as_str()))
        .collect();

    assert!(missing.is_empty(), "not in docs/redis.md: {missing:#?}");
}
