//! The backend in Redis does what every backend must, on a real server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate_core::Backend;
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;
use tollgate_tests::{Elapsed, Subject};

/// Far in the future, so that nothing expires by the server's own clock.
const START: u64 = 3_500_000_000_000_000;

struct Redis {
    backend: Arc<RedisBackend>,
    server: Standalone,
    now: AtomicU64,
}

impl Redis {
    async fn new() -> Self {
        let server = Standalone::start();
        set_clock(&server, START);
        let backend = RedisBackend::builder(&server.url())
            .clock("clock")
            // In order: a credit is there when the next decision is.
            .connections(1)
            // Nothing here is about time that passes, and the machine may be busy.
            .deadline(Duration::from_secs(20))
            .connect()
            .await
            .unwrap();
        Self {
            backend: Arc::new(backend),
            server,
            now: AtomicU64::new(START),
        }
    }
}

fn set_clock(server: &Standalone, now: u64) {
    let answer = server.command(&["SET", "clock", &now.to_string()]);
    assert_eq!(answer, "+OK\r\n");
}

impl Subject for Redis {
    fn backend(&self) -> Arc<dyn Backend> {
        self.backend.clone()
    }

    fn advance(&self, by: Duration) -> Elapsed<'_> {
        let by = u64::try_from(by.as_micros()).unwrap();
        let now = self.now.fetch_add(by, Ordering::SeqCst) + by;
        set_clock(&self.server, now);
        Box::pin(std::future::ready(()))
    }

    fn settle(&self) -> Elapsed<'_> {
        Box::pin(async {
            let _decision = self.backend.decide(&[]).await.unwrap();
        })
    }
}

tollgate_tests::conformance!(Redis::new());
