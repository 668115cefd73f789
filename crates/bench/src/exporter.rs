//! The recorder that writes pages for Prometheus.

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};

/// A recorder of metrics-exporter-prometheus, with buckets for the share of a budget that is used.
#[must_use]
pub fn prometheus() -> PrometheusRecorder {
    let used = Matcher::Full("rate_limiting_budget_used_ratio".to_owned());
    let builder = PrometheusBuilder::new();
    let builder = builder.set_buckets_for_metric(used, &[0.25, 0.5, 0.75, 0.9, 1.0]);
    builder.unwrap_or_default().build_recorder()
}
