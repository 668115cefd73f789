//! The route that a request took.

use super::{KeyExtractor, KeyMissing, KeyShape};
use crate::request::Routing;
use crate::{Key, RequestView};

/// The route that the request takes, as a pattern: `/users/{id}`, one budget for all users.
///
/// It is axum's `MatchedPath` where the layer stands within the router. Around a whole router there is none yet: it is then
/// the first [route](crate::Policy::route) of the policy that covers the path, and missing if the policy has none.
///
/// ```
/// use tollgate::key::MatchedRoute;
/// use tollgate::{ClientIp, Policy, Quota};
///
/// let policy = Policy::new("per-route", Quota::per_second(10)).key((ClientIp, MatchedRoute));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MatchedRoute;

impl KeyExtractor for MatchedRoute {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        if let Some(matched) = request.matched_path() {
            return Ok(Key::from(matched));
        }
        match request.routing().and_then(Routing::covering) {
            Some((route, _)) => Ok(Key::from(route.as_str())),
            None => Err(KeyMissing::new("matched route")),
        }
    }

    fn needs_whole_request(&self) -> bool {
        true
    }

    fn shape(&self) -> KeyShape {
        KeyShape::Bytes
    }
}
