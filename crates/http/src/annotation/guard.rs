//! The argument that an annotation adds.

use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;

use axum::body::Body;
use axum::extract::{FromRequestParts, MatchedPath};
use axum::response::Response;
use http::request::Parts;

use super::entrance::{EntranceError, enter};
use super::limits::Limits;
use super::name;
use super::rule::Rule;
use super::site::{Owner, Site};

/// The argument that [`rate_limit`](macro@crate::rate_limit) adds to a handler. It proves that the request was admitted.
///
/// axum makes it before any other argument, and answers for the handler if the request is refused. Its type states the limits and
/// is not meant to be written by hand.
///
/// A test that calls the handler itself passes one that asks no limiter:
///
/// ```
/// # #[cfg(feature = "macros")] {
/// use tollgate::{Guard, rate_limit};
///
/// #[rate_limit("10/min")]
/// async fn double(number: String) -> String {
///     number.repeat(2)
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// assert_eq!(double(Guard::unlimited(), "4".to_owned()).await, "44");
/// # }
/// # }
/// ```
pub struct Guard<L>(PhantomData<fn() -> L>);

impl<L> Clone for Guard<L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for Guard<L> {}

impl<L> Guard<L> {
    /// A guard that admits every call, for tests of the handler by itself.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self(PhantomData)
    }
}

impl<L: Limits, S: Send + Sync> FromRequestParts<S> for Guard<L> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Response> {
        enter_route(&Self::unlimited(), parts).await?;
        Ok(Self::unlimited())
    }
}

/// Lets the request go on to a handler or route of axum's, or answers it.
pub(super) async fn enter_route(site: &dyn Site, parts: &mut Parts) -> Result<(), Response> {
    let path = parts.extensions.get::<MatchedPath>().cloned();
    let route = path.as_ref().map_or("", MatchedPath::as_str);
    let entered = enter(site, parts, route).await;
    entered.map_err(|closed| match closed {
        EntranceError::Misused(misuse) => misuse.response(),
        EntranceError::Refused(response) => response.map(Body::from),
    })
}

impl<L: Limits> Site for Guard<L> {
    fn owner(&self) -> Owner {
        Owner::Handler(TypeId::of::<L>())
    }

    fn who(&self) -> String {
        format!("handler `{}`", L::handler())
    }

    fn place(&self) -> String {
        L::place()
    }

    fn rules(&self) -> Vec<Rule> {
        L::rules()
    }

    fn name(&self, _method: &str, route: &str) -> String {
        name::of_route(&L::handler(), route)
    }

    fn other_name(&self) -> &'static str {
        "add `name = \"..\"`"
    }
}

impl<L> fmt::Debug for Guard<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}
