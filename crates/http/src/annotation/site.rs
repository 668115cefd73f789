//! A handler or route that has limits.

use std::any::TypeId;

use http::Method;

use super::name;
use super::rule::Rule;

/// A handler or route that has limits. Most of it is asked for once only, when the first request comes.
pub trait Site: Sync {
    /// Whose limits these are.
    fn owner(&self) -> Owner;
    /// What it is called: "handler `login`".
    fn who(&self) -> String;
    /// Where in the source its limits stand.
    fn place(&self) -> String;
    /// Its limits.
    fn rules(&self) -> Vec<Rule>;
    /// The methods that have budgets of their own.
    fn family(&self, method: &Method) -> &'static str {
        name::family(method)
    }
    /// What a limit is called that has no name, where it is mounted for methods of this family.
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
pub enum Owner {
    /// A handler's, by the type that they are.
    Handler(TypeId),
    /// A route's, by their address.
    Route(usize),
}
