//! A limiter under which requests hold, and answers that end when a test says so.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tollgate::key::Global;
use tollgate::{
    Backend, Cause, CheckOutcome, Concurrent, Key, Limiter, MemoryBackend, Policy, RateLimitLayer,
};

pub const TWO: Concurrent = Concurrent::at_most(2);

/// A limiter of one policy for all callers, and the number of times that it gave something back.
pub struct Held {
    pub limiter: Limiter,
    pub released: Arc<AtomicUsize>,
}

impl Held {
    pub fn under(policy: Policy) -> Self {
        Self::on(policy, MemoryBackend::new())
    }

    pub fn on(policy: Policy, backend: impl Backend) -> Self {
        Self::of([], policy, backend)
    }

    /// With policies before it.
    pub fn with(others: impl IntoIterator<Item = Policy>, policy: Policy) -> Self {
        Self::of(others, policy, MemoryBackend::new())
    }

    fn of(others: impl IntoIterator<Item = Policy>, policy: Policy, backend: impl Backend) -> Self {
        let released = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&released);
        let limiter = Limiter::builder()
            .policies(others)
            .policy(policy.key(Global))
            .backend(backend)
            .observe(move |event: &tollgate::Event<'_>| {
                if event.cause() == Cause::Released {
                    count.fetch_add(1, Ordering::SeqCst);
                }
            })
            .build()
            .unwrap();
        Self { limiter, released }
    }

    pub fn one() -> Self {
        Self::under(Policy::new("held", Concurrent::at_most(1)))
    }

    pub fn two() -> Self {
        Self::under(Policy::new("held", TWO))
    }

    /// The number of further requests that would be let in now.
    pub async fn free(&self) -> u64 {
        let probe = self.limiter.check("held", Key::global()).cost(0);
        probe.await.unwrap().remaining()
    }

    /// Waits until so many would be let in, which a server tells a moment after the client knows.
    pub async fn comes_to(&self, free: u64) {
        let reached = async {
            while self.free().await != free {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let within = tokio::time::timeout(Duration::from_secs(30), reached);
        assert!(within.await.is_ok(), "{} are free", self.free().await);
    }

    /// The number of free places, whatever a quota beside them has left.
    pub async fn places_free(&self) -> u64 {
        let probe = self.limiter.check("held", Key::global()).cost(0);
        probe.await.unwrap().verdicts()[1].remaining()
    }

    /// Takes a place, as another caller.
    pub async fn take(&self) -> CheckOutcome {
        let taken = self.limiter.check("held", Key::global()).await.unwrap();
        assert!(taken.is_allowed());
        taken
    }

    pub fn released(&self) -> usize {
        self.released.load(Ordering::SeqCst)
    }

    pub fn layer(&self) -> RateLimitLayer {
        RateLimitLayer::new(&self.limiter)
    }
}

pub type Chunk = Result<Bytes, Infallible>;
pub type Chunks = ReceiverStream<Chunk>;

/// A handler that answers with a stream, and the sender of its chunks.
#[derive(Clone, Default)]
pub struct Streams(pub Arc<Mutex<Vec<mpsc::Sender<Chunk>>>>);

impl Streams {
    pub fn open(&self) -> Chunks {
        let (sender, receiver) = mpsc::channel(4);
        self.0.lock().unwrap().push(sender);
        ReceiverStream::new(receiver)
    }

    pub fn close(&self) {
        self.0.lock().unwrap().clear();
    }
}
