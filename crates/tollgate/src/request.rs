//! What policies and keys may look at.

use std::net::{IpAddr, SocketAddr};

use http::{Extensions, HeaderMap, Method, Request, Uri};

/// The head of a request, borrowed: what decides which policies apply and whose budget they spend.
///
/// There is no body in it. Whatever must read a body is a layer of its own.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

/// The peer's address for servers that bring it in no other way: insert it into the request's extensions.
///
/// Under axum `ConnectInfo<SocketAddr>` (or `MockConnectInfo` in tests) is understood, under tonic `TcpConnectInfo`; both
/// go before this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

impl<'a> RequestView<'a> {
    /// The head of `request`.
    pub fn of<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    /// The head that `parts` are.
    #[must_use]
    pub fn of_parts(parts: &'a http::request::Parts) -> Self {
        Self {
            method: &parts.method,
            uri: &parts.uri,
            headers: &parts.headers,
            extensions: &parts.extensions,
        }
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// The target, as this layer sees it.
    #[must_use]
    pub fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// The headers. Nothing in them can be trusted unless you know who set it.
    #[must_use]
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// What outer layers and the server attached.
    #[must_use]
    pub fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// The address of the socket's other end, if the server said so.
    #[must_use]
    pub fn peer(&self) -> Option<IpAddr> {
        #[cfg(feature = "axum")]
        if let Some(address) = axum_peer(self.extensions) {
            return Some(address.ip());
        }
        #[cfg(feature = "tonic")]
        if let Some(address) = tonic_peer(self.extensions) {
            return Some(address.ip());
        }
        self.extensions.get().map(|PeerAddr(address)| address.ip())
    }
}

#[cfg(feature = "axum")]
fn axum_peer(extensions: &Extensions) -> Option<SocketAddr> {
    use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};

    let connected = extensions
        .get::<ConnectInfo<SocketAddr>>()
        .map(|info| info.0);
    connected.or_else(|| {
        extensions
            .get::<MockConnectInfo<SocketAddr>>()
            .map(|info| info.0)
    })
}

#[cfg(feature = "tonic")]
fn tonic_peer(extensions: &Extensions) -> Option<SocketAddr> {
    use tonic::transport::server::TcpConnectInfo;

    extensions.get::<TcpConnectInfo>()?.remote_addr()
}
