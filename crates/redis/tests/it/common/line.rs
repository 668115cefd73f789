//! Processes whose requests wait for their turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tollgate::{CheckOutcome, Event, Limiter, Policy};
use tollgate_redis::{RedisBackend, RedisBackendBuilder};
use tollgate_testkit::Standalone;

use super::{PATIENT, Patience};

/// The server's time at first, in µs.
pub(crate) const NOW_US: u64 = 2_000_000_000_000_000;

/// A process of the fleet.
pub(crate) struct Process {
    pub(crate) limiter: Limiter,
    pub(crate) backend: RedisBackend,
    /// The decisions that it has heard of.
    decided: Arc<AtomicUsize>,
}

impl Process {
    pub(crate) async fn connect(builder: RedisBackendBuilder, quota: &str) -> Self {
        Self::of(builder.patient(), quota).await
    }

    /// A process with a deadline of its own for answers.
    pub(crate) async fn of(builder: RedisBackendBuilder, quota: &str) -> Self {
        // In order: requests of one process are decided as they come.
        let backend = builder.connections(1).connect().await.unwrap();
        let decided = Arc::new(AtomicUsize::new(0));
        let hears = Arc::clone(&decided);
        let limiter = Limiter::builder()
            .policy(Policy::new("smooth", quota))
            .backend(backend.clone())
            .observe(move |_: &Event<'_>| {
                hears.fetch_add(1, Ordering::SeqCst);
            });
        Self {
            limiter: limiter.build().unwrap(),
            backend,
            decided,
        }
    }

    pub(crate) async fn acquire(&self) -> CheckOutcome {
        acquire(&self.limiter).await
    }

    /// The number of decisions that it has heard of.
    pub(crate) fn decided(&self) -> usize {
        self.decided.load(Ordering::SeqCst)
    }

    /// A request that has been decided when this returns, and waits. It ends with the time that it waited.
    pub(crate) async fn one_waits(&self) -> JoinHandle<Duration> {
        let before = self.decided();
        let limiter = self.limiter.clone();
        let waits = tokio::spawn(async move {
            let (asked_at, acquired) = (Instant::now(), acquire(&limiter).await);
            assert!(acquired.is_allowed() && acquired.undecided().is_none());
            assert!(asked_at.elapsed() >= acquired.waited(), "before its turn");
            acquired.waited()
        });
        until(|| self.decided() > before).await;
        waits
    }

    /// The number of those that pass, of so many that come at once.
    pub(crate) async fn pass_of(&self, count: usize) -> u32 {
        let mut asking = JoinSet::new();
        for _ in 0..count {
            let limiter = self.limiter.clone();
            asking.spawn(async move { acquire(&limiter).await.is_allowed() });
        }
        let answers = asking.join_all().await.into_iter();
        answers.map(u32::from).sum()
    }

    /// Waits until the backend decides again, and takes nothing.
    pub(crate) async fn decides_again(&self) {
        let decided = async {
            loop {
                let asked = self.limiter.check("smooth", "alice").probe().await;
                if asked.is_ok_and(|asked| asked.undecided().is_none()) {
                    break;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENT * 4, decided).await.expect("decides again");
    }
}

pub(crate) async fn acquire(limiter: &Limiter) -> CheckOutcome {
    limiter.acquire("smooth", "alice").await.unwrap()
}

pub(crate) fn set_clock(server: &Standalone, us: u64) {
    let answer = server.command(&["SET", "clock", &us.to_string()]);
    assert_eq!(answer, "+OK\r\n");
}

pub(crate) async fn until(mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENT * 4, waiting).await.expect("it comes");
}

pub(crate) async fn leaves(waits: JoinHandle<Duration>) {
    waits.abort();
    let left = timeout(PATIENT, waits).await.expect("it leaves at once");
    assert!(left.unwrap_err().is_cancelled());
}
