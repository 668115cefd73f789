//! The parts of a request that policies and keys may read.

mod dialect;
mod timeout;

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::OnceLock;

#[cfg(feature = "axum")]
use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
use http::header::HOST;
use http::{Extensions, HeaderMap, Method, Request, Uri};
use tollgate_core::by_its_bits;

use crate::client::ClientAddress;
use crate::matching::{PathForms, Pattern};

pub use self::dialect::Dialect;
pub use self::timeout::grpc_timeout;
pub(crate) use self::timeout::{CallerDeadline, millis};

/// The head of a request, borrowed. Policies and keys read it.
///
/// It has no body. Reading bodies needs a layer of its own.
///
/// ```
/// use std::net::SocketAddr;
/// use http::Request;
/// use tollgate::{PeerAddr, RequestView};
///
/// # fn main() -> Result<(), http::Error> {
/// let request = Request::post("/reports/7?year=2026")
///     .header("host", "API.example.com:8443")
///     .extension(PeerAddr(SocketAddr::from(([203, 0, 113, 7], 4711))))
///     .body(())?;
///
/// let view = RequestView::of(&request);
/// assert_eq!((view.method().as_str(), view.uri().path()), ("POST", "/reports/7"));
/// assert_eq!(view.original_uri().query(), Some("year=2026"));
/// assert_eq!(view.host().as_deref(), Some("api.example.com"));
/// assert!(view.headers().contains_key("host"));
/// assert!(view.extensions().get::<PeerAddr>().is_some());
/// // Without a limiter that trusts proxies, the caller is the peer.
/// assert_eq!(view.client_ip(), view.peer());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
    client: &'a ClientAddress,
    /// The place where the client's address is kept once it has been read from headers.
    found: Option<&'a FoundClient>,
    routing: Option<&'a Routing<'a>>,
}

/// The path, and the patterns of the policy that asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routing<'a> {
    pub(crate) path: &'a PathForms<'a>,
    pub(crate) routes: &'a [Pattern],
    /// True if the path counts only if it takes one route in all forms, the one that axum routes by included.
    pub(crate) is_exact: bool,
}

impl<'a> Routing<'a> {
    /// The routing for a policy's exemptions.
    pub(crate) fn exact(&self) -> Self {
        Self {
            is_exact: true,
            ..*self
        }
    }

    /// The forms of the path that the pattern covers.
    pub(crate) fn forms_for(&self, route: &Pattern) -> impl Iterator<Item = &'a str> {
        let counts = !self.is_exact || self.forms().all(|form| self.covers(route, form));
        let forms = counts.then(|| self.path.iter());
        forms
            .into_iter()
            .flatten()
            .filter(|form| route.covers(form))
    }

    /// For each form of the path that some pattern covers, the first of these.
    pub(crate) fn covering(&self) -> impl Iterator<Item = &'a Pattern> {
        let first = |form| self.routes.iter().find(|route| self.covers(route, form));
        let counts = !self.is_exact || self.forms().all(|form| first(form).is_some());
        let forms = counts.then(|| self.forms());
        forms.into_iter().flatten().filter_map(first)
    }

    fn forms(&self) -> impl Iterator<Item = &'a str> {
        let raw = self.is_exact.then(|| self.path.raw().map(|(raw, _)| raw));
        self.path.covered().chain(raw.into_iter().flatten())
    }

    fn covers(&self, route: &Pattern, form: &str) -> bool {
        // An exempt `/health/` is one that a layer further in makes `/health`.
        let is_tidied = || route.tidied().is_some_and(|route| route.covers(form));
        route.covers(form) || (self.is_exact && is_tidied())
    }
}

/// The client's address once it has been looked for.
pub(crate) type FoundClient = OnceLock<Option<IpAddr>>;

/// The client address for requests without a limiter.
static PEER: ClientAddress = ClientAddress::peer();

/// The peer's address. A server or a layer inserts it into the request's extensions.
///
/// Under axum, `ConnectInfo<SocketAddr>` (or `MockConnectInfo` in tests) has the address; under tonic, `TcpConnectInfo`. This
/// type takes precedence over them, for servers behind a PROXY protocol and for Unix sockets without an address.
///
/// A service without a network, such as a test, states the caller:
///
/// ```
/// use std::net::SocketAddr;
/// use http::Request;
/// use tollgate::{PeerAddr, RequestView};
///
/// let mut request = Request::new(());
/// request.extensions_mut().insert(PeerAddr(SocketAddr::from(([203, 0, 113, 7], 4711))));
/// assert_eq!(RequestView::of(&request).peer(), "203.0.113.7".parse().ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

impl<'a> RequestView<'a> {
    /// The head of `request`.
    #[inline]
    pub fn of<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
            client: &PEER,
            found: None,
            routing: None,
        }
    }

    /// The view of `parts`.
    ///
    /// ```
    /// use http::Request;
    /// use tollgate::RequestView;
    ///
    /// let (parts, _body) = Request::new("a body that is read elsewhere").into_parts();
    /// assert_eq!(RequestView::of_parts(&parts).uri().path(), "/");
    /// ```
    #[must_use]
    pub fn of_parts(parts: &'a http::request::Parts) -> Self {
        Self {
            method: &parts.method,
            uri: &parts.uri,
            headers: &parts.headers,
            extensions: &parts.extensions,
            client: &PEER,
            found: None,
            routing: None,
        }
    }

    /// The view with a limiter's client address.
    #[inline]
    pub(crate) fn trusting(self, client: &'a ClientAddress) -> Self {
        Self { client, ..self }
    }

    /// The view with a cache of the client's address, so that several policies read headers once.
    pub(crate) fn remembering(self, found: &'a FoundClient) -> Self {
        Self {
            found: Some(found),
            ..self
        }
    }

    /// The view for a policy with patterns, so that its key can read parts of the path.
    pub(crate) fn routed(self, routing: &'a Routing<'a>) -> Self {
        Self {
            routing: Some(routing),
            ..self
        }
    }

    pub(crate) fn routing(&self) -> Option<&'a Routing<'a>> {
        self.routing
    }

    /// The pattern that axum matched, if it has.
    pub(crate) fn matched_path(&self) -> Option<&'a str> {
        matched_path(self.extensions)
    }

    /// True if no pattern says anything about the path: neither one of axum's nor one of the policy's.
    pub(crate) fn is_of_unknown_route(&self) -> bool {
        let has_routes = |routing: &Routing<'_>| !routing.routes.is_empty();
        // What `nest` took off says nothing about the rest: a layer around a nested service comes before its router.
        self.matched_path().is_none() && !self.routing.is_some_and(has_routes)
    }

    /// The part of the path that axum's `nest` took off, as it was written there.
    pub(crate) fn nested_path(&self) -> Option<&'a str> {
        nested_path(self.extensions)
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

    /// The target as the caller sent it. Within axum's `nest`, [`uri`](Self::uri) lacks the part that the outer router took off.
    #[must_use]
    pub fn original_uri(&self) -> &'a Uri {
        #[cfg(feature = "axum")]
        if let Some(axum::extract::OriginalUri(uri)) = self.extensions.get() {
            return uri;
        }
        self.uri
    }

    /// The path, with the part that axum's `nest` took off. A layer between the router and this one may have rewritten it.
    pub(crate) fn path_forms(&self, ignore_case: bool) -> PathForms<'a> {
        let (sent, here) = (self.original_uri().path(), self.uri.path());
        // Nearly always there is one target.
        if std::ptr::eq(sent, here) || sent == here {
            return PathForms::of(sent, ignore_case);
        }
        match rewritten(sent, here, self.nested_path()) {
            Some(path) => PathForms::rewritten(path, sent, ignore_case),
            None => PathForms::of(sent, ignore_case),
        }
    }

    /// The host that the request is for, in lower case, without port and without a dot at the end. The target and each `Host` line
    /// have to say the same.
    ///
    /// `None` if no part of the request states a host, and **`None` if readers can differ about the host**: two `Host` lines that
    /// differ, a target with another host than the line, a line that is more than a name and a port (`user@host`, `a, b`, `%61`).
    /// hyper accepts all of these, and readers differ about them: HTTP has the target go before the header, and axum-extra's
    /// `Host` has the header go before the target. `Forwarded` and `X-Forwarded-Host` do not count, since any caller can send
    /// them.
    ///
    /// Use it in a condition that exempts a request, and not in one that limits: an ambiguous request would get around the limit.
    /// [`Policy::host`](crate::Policy::host) covers ambiguous requests.
    #[must_use]
    pub fn host(&self) -> Option<Cow<'a, str>> {
        let target = self.original_uri().host();
        let lines = self.headers.get_all(HOST).iter();
        let lines = lines.map(|line| line.to_str().map_or("", without_port));
        let mut hosts = target.into_iter().chain(lines).map(name_of_host);
        let first = hosts.next()??;
        hosts
            .all(|host| host.as_ref() == Some(&first))
            .then_some(first)
    }

    /// The headers. Any caller can set any of them.
    #[must_use]
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// The values that outer layers and the server attached.
    #[must_use]
    pub fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// The address of the caller, which the limiter's [`ClientAddress`] finds in the peer and the headers. Without a limiter it
    /// is the peer's.
    ///
    /// It is a whole address. [`ClientIp`](crate::ClientIp) makes it an identity, for which IPv6 is grouped.
    #[must_use]
    pub fn client_ip(&self) -> Option<IpAddr> {
        if self.client.is_peer() {
            return self.peer().map(by_its_bits);
        }
        self.client_ip_from_headers()
    }

    #[inline(never)]
    fn client_ip_from_headers(&self) -> Option<IpAddr> {
        let resolve = || self.client.resolve(self.peer(), self.headers);
        match self.found {
            Some(found) => *found.get_or_init(resolve),
            None => resolve(),
        }
    }

    /// The rule that makes an identity of the client's address.
    pub(crate) fn client_address(&self) -> &'a ClientAddress {
        self.client
    }

    /// The address of the socket's other end, if the server stated it.
    #[must_use]
    #[inline]
    pub fn peer(&self) -> Option<IpAddr> {
        match peer_at_hand(self.extensions) {
            Some(address) => Some(address.ip()),
            None => peer_elsewhere(self.extensions),
        }
    }
}

/// The address of the socket's other end, if it stands where it nearly always does.
// Nearly every request asks, and once: a call costs as much again.
#[inline(always)]
pub(crate) fn peer_at_hand(extensions: &Extensions) -> Option<&SocketAddr> {
    if let Some(PeerAddr(address)) = extensions.get() {
        return Some(address);
    }
    #[cfg(feature = "axum")]
    if let Some(ConnectInfo(address)) = extensions.get::<ConnectInfo<SocketAddr>>() {
        return Some(address);
    }
    None
}

#[inline(never)]
#[cfg_attr(
    not(any(feature = "axum", feature = "tonic")),
    expect(unused_variables, reason = "there is nowhere else to look")
)]
fn peer_elsewhere(extensions: &Extensions) -> Option<IpAddr> {
    #[cfg(feature = "axum")]
    if let Some(MockConnectInfo(address)) = extensions.get::<MockConnectInfo<SocketAddr>>() {
        return Some(address.ip());
    }
    #[cfg(feature = "tonic")]
    if let Some(address) = tonic_peer(extensions) {
        return Some(address.ip());
    }
    None
}

/// The whole path here, unless it is the one that the caller sent, less what a nest took off. The nest's parameters are taken as they were
/// sent: who took them off before they were rewritten is not known.
fn rewritten<'a>(sent: &str, here: &'a str, nested: Option<&str>) -> Option<Cow<'a, str>> {
    let Some(nested) = nested else {
        return Some(Cow::Borrowed(here));
    };
    let mut rest = sent;
    let mut whole = String::new();
    for segment in nested.split('/').filter(|segment| !segment.is_empty()) {
        let behind = rest.strip_prefix('/').unwrap_or(rest);
        let (sent, next) = behind.split_at(behind.find('/').unwrap_or(behind.len()));
        whole.push('/');
        whole.push_str(if segment.contains('{') { sent } else { segment });
        rest = next;
    }
    if rest == here || (rest.is_empty() && here == "/") {
        return None;
    }
    whole.push_str(here);
    Some(Cow::Owned(whole))
}

#[cfg(feature = "axum")]
fn nested_path(extensions: &Extensions) -> Option<&str> {
    let nested = extensions.get::<axum::extract::NestedPath>();
    nested.map(axum::extract::NestedPath::as_str)
}

#[cfg(not(feature = "axum"))]
fn nested_path(_: &Extensions) -> Option<&str> {
    None
}

#[cfg(feature = "axum")]
fn matched_path(extensions: &Extensions) -> Option<&str> {
    let matched = extensions.get::<axum::extract::MatchedPath>();
    matched.map(axum::extract::MatchedPath::as_str)
}

#[cfg(not(feature = "axum"))]
fn matched_path(_: &Extensions) -> Option<&str> {
    None
}

/// A host in its one form, with or without a port, if that is all there is.
pub(crate) fn one_host(host: &str) -> Option<String> {
    name_of_host(without_port(host)).map(Cow::into_owned)
}

/// The host in its one form: in lower case, without dots at the end, and an IPv6 address as RFC 5952 writes it.
fn name_of_host(host: &str) -> Option<Cow<'_, str>> {
    let host = host.trim_end_matches('.');
    let address = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    if let Some(address) = address {
        let address: Ipv6Addr = address.parse().ok()?;
        return Some(Cow::Owned(format!("[{address}]")));
    }
    if host.is_empty() || !host.bytes().all(is_in_names) {
        return None;
    }
    Some(if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    })
}

/// True if names of hosts may have this character.
pub(crate) fn is_in_names(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn without_port(host: &str) -> &str {
    let host = host.trim_ascii();
    match host.rsplit_once(':') {
        // In an IPv6 address colons stand within brackets.
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(feature = "tonic")]
fn tonic_peer(extensions: &Extensions) -> Option<SocketAddr> {
    use tonic::transport::server::TcpConnectInfo;
    #[cfg(feature = "tls")]
    use tonic::transport::server::TlsConnectInfo;

    if let Some(tcp) = extensions.get::<TcpConnectInfo>() {
        return tcp.remote_addr();
    }
    // Also behind a TLS acceptor in front of tonic.
    #[cfg(feature = "tls")]
    if let Some(tls) = extensions.get::<TlsConnectInfo<TcpConnectInfo>>() {
        return tls.get_ref().remote_addr();
    }
    None
}
