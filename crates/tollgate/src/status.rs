//! What handlers see of the decisions about their request.

use std::sync::{Arc, Mutex, PoisonError};

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
pub struct RateLimitStatus(Arc<Mutex<Report>>);

impl RateLimitStatus {
    pub(crate) fn new(report: Report) -> Self {
        Self(Arc::new(Mutex::new(report)))
    }

    pub(crate) fn read<T>(&self, f: impl FnOnce(&Report) -> T) -> T {
        f(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
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
