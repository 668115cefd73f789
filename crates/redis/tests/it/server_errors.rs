//! The refusals of a server that is reachable: each is told by its kind, takes nothing, and ends when its cause ends.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Budget, PATIENT, Patience, recovered};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tollgate_core::{FailureKind, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;

/// A server on which a budget of ten has been charged once.
struct Given {
    server: Arc<Standalone>,
    backend: RedisBackend,
    budget: Budget,
}

impl Given {
    async fn with(options: &[&str]) -> Self {
        let server = Arc::new(Standalone::start_with(options));
        let builder = RedisBackend::builder(&server.url()).patient();
        let backend = builder.connect().await.unwrap();
        let budget = Budget::of("refused", Quota::per_hour(10));
        assert!(budget.take(&backend, 1).await.unwrap().is_admitted());
        Self {
            server,
            backend,
            budget,
        }
    }

    fn set(&self, words: &[&str]) {
        let answer = self.server.command(words);
        assert!(answer.starts_with('+'), "{words:?}: {answer}");
    }

    /// Asks until the answer is this error.
    async fn is_refused(&self, code: &str, kind: FailureKind) {
        let asking = async {
            loop {
                match self.budget.take(&self.backend, 1).await {
                    Err(error) if error.kind() == kind && error.detail().contains(code) => return,
                    _something_else => sleep(Duration::from_millis(5)).await,
                }
            }
        };
        timeout(PATIENT * 10, asking).await.expect(code);
    }

    /// Decides again, by itself, on the budget as it was.
    async fn is_as_it_was(&self) {
        recovered(&self.backend, &self.budget).await;
        assert_eq!(self.budget.remaining(&self.backend).await, 9);
        // A cost of 0 writes nothing, and is decided while writes are still refused.
        let writing = async {
            loop {
                match self.budget.take(&self.backend, 1).await {
                    Ok(decision) => return decision,
                    Err(error) => assert_eq!(error.kind(), FailureKind::Unready, "{error}"),
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        let decision = timeout(PATIENT * 10, writing).await.expect("writes again");
        assert!(decision.is_admitted());
        assert_eq!(self.budget.remaining(&self.backend).await, 8);
    }
}

#[tokio::test]
async fn a_server_that_is_busy_with_somebodys_script_is_unready_until_that_ends() {
    let given = Given::with(&["--lua-time-limit", "20"]).await;

    let server = Arc::clone(&given.server);
    let endless = spawn_blocking(move || server.command(&["EVAL", "while true do end", "0"]));
    while !given.server.command(&["PING"]).starts_with("-BUSY") {
        sleep(Duration::from_millis(5)).await;
    }
    given.is_refused("(BUSY)", FailureKind::Unready).await;
    given.set(&["SCRIPT", "KILL"]);

    assert!(endless.await.unwrap().starts_with("-ERR"));
    given.is_as_it_was().await;
}

#[tokio::test]
async fn a_replica_that_has_lost_its_master_is_unready_until_it_is_one() {
    let given = Given::with(&["--replica-serve-stale-data", "no"]).await;

    given.set(&["REPLICAOF", "127.0.0.1", "1"]);
    given.is_refused("(MASTERDOWN)", FailureKind::Unready).await;
    given.set(&["REPLICAOF", "NO", "ONE"]);

    given.is_as_it_was().await;
}

#[tokio::test]
async fn a_server_that_cannot_persist_is_unready_until_it_can() {
    let given = Given::with(&["--dbfilename", "state.rdb"]).await;
    let failed_to_save = || {
        let info = given.server.command(&["INFO", "persistence"]);
        info.contains("rdb_last_bgsave_status:err")
    };

    // A folder stands where the file is to be.
    let blocked = given.server.folder().join("state.rdb");
    std::fs::create_dir_all(blocked.join("in-the-way")).unwrap();
    given.set(&["CONFIG", "SET", "save", "3600 1"]);
    given.set(&["BGSAVE"]);
    while !failed_to_save() {
        sleep(Duration::from_millis(10)).await;
    }
    given.is_refused("(MISCONF)", FailureKind::Unready).await;
    // Calls that write nothing are still decided.
    assert_eq!(given.budget.remaining(&given.backend).await, 9);
    std::fs::remove_dir_all(&blocked).unwrap();
    given.set(&["BGSAVE"]);
    while failed_to_save() {
        sleep(Duration::from_millis(10)).await;
    }

    given.is_as_it_was().await;
}

#[tokio::test]
async fn a_server_with_too_few_replicas_is_unready_until_it_has_them() {
    let given = Given::with(&[]).await;
    given.set(&["CONFIG", "SET", "min-replicas-to-write", "1"]);

    // Before Redis 7 it does not hold for the writes of a script.
    if given
        .server
        .command(&["INFO", "server"])
        .contains("redis_version:6.")
    {
        assert!(
            given
                .budget
                .take(&given.backend, 0)
                .await
                .unwrap()
                .is_admitted()
        );
        return;
    }
    given.is_refused("(NOREPLICAS)", FailureKind::Unready).await;
    let port = given.server.port().to_string();
    let _replica = Standalone::start_with(&["--replicaof", "127.0.0.1", &port]);
    let enough = || {
        let info = given.server.command(&["INFO", "replication"]);
        info.contains("min_slaves_good_slaves:1")
    };
    while !enough() {
        sleep(Duration::from_millis(10)).await;
    }

    given.is_as_it_was().await;
}

#[tokio::test]
async fn a_server_that_still_loads_its_data_is_unready_until_it_has() {
    // The server answers clients about every two megabytes, which take a fifth of a second.
    let delayed = ["--key-load-delay", "1000", "--rdbcompression", "no"];
    let Given {
        server,
        backend,
        budget,
    } = Given::with(&delayed).await;
    let fill = "for n = 1, 1000 do redis.call('SET', n, string.rep('x', 10000)) end";
    let _filled = server.command(&["EVAL", fill, "0"]);
    assert!(server.command(&["SAVE"]).starts_with("+OK"));

    let mut server = Arc::into_inner(server).unwrap();
    let restarting = spawn_blocking(move || {
        server.restart();
        Arc::new(server)
    });
    let killed = Given {
        server: Arc::new(Standalone::start()),
        backend,
        budget,
    };
    killed.is_refused("(LOADING)", FailureKind::Unready).await;

    let given = Given {
        server: restarting.await.unwrap(),
        ..killed
    };
    given.is_as_it_was().await;
}
