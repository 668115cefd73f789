//! The memory that a stream takes while more than a hundred thousand messages a second are sent to it.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]
#![cfg(feature = "tonic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::ALLOCATOR;
use crate::common::Waiting;
use crate::common::stream::{Step, limiter, memory, send};
use stats_alloc::Region;
use tollgate::{Limiter, MessageLimitLayer};

/// The bytes that are read ahead, and everything else that a call holds.
const MOST: usize = 64 * 1024 + 16 * 1024;

/// The most that was allocated and not freed while half a million messages passed: after the first thousand, and until the last.
async fn most(limiter: Limiter) -> (usize, usize) {
    let layer = MessageLimitLayer::new(limiter);
    let early = Arc::new(AtomicUsize::new(0));
    let late = Arc::new(AtomicUsize::new(0));
    let before = Arc::new(Region::new(ALLOCATOR));
    let look = {
        let (early, late) = (Arc::clone(&early), Arc::clone(&late));
        move |step: Step| {
            let change = before.change();
            let live = change.bytes_allocated - change.bytes_deallocated;
            let most = if step.passed < 20_000 { &early } else { &late };
            most.fetch_max(live, Ordering::Relaxed);
        }
    };
    send(&layer, 500_000, look).await;
    (early.load(Ordering::Relaxed), late.load(Ordering::Relaxed))
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_a_hundred_thousand_messages_a_second_takes_no_more_memory_as_it_goes_on() {
    if !tollgate_testkit::alone!() {
        return;
    }
    let waiting = Waiting::new(memory());
    waiting.gate.add_permits(1_000_000);
    let limiters = [limiter().backend(memory()), limiter().backend(waiting)];

    for limiter in limiters {
        let (early, late) = most(limiter.build().unwrap()).await;
        println!("{early} bytes at first, {late} later");
        assert!(0 < late && late <= MOST, "{late}");
        // Not by a message more, were it but one in a thousand that is kept.
        assert!(late <= early + 2_000, "{early} bytes, and then {late}");
    }
}
