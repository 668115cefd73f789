//! The backend itself.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tollgate_core::{
    Answer, Backend, BackendError, Charge, Decide, Decision, FailureKind, Key, MAX_CHARGES,
    Receipt, Scope,
};

use crate::config::RedisBackendBuilder;
use crate::dispatch::{Dispatch, Limits};
use crate::error::ConnectError;
use crate::handed::Waiting;
use crate::job::{Heard, Job};
use crate::link::{self, Link};
use crate::name;
use crate::stats::Stats;
use crate::wire::{Request, Work};

/// A backend that a fleet shares: decisions are taken in Redis, by its clock.
///
/// Clones are cheap and share connections.
#[derive(Clone)]
pub struct RedisBackend {
    dispatch: Arc<Dispatch>,
    prefix: Arc<str>,
}

impl RedisBackend {
    /// Connects to `redis://[user:password@]host[:port][/database]`.
    ///
    /// # Errors
    ///
    /// If the URL is none, or if what is there does not answer as Redis does.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder(url).connect().await
    }

    /// Sets up a backend in detail.
    pub fn builder(url: &str) -> RedisBackendBuilder {
        RedisBackendBuilder::new(url)
    }

    /// What it has sent and received so far, all clones together.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.dispatch.counters.read()
    }

    pub(crate) fn start(
        link: Link,
        runtime: Handle,
        prefix: String,
        limits: Limits,
        connections: usize,
    ) -> Self {
        let dispatch = Dispatch::new(link, runtime, limits, connections);
        Self {
            dispatch: Arc::new(dispatch),
            prefix: prefix.into(),
        }
    }

    /// Opens the first connection now, the others in the background.
    pub(crate) async fn open_now(&self) -> Result<(), ConnectError> {
        let dispatch = &self.dispatch;
        let first = dispatch.link.open().await;
        dispatch.connected(0, first.map_err(ConnectError::failed)?);
        self.open_from(1);
        Ok(())
    }

    /// Opens connections in the background, but for those before `first`.
    pub(crate) fn open_from(&self, first: usize) {
        for lane in first..self.dispatch.lanes() {
            link::spawn(&self.dispatch, lane);
        }
    }

    fn request(&self, work: Work, scope: Scope, key: &Key) -> Request {
        Request {
            work,
            names: [name::of(&self.prefix, scope, key)].into_iter().collect(),
        }
    }

    fn ask(&self, request: Request) -> Waiting {
        let (job, answer) = Job::awaited(request, self.dispatch.deadline());
        let handed = self.dispatch.push(job);
        Waiting { answer, handed }
    }

    fn tell(&self, request: Request) {
        let job = Job::unattended(request, self.dispatch.deadline());
        let _none = self.dispatch.push(job);
    }
}

impl Backend for RedisBackend {
    fn decide(&self, charges: &[Charge<'_>]) -> Decide {
        if charges.len() > MAX_CHARGES {
            let detail = format!(
                "{} charges, and at most {MAX_CHARGES} can be",
                charges.len()
            );
            return Answer::now(Err(BackendError::new(FailureKind::InvalidCall, detail)));
        }
        let names = charges
            .iter()
            .map(|charge| name::of(&self.prefix, charge.scope, charge.key));
        let answer = self.ask(Request {
            names: names.collect(),
            work: Work::decide(charges),
        });
        Answer::later(async move { heard(answer.await)?.ok_or_else(gone) })
    }

    fn credit(&self, receipt: Receipt, n: u64) {
        let (scope, key) = (receipt.scope(), receipt.key().clone());
        self.tell(self.request(Work::Credit(receipt, n), scope, &key));
    }

    fn debit(&self, receipt: &Receipt, n: u64) {
        let work = Work::Debit(receipt.copy(), n);
        self.tell(self.request(work, receipt.scope(), receipt.key()));
    }

    fn reset(&self, scope: Scope, key: &Key) -> Answer<()> {
        let answer = self.ask(self.request(Work::Reset(scope), scope, key));
        Answer::later(async move { heard(answer.await).map(drop) })
    }
}

fn heard(
    heard: Result<Heard, oneshot::error::RecvError>,
) -> Result<Option<Decision>, BackendError> {
    let said = heard.ok().and_then(Heard::read);
    said.unwrap_or_else(|| Err(gone()))
}

fn gone() -> BackendError {
    BackendError::new(
        FailureKind::Unreachable,
        "the runtime of the backend has ended",
    )
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the client: it holds a password.
        f.debug_struct("RedisBackend")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
