//! A parameter of the path.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::reading::Reading;
use super::spelling::{Spelling, tidy};
use super::{KeyExtractor, KeyMissing, KeyShape};
use crate::matching::{PathForms, captured};
use crate::{Key, RequestView};

/// The text in the path for `{id}`: `PathParam::new("id")` under `Policy::route("/users/{id}")`.
///
/// If axum has matched a route that has a parameter of that name, its value counts, since the handler sees that. Otherwise the policy's own
/// [routes](crate::Policy::route) are asked. So a layer within the router needs no pattern of its own. The value is decoded as axum's `Path` decodes it: `%61` and `a` are one identity.
/// A number, a UUID or an IPv6 address is [its value](super::Query): `7` and `007` are one identity. It need not be UTF-8. Slashes in it
/// that are doubled or at an end do not count.
///
/// A limiter is not built if the policy has routes of which none has a parameter of that name or one for all the rest (`{*rest}`),
/// unless the policy is [on demand](crate::Policy::on_demand). It is missing if no pattern has such a parameter, or if it is empty.
/// Without any pattern, of the policy or of axum, it is [ambiguous](KeyMissing::ambiguous).
/// It is [ambiguous](KeyMissing::ambiguous) if several routes of the policy differ about the value, if nested routers have several
/// parameters of that name with different values, or if the route that axum matched does not cover the path, because a layer further in
/// has rewritten it. What a layer further out has made of the path counts. A layer further in that makes another value of the caller's, such as one in lower case, is not seen:
/// put it outside of the limiter.
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
        match self.in_matched(request) {
            // axum names no route to a layer around a nested service, whose handler may see a value.
            Reading::Nothing if request.is_of_unknown_route() => Reading::Several,
            Reading::Nothing => self.in_routes(request),
            // What the handler sees.
            matched => matched,
        }
    }

    /// The text for the name in the policy's own routes.
    fn in_routes(&self, request: &RequestView<'_>) -> Reading<Vec<u8>> {
        let Some(routing) = request.routing() else {
            return Reading::Nothing;
        };
        let captures = routing.routes.iter().flat_map(|route| {
            let forms = routing.forms_for(route);
            forms.flat_map(|form| route.capture(form, &self.name))
        });
        Reading::by(captures.map(plain))
    }

    /// The text for the name in the route that axum matched.
    fn in_matched(&self, request: &RequestView<'_>) -> Reading<Vec<u8>> {
        // Where a nested service begins, axum tells only what leads to it.
        let to_nest = || Some(Cow::Owned(format!("{}/{{*rest}}", request.nested_path()?)));
        let matched = request.matched_path().map(Cow::Borrowed);
        let Some(pattern) = matched.or_else(to_nest) else {
            return Reading::Nothing;
        };
        if !pattern.contains(&*self.name) {
            return Reading::Nothing;
        }
        let found = |path: &PathForms<'_>| {
            if self.is_in_rewritten_nest(path, request) {
                return Reading::Several;
            }
            // A layer further in may remove slashes.
            let found = path
                .here()
                .filter_map(|form| captured(&pattern, form, path.ignores_case, &self.name));
            let mut found = found.peekable();
            match found.peek() {
                Some(_) => Reading::by(found.flatten().map(plain)),
                // The handler sees another path.
                None => Reading::Several,
            }
        };
        match request.routing() {
            Some(routing) => found(routing.path),
            None => found(&request.path_forms(false)),
        }
    }

    /// True if a nest has the parameter, and a layer has rewritten the path before or behind it.
    fn is_in_rewritten_nest(&self, path: &PathForms<'_>, request: &RequestView<'_>) -> bool {
        let named = |nested: &str| nested.contains(&format!("{{{}}}", self.name));
        path.is_rewritten() && request.nested_path().is_some_and(named)
    }
}

/// The value, decoded.
fn plain(value: &str) -> Vec<u8> {
    tidy(percent_decode_str(value).collect())
}

impl KeyExtractor for PathParam {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        self.find(request).key(&self.missing)
    }

    fn needs_whole_request(&self) -> bool {
        true
    }

    fn shape(&self) -> KeyShape {
        KeyShape::Spelled(Spelling::InPath {
            ignores_case: false,
        })
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
