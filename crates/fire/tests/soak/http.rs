//! Many requests at once over HTTP.

use tollgate_fire::Soak;

use crate::alone;
use crate::leftovers::leaves_nothing_behind;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_requests_at_once_are_all_answered_and_leave_nothing_behind() {
    let _alone = alone().await;
    leaves_nothing_behind(Soak {
        decisions: 60_000,
        in_flight: 10_000,
        identities: 20_000,
        over_http: true,
    })
    .await;
}
