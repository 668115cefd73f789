//! What handlers see of the decisions about their request.

mod lent;

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use self::lent::{Lent, Shared};
use crate::layer::Config;
use crate::ledger::Ledger;
use crate::report::PolicyVerdict;
use crate::sync::MutexGuard;
use crate::{Limiter, ResponseView};

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
pub struct RateLimitStatus(Lent);

/// The handle of the layer that is nearest to the handler, in the extensions of a request that several layers let pass.
#[cfg(feature = "axum")]
#[derive(Clone, Debug)]
pub(crate) struct Nearest(pub(crate) RateLimitStatus);

impl RateLimitStatus {
    /// A handle on nothing, for whoever has none.
    pub(crate) const NONE: Self = Self(Lent::NONE);

    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// A handle that says what is in this ledger.
    pub(crate) fn new(config: &Arc<Config>, ledger: Ledger) -> Self {
        let mut status = Self::spare();
        match status.begin(config) {
            Some(spare) => *spare = ledger,
            None => return Self::first(config, ledger),
        }
        status
    }

    /// One that was used before, if there is one.
    #[inline(always)]
    pub(crate) fn spare() -> Self {
        Self(Lent::spare())
    }

    /// The ledger of one that was used before, to be written anew; nothing, if somebody still holds it.
    #[inline(always)]
    pub(crate) fn begin(&mut self, config: &Arc<Config>) -> Option<&mut Ledger> {
        Some(self.0.alone()?.begin(config))
    }

    /// One that was not used before.
    #[inline(never)]
    pub(crate) fn first(config: &Arc<Config>, ledger: Ledger) -> Self {
        Self(Shared::new(config, ledger).into())
    }

    /// Lets `f` read what took part.
    #[inline]
    pub(crate) fn read(&mut self, f: impl FnOnce(&Ledger, Option<&Config>)) {
        let guard;
        let (ledger, config) = match self.0.alone() {
            // So nobody has to wait.
            Some(shared) => shared.parts(),
            None => {
                guard = self.ledger();
                (&*guard, self.config().map(Arc::as_ref))
            }
        };
        f(ledger, config);
    }

    /// What the layer that made it was told, if one did.
    pub(crate) fn config(&self) -> Option<&Arc<Config>> {
        self.0.config()
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.ledger()
    }

    /// Lets the handle that the request carries show what stands in this one, which is that of a layer further in.
    pub(crate) fn show_in(&self, outer: &Self) {
        self.0.show_in(&outer.0);
        let shown = self.ledger().clone();
        outer.ledger().show(shown, self);
    }

    /// Enters what was decided further in, by the limiter of the same layer.
    #[cfg(feature = "axum")]
    pub(crate) fn enter(&self, ledger: Ledger) {
        if let Some(outer) = self.outer() {
            outer.ledger().show(ledger.clone(), self);
        }
        self.ledger().append(ledger);
    }

    /// The handle that shows what stands in this one.
    fn outer(&self) -> Option<Self> {
        self.0.outer().map(Self)
    }

    /// Whether both are one handle.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0.is(&other.0)
    }

    /// Somebody further in refuses the request: what it was charged so far comes back.
    pub(crate) fn give_back(&self) {
        self.correct(Ledger::give_back);
    }

    /// There is a response, and some policies charge by it. Returns whether some do by its body.
    pub(crate) fn settle_by_response(&self, response: &ResponseView<'_>) -> bool {
        self.correct(|ledger, limiter| ledger.settle_by_response(limiter, response))
    }

    /// So much of the body was sent.
    pub(crate) fn settle_by_bytes(&self, sent: u64) {
        self.correct(|ledger, limiter| ledger.settle_by_bytes(limiter, sent));
    }

    fn correct<T>(&self, correct: impl FnOnce(&mut Ledger, Option<&Limiter>) -> T) -> T {
        let limiter = self.config().map(|config| &config.limiter);
        let done = correct(&mut self.ledger(), limiter);
        if let Some(outer) = self.outer() {
            outer.ledger().refresh(self);
        }
        done
    }

    /// States what the request really cost under a policy, now that it is known: the tokens of an answer, the rows of a
    /// query. What was charged too much comes back, as far as it [would still count](crate::Receipt), and what was charged
    /// too little is taken, past what is left if need be: a debt, which those who come later have to wait for.
    ///
    /// It may be called at any time, from a handler or from the stream that it returned, and again when the cost has grown.
    /// What was raised so is not lowered again.
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
    /// If the policy took no part in this request. During an outage, when nothing was charged or a budget of this process
    /// decided, there is nothing to be settled, and that is no error.
    pub fn settle(&self, policy: &str, cost: u64) -> Result<(), SettleError> {
        let undecided = self.config().is_some() && self.ledger().report().verdicts().is_empty();
        if self.correct(|ledger, limiter| ledger.settle(limiter, policy, cost)) || undecided {
            Ok(())
        } else {
            Err(SettleError::new(policy))
        }
    }

    /// One verdict for each quota of each policy that took part.
    #[must_use]
    pub fn verdicts(&self) -> Vec<PolicyVerdict> {
        self.ledger().report().verdicts().to_vec()
    }

    /// The verdict that the headers speak of: of the enforced quotas the one with the least share of its budget left.
    /// `None` if none took part, or the backend failed and the request passed undecided.
    #[must_use]
    pub fn tightest(&self) -> Option<PolicyVerdict> {
        self.ledger().report().tightest().copied()
    }
}

/// Why a cost was not settled: the policy took no part in the request.
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
