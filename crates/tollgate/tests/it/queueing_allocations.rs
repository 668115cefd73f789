//! The memory of waiting requests.

use std::convert::Infallible;
use std::fs;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use allocation_counter::measure;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::runtime::Handle;
use tollgate::key::Global;
use tollgate::{
    CheckFuture, CheckOutcome, Concurrent, Key, Limiter, ManualClock, MemoryBackend, Policy, Quota,
    RateLimitLayer,
};
use tower::{Layer, ServiceExt, service_fn};

/// Of one key a thousand may wait, which is the longest wait there is.
const KEYS: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];

const PER_KEY: usize = 1_000;

const MOST_BYTES: i64 = 1_024;

/// The bytes that each of a thousand takes that wait in the layer, beside its request, which the server has in any case.
async fn through_the_layer(policy: Policy) -> i64 {
    let backend = MemoryBackend::builder().clock(ManualClock::new()).build();
    let limiter = Limiter::builder().policy(policy.key(Global));
    let limiter = limiter.backend(backend).build().unwrap();
    let service = service_fn(|_: Request<Full<Bytes>>| async {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let service = RateLimitLayer::new(&limiter).layer(service);
    let mut cx = Context::from_waker(Waker::noop());
    let ask = || Box::pin(service.clone().oneshot(Request::new(Full::default())));
    let passed = limiter.acquire("slow", Key::global()).await.unwrap();
    assert!(passed.is_allowed());
    let mut line = Vec::with_capacity(PER_KEY);

    let before = tasks_and_threads();
    let taken = measure(|| {
        for _ in 0..PER_KEY {
            let mut waits = ask();
            assert!(waits.as_mut().poll(&mut cx).is_pending());
            line.push(waits);
        }
    });
    let each = taken.bytes_current / PER_KEY as i64;
    let each = each - size_of::<Request<Full<Bytes>>>() as i64;
    assert_eq!(limiter.waiting(), PER_KEY);
    assert_eq!(tasks_and_threads(), before);

    let given_back = measure(|| line.clear());
    assert_eq!(limiter.waiting(), 0);
    let left = taken.bytes_current + given_back.bytes_current;
    assert!(each <= MOST_BYTES, "{each} bytes each");
    assert!(left <= MOST_BYTES, "{left} bytes are left");
    drop(passed);
    each
}

fn tasks_and_threads() -> (usize, usize) {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    (
        Handle::current().metrics().num_alive_tasks(),
        threads.count(),
    )
}

/// The bytes that each of ten thousand takes that wait for their turn or for a place: a thousand of each key, whose first
/// request has passed and keeps what it holds.
async fn through_acquire(policy: Policy) -> i64 {
    let backend = MemoryBackend::builder().clock(ManualClock::new()).build();
    let limiter = Limiter::builder().policy(policy).backend(backend);
    let limiter = limiter.build().unwrap();
    let mut passed = Vec::new();
    for key in KEYS {
        passed.push(limiter.acquire("slow", key).await.unwrap());
    }
    assert!(passed.iter().all(CheckOutcome::is_allowed));
    let mut cx = Context::from_waker(Waker::noop());
    let mut line: Vec<Pin<Box<CheckFuture<'_>>>> = Vec::with_capacity(KEYS.len() * PER_KEY);

    let before = tasks_and_threads();
    let taken = measure(|| {
        for key in KEYS {
            for _ in 0..PER_KEY {
                let mut waits = Box::pin(limiter.acquire("slow", key).into_future());
                assert!(waits.as_mut().poll(&mut cx).is_pending());
                line.push(waits);
            }
        }
    });

    assert_eq!(limiter.waiting(), KEYS.len() * PER_KEY);
    // tokio's timer tells each its turn, and nothing of ours.
    assert_eq!(tasks_and_threads(), before);
    let each = taken.bytes_current / line.len() as i64;
    assert!(each <= MOST_BYTES, "{each} bytes each");

    let given_back = measure(|| line.clear());
    assert_eq!(limiter.waiting(), 0);
    let left = taken.bytes_current + given_back.bytes_current;
    // The state of a key remembers that a request waited.
    assert!(
        left <= KEYS.len() as i64 * MOST_BYTES,
        "{left} bytes are left, of {each} each"
    );
    each
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_who_wait_take_at_most_a_kilobyte_each_and_leave_nothing_behind() {
    if !tollgate_testkit::alone!() {
        return;
    }
    let turns = Quota::per_second(1).wait_up_to(Duration::from_secs(1_000));
    let places = Concurrent::at_most(1).wait_up_to(Duration::from_secs(3_600));
    for (goal, policy) in [
        ("its turn", Policy::new("slow", turns)),
        ("a place", Policy::new("slow", places)),
    ] {
        let each = through_acquire(policy.clone()).await;
        println!("{each} bytes for each that waits for {goal} by `acquire`");
        let each = through_the_layer(policy).await;
        println!("{each} bytes for each that waits for {goal} in the layer, beside its request");
    }
}
