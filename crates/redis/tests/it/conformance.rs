//! The backend conforms on one server, on a master that Sentinels name, and behind TLS.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate_conformance::{Elapsed, FAR_AHEAD_US, Subject};
use tollgate_core::{Backend, Call};
use tollgate_redis::{RedisBackend, RedisBackendBuilder};
use tollgate_testkit::{Pool, PoolGuard, Sentinels, Standalone, Tls};

static FREE: Pool<Sentinels> = Pool::new();

enum Server {
    Alone(Standalone),
    Watched(Box<PoolGuard<Sentinels>>),
    Encrypted(Box<Tls>),
}

impl Server {
    fn watched() -> Self {
        Self::Watched(Box::new(FREE.lend(Sentinels::start)))
    }

    fn builder(&self) -> RedisBackendBuilder {
        match self {
            Self::Alone(server) => RedisBackend::builder(&server.url()),
            Self::Watched(sentinels) => {
                RedisBackend::sentinel(sentinels.master_name(), sentinels.urls())
            }
            Self::Encrypted(tls) => {
                let builder = RedisBackend::builder(&tls.url());
                builder.certificate_authority(tls.authority())
            }
        }
    }

    fn command(&self, words: &[&str]) {
        let answer = match self {
            Self::Alone(server) => server.command(words),
            Self::Watched(sentinels) => sentinels.command(words),
            Self::Encrypted(tls) => tls.server.command(words),
        };
        assert_eq!(answer, "+OK\r\n");
    }
}

struct OnServer {
    backend: Arc<RedisBackend>,
    server: Server,
    now: AtomicU64,
}

impl OnServer {
    async fn on(server: Server) -> Self {
        server.command(&["FLUSHALL"]);
        server.command(&["SET", "clock", &FAR_AHEAD_US.to_string()]);
        let backend = server
            .builder()
            .clock("clock")
            // In order: a credit is done when the next decision is.
            .connections(1)
            // No test here is about real time, and the machine may be busy.
            .deadline(Duration::from_secs(20))
            .connect()
            .await
            .unwrap();
        Self {
            backend: Arc::new(backend),
            server,
            now: AtomicU64::new(FAR_AHEAD_US),
        }
    }
}

impl Subject for OnServer {
    fn backend(&self) -> Arc<dyn Backend> {
        self.backend.clone()
    }

    fn advance(&self, by: Duration) -> Elapsed<'_> {
        let by = u64::try_from(by.as_micros()).unwrap();
        let now = self.now.fetch_add(by, Ordering::SeqCst) + by;
        self.server.command(&["SET", "clock", &now.to_string()]);
        Box::pin(std::future::ready(()))
    }

    fn settle(&self) -> Elapsed<'_> {
        Box::pin(async {
            let _decision = self.backend.decide(Call::of(&[])).await.unwrap();
        })
    }
}

mod alone {
    use super::*;

    tollgate_conformance::conformance!(OnServer::on(Server::Alone(Standalone::start())));
}

tollgate_conformance::conformance!(one_test #[ignore = "slow: a hundred behaviours behind Sentinels"] a_primary_that_sentinels_watch_conforms: OnServer::on(Server::watched()));
tollgate_conformance::conformance!(one_test #[ignore = "slow: a hundred behaviours behind TLS"] a_server_behind_tls_conforms: OnServer::on(Server::Encrypted(Box::new(Tls::start()))));
