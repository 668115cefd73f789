//! The state of the server, for monitors: metrics, and whether it lives and is ready.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::routing::get;
use http::StatusCode;
use http::header::CONTENT_TYPE;

use crate::counts::Counts;
use crate::live::Live;

/// True once the server is to end: from then on it is not ready, so that no new connections are sent to it.
pub(crate) type Draining = Arc<AtomicBool>;

pub(crate) fn router(
    live: Arc<Live>,
    draining: Draining,
    page: impl Fn() -> String + Clone + Send + Sync + 'static,
) -> Router {
    let metrics = get(async move || {
        live.limiter.publish_metrics();
        publish(&live.counts.read());
        ([(CONTENT_TYPE, "text/plain; version=0.0.4")], page())
    });
    // A backend that fails does not count. The policies say what happens then, and all servers would leave at once.
    let ready = get(async move || {
        if draining.load(Ordering::Relaxed) {
            (StatusCode::SERVICE_UNAVAILABLE, "ends\n")
        } else {
            (StatusCode::OK, "ready\n")
        }
    });
    Router::new()
        .route("/metrics", metrics)
        .route("/livez", get(async || "lives\n"))
        .route("/readyz", ready)
}

/// Tells the recorder of the application what gateways have asked so far.
fn publish(counts: &Counts) {
    const QUESTIONS: &str = "rate_limiting_gateway_questions_total";
    const UNKNOWN: &str = "rate_limiting_gateway_unknown_total";
    metrics::counter!(QUESTIONS, "result" => "passed").absolute(counts.passed);
    metrics::counter!(QUESTIONS, "result" => "refused").absolute(counts.refused);
    metrics::counter!(QUESTIONS, "result" => "undecided").absolute(counts.undecided);
    metrics::counter!(QUESTIONS, "result" => "invalid").absolute(counts.invalid);
    metrics::counter!(UNKNOWN, "what" => "domain").absolute(counts.unknown_domains);
    metrics::counter!(UNKNOWN, "what" => "descriptor").absolute(counts.unknown_descriptors);
    metrics::counter!("rate_limiting_gateway_lost_reports_total").absolute(counts.lost_reports);
    metrics::counter!("rate_limiting_gateway_failed_handshakes_total")
        .absolute(counts.failed_handshakes);
}
