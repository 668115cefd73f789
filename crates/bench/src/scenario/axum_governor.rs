//! axum-governor, which has a layer of its own around governor.

use std::num::NonZeroU32;

use axum::body::Body;
use axum_governor::extractor::PeerIp;
use axum_governor::{GovernorConfigBuilder, GovernorLayer, Quota};
use http::{Request, Response};
use tower::{Layer, Service};

use super::{each, serve};

/// A quota that no caller here reaches. It cannot express a million a day.
pub(super) const PLENTY: Quota = Quota::requests_per_hour(NonZeroU32::new(41_667).unwrap())
    .burst(NonZeroU32::new(1_000_000).unwrap());

/// One an hour is little enough.
pub(super) const LITTLE: Quota = Quota::requests_per_hour(NonZeroU32::MIN);

/// With its defaults: it always writes its fields, in two forms.
pub(super) fn serve_with<S>(quota: Quota, service: S) -> Box<dyn FnMut(u32)>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
{
    let config = GovernorConfigBuilder::default()
        .with_extractor(PeerIp::default())
        .expect_connect_info()
        .quota_default(quota)
        .finish();
    match config {
        Ok(config) => serve(GovernorLayer::new(config).layer(service)),
        Err(_) => each(|_| {}),
    }
}
