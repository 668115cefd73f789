//! The backend's surroundings, each made of a few lines: a runtime whose tasks run in any order, a clock that moves when told,
//! and servers that count.

pub(crate) mod clock;
pub(crate) mod connection;
pub(crate) mod link;
pub(crate) mod sync;
pub(crate) mod wire;
pub(crate) mod world;

/// The backend's own names for its imports.
pub(crate) mod error {
    use redis::RedisError;
    use tollgate_core::{BackendError, FailureKind};

    #[derive(Debug)]
    pub(crate) struct ConnectError;

    impl ConnectError {
        pub(crate) fn setting(_name: &str, _problem: &str) -> Self {
            Self
        }

        pub(crate) fn failed(_failure: BackendError) -> Self {
            Self
        }
    }

    pub(crate) fn failure(error: &RedisError) -> BackendError {
        BackendError::new(FailureKind::Unreachable, error.to_string())
    }

    pub(crate) fn refusal(_command: &str, error: &RedisError) -> BackendError {
        failure(error)
    }

    pub(crate) fn again(error: &BackendError) -> BackendError {
        BackendError::new(error.kind(), error.detail())
    }

    pub(crate) fn wants_reconnect(error: &RedisError) -> bool {
        error.code().is_none()
    }
}

pub(crate) mod hello {
    use tollgate_core::BackendError;

    use super::connection::Connection;

    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Kind;

    pub(crate) async fn greet(
        _connection: &mut Connection,
        _name: &str,
        _kind: Kind,
    ) -> Result<(), BackendError> {
        Ok(())
    }
}

pub(crate) mod departure {
    pub(crate) use super::holder::Departure;
}

/// Nothing here is held.
pub(crate) mod holder {
    use std::sync::Arc;

    use super::wire::{Outcome, Request};
    use crate::job::Job;

    #[derive(Debug, Default)]
    pub(crate) struct Holder;

    impl Holder {
        pub(crate) fn owes(&self, request: Request) -> Request {
            request
        }

        pub(crate) fn departs(self: &Arc<Self>, _jobs: &mut Vec<Job>) -> Option<Departure> {
            None
        }
    }

    pub(crate) struct Departure(());

    impl Departure {
        pub(crate) fn caller(&self) -> &() {
            &self.0
        }

        pub(crate) fn places(&self, _keys: &[&[u8]]) -> Vec<u16> {
            Vec::new()
        }

        pub(crate) fn answered(
            self,
            _jobs: &[Job],
            _outcomes: &[(usize, Outcome)],
            _held: &[Option<()>],
            _key: impl Fn(usize, usize) -> Option<usize>,
        ) {
        }

        pub(crate) fn has_not_run(self, _jobs: &[Job]) {}
    }
}

/// Nothing is known of a budget that never runs out.
pub(crate) mod known {
    use std::sync::Arc;

    use tollgate_core::Decision;

    use super::clock::Instant;
    use super::wire::{LeftStates, Request};

    #[derive(Debug, Default)]
    pub(crate) struct KnownDenials;

    #[derive(Clone, Copy)]
    pub(crate) struct SentCall {
        pub(crate) sent_at: Instant,
    }

    impl KnownDenials {
        pub(crate) fn owes(self: &Arc<Self>, request: Request) -> Request {
            request
        }

        pub(crate) fn departs(&self) -> SentCall {
            SentCall {
                sent_at: Instant::now(),
            }
        }

        pub(crate) fn learn(
            &self,
            _call: SentCall,
            _received_at: Instant,
            _slot: u16,
            _request: &Request,
            _decision: &Decision,
            _left: &LeftStates<'_, '_>,
        ) {
        }
    }
}

pub(crate) mod script {
    use std::sync::Arc;

    #[derive(Debug, Default)]
    pub(crate) struct Script;

    /// The model has one script.
    #[derive(Debug, Default)]
    pub(crate) struct Composed;

    impl Composed {
        pub(crate) fn script(&self, _: Shape) -> Option<Arc<Script>> {
            None
        }
    }

    #[derive(Debug)]
    pub(crate) struct Shape;

    impl Shape {
        pub(crate) fn of(_runs: &[Vec<u8>], _keys: usize) -> Option<Self> {
            None
        }
    }

    impl Script {
        pub(crate) fn source(&self) -> &str {
            ""
        }

        pub(crate) fn sha(&self) -> &str {
            ""
        }
    }
}

pub(crate) mod slot {
    pub(crate) const SLOTS: u16 = 16_384;

    pub(crate) fn of(name: &[u8]) -> u16 {
        name.first().copied().map_or(0, u16::from)
    }
}

pub(crate) mod stats {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::wire::ScriptCall;

    #[derive(Debug, Default)]
    pub(crate) struct Counters(AtomicUsize);

    impl Counters {
        pub(crate) fn sent(&self, _call: &ScriptCall<'_>, _sha: &str, _requests: usize) {}

        pub(crate) fn received(&self, _reply: usize) {}

        pub(crate) fn lost(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }

        pub(crate) fn lost_so_far(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }
}
