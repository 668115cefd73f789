//! A parameter of the path.

use percent_encoding::percent_decode_str;

use super::{KeyExtractor, KeyMissing};
use crate::matching::{PathForms, captured};
use crate::{Key, RequestView};

/// What stands in the path for `{id}`: `PathParam::new("id")` under `Policy::route("/users/{id}")`.
///
/// The policy's own [route](crate::Policy::route) is asked first, and then the route that axum matched, so that a layer within
/// the router needs no pattern of its own. The value is decoded as axum's `Path` decodes it: `%61` and `a` are one identity.
/// It need not be UTF-8. What a wildcard stands for has no slashes that are doubled or at an end. It is missing if neither pattern has a parameter of that name, or if it is empty.
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

    fn find(&self, request: &RequestView<'_>) -> Option<Key> {
        if let Some(routing) = request.routing() {
            let covering = routing.covering();
            let found = covering.and_then(|(route, path)| route.capture(path, &self.name));
            if let Some(value) = found {
                return key(value);
            }
        }
        let pattern = request.matched_path()?;
        match request.routing() {
            Some(routing) => key(captured(pattern, routing.path.as_sent(), &self.name)?),
            None => {
                let path = PathForms::of(request.original_uri().path(), false);
                key(captured(pattern, path.as_sent(), &self.name)?)
            }
        }
    }
}

fn key(value: &str) -> Option<Key> {
    // Only what a wildcard stands for has slashes, and their number makes no other identity of it.
    let segments = value.split('/').filter(|segment| !segment.is_empty());
    let mut decoded = Vec::with_capacity(value.len());
    for segment in segments {
        if !decoded.is_empty() {
            decoded.push(b'/');
        }
        decoded.extend(percent_decode_str(segment));
    }
    (!decoded.is_empty()).then(|| Key::bytes(&decoded))
}

impl KeyExtractor for PathParam {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        self.find(request).ok_or_else(|| self.missing.clone())
    }

    fn needs_whole_request(&self) -> bool {
        true
    }
}
