//! A stream of messages that are charged, with neither a connection nor a clock to wait for.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use tokio::time::Instant;
use tollgate::{
    Clock, Limiter, LimiterBuilder, MemoryBackend, MessageBody, MessageLimitLayer, Messages,
    Policy, Quota, Timestamp,
};
use tower::{ServiceExt, service_fn};
use tower_layer::Layer;

/// Tokio's clock, which a paused runtime moves when all tasks wait.
#[derive(Debug)]
struct Paused(Instant);

impl Clock for Paused {
    fn now(&self) -> Timestamp {
        let us = u64::try_from(self.0.elapsed().as_micros()).unwrap();
        Timestamp::from_micros(1_767_225_600_000_000 + us)
    }
}

/// The memory backend by that clock.
pub fn memory() -> MemoryBackend {
    MemoryBackend::builder()
        .clock(Paused(Instant::now()))
        .build()
}

/// Messages a second.
pub const RATE: u64 = 100_000;
/// Ten milliseconds' worth: a timer cannot be more exact than one.
pub const BURST: u64 = 1_000;

/// The number of bytes that may have passed.
pub fn passes_at(elapsed: Duration) -> u64 {
    BURST + u64::try_from(elapsed.as_nanos()).unwrap() * RATE / 1_000_000_000
}

/// A limiter of that rate.
pub fn limiter() -> LimiterBuilder {
    let quota = Quota::per_second(RATE).burst(BURST);
    Limiter::builder().policy(Policy::new("messages", quota).per_message(Messages::received()))
}

/// A message, with the five bytes before it.
pub const MESSAGE: &[u8] = &[0, 0, 0, 0, 3, 1, 2, 3];
/// The number that comes at once.
pub const PER_CHUNK: u64 = 100;

/// A caller that sends as fast as it is taken.
struct Source {
    chunks: u64,
    sent: Arc<AtomicU64>,
    chunk: Bytes,
}

impl Body for Source {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.chunks == 0 {
            return Poll::Ready(None);
        }
        self.chunks -= 1;
        self.sent.fetch_add(PER_CHUNK, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(self.chunk.clone()))))
    }
}

/// The state of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub elapsed: Duration,
    pub sent: u64,
    pub passed: u64,
    /// True if what passed last is a part of what came, and no copy of it.
    pub in_place: bool,
}

/// Sends so many messages through a layer, all of which pass, and has each step looked at. Returns how long it took.
pub async fn send(
    layer: &MessageLimitLayer,
    messages: u64,
    look: impl Fn(Step) + Send + Sync + Clone + 'static,
) -> Duration {
    let start = Instant::now();
    let sent = Arc::new(AtomicU64::new(0));
    let taken = Arc::clone(&sent);
    let chunk = Bytes::from(MESSAGE.repeat(usize::try_from(PER_CHUNK).unwrap()));
    let place = chunk.clone();
    let service = service_fn(move |request: Request<MessageBody<Source>>| {
        let (taken, look, place) = (Arc::clone(&taken), look.clone(), place.clone());
        async move {
            let mut body = request.into_body();
            let mut bytes = 0;
            while let Some(frame) = body.frame().await {
                let data = frame.unwrap().into_data().unwrap();
                bytes += data.len();
                look(Step {
                    elapsed: start.elapsed(),
                    sent: taken.load(Ordering::Relaxed),
                    passed: (bytes / MESSAGE.len()) as u64,
                    in_place: place.as_ptr_range().contains(&data.as_ptr()),
                });
            }
            assert_eq!(bytes as u64, messages * MESSAGE.len() as u64);
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }
    });
    let request = Request::post("/load.v1.Load/Send")
        .header("content-type", "application/grpc")
        .body(Source {
            chunks: messages / PER_CHUNK,
            sent,
            chunk,
        })
        .unwrap();
    layer.layer(service).oneshot(request).await.unwrap();
    start.elapsed()
}
