//! A parameter of the path.

use percent_encoding::percent_decode_str;

use super::reading::Reading;
use super::typed::one_form;
use super::{KeyExtractor, KeyMissing, KeyShape};
use crate::matching::{PathForms, captured};
use crate::{Key, RequestView};

/// The text in the path for `{id}`: `PathParam::new("id")` under `Policy::route("/users/{id}")`.
///
/// The policy's own [routes](crate::Policy::route) are asked first, and then the route that axum matched, so that a layer within
/// the router needs no pattern of its own. The value is decoded as axum's `Path` decodes it: `%61` and `a` are one identity.
/// A number, a UUID or an IPv6 address is [its value](super::Query): `7` and `007` are one identity. It need not be UTF-8. Slashes in it
/// that are doubled or at an end do not count.
///
/// A limiter is not built if the policy has routes of which none has a parameter of that name or one for all the rest (`{*rest}`),
/// unless the policy is [on demand](crate::Policy::on_demand). It is missing if no pattern has such a parameter, or if it is empty.
/// If several routes of the policy cover the path and differ about the value, the route that axum matched decides; if that has no
/// such parameter, or nested routers have several of one name with different values, it is [ambiguous](KeyMissing::ambiguous). So it is
/// where a layer within the router rewrites the path, so that it is not the one that the caller sent.
///
/// ```
/// use tollgate::key::PathParam;
/// use tollgate::{Policy, Quota};
///
/// let policy = Policy::new("tenant", Quota::per_second(100))
///     .route("/tenants/{tenant}/{*rest}")
///     .key(PathParam::new("tenant"));
/// ```
#[derive(Clone, Debug)]
pub struct PathParam {
    name: Box<str>,
    missing: KeyMissing,
}

impl PathParam {
    /// The parameter of this name, without braces.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            missing: KeyMissing::shared(format!("path parameter {name}")),
        }
    }

    fn find(&self, request: &RequestView<'_>) -> Reading<Vec<u8>> {
        match self.in_routes(request) {
            Reading::Nothing => self.in_matched(request),
            // The router knows which of the routes counts.
            Reading::Several => match self.in_matched(request) {
                Reading::Nothing => Reading::Several,
                matched => matched,
            },
            one @ Reading::One(_) => one,
        }
    }

    /// The text for the name in the policy's own routes.
    fn in_routes(&self, request: &RequestView<'_>) -> Reading<Vec<u8>> {
        let Some(routing) = request.routing() else {
            return Reading::Nothing;
        };
        let covering = routing.routes.iter().filter_map(|route| {
            let form = routing.form_for(route)?;
            Some(route.capture(form, &self.name))
        });
        Reading::by(covering.flatten().map(plain))
    }

    /// The text for the name in the route that axum matched.
    fn in_matched(&self, request: &RequestView<'_>) -> Reading<Vec<u8>> {
        let Some(pattern) = request.matched_path() else {
            return Reading::Nothing;
        };
        let found = |path: &PathForms<'_>| {
            match captured(pattern, path.as_sent(), &self.name) {
                Some(captures) => Reading::by(captures.into_iter().map(plain)),
                // The handler sees another path than the caller sent.
                None => Reading::Several,
            }
        };
        match request.routing() {
            Some(routing) => found(routing.path),
            None => found(&PathForms::of(request.original_uri().path(), false)),
        }
    }
}

/// The value, decoded. Slashes that are doubled or at an end make no other identity of it, and they may be encoded themselves.
fn plain(value: &str) -> Vec<u8> {
    let decoded: Vec<u8> = percent_decode_str(value).collect();
    let is_tidy = !decoded.starts_with(b"/") && !decoded.ends_with(b"/");
    if is_tidy && !decoded.windows(2).any(|pair| pair == b"//") {
        return one_form(&decoded).unwrap_or(decoded);
    }
    let segments = decoded.split(|byte| *byte == b'/');
    let segments: Vec<_> = segments.filter(|segment| !segment.is_empty()).collect();
    if segments.is_empty() {
        // Slashes alone are an identity, too.
        return b"/".to_vec();
    }
    segments.join(&b'/')
}

impl KeyExtractor for PathParam {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        self.find(request).key(&self.missing)
    }

    fn needs_whole_request(&self) -> bool {
        true
    }

    fn shape(&self) -> KeyShape {
        KeyShape::Typed
    }

    fn flaw(&self, params: Option<&[&str]>) -> Option<String> {
        let name = &*self.name;
        if name.is_empty() || name.starts_with([':', '{']) || name.contains(['*', '/']) {
            return Some(format!(
                "path parameter {name:?}: invalid name of a parameter; write the text between the braces, as in \"id\""
            ));
        }
        match params? {
            params if params.contains(&name) => None,
            [] => Some(format!(
                "path parameter {name:?}: no route of the policy has a parameter; write `{{{name}}}` into one"
            )),
            params => Some(format!(
                "path parameter {name:?}: no route of the policy has it; its routes have {}",
                params.join(", ")
            )),
        }
    }
}
