//! Policies, a backend, and the rule for when the backend fails: the one way in which a request is decided, whoever asks.

mod builder;
mod check;
mod config_error;
mod fallback;
mod health;
mod local;
mod plan;
mod planning;
mod sole;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Request;
use tollgate_core::{Answer, Backend, BackendError, Decision, MAX_NAME_LEN, Receipt};

pub use self::builder::LimiterBuilder;
pub use self::check::{Check, CheckError, CheckFuture, Checked};
pub use self::config_error::ConfigError;
pub(crate) use self::fallback::Fallback;
use self::health::Health;
use self::local::LocalBudgets;
pub(crate) use self::plan::Plan;
pub(crate) use self::planning::{Planned, Resolving, Turned};
pub(crate) use self::sole::Sole;
use self::sole::SolePolicy;

#[cfg(feature = "axum")]
use crate::annotation::Registry;
use crate::client::ClientAddress;
use crate::key::ClientIp;
use crate::ledger::Ledger;
use crate::matching::{Matcher, PathForms};
use crate::request::FoundClient;
use crate::{Key, Policy, Quota, RequestView};

/// Policies, a backend, and what happens while the backend cannot decide.
///
/// The layer, and everything else that limits, goes through a limiter. It is cheap to clone, and clones share their
/// budgets. It needs no HTTP:
///
/// ```
/// use tollgate::{Limiter, Policy, Quota};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder()
///     .policy(Policy::new("send-mail", Quota::per_hour(20).burst(2)))
///     .policy(Policy::new("export", [Quota::per_minute(1), Quota::per_day(10)]))
///     .build()?;
///
/// let user = "user-4711";
/// assert!(limiter.check("send-mail", user).await?.is_allowed());
/// assert!(limiter.check("send-mail", user).await?.is_allowed());
/// let third = limiter.check("send-mail", user).await?;
/// assert!(!third.is_allowed());
/// assert_eq!(third.retry_after().map(|wait| wait.as_secs_f64().ceil()), Some(180.0));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Limiter(Arc<Inner>);

struct Inner {
    policies: Box<[Arc<Policy>]>,
    /// Those that the layer matches: all but the ones on demand and those for messages.
    matched: Box<[Arc<Policy>]>,
    /// Those for messages.
    for_messages: Box<[Arc<Policy>]>,
    /// Whether somebody sees to those.
    attends_messages: AtomicBool,
    client: ClientAddress,
    /// Nothing, if no policy has a pattern.
    matcher: Option<Matcher>,
    #[cfg_attr(
        not(feature = "tonic"),
        expect(dead_code, reason = "nobody charges messages without it")
    )]
    message_matcher: Option<Matcher>,
    ignores_path_case: bool,
    /// Whether what a request cost is known only once there is a response.
    has_outcomes: bool,
    /// As it comes: no headers are read for the client's address, and no path is matched.
    needs_only_the_peer: bool,
    sole: Option<SolePolicy>,
    backend: Arc<dyn Backend>,
    local: LocalBudgets,
    health: Health,
    warned_of_missing_peer: AtomicBool,
    /// What handlers and routes have brought along.
    #[cfg(feature = "axum")]
    annotated: Registry,
}

impl Inner {
    /// Reads headers for the client's address, and matches the path.
    #[inline(never)]
    fn plan(&self, request: &RequestView<'_>) -> Result<Planned, Turned> {
        if !self.for_messages.is_empty() {
            self.warn_of_unattended_messages();
        }
        self.plan_under(&self.matched, self.matcher.as_ref(), request)
    }

    fn plan_under(
        &self,
        matched: &[Arc<Policy>],
        matcher: Option<&Matcher>,
        request: &RequestView<'_>,
    ) -> Result<Planned, Turned> {
        let found = FoundClient::new();
        let request = request.remembering(&found);
        let all = matched.iter();
        if matcher.is_none() && !self.ignores_path_case {
            return planning::plan(all, &request, None);
        }
        let path = PathForms::of(request.original_uri().path(), self.ignores_path_case);
        let Some(matcher) = matcher else {
            return planning::plan(all, &request, Some(&path));
        };
        let covering = matcher.covering(&path);
        let candidates = covering.iter().filter_map(|index| matched.get(index));
        planning::plan(candidates, &request, Some(&path))
    }

    #[cold]
    fn warn_of_unattended_messages(&self) {
        if !self.attends_messages.swap(true, Ordering::Relaxed) {
            let policy = self.for_messages.first().map(|policy| policy.name());
            tracing::warn!(
                policy,
                "messages pass uncharged: add `MessageLimitLayer::new(limiter)` to the server, which charges them"
            );
        }
    }
}

impl Limiter {
    /// A limiter to be built from policies and, if not the one in memory, a backend.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::default()
    }

    /// Decides whether the identity `key` may do once more what the policy named `policy` limits, and counts it if so.
    ///
    /// Nothing is read from any request: the policy's conditions and key are not asked. See [`Check`] for other costs and
    /// for asking without counting.
    pub fn check(&self, policy: &str, key: impl Into<Key>) -> Check<'_> {
        Check::new(self, policy, key.into())
    }

    /// Gives back at most `n` of a charge, and only what would still count: see [`Receipt`].
    pub fn credit(&self, receipt: Receipt, n: u64) {
        self.0.backend.credit(receipt, n);
    }

    /// Takes `n` more from the budget that was charged, past its capacity if need be.
    pub fn debit(&self, receipt: &Receipt, n: u64) {
        self.0.backend.debit(receipt, n);
    }

    /// Forgets what the identity `key` has spent under a policy: its budgets are full.
    ///
    /// # Errors
    ///
    /// If there is no policy of that name, or the backend cannot do it.
    pub async fn reset(&self, policy: &str, key: impl Into<Key> + Send) -> Result<(), CheckError> {
        let key = key.into();
        let unknown = || CheckError::UnknownPolicy {
            policy: policy.into(),
        };
        let policy = self.policy(policy).ok_or_else(unknown)?;
        for limit in policy.limits.iter() {
            let reset = self.0.backend.reset(limit.scope, &key);
            reset.await.map_err(CheckError::Unavailable)?;
        }
        Ok(())
    }

    /// How many decisions the backend has failed to make, whatever became of the requests: to be watched. The log says when
    /// an outage begins (a warning) and when it ends.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.0.health.failures()
    }

    /// The identity that [`ClientIp`] makes of an address under this limiter, for [`check`](Self::check) and
    /// [`reset`](Self::reset).
    #[must_use]
    pub fn client_key(&self, address: IpAddr) -> Key {
        self.0.client.key(address)
    }

    /// The policies, in the order in which they were added.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.0.policies.iter().map(|policy| &**policy)
    }

    /// Looks for policies that annotations, [`check`](Self::check) or [`settle`](crate::RateLimitStatus::settle) will ask for
    /// by name, to be called when the server starts: what is missing would be seen by the first request otherwise.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("search", Quota::per_second(5)).on_demand())
    ///     .build()?;
    /// limiter.expects(["search"])?;
    /// assert!(limiter.expects(["serach"]).is_err());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no policy of one of these names.
    pub fn expects<'a>(
        &self,
        policies: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), ConfigError> {
        let mut names = policies.into_iter();
        match names.find(|name| self.policy(name).is_none()) {
            Some(name) => Err(ConfigError::UnknownPolicy {
                policy: name.chars().take(MAX_NAME_LEN).collect(),
            }),
            None => Ok(()),
        }
    }

    pub(crate) fn policy(&self, name: &str) -> Option<&Arc<Policy>> {
        let mut policies = self.0.policies.iter();
        policies.find(|policy| policy.name() == name)
    }

    #[cfg(feature = "axum")]
    pub(crate) fn annotated(&self) -> &Registry {
        &self.0.annotated
    }

    /// The head of a request, with what this limiter trusts.
    #[inline]
    pub(crate) fn view<'a, B>(&'a self, request: &'a Request<B>) -> RequestView<'a> {
        RequestView::of(request).trusting(&self.0.client)
    }

    /// The same of a request that lies in parts.
    #[cfg(feature = "axum")]
    pub(crate) fn view_of<'a>(&'a self, parts: &'a http::request::Parts) -> RequestView<'a> {
        RequestView::of_parts(parts).trusting(&self.0.client)
    }

    /// Whose budgets a request spends under these policies, whatever other policies this limiter has.
    #[cfg(feature = "axum")]
    pub(crate) fn plan_for(
        &self,
        policies: &[Arc<Policy>],
        request: &RequestView<'_>,
    ) -> Result<Planned, Turned> {
        let found = FoundClient::new();
        let plan = planning::plan(policies.iter(), &request.remembering(&found), None);
        if matches!(&plan, Ok(Planned::Now(plan)) if plan.misses_peer) {
            self.warn_of_missing_peer();
        }
        plan
    }

    /// Which policies cover the request, whose budgets they spend, and how much.
    pub(crate) fn plan(&self, request: &RequestView<'_>) -> Result<Planned, Turned> {
        let plan = if self.0.needs_only_the_peer {
            planning::plan(self.0.matched.iter(), request, None)
        } else {
            self.0.plan(request)
        };
        if matches!(&plan, Ok(Planned::Now(plan)) if plan.misses_peer) {
            self.warn_of_missing_peer();
        }
        plan
    }

    /// Which policies cover the messages of the call, whose budgets they spend, and how much.
    #[cfg(feature = "tonic")]
    pub(crate) fn plan_messages(&self, call: &RequestView<'_>) -> Result<Planned, Turned> {
        let inner = &*self.0;
        let matcher = inner.message_matcher.as_ref();
        let plan = inner.plan_under(&inner.for_messages, matcher, call);
        if matches!(&plan, Ok(Planned::Now(plan)) if plan.misses_peer) {
            self.warn_of_missing_peer();
        }
        plan
    }

    /// Somebody charges messages.
    #[cfg(feature = "tonic")]
    pub(crate) fn attend_messages(&self) {
        self.0.attends_messages.store(true, Ordering::Relaxed);
    }

    /// Whether some policy is for messages.
    #[cfg(feature = "tonic")]
    pub(crate) fn has_messages(&self) -> bool {
        !self.0.for_messages.is_empty()
    }

    #[cold]
    fn warn_of_missing_peer(&self) {
        if !self.0.warned_of_missing_peer.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                missing = ClientIp::MISSING,
                "the server does not say who its peers are, so all callers share one budget; serve the router with \
                 `.into_make_service_with_connect_info::<SocketAddr>()`, or in tests add `MockConnectInfo` outside the \
                 limiter; callers over a Unix socket have no address, so limit them by another key"
            );
        }
    }

    /// The only quota of the only policy, if that is all there is: as nearly always.
    #[inline]
    pub(crate) fn sole(&self) -> Option<Sole<'_>> {
        Sole::of(self)
    }

    /// Asks the backend.
    #[inline]
    pub(crate) fn decide(&self, plan: &Plan) -> Answer<Decision> {
        plan.with_charges(|charges| self.0.backend.decide(charges))
    }

    /// What the backend decided, or what the failure rule, which is applied here and nowhere else, makes of its failure.
    #[inline]
    pub(crate) fn rule(
        &self,
        plan: &Plan,
        answer: Result<Decision, BackendError>,
    ) -> Result<Decision, Fallback> {
        match answer {
            Ok(decision) => {
                self.backend_answered();
                Ok(decision)
            }
            Err(error) => {
                self.0.health.failed(&error);
                Err(self.0.local.rule_without_backend(plan, error))
            }
        }
    }

    /// The same for a request, with who paid.
    pub(crate) fn judge(&self, plan: &Plan, answer: Result<Decision, BackendError>) -> Judged {
        let of = |decision: &Decision, ledger| {
            if decision.is_admitted() {
                Judged::Admitted(ledger)
            } else {
                Judged::Denied(ledger)
            }
        };
        match self.rule(plan, answer) {
            Ok(decision) => of(&decision, Ledger::of(plan, &decision)),
            Err(Fallback::Decide(local)) => {
                let (plan, decision) = &*local;
                of(decision, Ledger::of_local(plan, decision))
            }
            Err(Fallback::Pass(error)) => {
                tracing::debug!(%error, "passed undecided");
                Judged::Undecided
            }
            Err(Fallback::Refuse(error)) => {
                tracing::debug!(%error, "refused undecided");
                Judged::Unavailable
            }
        }
    }

    /// Whether a response may change what its request cost.
    #[inline]
    pub(crate) fn has_outcomes(&self) -> bool {
        self.0.has_outcomes
    }

    /// The backend is well: local budgets stand still.
    #[inline]
    pub(crate) fn backend_answered(&self) {
        if self.0.health.is_failing() {
            self.0.local.backend_answered();
            self.0.health.recovered();
        }
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("policies", &self.0.policies)
            .field("client_address", &self.0.client)
            .field("backend", &self.0.backend)
            .finish_non_exhaustive()
    }
}

/// The one policy of this limiter, in memory.
///
/// # Panics
///
/// If [`LimiterBuilder::build`] would refuse the policy. What comes from outside goes through that.
impl From<Policy> for Limiter {
    fn from(policy: Policy) -> Self {
        match Self::builder().policy(policy).build() {
            Ok(limiter) => limiter,
            #[expect(
                clippy::panic,
                reason = "literals fail while they are built, by design"
            )]
            Err(error) => panic!("{error}"),
        }
    }
}

/// A limiter of one policy named `default`: this quota for each client address, in memory.
impl From<Quota> for Limiter {
    fn from(quota: Quota) -> Self {
        Policy::new("default", quota).into()
    }
}

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Judged {
    /// Every enforced quota had room.
    Admitted(Ledger),
    /// One had not.
    Denied(Ledger),
    /// Nobody could decide, and it passes.
    Undecided,
    /// Nobody could decide, and it is refused.
    Unavailable,
}

/// What a limiter is made of.
struct Parts {
    policies: Box<[Policy]>,
    client: ClientAddress,
    matcher: Option<Matcher>,
    message_matcher: Option<Matcher>,
    ignores_path_case: bool,
    backend: Arc<dyn Backend>,
}

/// The patterns of all these policies as one router.
fn matcher(policies: &[Policy], are_asked: fn(&Policy) -> bool) -> Option<Matcher> {
    let matched = policies.iter().filter(|policy| are_asked(policy));
    let patterns: Vec<_> = matched.map(Policy::patterns).collect();
    Matcher::new(&patterns)
}

impl From<&Self> for Limiter {
    fn from(limiter: &Self) -> Self {
        limiter.clone()
    }
}

impl Limiter {
    fn new(parts: Parts) -> Self {
        let Parts {
            policies,
            client,
            matcher,
            message_matcher,
            ignores_path_case,
            backend,
        } = parts;
        let policies: Box<[Arc<Policy>]> = policies.into_iter().map(Arc::new).collect();
        let that = |are_asked: fn(&Policy) -> bool| {
            let policies = policies.iter().filter(|policy| are_asked(policy));
            policies.cloned().collect::<Box<[_]>>()
        };
        let matched = that(Policy::is_for_requests);
        let for_messages = that(Policy::is_for_messages);
        // Where there are messages, requests are looked at more closely: see `Inner::plan`.
        let needs_only_the_peer =
            client.is_peer() && matcher.is_none() && !ignores_path_case && for_messages.is_empty();
        let sole = SolePolicy::of(&matched).filter(|_| needs_only_the_peer);
        Self(Arc::new(Inner {
            local: LocalBudgets::for_policies(&policies),
            has_outcomes: policies.iter().any(|policy| policy.outcome.is_some()),
            needs_only_the_peer,
            sole,
            matched,
            for_messages,
            attends_messages: AtomicBool::new(false),
            policies,
            client,
            matcher,
            message_matcher,
            ignores_path_case,
            backend,
            health: Health::default(),
            warned_of_missing_peer: AtomicBool::new(false),
            #[cfg(feature = "axum")]
            annotated: Registry::default(),
        }))
    }
}
