//! A place to wait.

use bytes::Bytes;
use http::header::{InvalidHeaderValue, LOCATION};
use http::{HeaderValue, Response, StatusCode};
use tollgate_limiter::transport::literal;

use super::{Refusal, Respond};

/// Sends refused callers to another page, such as a waiting room. The status is 303, so that a client fetches the page for any
/// method.
///
/// ```
/// use tollgate::{Quota, RateLimitLayer, SeeOther};
///
/// let layer = RateLimitLayer::new(Quota::per_second(10)).respond(SeeOther::at("/waiting-room"));
/// ```
///
/// That page must not be limited by the same policy, or callers go round in circles. A redirect has no `Retry-After`, because a
/// browser would wait for it before it follows, and no RateLimit fields, because another budget counts at the target. gRPC callers
/// are answered in gRPC, since no gRPC client would follow.
#[derive(Clone, Debug)]
pub struct SeeOther {
    location: HeaderValue,
}

impl SeeOther {
    /// To this address.
    ///
    /// # Panics
    ///
    /// While it is built, if a header cannot carry the address. An address from outside goes through [`try_at`](Self::try_at).
    #[must_use]
    #[track_caller]
    pub fn at(location: &str) -> Self {
        literal(Self::try_at(location).map_err(|error| format!("location {location:?}: {error}")))
    }

    /// To this address.
    ///
    /// ```
    /// use tollgate::SeeOther;
    ///
    /// assert!(SeeOther::try_at("/waiting-room").is_ok());
    /// assert!(SeeOther::try_at("/waiting\nroom").is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// If a header cannot carry the address.
    pub fn try_at(location: &str) -> Result<Self, InvalidHeaderValue> {
        let location = location.parse()?;
        Ok(Self { location })
    }
}

impl Respond for SeeOther {
    fn respond(&self, _refusal: &Refusal<'_>) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::SEE_OTHER;
        let headers = response.headers_mut();
        headers.insert(LOCATION, self.location.clone());
        response
    }
}
