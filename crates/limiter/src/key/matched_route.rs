//! The route that a request took.

use super::reading::Reading;
use super::spelling::Spelling;
use super::{KeyExtractor, KeyMissing, KeyShape};
use crate::matching::Pattern;
use crate::request::Routing;
use crate::{Key, RequestView};

/// The route that the request takes, as a pattern: `/users/{id}`, one budget for all users.
///
/// It is axum's `MatchedPath` where the layer stands within the router. Around a whole router, or a nested service, there is none yet: it is then
/// the first [route](crate::Policy::route) of the policy that covers the path. It is [ambiguous](KeyMissing::ambiguous) if the policy has
/// none, or if the path without slashes that are too many takes another one.
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
        let routing = request.routing().into_iter();
        let routes = routing.flat_map(Routing::covering);
        let missing = KeyMissing::new("matched route");
        if request.is_of_unknown_route() {
            return Err(missing.ambiguous("axum names no route here"));
        }
        Reading::by(routes.map(Pattern::as_str)).key(&missing)
    }

    fn needs_whole_request(&self) -> bool {
        true
    }

    fn shape(&self) -> KeyShape {
        KeyShape::Spelled(Spelling::Route)
    }
}
