//! Many requests at once over HTTP. The measured resources are the whole process's, so no other soak may run in this one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod soaked;

use soaked::leaves_nothing_behind;
use tollgate_fire::Soak;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_requests_at_once_are_all_answered_and_leave_nothing_behind() {
    leaves_nothing_behind(Soak {
        decisions: 60_000,
        in_flight: 10_000,
        identities: 20_000,
        over_http: true,
    })
    .await;
}
