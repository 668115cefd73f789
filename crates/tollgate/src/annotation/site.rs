//! A handler or route that has limits, and a request that comes to it.

use std::any::TypeId;

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response};

use super::misuse::{Misuse, What};
use super::name;
use super::registry::Registry;
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
    /// The methods that have budgets of their own.
    fn family(&self, method: &Method) -> &'static str {
        name::family(method)
    }
    /// What a limit is called that has no name, where it is mounted for methods of this [family](name::family).
    fn name(&self, method: &str, route: &str) -> String {
        name::of_route(method, route)
    }
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

/// Why a request may not go on.
pub(super) enum Closed {
    /// Its limits cannot be enforced.
    Misused(Arc<Misuse>),
    /// They refuse it, with this answer.
    Refused(Response<Bytes>),
}

/// Whether the request may go on that came to the site where it is mounted at `route`.
pub(super) async fn enter(site: &dyn Site, parts: &Parts, route: &str) -> Result<(), Closed> {
    let Some(further) = Further::of(parts) else {
        let misuse = Misuse::new(site, route, What::NoLayer).log(site);
        return Err(Closed::Misused(Arc::new(misuse)));
    };
    let limiter = further.limiter();
    let registry = limiter.attached().get(Registry::default);
    let policies = registry
        .policies(limiter, site, &parts.method, route)
        .map_err(Closed::Misused)?;
    let decided = further.decide(parts, &policies).await;
    decided.map_err(Closed::Refused)
}
