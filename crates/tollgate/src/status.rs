//! What handlers see of the decisions about their request.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::report::{PolicyVerdict, Report};

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
    report: Mutex<Report>,
    /// Whether the layer that made it writes fields for all that is in it.
    fields: bool,
}

thread_local! {
    /// Handles that nobody else holds any more, to be used again: an allocation less for each request.
    static SPARE: RefCell<Vec<RateLimitStatus>> = const { RefCell::new(Vec::new()) };
}

/// So many a thread keeps at most: what is in flight on a busy one, in some twenty kilobytes.
const MOST_SPARE: usize = 128;

impl RateLimitStatus {
    #[inline]
    pub(crate) fn new(report: Report, fields: bool) -> Self {
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop());
        if let Ok(Some(mut spare)) = spare
            && let Some(shared) = Arc::get_mut(&mut spare.0)
        {
            *shared
                .report
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner) = report;
            shared.fields = fields;
            return spare;
        }
        Self(Arc::new(Shared {
            report: Mutex::new(report),
            fields,
        }))
    }

    /// Lets `f` read what took part, at the end of a request.
    #[inline]
    pub(crate) fn finish(mut self, f: impl FnOnce(&Report)) {
        let Some(shared) = Arc::get_mut(&mut self.0) else {
            return self.read(f);
        };
        f(shared
            .report
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner));
        // A thread that ends keeps nothing.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < MOST_SPARE {
                spare.push(self);
            }
        });
    }

    pub(crate) fn report(&self) -> Report {
        self.lock().clone()
    }

    /// Adds what a layer further in decided about the same request. Returns whether whoever made this handle writes fields
    /// for it.
    pub(crate) fn add(&self, report: Report) -> bool {
        self.lock().append(report);
        self.0.fields
    }

    fn read<T>(&self, f: impl FnOnce(&Report) -> T) -> T {
        f(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Report> {
        self.0.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One verdict for each quota of each policy that took part.
    #[must_use]
    pub fn verdicts(&self) -> Vec<PolicyVerdict> {
        self.read(|report| report.verdicts().to_vec())
    }

    /// The verdict that the headers speak of: of the enforced quotas the one with the least share of its budget left.
    /// `None` if none took part, or the backend failed and the request passed undecided.
    #[must_use]
    pub fn tightest(&self) -> Option<PolicyVerdict> {
        self.read(|report| report.tightest().copied())
    }
}

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
