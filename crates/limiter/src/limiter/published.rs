//! The states of a limiter on its page of metrics.

use super::Limiter;
use super::meters::Present;

/// Metrics.
impl Limiter {
    /// Tells the recorder the present states and counts: the figures of the backend, the requests that wait, the version of the
    /// policies. Decisions are counted as they are made and need no call. Nothing happens without
    /// [`LimiterBuilder::metrics`](crate::LimiterBuilder::metrics).
    ///
    /// Call it when the page of metrics is asked for, before the exporter writes it, or every few seconds in a task if the
    /// exporter pushes.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    /// let page = recorder.handle();
    /// metrics::set_global_recorder(recorder)?;
    /// let limiter = Limiter::builder().policy(Policy::new("api", Quota::per_second(10))).metrics().build()?;
    ///
    /// // In the handler of `/metrics`:
    /// limiter.publish_metrics();
    /// assert!(page.render().contains("rate_limiting_waiting_requests 0"));
    /// # Ok(()) }
    /// ```
    pub fn publish_metrics(&self) {
        if let Some(meters) = self.0.observers.meters() {
            // The recorder may have come after them.
            let policies = self.policies();
            meters.expect(policies.iter().map(|policy| &**policy));
            meters.publish(&Present {
                failures: self.failures(),
                is_failing: self.0.health.is_failing(),
                waiting: self.waiting(),
                is_shedding: self.is_shedding(),
                switched: self.switched_policies(),
                backend: &*self.0.backend,
            });
        }
    }
}
