//! Limits that stand at the handler or the route, and not where the limiter is built.
//!
//! The annotation adds an argument to a handler, a [`Guard`](crate::Guard); [`MethodRouterExt`] adds a layer to a route. Both
//! ask the limiter of the [`RateLimitLayer`](crate::RateLimitLayer) around them, in one decision of their own: a request pays
//! first what the layer's policies charge, and if it is refused further in, that comes back.

mod build;
mod guard;
pub(crate) mod limits;
mod misuse;
mod name;
mod registry;
mod route;
pub(crate) mod rule;
mod site;

pub use self::guard::Guard;
pub(crate) use self::registry::Registry;
pub use self::route::{MethodRouterExt, RouteQuotas};
