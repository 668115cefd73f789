//! How do I send what the limiter does to OpenTelemetry?
//!
//! `cargo run -p examples --example opentelemetry`. Metrics go through the `metrics` facade, for which a bridge has a recorder that passes
//! them on. Here they are printed every two seconds. A real service takes `opentelemetry_otlp::MetricExporter` in place of the
//! printing one, and a longer interval: a collector asks for nothing, so that what is a state is told in a loop.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use examples::serve;
use metrics_opentelemetry::opentelemetry::metrics::MeterProvider;
use metrics_opentelemetry::{OpenTelemetryMetrics, OpenTelemetryRecorder};
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_stdout::MetricExporter;
use tollgate::{Limiter, Policy, Quota, RateLimitLayer};

const INTERVAL: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let reader = PeriodicReader::builder(MetricExporter::default()).with_interval(INTERVAL);
    let provider = SdkMeterProvider::builder().with_reader(reader.build());
    let provider = provider.build();
    let recorder =
        OpenTelemetryRecorder::new(OpenTelemetryMetrics::new(provider.meter("tollgate")));
    // OpenTelemetry's own buckets are for milliseconds.
    let used = ["rate_limiting_budget_used_ratio"];
    recorder.set_histogram_bounds(used.into_iter(), &[0.25, 0.5, 0.75, 0.9, 1.0]);
    let took = ["rate_limiting_decision_duration_seconds"];
    recorder.set_histogram_bounds(took.into_iter(), &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5]);
    metrics::set_global_recorder(recorder)?;

    let limiter = Limiter::builder()
        .policy(Policy::new("api", Quota::per_minute(5)))
        .metrics()
        .build()?;
    let told = limiter.clone();
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(INTERVAL);
        loop {
            ticks.tick().await;
            told.publish_metrics();
        }
    });

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(RateLimitLayer::new(limiter));
    let about = "five requests a minute for each address; every two seconds it prints what OpenTelemetry would get";
    serve(app, about, &["curl -i URL/?[1-6]"]).await
}
