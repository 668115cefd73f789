//! Messages at a hundred thousand a second, on a clock that nobody has to wait for.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]
#![cfg(feature = "tonic")]

mod common;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use common::Waiting;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use tokio::time::Instant;
use tollgate::{
    Clock, Limiter, MemoryBackend, MessageBody, MessageLimitLayer, Messages, Policy, Quota,
    Timestamp,
};
use tower::{ServiceExt, service_fn};
use tower_layer::Layer;

/// Tokio's clock, which a paused runtime moves when everybody waits.
#[derive(Debug)]
struct Paused(Instant);

impl Clock for Paused {
    fn now(&self) -> Timestamp {
        let us = u64::try_from(self.0.elapsed().as_micros()).unwrap();
        Timestamp::from_micros(1_767_225_600_000_000 + us)
    }
}

/// A caller that sends messages of eight bytes, a hundred at once, as fast as they are taken.
struct Source {
    chunks: u64,
    sent: Arc<AtomicU64>,
    chunk: Bytes,
}

const MESSAGE: &[u8] = &[0, 0, 0, 0, 3, 1, 2, 3];
const PER_CHUNK: u64 = 100;

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

/// Sends so many messages through a layer, and checks at each step that no more than `allowed(elapsed)` have passed, and that no
/// more than one chunk is anywhere in between. Returns how long it took.
async fn send(
    layer: &MessageLimitLayer,
    messages: u64,
    allowed: impl Fn(Duration) -> u64 + Send + Sync + Clone + 'static,
) -> Duration {
    let start = Instant::now();
    let sent = Arc::new(AtomicU64::new(0));
    let taken = Arc::clone(&sent);
    let service = service_fn(move |request: Request<MessageBody<Source>>| {
        let (taken, allowed) = (Arc::clone(&taken), allowed.clone());
        async move {
            let mut body = request.into_body();
            let mut bytes = 0;
            while let Some(frame) = body.frame().await {
                bytes += frame.unwrap().into_data().unwrap().len();
                let passed = (bytes / MESSAGE.len()) as u64;
                let most = allowed(start.elapsed());
                assert!(passed <= most, "{passed} at {:?}", start.elapsed());
                assert!(taken.load(Ordering::Relaxed) - passed <= PER_CHUNK);
            }
            assert_eq!(bytes % MESSAGE.len(), 0);
            let passed = (bytes / MESSAGE.len()) as u64;
            assert_eq!(passed, taken.load(Ordering::Relaxed));
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }
    });
    let request = Request::post("/load.v1.Load/Send")
        .header("content-type", "application/grpc")
        .body(Source {
            chunks: messages / PER_CHUNK,
            sent,
            chunk: MESSAGE.repeat(usize::try_from(PER_CHUNK).unwrap()).into(),
        })
        .unwrap();
    layer.layer(service).oneshot(request).await.unwrap();
    start.elapsed()
}

const RATE: u64 = 100_000;
/// Ten milliseconds' worth: a timer cannot be more exact than one.
const BURST: u64 = 1_000;

fn passes_at(elapsed: Duration) -> u64 {
    BURST + u64::try_from(elapsed.as_nanos()).unwrap() * RATE / 1_000_000_000
}

fn policy() -> Policy {
    Policy::new("messages", Quota::per_second(RATE).burst(BURST)).per_message(Messages::received())
}

fn memory() -> MemoryBackend {
    MemoryBackend::builder()
        .clock(Paused(Instant::now()))
        .build()
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_a_second_hold_the_rate_to_the_message_and_nothing_piles_up() {
    let limiter = Limiter::builder().policy(policy()).backend(memory());
    let layer = MessageLimitLayer::new(limiter.build().unwrap());

    let took = send(&layer, 500_000, passes_at).await;

    // As fast as it may be, but for the last wait of a timer.
    let fastest = Duration::from_micros((500_000 - BURST) * 10);
    assert!(
        fastest <= took && took <= fastest + Duration::from_millis(2),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn on_a_backend_that_waits_the_rate_holds_to_the_block() {
    let backend = Waiting::new(memory());
    backend.gate.add_permits(1_000_000);
    let limiter = Limiter::builder().policy(policy()).backend(backend.clone());
    let layer = MessageLimitLayer::new(limiter.build().unwrap());
    // A sixteenth of a full budget.
    let block = BURST / 16;

    let took = send(&layer, 500_000, move |elapsed| passes_at(elapsed) + block).await;

    let fastest = Duration::from_micros((500_000 - BURST - block) * 10);
    assert!(fastest <= took && took <= fastest * 11 / 10, "{took:?}");
    let asked = 1_000_000 - backend.gate.available_permits();
    assert!(asked < 40_000, "{asked} questions for 500,000 messages");
}
