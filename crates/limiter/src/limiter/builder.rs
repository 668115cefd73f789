//! The builder of a limiter.

use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use tollgate_core::Backend;
use tollgate_memory::MemoryBackend;

use super::Limiter;
#[cfg(feature = "metrics")]
use super::meters::Meters;
use super::observer::{Observer, Observers};
use super::offenders::Tracker;
use super::shedding::{CheckedShedding, Shedding, SheddingTerms};
use super::snapshot::Snapshot;
use super::terms::Terms;
use crate::key::{KeyExtractor, Source};
use crate::leasing::LeasingBackend;
use crate::{ClientAddress, ConfigError, Policy, Pressure};

/// Collects the parts of a [`Limiter`].
///
/// ```
/// use tollgate::{Settlement, ClientAddress, Limiter, MemoryBackend, Networks, Policy, Quota};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let limiter = Limiter::builder()
///     .policy(Policy::new("login", Quota::per_minute(5)).route("/login"))
///     .policies([("api", 100), ("export", 1)].map(|(name, limit)| Policy::new(name, Quota::per_second(limit))))
///     .client_address(ClientAddress::x_forwarded_for(Networks::new(["10.0.0.0/8"])))
///     .backend(MemoryBackend::builder().max_keys(50_000).build())
///     .build()?;
/// assert_eq!(limiter.policies().len(), 3);
/// # Ok(()) }
/// ```
#[derive(Default)]
#[must_use = "a builder does nothing until it is built"]
pub struct LimiterBuilder {
    policies: Vec<Policy>,
    terms: Terms,
    backend: Option<Arc<dyn Backend>>,
    observer: Option<Arc<dyn Observer>>,
    tracks_offenders: bool,
    #[cfg(feature = "metrics")]
    is_metered: bool,
    shedding: SheddingTerms,
}

impl LimiterBuilder {
    /// Adds a policy. A request is charged by every policy that covers it, all or nothing.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policies.push(policy);
        self
    }

    /// Adds policies.
    pub fn policies(mut self, policies: impl IntoIterator<Item = Policy>) -> Self {
        self.policies.extend(policies);
        self
    }

    /// The place of the caller's address. The default is the socket's peer, and no header counts.
    pub fn client_address(mut self, address: ClientAddress) -> Self {
        self.terms.client = address;
        self
    }

    /// Makes `/Login` count as `/login` for the policies' [routes](Policy::route), and for keys that are made of paths. Use it if
    /// the service behind ignores case. Letters outside ASCII keep their case.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// // A file server behind the limiter serves `/Reports` as `/reports`.
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("reports", Quota::per_minute(5)).route("/reports/{*path}"))
    ///     .ignore_path_case()
    ///     .build()?;
    /// # Ok(()) }
    /// ```
    pub fn ignore_path_case(mut self) -> Self {
        self.terms.ignores_path_case = true;
        self
    }

    /// Exempts CORS preflights from every policy. [`Policy::exempt_preflights`] says what that frees, and for which callers.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("api", Quota::per_second(10)))
    ///     .exempt_preflights()
    ///     .build()?;
    /// # Ok(()) }
    /// ```
    pub fn exempt_preflights(mut self) -> Self {
        self.terms.exempts_preflights = true;
        self
    }

    /// Exempts calls to gRPC's health and reflection services from every policy. [`Policy::exempt_health_checks`] says what that
    /// frees, and for which callers.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("calls", Quota::per_second(10)))
    ///     .exempt_health_checks()
    ///     .build()?;
    /// # Ok(()) }
    /// ```
    pub fn exempt_health_checks(mut self) -> Self {
        self.terms.exempts_health_checks = true;
        self
    }

    /// The most requests of this limiter that [wait](tollgate_core::Quota::wait_up_to) at one time, 10,000 unless set: each
    /// limiter of a process has its own bound, and clones share one. Beyond it, a request is decided as if it could not wait.
    /// With 0, no request waits. A request whose decision is under way counts, since it may have to wait.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("api", Quota::per_second(10).wait_up_to(Duration::from_secs(2))))
    ///     .max_waiting(500)
    ///     .build()?;
    /// # Ok(()) }
    /// ```
    pub fn max_waiting(mut self, requests: usize) -> Self {
        self.terms.max_waiting = requests;
        self
    }

    /// The most requests with one key under one policy that [wait](tollgate_core::Quota::wait_up_to) at one time, 1,000 unless set, so that
    /// one caller cannot take the whole queue. Raise it, with [`max_waiting`](Self::max_waiting), for a policy under which all callers
    /// share a key. Keys are counted by a hash, so that a few of many thousands share a count.
    ///
    /// ```
    /// use tollgate::Limiter;
    ///
    /// let builder = Limiter::builder().max_waiting(2_000).max_waiting_per_key(20);
    /// ```
    pub fn max_waiting_per_key(mut self, requests: usize) -> Self {
        self.terms.max_waiting_per_key = requests;
        self
    }

    /// The header in which a caller says for how many milliseconds it waits for an answer, such as Envoy's
    /// `x-envoy-expected-rq-timeout-ms`. A request whose turn would come later is refused at once, and nothing is reserved for it.
    /// The deadline of a gRPC call counts without this.
    ///
    /// ```
    /// use http::HeaderName;
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("api", "10/s wait 2s".parse::<Quota>().expect("a quota")))
    ///     .deadline_header(HeaderName::from_static("x-envoy-expected-rq-timeout-ms"))
    ///     .build()?;
    /// # Ok(()) }
    /// ```
    pub fn deadline_header(mut self, name: HeaderName) -> Self {
        self.terms.deadline_header = Some(name);
        self
    }

    /// Names the classes of requests, the most important first, and the part of a request that says its class. [`shed`](Self::shed)
    /// refuses the least important of them under pressure.
    ///
    /// A request that names no class, an unknown one or two different ones is of the last, the least important. These are the
    /// classes of the limiter, for the load of the process; a policy may have [others](Policy::keep_for), for its budgets.
    ///
    /// **Do not believe the caller.** A header that any client can send makes each of them important. A class comes from an outer
    /// layer ([`Extension`](crate::key::Extension)), from a header that a gateway writes and strips from outside requests, or from
    /// a part of the request itself, such as its path or method ([`from_fn`](crate::key::from_fn)).
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, PressureGauge, Quota, key};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let queue = PressureGauge::new();
    /// let by_path = key::from_fn(|request| match request.uri().path() {
    ///     "/health" | "/checkout" => Some("critical"),
    ///     path if path.starts_with("/export/") => Some("batch"),
    ///     _ => Some("normal"),
    /// });
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("shop", Quota::per_second(100)))
    ///     .classes(["critical", "normal", "batch"], by_path)
    ///     .shed(&queue, [("batch", 0.7), ("normal", 0.9)])
    ///     .build()?;
    /// # Ok(()) }
    /// ```
    pub fn classes<C: Into<String>>(
        self,
        names: impl IntoIterator<Item = C>,
        class: impl KeyExtractor,
    ) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        self.classes_by(names, Source::new(class))
    }

    pub(crate) fn classes_by(mut self, names: Vec<String>, class: Source) -> Self {
        self.shedding.add_classes(names, class);
        self
    }

    /// Refuses the unimportant while this process is under [`Pressure`]: each [class](Self::classes) that is named, while the level
    /// is at or above its threshold. A less important class has the lower threshold, and a class that is not named is never
    /// refused.
    ///
    /// A request is refused before anything else is asked: no key, no tier, no budget, no backend. It is answered 503 with the
    /// problem type `temporary-reduced-capacity` and a `Retry-After` that [the operator states](Shedding::retry_after).
    /// **Every request that reaches the layer counts**, also one that no policy covers, and one that is exempt from all: these are
    /// exempt from budgets, and load all the same. So give health checks a class that is never refused. A limit at a handler sheds
    /// nothing, since the layer around it has let the request in.
    ///
    /// ```
    /// use tollgate::{Limiter, PressureGauge, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::ConfigError> {
    /// let queue = PressureGauge::new();
    /// // It needs no policy.
    /// let limiter = Limiter::builder()
    ///     .classes(["critical", "normal", "batch"], key::Header::new("x-class"))
    ///     .shed(&queue, [("batch", 0.7), ("normal", 0.9)])
    ///     .build()?;
    ///
    /// assert!(!limiter.is_shedding());
    /// queue.set(0.7);
    /// assert!(limiter.is_shedding());
    /// // Batch jobs are let in again below 0.65.
    /// queue.set(0.65);
    /// assert!(limiter.is_shedding());
    /// queue.set(0.64);
    /// assert!(!limiter.is_shedding());
    /// # Ok(()) }
    /// ```
    ///
    /// The limiter is not built without classes, if a threshold is not above 0 and at most 1, if a less important class has none or
    /// one that is not lower, or if a class is unknown or named twice.
    pub fn shed(self, pressure: impl Into<Pressure>, shedding: impl Into<Shedding>) -> Self {
        let pressure = pressure.into();
        self.shed_by(move || Ok(pressure), shedding.into())
    }

    /// Sheds by a signal that is measured from the moment when the limiter is built.
    pub(crate) fn shed_by(
        mut self,
        open: impl FnOnce() -> Result<Pressure, ConfigError> + Send + Sync + 'static,
        shedding: Shedding,
    ) -> Self {
        self.shedding.add(Box::new(open), shedding);
        self
    }

    /// Allows a limiter without policies: all limits stand at handlers and routes.
    ///
    /// ```
    /// use tollgate::{Limiter, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let layer = RateLimitLayer::new(Limiter::builder().allow_no_policies().build()?);
    /// # Ok(()) }
    /// ```
    pub fn allow_no_policies(mut self) -> Self {
        self.terms.may_be_empty = true;
        self
    }

    /// The backend that decides. The default is a [`MemoryBackend`] of this limiter's own.
    pub fn backend(mut self, backend: impl Backend) -> Self {
        self.backend = Some(Arc::new(backend));
        self
    }

    /// Tells an [`Observer`] of every decision: by the backend, by a budget of this process or by a list; for a request, a
    /// message or a [check](Limiter::check); enforced or on trial.
    ///
    /// A limiter has one observer, the last that is set. It may pass on what it hears.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use tollgate::{Event, Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let denials = Arc::new(AtomicU64::new(0));
    /// let count = Arc::clone(&denials);
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("mail", Quota::per_hour(1)))
    ///     .observe(move |event: &Event<'_>| {
    ///         if event.verdict().is_some_and(|verdict| verdict.is_denied()) {
    ///             count.fetch_add(1, Ordering::Relaxed);
    ///         }
    ///     })
    ///     .build()?;
    ///
    /// limiter.check("mail", "alice").await?;
    /// limiter.check("mail", "alice").await?;
    /// assert_eq!(denials.load(Ordering::Relaxed), 1);
    /// # Ok(()) }
    /// ```
    pub fn observe(mut self, observer: impl Observer) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Counts the callers that each policy denies, for [`Limiter::offenders`]: those with the most denials, and the number of them
    /// all. It takes up to forty kilobytes for each policy that has denied a caller, and more if identities are long: 512 are kept.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("api", Quota::per_second(10)))
    ///     .track_offenders()
    ///     .build()?;
    /// # Ok(()) }
    /// ```
    pub fn track_offenders(mut self) -> Self {
        self.tracks_offenders = true;
        self
    }

    /// Counts every decision by policy, result and kind for the recorder of the [`metrics`](https://docs.rs/metrics) facade, and
    /// measures the share of the budget that is used and the time to decide. An identity is never a label.
    /// `docs/operating/metrics.md` lists the metrics. A recorder that the application installs later is found.
    ///
    /// States and counts of the backend are told by [`Limiter::publish_metrics`].
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder().policy(Policy::new("api", Quota::per_second(10))).metrics().build()?;
    ///
    /// // Whatever exporter the application likes, before or after.
    /// let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    /// let page = recorder.handle();
    /// metrics::set_global_recorder(recorder)?;
    ///
    /// limiter.check("api", "alice").await?;
    /// let line = r#"rate_limiting_decisions_total{policy="api",kind="enforced",result="allowed"} 1"#;
    /// assert!(page.render().contains(line));
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "metrics")]
    pub fn metrics(mut self) -> Self {
        self.is_metered = true;
        self
    }

    /// Sets a check that may refuse a policy and says why, now and when policies are replaced.
    #[doc(hidden)]
    pub fn refusing(mut self, refuses: fn(&Policy) -> Option<ConfigError>) -> Self {
        self.terms.refuses = Some(refuses);
        self
    }

    /// The policies, for a limiter that runs.
    ///
    /// # Errors
    ///
    /// If the builder's classes or thresholds are invalid, or if it has neither policies nor classes: the next start would find it
    /// otherwise.
    #[cfg(feature = "serde")]
    pub(crate) fn into_policies(self) -> Result<Vec<Policy>, ConfigError> {
        let sheds = self.shedding.checked()?.is_some();
        if self.policies.is_empty() && !sheds && !self.terms.may_be_empty {
            return Err(ConfigError::NoPolicy);
        }
        Ok(self.policies)
    }

    /// The limiter.
    ///
    /// # Errors
    ///
    /// If there is no policy and nothing to [shed](Self::shed), if two policies or two quotas have one name, if a policy can cover
    /// no request or lets none pass, if a policy's lists or tiers name identities that no request has, or if policies that could
    /// cover one path have more than [`MAX_CHARGES`](tollgate_core::MAX_CHARGES) quotas between them. Invalid classes or thresholds
    /// are errors too.
    pub fn build(self) -> Result<Limiter, ConfigError> {
        let backend = self
            .backend
            .unwrap_or_else(|| Arc::new(MemoryBackend::new()));
        let shedder = self.shedding.checked()?;
        let shedder = shedder.map(CheckedShedding::start).transpose()?;
        let terms = Terms {
            offered: backend.admin().capabilities(),
            has_observer: self.observer.is_some(),
            // One that only sheds is not a mistake.
            may_be_empty: self.terms.may_be_empty || shedder.is_some(),
            ..self.terms
        };
        let policies = Snapshot::new(self.policies, &terms)?;
        let tracker = self.tracks_offenders.then(Tracker::new);
        let observers = Observers::new(self.observer).tracking(tracker);
        #[cfg(feature = "metrics")]
        let observers = observers.metered(self.is_metered.then(Meters::default));
        observers.expect(Some(&policies.policies));
        // A backend in this process has nothing to lease.
        let leasing = backend
            .admin()
            .place()
            .is_some()
            .then(|| Arc::new(LeasingBackend::around(Arc::clone(&backend))));
        let backend = leasing.clone().map_or(backend, |leasing| leasing as _);
        Ok(Limiter::new(
            policies, terms, shedder, backend, leasing, observers,
        ))
    }
}

impl fmt::Debug for LimiterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterBuilder")
            .field("policies", &self.policies)
            .field("terms", &self.terms)
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use tollgate_core::{Answer, Call, Concurrent, Decision, MAX_CHARGES, Settlement};

    use super::*;
    use crate::{Algorithm, Quota, Tiers};

    const QUOTA: Quota = Quota::per_second(1);

    /// A backend without any capability.
    #[derive(Debug)]
    struct QuotasOnly;

    impl Backend for QuotasOnly {
        fn decide(&self, _call: Call<'_>) -> Answer<Decision> {
            Answer::later(std::future::pending())
        }

        fn settle(&self, _settlement: Settlement<'_>) {}
    }

    fn refusal(policies: impl IntoIterator<Item = Policy>) -> String {
        Limiter::builder()
            .policies(policies)
            .build()
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_policy_that_needs_more_than_the_backend_can_is_refused_with_both() {
        let plain = Policy::new("uploads", QUOTA);
        let held = Policy::new("uploads", (QUOTA, Concurrent::at_most(2)));
        let builder = || Limiter::builder().backend(QuotasOnly);

        let refused = builder().policy(held.clone()).build().unwrap_err();
        assert_eq!(
            refused.to_string(),
            "policy \"uploads\": the backend does not support limits that are held"
        );
        let limiter = builder().policy(plain).build().unwrap();
        assert!(limiter.replace([held]).is_err());
    }

    #[test]
    fn a_limiter_without_policies_is_refused() {
        assert_eq!(refusal([]), "a limiter without policies limits nothing");
    }

    #[test]
    fn two_policies_of_one_name_are_refused() {
        let policies = [
            Policy::new("login", QUOTA),
            Policy::new("login", Quota::per_day(9)),
        ];
        assert_eq!(
            refusal(policies),
            "policy \"login\": two policies have this name"
        );
    }

    #[test]
    fn two_quotas_of_one_name_are_refused() {
        let clash = [
            Policy::new("api", [QUOTA, QUOTA]),
            Policy::new("api-2", QUOTA),
        ];
        assert_eq!(
            refusal(clash),
            "policies \"api\" and \"api-2\": headers call a quota of both \"api-2\"; give one of them another name"
        );
        let twice = [Policy::new("api", [("day", QUOTA), ("day", QUOTA)])];
        assert_eq!(
            refusal(twice),
            "policy \"api\": headers call two of its quotas \"api-day\""
        );

        // Each policy has names of its own, and so has each of its tiers.
        let day = || [("second", QUOTA), ("day", Quota::per_day(9))];
        let tiers = Tiers::by_key([("a", "gold")]).tier("gold", day());
        let policies = [
            Policy::new("api", day()).tiers(tiers),
            Policy::new("web", day()),
        ];
        assert!(Limiter::builder().policies(policies).build().is_ok());
        let tiers = Tiers::by_key([("a", "gold")]).tier("gold", [QUOTA, QUOTA]);
        let of_a_tier = [
            Policy::new("api", QUOTA).tiers(tiers),
            Policy::new("api-2", QUOTA),
        ];
        assert!(refusal(of_a_tier).contains("headers call a quota of both \"api-2\""));
    }

    #[test]
    fn larger_logs_than_a_call_may_read_are_refused() {
        let log = Quota::per_day(1024).using(Algorithm::SlidingLog);
        let logs = |policies: usize| (0..policies).map(|n| Policy::new(&format!("p{n}"), log));
        assert!(Limiter::builder().policies(logs(6)).build().is_ok());
        assert_eq!(
            refusal(logs(7)),
            "sliding logs of 7168 entries could meet in one request, and at most 6144 are read together; a rolling window \
             takes less"
        );

        // Those on paths of their own never meet.
        let apart = logs(7).map(|policy| {
            let path = format!("/{}", policy.name());
            policy.route(&path)
        });
        assert!(Limiter::builder().policies(apart).build().is_ok());

        let tiers = Tiers::by_key([("a", "gold")]).tier("gold", vec![log; 7]);
        let policy = Policy::new("tiers", Quota::per_second(1)).tiers(tiers);
        assert!(refusal([policy]).starts_with("sliding logs of 7168"));
    }

    #[test]
    fn more_quotas_than_a_call_may_carry_are_refused() {
        let policies = (0..=MAX_CHARGES).map(|n| Policy::new(&format!("p{n}"), QUOTA));
        assert_eq!(
            refusal(policies),
            "33 quotas could meet in one request, and at most 32 are decided together"
        );
    }

    #[test]
    fn policies_on_demand_do_not_meet_unless_they_are_asked_for_together() {
        let policies = (0..=MAX_CHARGES).map(|n| Policy::new(&format!("p{n}"), QUOTA).on_demand());
        assert!(Limiter::builder().policies(policies).build().is_ok());

        let alone = Policy::new("big", vec![QUOTA; MAX_CHARGES + 1]).on_demand();
        assert!(refusal([alone]).starts_with("33 quotas could meet"));
    }

    #[test]
    fn a_cost_that_no_budget_of_the_policy_ever_holds_is_refused() {
        let policy = || Policy::new("big", [Quota::per_second(5), Quota::per_day(9).burst(2)]);
        assert!(Limiter::builder().policy(policy().cost(2)).build().is_ok());
        for policy in [policy(), policy().shadow(), policy().on_demand()] {
            assert_eq!(
                refusal([policy.cost(3)]),
                "policy \"big\": a cost of 3 never passes: a full budget of \"big-2\" holds 2"
            );
        }
        // The verdict on the request decides the rest.
        assert!(
            Limiter::builder()
                .policy(policy().cost_by(|_| 3))
                .build()
                .is_ok()
        );
    }

    #[test]
    fn a_cost_that_no_budget_of_a_tier_ever_holds_is_refused() {
        let tiers = Tiers::by_key([("a", "free")]).tier("free", Quota::per_second(2));
        let policy = Policy::new("big", Quota::per_second(5))
            .tiers(tiers)
            .cost(3);
        assert_eq!(
            refusal([policy]),
            "policy \"big\": tier \"free\": a full budget holds less than a request costs, so that no request ever passes"
        );
    }

    #[test]
    fn a_policy_that_covers_no_request_is_refused() {
        let policy = || Policy::new("p", QUOTA);
        let none = [
            policy().method(Method::GET).exempt_method(Method::GET),
            policy().method(Method::HEAD).exempt_method(Method::GET),
            policy().route("/a/{id}").exempt_route("/a/{name}"),
        ];
        for policy in none {
            let error = refusal([policy]);
            assert!(
                error.starts_with("policy \"p\": covers no request: "),
                "{error}"
            );
        }
        let some = [
            policy().method(Method::GET).exempt_method(Method::HEAD),
            policy()
                .method(Method::GET)
                .method(Method::PUT)
                .exempt_method(Method::PUT),
            policy().route("/a/{id}").exempt_route("/a/me"),
            policy().exempt_method(Method::GET).exempt_route("/a"),
        ];
        for policy in some {
            assert!(Limiter::builder().policy(policy).build().is_ok());
        }
    }

    #[test]
    fn a_policy_of_grpc_methods_and_http_methods_is_refused() {
        let policy = || Policy::new("place", QUOTA).grpc("shop.v1.Orders/Place");
        for policy in [
            policy().method(Method::POST),
            policy().exempt_method(Method::OPTIONS),
        ] {
            let error = refusal([policy]);
            let begins = "policy \"place\": gRPC method \"/shop.v1.Orders/Place\": runs whatever";
            assert!(error.starts_with(begins), "{error}");
        }
    }

    #[test]
    fn a_limiter_without_policies_can_be_meant() {
        let limiter = Limiter::builder().allow_no_policies().build().unwrap();
        assert_eq!(limiter.policies().len(), 0);
    }
}
