//! The caller's address.

use std::net::IpAddr;

use super::{KeyExtractor, KeyMissing, KeyShape};
use crate::{Key, RequestView};

/// The caller's address: the socket's peer, unless the limiter was told which proxies to believe: see
/// [`ClientAddress`](crate::ClientAddress). IPv6 is grouped by /64, because one subscriber usually has a whole /64. An IPv4
/// address in IPv6 notation is an IPv4 address.
///
/// By default no header counts. A caller that sets `X-Forwarded-For` could choose a new identity for each request.
///
/// The server must state the peer. Under axum, serve the router with `into_make_service_with_connect_info::<SocketAddr>()`; a
/// handler test without a socket uses axum's `MockConnectInfo`:
///
/// ```
/// # #[cfg(feature = "axum")] {
/// use std::net::SocketAddr;
/// use axum::extract::connect_info::MockConnectInfo;
/// use axum::{Router, body::Body, http::Request, routing::get};
/// use tollgate::{ClientIp, Policy, Quota, RateLimitLayer};
/// use tower::ServiceExt;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let app = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .layer(RateLimitLayer::new(Policy::new("page", Quota::per_minute(1)).key(ClientIp)))
///     // Outside the limiter, so that it is there when the limiter looks.
///     .layer(MockConnectInfo(SocketAddr::from(([203, 0, 113, 7], 4711))));
///
/// let get = || Request::get("/").body(Body::empty()).unwrap();
/// assert_eq!(app.clone().oneshot(get()).await.unwrap().status(), 200);
/// assert_eq!(app.oneshot(get()).await.unwrap().status(), 429);
/// # }
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientIp;

impl ClientIp {
    /// The part that is missing if the server does not state the peer.
    pub(crate) const MISSING: &'static str = "peer address";
}

impl KeyExtractor for ClientIp {
    #[inline]
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        match request.client_ip() {
            // Most are: nothing to group.
            Some(IpAddr::V4(address)) => Ok(Key::from(address)),
            Some(address) => Ok(request.client_address().key(address)),
            None => Err(KeyMissing::new(Self::MISSING)),
        }
    }

    fn shape(&self) -> KeyShape {
        KeyShape::Address
    }
}
