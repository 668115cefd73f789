//! The example `overload`: while exports are refused, every checkout is served, and waits behind few others.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "a program of its own")]
#[path = "../overload.rs"]
mod overload;

use overload::{CHECKOUTS, MOST_AHEAD, run, shedding};

/// The requests that wait before a checkout are its latency, in units that are the same on every machine. On one thread, as in the
/// example.
#[tokio::test]
async fn important_requests_keep_their_latency_while_the_others_are_refused() {
    let on_trial = run(shedding().shadow()).await.unwrap();
    let shed = run(shedding()).await.unwrap();

    // On trial each request is served, and checkouts stand behind most of the sixty exporters.
    assert_eq!(on_trial.ahead.len(), CHECKOUTS);
    assert_eq!(on_trial.exports_refused, 0);
    let without = on_trial.ahead.iter().sum::<usize>();

    // While exports are refused no checkout is, and together they stand behind fewer than half as many.
    assert_eq!(shed.ahead.len(), CHECKOUTS);
    assert!(shed.ahead.iter().all(|ahead| *ahead <= MOST_AHEAD));
    let with = shed.ahead.iter().sum::<usize>();
    assert!(with * 2 < without, "{with} and {without}");

    // Exports go on as far as there is room, and the refused ones are told when to come back.
    assert!(shed.exports_served > 0 && shed.exports_refused > 0);
}
