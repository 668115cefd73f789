//! Messages at a hundred thousand a second, on a clock for which no test has to wait.

#![cfg(feature = "tonic")]

use std::time::Duration;

use crate::common::Waiting;
use crate::common::stream::{BURST, MESSAGE, PER_CHUNK, Step, limiter, memory, passes_at, send};
use tollgate::MessageLimitLayer;

/// Looks whether no more have passed than may, and so many more, and whether no more bytes are on their way than these, and what
/// comes at once. Only what waits is copied.
fn check(more: u64, bytes: usize) -> impl Fn(Step) + Send + Sync + Clone {
    let held = (bytes / MESSAGE.len()) as u64;
    move |step: Step| {
        assert!(step.passed <= passes_at(step.elapsed) + more, "{step:?}");
        assert!(step.sent - step.passed <= held + PER_CHUNK, "{step:?}");
        assert!(step.in_place || bytes > 0, "{step:?}");
    }
}

/// Small frames that were read ahead are joined up to this size, and one such piece may be on its way.
const PIECE: usize = 4_096;

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_a_second_hold_the_rate_to_the_message_and_nothing_piles_up() {
    for (read_ahead, held) in [(0, 0), (1_000, 1_000 + PIECE), (65_536, 65_536 + PIECE)] {
        let limiter = limiter().backend(memory()).build().unwrap();
        let layer = MessageLimitLayer::new(limiter).read_ahead(read_ahead);

        let took = send(&layer, 500_000, check(0, held)).await;

        // As fast as it may be, but for the last wait of a timer.
        let fastest = Duration::from_micros((500_000 - BURST) * 10);
        assert!(
            fastest <= took && took <= fastest + Duration::from_millis(2),
            "{took:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn on_a_backend_that_waits_the_rate_holds_to_the_block() {
    let backend = Waiting::new(memory());
    backend.gate.add_permits(1_000_000);
    let limiter = limiter().backend(backend.clone()).build().unwrap();
    let layer = MessageLimitLayer::new(limiter).read_ahead(0);
    // A sixteenth of a full budget.
    let block = BURST / 16;

    let took = send(&layer, 500_000, check(block, 0)).await;

    let fastest = Duration::from_micros((500_000 - BURST - block) * 10);
    assert!(fastest <= took && took <= fastest * 11 / 10, "{took:?}");
    let asked = 1_000_000 - backend.gate.available_permits();
    assert!(asked < 40_000, "{asked} questions for 500,000 messages");
}
