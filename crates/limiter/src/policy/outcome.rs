//! The real cost of a request, once there is a response.

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, Response, StatusCode};

use super::{Label, Policy};

/// The head of a response, for a policy to look at.
///
/// ```
/// use http::Response;
/// use tollgate::ResponseView;
///
/// /// Failed logins count, and so do answers that say so.
/// fn counts(response: &ResponseView<'_>) -> bool {
///     response.status() == 401 || response.headers().contains_key("x-count-me")
/// }
///
/// assert!(!counts(&ResponseView::of(&Response::new(()))));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ResponseView<'a> {
    status: StatusCode,
    headers: &'a HeaderMap,
}

impl<'a> ResponseView<'a> {
    /// The head of `response`.
    #[must_use]
    pub fn of<B>(response: &'a Response<B>) -> Self {
        Self {
            status: response.status(),
            headers: response.headers(),
        }
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The headers, without those of the layer.
    #[must_use]
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }
}

/// The rule by which the response sets the cost.
#[derive(Clone)]
pub(crate) enum Outcome {
    /// The charge stays if this holds, and is credited otherwise.
    CountIf(Arc<CountIf>),
    /// The charge becomes this cost. `None` leaves it as it is.
    Cost(Arc<CostOf>),
    /// The charge becomes the cost of the bytes of the body.
    Sent(Arc<CostOfBytes>),
    /// The response may be a strike, and may set the cost as well.
    Strike(Arc<StrikeRule>),
}

/// The rule by which a response is a strike.
pub(crate) struct StrikeRule {
    pub(super) strikes: Arc<CountIf>,
    pub(super) ban: Arc<Label>,
    pub(super) cost: Option<Outcome>,
}

impl StrikeRule {
    /// The ban that counts the strikes.
    pub(crate) fn ban(&self) -> &Arc<Label> {
        &self.ban
    }

    /// The ban that counts this response as a strike.
    pub(crate) fn struck(&self, response: &ResponseView<'_>) -> Option<&Arc<Label>> {
        (self.strikes)(response).then_some(&self.ban)
    }
}

impl Outcome {
    /// The rule by which the response sets the cost alone.
    pub(crate) fn cost(&self) -> Option<&Self> {
        match self {
            Self::Strike(rule) => rule.cost.as_ref(),
            cost => Some(cost),
        }
    }
}

pub(crate) type CountIf = dyn Fn(&ResponseView<'_>) -> bool + Send + Sync;
type CostOf = dyn Fn(&ResponseView<'_>) -> Option<u64> + Send + Sync;
type CostOfBytes = dyn Fn(u64) -> u64 + Send + Sync;

/// Corrections of the cost. Each request is charged [its cost](Policy::cost) *before* it is served, and the charge is corrected
/// when its response is there. So a thousand simultaneous logins, none of which has failed yet, do not slip through a limit on
/// failed ones. If there is no response, because the service failed or the caller went away, the charge stays.
///
/// The last one on a policy counts.
impl Policy {
    /// Counts only requests with such a response: failed logins.
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// let logins = Policy::new("failed-logins", Quota::per_minute(5))
    ///     .route("/login")
    ///     .count_if(|response| response.status() == 401);
    /// ```
    #[must_use]
    pub fn count_if(
        self,
        counts: impl Fn(&ResponseView<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.corrected_by(Some(Outcome::CountIf(Arc::new(counts))))
    }

    /// Credits requests with such a response: a server's own errors are free.
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// let api = Policy::new("api", Quota::per_day(1_000)).free_if(|response| response.status().is_server_error());
    /// ```
    #[must_use]
    pub fn free_if(self, free: impl Fn(&ResponseView<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.count_if(move |response| !free(response))
    }

    /// Charges the cost that the response states. `None` leaves the charge as it is.
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// let tokens = Policy::new("tokens", Quota::per_minute(100_000)).cost(500).settle_by(|response| {
    ///     response.headers().get("x-tokens-used")?.to_str().ok()?.parse().ok()
    /// });
    /// ```
    ///
    /// A handler that knows the cost itself, perhaps only when its stream has ended, calls
    /// `RateLimitStatus::settle`.
    #[must_use]
    pub fn settle_by(
        self,
        cost: impl Fn(&ResponseView<'_>) -> Option<u64> + Send + Sync + 'static,
    ) -> Self {
        self.corrected_by(Some(Outcome::Cost(Arc::new(cost))))
    }

    /// Charges `cost` of the number of bytes that were sent, when the body has ended or the caller has gone, and at least 1: the service has
    /// run, also for `HEAD`.
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// let traffic = Policy::new("kilobytes", Quota::per_hour(100_000)).settle_by_bytes(|bytes| bytes.div_ceil(1024));
    /// ```
    #[must_use]
    pub fn settle_by_bytes(self, cost: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Self {
        self.corrected_by(Some(Outcome::Sent(Arc::new(cost))))
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CountIf(_) => "count_if(..)",
            Self::Cost(_) => "settle_by(..)",
            Self::Sent(_) => "settle_by_bytes(..)",
            Self::Strike(_) => "strike_if(..)",
        })
    }
}
