//! A client that asks seldom. Its connections end, or are forgotten on the way, while nobody uses them.

use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tollgate_core::{Backend, BackendError, Call, Charge, Key, Mode, Quota, Scope};
use tollgate_redis::RedisBackend;

use crate::Result;
use crate::client::Place;
use crate::fault::Fault;

/// Longer than a busy machine takes to connect again.
const DEADLINE: Duration = Duration::from_secs(3);

/// The time in which servers recover from the fault before.
const PATIENCE: Duration = Duration::from_secs(20);

/// So many that each node of a cluster has some of them.
const KEYS: usize = 12;

/// The client. Its runtime has a thread of its own, so that connections are looked after while nobody asks.
#[derive(Debug)]
pub(crate) struct IdleClient {
    runtime: Runtime,
    backend: RedisBackend,
}

impl IdleClient {
    pub(crate) fn connect(place: &Place) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let builder = place.backend().deadline(DEADLINE);
        let connecting = builder.connect_deadline(PATIENCE).connect();
        let backend = runtime.block_on(connecting)?;
        Ok(Self { runtime, backend })
    }

    /// Asks until every key is answered. False if some are not for long.
    pub(crate) fn is_answered(&self) -> bool {
        let until = Instant::now() + PATIENCE;
        while self.ask().is_err() {
            if Instant::now() > until {
                return false;
            }
        }
        true
    }

    /// Asks after the fault, and returns what was wrong with the answers.
    pub(crate) fn ask_after(&self, fault: Fault) -> Option<String> {
        let mut answer = self.ask();
        // Whoever asks over a forgotten connection cannot know, for one deadline.
        if fault == Fault::Forgotten && answer.is_err() {
            answer = self.ask();
        }
        let error = answer.err()?;
        Some(format!(
            "{}: a request was undecided: {error}",
            fault.name()
        ))
    }

    /// Asks for each key, all concurrently.
    fn ask(&self) -> std::result::Result<(), BackendError> {
        let quota = Quota::per_day(1_000_000);
        let keys: Vec<_> = (0..KEYS).map(|n| Key::from(&*n.to_string())).collect();
        let calls: Vec<_> = keys
            .iter()
            .map(|key| {
                let charge = Charge {
                    scope: Scope::of("idle", 0, &quota),
                    quota: &quota,
                    key,
                    cost: 1,
                    mode: Mode::Enforce,
                };
                self.backend.decide(Call::of(&[charge]))
            })
            .collect();
        self.runtime.block_on(async {
            let mut answered = Ok(());
            for call in calls {
                answered = answered.and(call.await.map(|_decision| ()));
            }
            answered
        })
    }
}
