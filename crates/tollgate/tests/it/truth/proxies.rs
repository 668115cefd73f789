//! Proxies between callers and the service, and what callers write to be taken for others.
//!
//! The limiter's own reading of a header is not asked here: a proxy knows its peer, and names it to the handlers.

use std::net::IpAddr;

use fastrand::Rng;
use tollgate::{ClientAddress, Hops, Networks};

use crate::truth::requests::{Lines, one};

/// The limiter's settings for proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proxies {
    /// There are none.
    None,
    XForwardedFor,
    Forwarded,
    /// Each proxy writes the header anew.
    RealIp,
    /// One stands before every caller, wherever it is.
    Hop,
}

/// A request's way through proxies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    proxies: Proxies,
    /// The peer that is connected to the first of them.
    client: &'static str,
    /// True if there is another proxy before the one that asks.
    is_long: bool,
    /// True if a proxy writes behind what stands in a line, or into a line of its own.
    joins: bool,
    form: usize,
}

/// The header of a proxy for handlers: the peer for which it holds, or `*`, and the connected caller.
pub(crate) const TRUTH: &str = "x-truth";
/// The last octet of the proxy's address that asks the service.
pub(crate) const PROXY: u8 = 3;

const CLIENTS: [&str; 7] = [
    "10.0.0.1",
    "10.0.0.1",
    "10.0.0.2",
    "192.0.2.1",
    "2001:db8:0:1::1",
    "2001:db8:0:1::2",
    "2001:db8:0:2::1",
];
const SPOOFS: [(&str, &[u8]); 17] = [
    ("x-forwarded-for", b"6.6.6.6"),
    ("x-forwarded-for", b"10.0.0.2"),
    ("x-forwarded-for", b"10.0.0.1, 192.0.2.4"),
    ("x-forwarded-for", b"192.0.2.3, 192.0.2.4"),
    ("x-forwarded-for", b"unknown"),
    ("x-forwarded-for", b""),
    ("x-forwarded-for", b","),
    ("x-forwarded-for", b"\""),
    ("x-forwarded-for", b"\xff"),
    ("forwarded", b"for=6.6.6.6"),
    ("forwarded", b"for=10.0.0.2, for=192.0.2.4"),
    ("forwarded", b"for=\""),
    ("forwarded", b"for=10.0.0.1;x=\"\\"),
    ("forwarded", b";;"),
    ("forwarded", b"for=_x"),
    ("x-real-ip", b"6.6.6.6"),
    ("x-real-ip", b"10.0.0.2"),
];

impl Proxies {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let all = [
            Self::None,
            Self::None,
            Self::XForwardedFor,
            Self::Forwarded,
            Self::RealIp,
            Self::Hop,
        ];
        *rng.choice(&all).unwrap()
    }

    pub(crate) fn address(self) -> ClientAddress {
        let networks = Networks::new(["192.0.2.3", "192.0.2.4"]);
        match self {
            Self::None => ClientAddress::peer(),
            Self::XForwardedFor => ClientAddress::x_forwarded_for(networks),
            Self::Forwarded => ClientAddress::forwarded(networks),
            Self::RealIp => ClientAddress::header("x-real-ip", networks),
            Self::Hop => ClientAddress::x_forwarded_for(Hops(1)),
        }
    }

    /// The way of a request that a peer sends, if it comes through proxies.
    pub(crate) fn way(self, rng: &mut Rng, peer: u8) -> Option<Way> {
        let is_proxied = match self {
            Self::None => false,
            Self::XForwardedFor | Self::Forwarded | Self::RealIp => peer == PROXY,
            Self::Hop => true,
        };
        is_proxied.then(|| Way {
            proxies: self,
            client: one(rng, &CLIENTS),
            is_long: matches!(self, Self::XForwardedFor | Self::Forwarded) && rng.bool(),
            joins: rng.bool(),
            form: rng.usize(0..4),
        })
    }
}

impl Way {
    /// Writes into the lines what the proxies write.
    pub(crate) fn write(&self, lines: &mut Lines) {
        match self.proxies {
            Proxies::None => {}
            Proxies::XForwardedFor | Proxies::Hop => self.append(lines, "x-forwarded-for", plain),
            Proxies::Forwarded => self.append(lines, "forwarded", element),
            Proxies::RealIp => {
                lines.retain(|(name, _)| *name != "x-real-ip");
                lines.push(("x-real-ip", plain(self.client, self.form).into_bytes()));
            }
        }
        let peer = match self.proxies {
            Proxies::Hop => "*".to_owned(),
            _ => format!("192.0.2.{PROXY}"),
        };
        lines.push((TRUTH, format!("{peer} {}", self.client).into_bytes()));
    }

    fn append(&self, lines: &mut Lines, name: &'static str, write: fn(&str, usize) -> String) {
        let mut written = vec![write(self.client, self.form)];
        if self.is_long {
            written.push(write("192.0.2.4", self.form));
        }
        for entry in written {
            let mut found = lines.iter_mut().rev();
            match found.find(|(other, _)| *other == name) {
                Some((_, line)) if self.joins => {
                    line.extend_from_slice(b", ");
                    line.extend_from_slice(entry.as_bytes());
                }
                _ => lines.push((name, entry.into_bytes())),
            }
        }
    }
}

/// Lines with which a caller would like to be another.
pub(crate) fn spoofs(rng: &mut Rng) -> impl Iterator<Item = (&'static str, &'static [u8])> {
    let count = [0, 0, 0, 1, 2];
    let count = *rng.choice(&count).unwrap();
    rng.choose_multiple(SPOOFS, count).into_iter()
}

/// The caller that a proxy told of, if it is the peer's to tell.
pub(crate) fn told(line: &str, peer: Option<IpAddr>) -> Option<IpAddr> {
    let (by, client) = line.split_once(' ')?;
    let is_peer = by == "*" || peer.is_some_and(|peer| peer.to_string() == by);
    is_peer.then(|| client.parse().unwrap())
}

/// An address as different proxies write it.
fn plain(address: &str, form: usize) -> String {
    let is_v6 = address.contains(':');
    match form {
        0 if is_v6 => format!("[{address}]:4711"),
        0 => format!("{address}:4711"),
        1 if is_v6 => address.to_uppercase(),
        1 => format!("::ffff:{address}"),
        2 => format!(" {address} "),
        _ => address.to_owned(),
    }
}

/// The address as an element of `Forwarded`.
fn element(address: &str, form: usize) -> String {
    let node = if address.contains(':') {
        format!("\"[{address}]\"")
    } else {
        address.to_owned()
    };
    match form {
        0 => format!("for={node};proto=https"),
        1 => format!("by=203.0.113.1; For={node}"),
        2 => format!("ext=\"a,b\";for={node}"),
        _ => format!("for={node}"),
    }
}
