//! One service of a tonic server, limited.

use tonic::server::NamedService;

use super::RateLimitService;

/// The layer keeps the name of the inner service, so that it can be served like it: see
/// [`RateLimitLayer`](crate::RateLimitLayer).
impl<S: NamedService> NamedService for RateLimitService<S> {
    const NAME: &'static str = S::NAME;
}
