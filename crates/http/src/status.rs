//! The decisions about a request, for its handler.

use std::error::Error;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use http::Response;
use tollgate_limiter::transport::{Ledger, Report};
use tollgate_limiter::{PolicyVerdict, ResponseView};

use crate::settings::Config;
use crate::sync::{AtomicBool, Mutex, MutexGuard};

/// The decisions about this request so far, for its handler to read.
///
/// A [`RateLimitLayer`](crate::RateLimitLayer) puts it into the request's extensions. Under axum it is an extractor; a
/// handler that wants to work without the layer as well takes an `Option` of it.
///
/// ```
/// # #[cfg(feature = "axum")] {
/// use axum::{Router, routing::get};
/// use tollgate::{Quota, RateLimitLayer, RateLimitStatus};
///
/// async fn search(status: RateLimitStatus) -> String {
///     match status.tightest() {
///         Some(tightest) => format!("{} searches left", tightest.verdict().remaining()),
///         None => "as many searches as you like".to_owned(),
///     }
/// }
///
/// let app: Router = Router::new()
///     .route("/search", get(search))
///     .layer(RateLimitLayer::new(Quota::per_minute(10)));
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct RateLimitStatus {
    handle: Arc<Handle>,
    /// The number of limits at handlers that this request has passed since the layer.
    passed: u16,
}

/// Marks the refusal of a limit within other limits: the number of those that let the request pass and have not taken that back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusedBehind(u16);

impl RefusedBehind {
    /// The mark of a response, if it is the refusal itself and nothing has answered in its place.
    fn of<R>(response: &Response<R>) -> Option<Self> {
        let extensions = response.extensions();
        #[cfg(feature = "tonic")]
        let of_status = || {
            let status = extensions.get::<tonic::Status>()?;
            status.source()?.downcast_ref().copied()
        };
        #[cfg(not(feature = "tonic"))]
        let of_status = || None;
        extensions.get().copied().or_else(of_status)
    }
}

/// Moves the mark of a refusal to the status that stands for it at a method. tonic makes a response of that, with the status in its
/// extensions.
#[cfg(feature = "tonic")]
pub fn mark_status(status: &mut tonic::Status, refusal: &Response<bytes::Bytes>) {
    if let Some(mark) = RefusedBehind::of(refusal) {
        status.set_source(Arc::new(mark));
    }
}

// So that it can be the source of a status.
impl Error for RefusedBehind {}

impl fmt::Display for RefusedBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rate limit refused the request")
    }
}

/// The state that the handles of one layer on one request share. A request, its handler and its response carry only a pointer.
#[derive(Debug, Default)]
struct Handle {
    charges: Charges,
    /// The settings of the layer; `None` if no layer made the handle.
    config: Option<Arc<Config>>,
    /// The response of the layer that made it: see [`Ledger::begin_response`].
    response: u32,
    /// The number that [`Ledger::enter`] returned for the layer.
    entered: u16,
    /// The number of limits at handlers that the request had passed before it came to the layer.
    passed_before: u16,
    /// True if one of these layers writes headers.
    writes: bool,
    /// True if the ledger of the outermost layer holds something: nearly every response finds out here that it need not ask.
    holds: AtomicBool,
    /// True if a limit further in than the outermost layer has refused the request.
    is_refused: AtomicBool,
}

/// The charges of all layers around the handler.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "most requests come past one layer, and its handle is one allocation"
)]
enum Charges {
    /// As it stands in the handle of the outermost layer,
    Here(Mutex<Ledger>),
    /// which this is.
    Outermost(RateLimitStatus),
}

impl Default for Charges {
    fn default() -> Self {
        Self::Here(Mutex::default())
    }
}

impl From<Handle> for RateLimitStatus {
    #[inline(always)]
    fn from(handle: Handle) -> Self {
        Self {
            handle: Arc::new(handle),
            passed: 0,
        }
    }
}

impl RateLimitStatus {
    /// The handle of a layer with no other around it, which may write headers on the response. It begins with what that layer has
    /// decided.
    // Written where it stays: a call would move it once more.
    #[inline(always)]
    pub(crate) fn outermost(config: &Arc<Config>, writes: bool, ledger: Ledger) -> Self {
        Self::from(Handle {
            holds: AtomicBool::new(ledger.holds()),
            charges: Charges::Here(Mutex::new(ledger)),
            config: Some(Arc::clone(config)),
            response: 0,
            entered: 0,
            passed_before: 0,
            writes,
            is_refused: AtomicBool::new(false),
        })
    }

    /// The handle of a layer within the one that has this handle.
    pub(crate) fn further_in(&self, config: &Arc<Config>, writes: bool, ledger: Ledger) -> Self {
        let outermost = match &self.handle.charges {
            Charges::Here(_) => self,
            Charges::Outermost(outermost) => outermost,
        };
        let response = outermost.ledger().begin_response();
        Self::from(Handle {
            entered: outermost.enter_for(response, ledger),
            charges: Charges::Outermost(outermost.clone()),
            config: Some(Arc::clone(config)),
            response,
            passed_before: self.passed,
            writes: writes || self.handle.writes,
            holds: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
        })
    }

    /// True if a layer writes headers.
    pub(crate) fn is_written(&self) -> bool {
        self.handle.writes
    }

    /// The settings of the nearest layer.
    #[inline]
    pub(crate) fn config(&self) -> Option<&Arc<Config>> {
        self.handle.config.as_ref()
    }

    /// The settings of the nearest layer and of the outermost one.
    pub(crate) fn configs(&self) -> impl Iterator<Item = &Arc<Config>> {
        let configs = [&self.handle.config, &self.outermost_handle().config];
        configs.into_iter().flatten()
    }

    #[inline]
    fn response(&self) -> u32 {
        self.handle.response
    }

    #[inline]
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        match &self.handle.charges {
            Charges::Here(ledger) => ledger.lock().unwrap_or_else(PoisonError::into_inner),
            Charges::Outermost(outermost) => outermost.ledger(),
        }
    }

    /// Lets `look` see what the nearest layer and those further in have decided.
    #[inline]
    pub(crate) fn look<T>(&self, look: impl FnOnce(Report<'_>) -> T) -> T {
        look(self.ledger().report_from(self.response()))
    }

    /// True if something is held for the request.
    // Charges are entered before the response is there, so that no other order is needed.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        self.outermost_handle().holds.load(Ordering::Relaxed)
    }

    #[inline]
    fn outermost_handle(&self) -> &Handle {
        match &self.handle.charges {
            Charges::Here(_) => &self.handle,
            Charges::Outermost(outermost) => &outermost.handle,
        }
    }

    /// Enters the decision of a limit within the nearest layer that let the request pass.
    pub(crate) fn enter(&self, ledger: Ledger) {
        self.enter_for(self.response(), ledger);
    }

    fn enter_for(&self, response: u32, ledger: Ledger) -> u16 {
        if ledger.holds() {
            self.outermost_handle().holds.store(true, Ordering::Relaxed);
        }
        self.ledger().enter(ledger, response)
    }

    /// The request has passed a limit at its handler.
    pub(crate) fn pass(&mut self) {
        self.passed = self.passed.saturating_add(1);
    }

    /// Enters the decision of a limit within the nearest layer that refuses the request. Its response gets the mark.
    pub(crate) fn refuse(&self, refusal: Ledger) -> RefusedBehind {
        let refused = &self.outermost_handle().is_refused;
        refused.store(true, Ordering::Relaxed);
        let mut ledger = self.ledger();
        ledger.refuse(refusal, self.response());
        RefusedBehind(self.passed)
    }

    /// Corrects the charges of the nearest layer by the response. Returns true if some depend on its body.
    pub(crate) fn settle_by_response(&self, response: &ResponseView<'_>) -> bool {
        self.ledger().settle_by_response(self.response(), response)
    }

    /// True if the response is the refusal of a limit further in. Then the nearest layer's charges are refunded, unless a handler has
    /// run, and are not settled.
    #[inline]
    pub(crate) fn takes_back<R>(&self, response: &mut Response<R>) -> bool {
        let is_refused = self.outermost_handle().is_refused.load(Ordering::Relaxed);
        is_refused && self.undo(response)
    }

    #[cold]
    fn undo<R>(&self, response: &mut Response<R>) -> bool {
        let Some(RefusedBehind(behind)) = RefusedBehind::of(response) else {
            return false;
        };
        let own = &self.handle;
        let is_undone = self.ledger().undo(own.response, own.entered, behind);
        let behind = if is_undone {
            0
        } else {
            behind.saturating_add(1)
        };
        let mark = RefusedBehind(behind.saturating_add(own.passed_before));
        response.extensions_mut().insert(mark);
        true
    }

    /// Corrects the charges by the bytes of the body that were sent.
    pub(crate) fn settle_by_bytes(&self, sent: u64) {
        self.ledger().settle_by_bytes(self.response(), sent);
    }

    /// States the real cost of the request under a policy, once it is known: the tokens of an answer, the rows of a query. A
    /// surplus is credited, as far as it [would still count](tollgate_core::Receipt). A shortfall is charged, past the remaining
    /// budget if necessary; later requests wait for that debt to drain.
    ///
    /// It may be called at any time, from a handler or from the stream that it returned, and again when the cost has grown. A
    /// raised cost is not lowered again.
    ///
    /// ```
    /// use tollgate::RateLimitStatus;
    ///
    /// async fn complete(status: RateLimitStatus) -> String {
    ///     let (answer, tokens) = ("42".to_owned(), 7_500_000);
    ///     if let Err(error) = status.settle("tokens", tokens) {
    ///         eprintln!("not charged: {error}");
    ///     }
    ///     answer
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// If the policy took no part in this request. During an outage this is not an error: nothing was charged, or a budget of this
    /// process decided, so that nothing has to be settled.
    pub fn settle(&self, policy: &str, cost: u64) -> Result<(), SettleError> {
        let mut ledger = self.ledger();
        let undecided = self.config().is_some() && ledger.report().verdicts().is_empty();
        if ledger.settle(policy, cost) || undecided {
            Ok(())
        } else {
            Err(SettleError::new(policy))
        }
    }

    /// One verdict for each quota of each policy that took part.
    ///
    /// ```
    /// use tollgate::RateLimitStatus;
    ///
    /// async fn budgets(status: RateLimitStatus) -> String {
    ///     let line = |of: &tollgate::PolicyVerdict| format!("{}: {} left\n", of.quota(), of.verdict().remaining());
    ///     status.verdicts().iter().map(line).collect()
    /// }
    /// ```
    #[must_use]
    pub fn verdicts(&self) -> Vec<PolicyVerdict> {
        self.ledger().report().verdicts().to_vec()
    }

    /// The time for which the request waited for its turn or for a place, because a quota lets it
    /// [wait](tollgate_core::Quota::wait_up_to). The verdict of a policy on trial says for itself how long the request would have
    /// waited.
    ///
    /// ```
    /// use tollgate::RateLimitStatus;
    ///
    /// async fn page(status: RateLimitStatus) -> String {
    ///     format!("in line for {:?}", status.waited())
    /// }
    /// ```
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.ledger().waited()
    }

    /// The verdict that the headers show: among the enforced quotas, the one with the smallest share of its budget left. `None`
    /// if no quota took part, or the backend failed and the request passed undecided.
    #[must_use]
    pub fn tightest(&self) -> Option<PolicyVerdict> {
        self.ledger().report().tightest().cloned()
    }
}

/// The end of a response, which comes once: when it is dropped. The nearest layer's places for the request are then given back,
/// unless there is a [`Hold`](crate::Hold).
#[derive(Debug)]
pub(crate) struct ResponseEnd {
    pub(crate) status: RateLimitStatus,
    /// True while there is no response, and one may be a strike.
    pub(crate) may_strike: bool,
}

impl ResponseEnd {
    #[inline]
    pub(crate) fn of(status: RateLimitStatus, may_strike: bool) -> Self {
        Self { status, may_strike }
    }

    // A call of its own, so that the usual end, at which nothing is held, is short.
    #[cold]
    fn come(&self) {
        let (mut ledger, response) = (self.status.ledger(), self.status.response());
        // A panic is the service's fault.
        if self.may_strike && !thread::panicking() {
            ledger.strike_abandoned(response);
        }
        ledger.end_response(response);
    }
}

impl Drop for ResponseEnd {
    #[inline]
    fn drop(&mut self) {
        if self.may_strike || self.status.holds() {
            self.come();
        }
    }
}

/// The error of a cost that was not settled, because the policy took no part in the request.
///
/// ```
/// use tollgate::{RateLimitStatus, SettleError};
///
/// fn charge(status: &RateLimitStatus, tokens: u64) -> Result<(), SettleError> {
///     status.settle("tokens", tokens)
/// }
///
/// // The request came past no layer that has the policy.
/// assert!(charge(&RateLimitStatus::default(), 7).is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettleError {
    policy: String,
}

impl SettleError {
    fn new(policy: &str) -> Self {
        Self {
            policy: policy.to_owned(),
        }
    }
}

impl fmt::Display for SettleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "policy {:?}: took no part in this request", self.policy)
    }
}

impl Error for SettleError {}

#[cfg(feature = "axum")]
impl<S: Sync> axum::extract::FromRequestParts<S> for RateLimitStatus {
    type Rejection = (http::StatusCode, &'static str);

    async fn from_request_parts(
        parts: &mut http::request::Parts,
        _state: &S,
    ) -> Result<Self, Self::Rejection> {
        parts.extensions.get().cloned().ok_or((
            http::StatusCode::INTERNAL_SERVER_ERROR,
            "this handler reads its RateLimitStatus: add a RateLimitLayer around it that has one",
        ))
    }
}

#[cfg(feature = "axum")]
impl<S: Sync> axum::extract::OptionalFromRequestParts<S> for RateLimitStatus {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut http::request::Parts,
        _state: &S,
    ) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get().cloned())
    }
}
