//! The parts that the tests of the layer share.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::panic,
    clippy::unwrap_used,
    reason = "each test file uses its part"
)]

pub mod failing;
pub mod figured;
#[cfg(feature = "axum")]
pub mod held;
pub mod late;
pub mod quotas_only;
pub mod reference;
#[cfg(feature = "serde")]
pub mod registry;
#[cfg(feature = "axum")]
pub mod served;
#[cfg(feature = "tonic")]
pub mod stream;
pub mod tokio_clock;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::sync::Semaphore;
use tollgate::{
    Admin, Answer, Backend, BackendError, Call, Charge, Decision, FailureKind, ImmediateBackend,
    Key, ManualClock, MemoryBackend, Mode, PeerAddr, Quota, Scope, Settlement,
};
use tower_service::Service;

pub type Body = Full<Bytes>;

/// Longer than a busy machine holds anything up.
pub const PATIENT: Duration = Duration::from_secs(60);

/// A backend in Redis whose deadlines a busy machine keeps.
#[cfg(feature = "redis")]
pub async fn in_redis(url: &str) -> tollgate::RedisBackend {
    let builder = tollgate::RedisBackend::builder(url).deadline(PATIENT);
    builder.connect_deadline(PATIENT).connect().await.unwrap()
}

/// A request from this address.
pub fn from(address: &str) -> Request<Body> {
    let mut request = Request::new(Body::default());
    let peer: SocketAddr = format!("{address}:4711").parse().unwrap();
    request.extensions_mut().insert(PeerAddr(peer));
    request
}

/// A backend in memory whose clock stands still until it is told to move.
pub fn at_a_standstill() -> (MemoryBackend, ManualClock) {
    let clock = ManualClock::new();
    (MemoryBackend::builder().clock(clock.clone()).build(), clock)
}

/// A service that counts its calls, and panics if it is called without having been found ready. A clone has not been.
#[derive(Debug, Default)]
pub struct Strict {
    ready: bool,
    pub calls: Arc<AtomicUsize>,
}

impl Strict {
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self {
            ready: false,
            calls: Arc::clone(&self.calls),
        }
    }
}

impl Service<Request<Body>> for Strict {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<Body>) -> Self::Future {
        assert!(self.ready, "called without having been found ready");
        self.ready = false;
        self.calls.fetch_add(1, Ordering::SeqCst);
        ready(Ok(Response::new(Body::default())))
    }
}

/// A backend that waits: each decision is taken when the test lets it pass, or fails when the test says so.
#[derive(Clone, Debug)]
pub struct Waiting {
    pub inner: Arc<MemoryBackend>,
    /// A permit for each decision that may be taken.
    pub gate: Arc<Semaphore>,
    /// Decisions that were asked for and are neither taken nor dropped.
    pub pending: Arc<AtomicUsize>,
    pub failure: Arc<Mutex<Option<FailureKind>>>,
}

impl Waiting {
    pub fn new(inner: MemoryBackend) -> Self {
        Self {
            inner: Arc::new(inner),
            gate: Arc::new(Semaphore::new(0)),
            pending: Arc::default(),
            failure: Arc::default(),
        }
    }

    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::SeqCst)
    }

    pub fn fail_with(&self, failure: Option<FailureKind>) {
        *self.failure.lock().unwrap() = failure;
    }
}

/// Counts itself as long as it lives.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct OwnedCharge {
    scope: Scope,
    quota: Quota,
    key: Key,
    cost: u64,
    mode: Mode,
}

impl Backend for Waiting {
    fn decide(&self, call: Call<'_>) -> Answer<Decision> {
        let pending = Counted::new(&self.pending);
        let this = self.clone();
        let owned: Vec<_> = call
            .charges
            .iter()
            .map(|charge| OwnedCharge {
                scope: charge.scope,
                quota: *charge.quota,
                key: charge.key.clone(),
                cost: charge.cost,
                mode: charge.mode,
            })
            .collect();
        Answer::later(async move {
            let _pending = pending;
            let permit = this.gate.acquire().await;
            permit
                .map_err(|_| BackendError::new(FailureKind::Unreachable, ""))?
                .forget();
            if let Some(failure) = *this.failure.lock().unwrap() {
                return Err(BackendError::new(failure, "as the test said"));
            }
            let charges: Vec<_> = owned
                .iter()
                .map(|charge| Charge {
                    scope: charge.scope,
                    quota: &charge.quota,
                    key: &charge.key,
                    cost: charge.cost,
                    mode: charge.mode,
                })
                .collect();
            let decision: Result<Decision, BackendError> =
                this.inner.decide_now(Call::of(&charges));
            decision
        })
    }

    fn settle(&self, settlement: Settlement<'_>) {
        self.inner.settle(settlement);
    }

    fn admin(&self) -> &dyn Admin {
        self.inner.admin()
    }
}

/// A header's value as text; nothing if it is absent.
pub fn header<'a, B>(response: &'a Response<B>, name: &str) -> &'a str {
    response
        .headers()
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}
