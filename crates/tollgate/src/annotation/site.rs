//! A handler or route that has limits, and a request that comes to it.

use std::any::TypeId;

use axum::body::Body;
use axum::extract::MatchedPath;
use axum::response::Response;
use http::request::Parts;

use super::misuse::{Misuse, What};
use super::rule::Rule;
use crate::layer::Further;

/// A handler or route that has limits. Most of it is asked for once only, when the first request comes.
pub(super) trait Site: Sync {
    fn owner(&self) -> Owner;
    /// What it is called: "handler `login`".
    fn who(&self) -> String;
    /// Where in the source its limits stand.
    fn place(&self) -> String;
    fn rules(&self) -> Vec<Rule>;
    /// How its limits get another name.
    fn other_name(&self) -> &'static str;
}

/// What it is called, and where it is mounted.
pub(super) fn described(site: &dyn Site, route: &str) -> String {
    match route {
        "" => site.who(),
        route => format!("{} on {route}", site.who()),
    }
}

/// Whose limits: which of all handlers and routes of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    /// A handler's, by the type that they are.
    Handler(TypeId),
    /// A route's, by their address.
    Route(usize),
}

/// Whether the request may go on, or else the answer to it.
pub(super) async fn enter(site: &dyn Site, parts: &Parts) -> Result<(), Response> {
    let route = parts.extensions.get().map_or("", MatchedPath::as_str);
    let Some(further) = Further::of(parts) else {
        return Err(Misuse::new(site, route, What::NoLayer).log(site).answer());
    };
    let limiter = further.limiter();
    let policies = limiter
        .annotated()
        .policies(limiter, site, &parts.method, route)
        .map_err(|misuse| misuse.answer())?;
    let decided = further.decide(parts, &policies).await;
    decided.map_err(|response| response.map(Body::from))
}
