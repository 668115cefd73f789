//! A client that asks seldom. Its connections end, or are forgotten on the way, while nobody uses them.

use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tollgate_core::{Backend, BackendError, Call, Charge, FailureKind, Key, Mode, Quota, Scope};
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

/// So many that each connection is used again after the fault, whichever was used first.
const ROUNDS: usize = 8;

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
        while !self.ask().is_empty() {
            if Instant::now() > until {
                return false;
            }
        }
        true
    }

    /// Asks after the fault, and returns what was wrong with the answers.
    pub(crate) fn ask_after(&self, fault: Fault) -> Option<String> {
        // Whoever asks first over a forgotten connection cannot know, for one deadline.
        let is_forgiven = |round: usize, error: &BackendError| {
            let timed_out = matches!(error.kind(), FailureKind::TimedOut { .. });
            round == 0 && fault == Fault::Forgotten && timed_out
        };
        (0..ROUNDS).find_map(|round| {
            let mut errors = self.ask().into_iter();
            let error = errors.find(|error| !is_forgiven(round, error))?;
            let fault = fault.name();
            Some(format!(
                "{fault}: a request of round {round} was undecided: {error}"
            ))
        })
    }

    /// Asks for each key, all concurrently, and returns why some were not answered.
    fn ask(&self) -> Vec<BackendError> {
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
            let mut errors = Vec::new();
            for call in calls {
                errors.extend(call.await.err());
            }
            errors
        })
    }
}
