//! One service of a tonic server, limited.

use tonic::server::NamedService;

use super::RateLimitService;

/// It answers to the name of the service within, and so can be served like it: see [`RateLimitLayer`](crate::RateLimitLayer).
impl<S: NamedService> NamedService for RateLimitService<S> {
    const NAME: &'static str = S::NAME;
}
