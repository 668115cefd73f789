//! A request that comes to a handler or route that has limits.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::request::Parts;

use super::misuse::{Misuse, MisuseKind};
use super::registry::Registry;
use super::site::Site;
use crate::RateLimitStatus;
use crate::layer::InnerLimits;

/// The reason why a request may not go on.
#[derive(Debug)]
pub enum EntranceError {
    /// Its limits cannot be enforced.
    Misused(Arc<Misuse>),
    /// They refuse it, with this answer.
    Refused(Response<Bytes>),
}

/// Lets a request go on that came to the site at `route`.
///
/// # Errors
///
/// If the request may not go on.
pub async fn enter(site: &dyn Site, parts: &mut Parts, route: &str) -> Result<(), EntranceError> {
    let Some(further) = InnerLimits::of(parts) else {
        let misuse = Misuse::new(site, route, MisuseKind::NoLayer).log(site);
        return Err(EntranceError::Misused(Arc::new(misuse)));
    };
    let limiter = further.limiter();
    let registry = limiter.attached().get(Registry::default);
    let policies = registry
        .policies(limiter, site, &parts.method, route)
        .map_err(EntranceError::Misused)?;
    let decided = further.decide(parts, &policies).await;
    decided.map_err(EntranceError::Refused)?;
    if let Some(status) = parts.extensions.get_mut::<RateLimitStatus>() {
        status.pass();
    }
    Ok(())
}
