//! A handler or route that has limits.

use std::any::TypeId;

use http::Method;

use super::rule::Rule;

/// A handler or route that has limits. Most of it is asked for only once, when the first request comes.
pub trait Site: Sync {
    /// The owner of these limits.
    fn owner(&self) -> Owner;
    /// Its name for people: "handler `login`".
    fn who(&self) -> String;
    /// The place of its limits in the source.
    fn place(&self) -> String;
    /// Its limits.
    fn rules(&self) -> Vec<Rule>;
    /// The methods that have budgets of their own: none, since a handler does not know for which methods it is mounted.
    fn family(&self, _method: &Method) -> &'static str {
        ""
    }
    /// The name of a method of gRPC, which runs whatever the method of HTTP is.
    fn grpc(&self) -> Option<String> {
        None
    }
    /// The name of an unnamed limit that is mounted for methods of this family.
    fn name(&self, method: &str, route: &str) -> String;
    /// Advice on how to give its limits another name.
    fn other_name(&self) -> &'static str;
}

/// Its name, and the place where it is mounted.
pub(super) fn described(site: &dyn Site, route: &str) -> String {
    match route {
        "" => site.who(),
        route => format!("{} on {route}", site.who()),
    }
}

/// The owner of limits, among all handlers and routes of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A handler's, by the type that they are.
    Handler(TypeId),
    /// A route's, by their address.
    Route(usize),
}
