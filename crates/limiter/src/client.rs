//! Finds the caller's address, also behind proxies.
//!
//! By default the caller is the socket's peer and every header is ignored, because any caller can send any header. The
//! [`Limiter`](crate::Limiter) states once which proxies are trusted, so that [`ClientIp`](crate::ClientIp) means the same
//! everywhere.

mod forwarded;
mod network_list;
mod networks;
mod node;
pub(crate) use self::node::address as address_in;
mod walk;

use std::net::IpAddr;

use http::header::{FORWARDED, InvalidHeaderName};
use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate_core::by_its_bits;

pub use self::network_list::NetworkList;
pub use self::networks::Networks;
use self::walk::walk;

use crate::literal::literal;
use crate::{ConfigError, Key};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The headers in which proxies name the caller.
const FORWARDING: [&str; 3] = ["x-forwarded-for", "forwarded", "x-real-ip"];

/// The place of the caller's address in a request, and the proxies that are trusted.
///
/// ```
/// use tollgate::{ClientAddress, Hops, Limiter, Networks, Policy, Quota};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let limiter = Limiter::builder()
///     .client_address(ClientAddress::x_forwarded_for(Networks::new(["10.0.0.0/8", "fd00::/8"])))
///     .policy(Policy::new("api", Quota::per_second(10)))
///     .build()?;
///
/// // Others, one at a time: what one proxy writes and another passes on unread must never be mixed.
/// let two_proxies = ClientAddress::forwarded(Hops(2));
/// // All ranges of Cloudflare's list, or the nginx in front of this server, if that takes the header from no others.
/// let cloudflare = Networks::new(["173.245.48.0/20", "103.21.244.0/22", "2400:cb00::/32" /* and 19 more */]);
/// let cloud = ClientAddress::header("cf-connecting-ip", cloudflare);
/// # Ok(()) }
/// ```
///
/// # From address to identity
///
/// Port and zone are dropped. An IPv4 address in IPv6 notation (`::ffff:192.0.2.1`) is the IPv4 address, and so is one behind
/// the NAT64 prefix (`64:ff9b::192.0.2.1`), behind which every IPv4 caller would otherwise have the budget of one /64. An
/// address of the abandoned form `::192.0.2.1` stays what it is: no network carries it. IPv6 is then grouped by
/// [prefix](Self::ipv6_prefix). Identities are compared by their bits, never by their text.
///
/// # Unix sockets
///
/// They have no peer address. A server that listens on one says [`Hops`], or an outer layer inserts a
/// [`PeerAddr`](crate::PeerAddr). With [`Networks`] a peer without address is not trusted, and the address is missing.
#[derive(Clone, Debug)]
pub struct ClientAddress {
    source: Source,
    ipv6_prefix: u8,
}

#[derive(Clone, Debug)]
enum Source {
    Peer,
    XForwardedFor(TrustedProxies),
    Forwarded(TrustedProxies),
    Header(HeaderName, Networks),
}

/// The proxies that are trusted: those in some networks, or a number of them.
///
/// ```
/// use tollgate::{ClientAddress, Hops, Networks, TrustedProxies};
///
/// // `PROXY_HOPS=2`, or the networks of the proxies.
/// fn proxies(hops: Option<u8>) -> TrustedProxies {
///     match hops {
///         Some(hops) => TrustedProxies::Hops(Hops(hops)),
///         None => TrustedProxies::Networks(Networks::new(["10.0.0.0/8"])),
///     }
/// }
///
/// let address = ClientAddress::x_forwarded_for(proxies(None));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TrustedProxies {
    /// Those in these networks.
    ///
    /// A peer outside them is the caller itself. Otherwise all lines of the header are joined and read from the right, and the
    /// first address outside the networks is the caller. If there is none, the caller is the peer. An invalid entry ends the
    /// walk, and the caller is the last trusted proxy: an unknown client may have written the entries further left. In
    /// `X-Forwarded-For` an empty entry is invalid, and so is one in quotes; in `Forwarded` empty elements are ignored. The first
    /// invalid entry is reported as a warning.
    Networks(Networks),
    /// As many as stated: see [`Hops`].
    Hops(Hops),
}

/// The number of proxies between every caller and this server: the caller is that many entries from the right.
///
/// If there are fewer entries, the caller is the peer. Callers that can reach this server past the proxies can choose their
/// address, so prefer [`Networks`] where the proxies' addresses are known.
///
/// ```
/// use http::HeaderMap;
/// use tollgate::{ClientAddress, Hops};
///
/// let mut headers = HeaderMap::new();
/// headers.insert("x-forwarded-for", "6.6.6.6, 203.0.113.7, 198.51.100.2".parse().unwrap());
///
/// let address = ClientAddress::x_forwarded_for(Hops(2));
/// let balancer = "198.51.100.3".parse().ok();
/// assert_eq!(address.resolve(balancer, &headers), "203.0.113.7".parse().ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hops(pub u8);

impl From<Networks> for TrustedProxies {
    fn from(networks: Networks) -> Self {
        Self::Networks(networks)
    }
}

impl From<Hops> for TrustedProxies {
    fn from(hops: Hops) -> Self {
        Self::Hops(hops)
    }
}

impl Default for ClientAddress {
    fn default() -> Self {
        Self::peer()
    }
}

impl ClientAddress {
    /// A subscriber usually has a /64, and would otherwise have as many budgets as addresses. Some providers assign a /56 or a
    /// /48; grouping by that would merge subscribers of other providers.
    const IPV6_PREFIX: u8 = 64;

    /// The socket's peer. No header counts. This is the default.
    ///
    /// ```
    /// use http::HeaderMap;
    /// use tollgate::ClientAddress;
    ///
    /// let mut headers = HeaderMap::new();
    /// headers.insert("x-forwarded-for", "6.6.6.6".parse().unwrap());
    /// let peer = "203.0.113.7".parse().ok();
    /// assert_eq!(ClientAddress::peer().resolve(peer, &headers), peer);
    /// ```
    #[must_use]
    pub const fn peer() -> Self {
        Self::of(Source::Peer)
    }

    /// The entry of `X-Forwarded-For` that trusted proxies wrote.
    pub fn x_forwarded_for(proxies: impl Into<TrustedProxies>) -> Self {
        Self::of(Source::XForwardedFor(proxies.into()))
    }

    /// The entry of `Forwarded` (RFC 7239) that trusted proxies wrote. Hidden and unknown callers (`for=_x`, `for=unknown`) are
    /// entries without an address.
    pub fn forwarded(proxies: impl Into<TrustedProxies>) -> Self {
        Self::of(Source::Forwarded(proxies.into()))
    }

    /// The one address in the header of this name (`CF-Connecting-IP`, `True-Client-IP`, `Fly-Client-IP`), if the peer is a
    /// trusted one: name all ranges of the provider, since callers behind a range that is left out share the address of its servers. If a
    /// proxy of yours stands in between, name that, and let it take the header from these ranges alone. The caller is the peer if the header is absent, there twice, or not one address.
    ///
    /// # Panics
    ///
    /// While it is built, if `name` is not a header name. Names from outside go through [`try_header`](Self::try_header).
    #[must_use]
    #[track_caller]
    pub fn header(name: &str, proxies: Networks) -> Self {
        literal(
            Self::try_header(name, proxies).map_err(|error| format!("header {name:?}: {error}")),
        )
    }

    /// The one address in the header of this name.
    ///
    /// ```
    /// use tollgate::{ClientAddress, Networks};
    ///
    /// let named_by_an_operator = "cf connecting ip";
    /// assert!(ClientAddress::try_header(named_by_an_operator, Networks::new(["10.0.0.0/8"])).is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// If `name` is not a header name.
    pub fn try_header(name: &str, proxies: Networks) -> Result<Self, InvalidHeaderName> {
        Ok(Self::of(Source::Header(name.parse()?, proxies)))
    }

    /// Groups IPv6 addresses by this many bits: 64 unless set.
    ///
    /// ```
    /// use tollgate::ClientAddress;
    ///
    /// // A provider that hands out a /56 to each subscriber.
    /// let address = ClientAddress::peer().ipv6_prefix(56);
    /// ```
    ///
    /// # Panics
    ///
    /// While it is built, if it is not between 1 and 128. Numbers that come from outside go through
    /// [`try_ipv6_prefix`](Self::try_ipv6_prefix).
    #[must_use]
    #[track_caller]
    pub fn ipv6_prefix(self, bits: u8) -> Self {
        literal(self.try_ipv6_prefix(bits))
    }

    /// Groups IPv6 addresses by this many bits.
    ///
    /// ```
    /// use tollgate::{ClientAddress, ConfigError};
    ///
    /// let refused = ClientAddress::peer().try_ipv6_prefix(0);
    /// assert!(matches!(refused, Err(ConfigError::Ipv6Prefix { .. })));
    /// ```
    ///
    /// # Errors
    ///
    /// If it is not between 1 and 128: with none, all of IPv6 would share one budget.
    pub fn try_ipv6_prefix(mut self, bits: u8) -> Result<Self, ConfigError> {
        if !(1..=128).contains(&bits) {
            return Err(ConfigError::Ipv6Prefix { bits });
        }
        self.ipv6_prefix = bits;
        Ok(self)
    }

    /// The address of the caller, given the socket's peer and the headers: what
    /// [`RequestView::client_ip`](crate::RequestView::client_ip) finds in a request.
    ///
    /// ```
    /// use http::HeaderMap;
    /// use tollgate::{ClientAddress, Networks};
    ///
    /// let mut headers = HeaderMap::new();
    /// headers.insert("x-forwarded-for", "6.6.6.6, 203.0.113.7, 10.0.0.2".parse().unwrap());
    ///
    /// let address = ClientAddress::x_forwarded_for(Networks::new(["10.0.0.0/8"]));
    /// let proxy = "10.0.0.1".parse().ok();
    /// assert_eq!(address.resolve(proxy, &headers), "203.0.113.7".parse().ok());
    ///
    /// let stranger = "198.51.100.1".parse().ok();
    /// assert_eq!(address.resolve(stranger, &headers), stranger);
    /// ```
    #[must_use]
    pub fn resolve(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        let found = match &self.source {
            Source::Peer => peer,
            Source::XForwardedFor(proxies) => {
                let lines = lines_from_the_right(headers, &X_FORWARDED_FOR);
                walk(proxies, peer, lines.flat_map(node::list_from_the_right))
            }
            Source::Forwarded(proxies) => {
                let lines = lines_from_the_right(headers, &FORWARDED);
                walk(
                    proxies,
                    peer,
                    lines.flat_map(forwarded::list_from_the_right),
                )
            }
            Source::Header(name, proxies) => {
                let believed = peer.is_some_and(|peer| proxies.contains(peer));
                let mut lines = lines_from_the_right(headers, name);
                match (lines.next(), lines.next()) {
                    (Some(only), None) if believed => node::address(only).or(peer),
                    _ => peer,
                }
            }
        };
        found.map(by_its_bits)
    }

    /// The name of a forwarding header that came from an untrusted peer.
    pub(crate) fn disbelieved(
        &self,
        peer: Option<IpAddr>,
        headers: &HeaderMap,
    ) -> Option<&'static str> {
        let is_strange = |networks: &Networks| !peer.is_some_and(|peer| networks.contains(peer));
        let is_disbelieved = match &self.source {
            Source::Peer => true,
            Source::XForwardedFor(TrustedProxies::Networks(networks))
            | Source::Forwarded(TrustedProxies::Networks(networks))
            | Source::Header(_, networks) => is_strange(networks),
            // Each peer is believed.
            Source::XForwardedFor(TrustedProxies::Hops(_))
            | Source::Forwarded(TrustedProxies::Hops(_)) => false,
        };
        let mut names = FORWARDING.into_iter();
        let found = names.find(|name| headers.contains_key(*name));
        found.filter(|_| is_disbelieved)
    }

    /// The key that [`ClientIp`](crate::ClientIp) makes of an address.
    #[inline]
    /// The number of bits by which IPv6 addresses are grouped.
    pub(crate) fn grouped_by(&self) -> u8 {
        self.ipv6_prefix
    }

    pub(crate) fn key(&self, address: IpAddr) -> Key {
        Key::address(by_its_bits(address), self.ipv6_prefix)
    }

    /// True if no header counts, so that nothing has to be read twice.
    #[inline]
    pub(crate) fn is_peer(&self) -> bool {
        matches!(self.source, Source::Peer)
    }

    const fn of(source: Source) -> Self {
        Self {
            source,
            ipv6_prefix: Self::IPV6_PREFIX,
        }
    }
}

fn lines_from_the_right<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    headers
        .get_all(name)
        .into_iter()
        .rev()
        .map(HeaderValue::as_bytes)
}

#[cfg(test)]
mod tests;
