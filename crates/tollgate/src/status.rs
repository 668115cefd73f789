//! What handlers see of the decisions about their request.

use std::cell::RefCell;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, Weak};

use crate::layer::Config;
use crate::ledger::Ledger;
use crate::report::PolicyVerdict;
use crate::sync::{Mutex, MutexGuard};
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
pub struct RateLimitStatus(Arc<Shared>);

/// What the handles on one request share.
#[derive(Debug, Default)]
struct Shared {
    ledger: Mutex<Ledger>,
    /// Of the layer that made it; nothing, if none did.
    config: Option<Arc<Config>>,
    /// The handle that the request carries, if a layer further out has put it there. It shows what stands in this one.
    outer: OnceLock<Weak<Self>>,
}

/// The handle of the layer that is nearest to the handler, in the extensions of a request that several layers let pass.
#[cfg(feature = "axum")]
#[derive(Clone, Debug)]
pub(crate) struct Nearest(pub(crate) RateLimitStatus);

thread_local! {
    /// Handles that nobody else holds any more, to be used again: an allocation less for each request.
    static SPARE: RefCell<Vec<RateLimitStatus>> = const { RefCell::new(Vec::new()) };
}

/// So many a thread keeps at most: what is in flight on a busy one, in some thirty kilobytes.
const MOST_SPARE: usize = 128;

impl RateLimitStatus {
    /// What was decided is entered where it stays, in the place of what was decided about another request.
    #[inline]
    pub(crate) fn new(config: &Arc<Config>, enter: impl FnOnce(&mut Ledger)) -> Self {
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop());
        let mut status = spare.ok().flatten().unwrap_or_default();
        // Nobody else holds what is spare.
        if let Some(shared) = Arc::get_mut(&mut status.0) {
            enter(unlocked(&mut shared.ledger));
            // Nearly always the same: threads would fight over its count.
            if !matches!(&shared.config, Some(last) if Arc::ptr_eq(last, config)) {
                shared.config = Some(Arc::clone(config));
            }
        }
        status
    }

    /// Lets `f` read what took part, at the end of a request.
    #[inline]
    pub(crate) fn finish(mut self, f: impl FnOnce(&Ledger, Option<&Config>)) {
        let Some(shared) = Arc::get_mut(&mut self.0) else {
            return f(&self.ledger(), self.config().map(Arc::as_ref));
        };
        f(unlocked(&mut shared.ledger), shared.config.as_deref());
        // It was the handle of a layer within another one, and would be again.
        if shared.outer.get().is_some() {
            return;
        }
        // A thread that ends keeps nothing.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < MOST_SPARE {
                spare.push(self);
            }
        });
    }

    /// What the layer that made it was told, if one did.
    pub(crate) fn config(&self) -> Option<&Arc<Config>> {
        self.0.config.as_ref()
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the handle that the request carries show what stands in this one, which is that of a layer further in.
    pub(crate) fn show_in(&self, outer: &Self) {
        self.0.outer.get_or_init(|| Arc::downgrade(&outer.0));
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
        self.0.outer.get()?.upgrade().map(Self)
    }

    /// Whether both are one handle.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
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

/// Nobody else holds it, so nobody has to wait.
#[inline]
fn unlocked(ledger: &mut Mutex<Ledger>) -> &mut Ledger {
    ledger.get_mut().unwrap_or_else(PoisonError::into_inner)
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
