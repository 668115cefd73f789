//! The other end of a socket, as the arguments name it.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// The other end of the socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(SocketAddr);

impl Peer {
    pub(crate) fn socket(self) -> SocketAddr {
        self.0
    }

    pub(crate) fn address(self) -> IpAddr {
        self.0.ip()
    }
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self(SocketAddr::new(address, 0)));
        }
        let address = text.parse().map(Self);
        address.map_err(|_| {
            format!(
                "{text:?} is not an address, with or without a port: 192.0.2.7, [2001:db8::7]:443"
            )
        })
    }
}
