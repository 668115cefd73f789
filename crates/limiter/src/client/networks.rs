//! Sets of addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::ConfigError;
use crate::literal::literal;

/// Networks in CIDR notation: `10.0.0.0/8`, `fd00::/8`, or a single address.
///
/// An address in an IPv6 notation of IPv4 belongs to the networks of the IPv4 address. A lookup is a
/// binary search.
///
/// ```
/// use tollgate::Networks;
///
/// let offices = Networks::new(["192.0.2.0/24", "2001:db8::/32"]);
/// assert!(offices.contains("192.0.2.7".parse().unwrap()));
/// // The IPv6 notation of the IPv4 address.
/// assert!(offices.contains("::ffff:192.0.2.7".parse().unwrap()));
/// assert!(!offices.contains("198.51.100.7".parse().unwrap()));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    v4: Ranges,
    v6: Ranges,
}

/// Addresses as numbers: sorted, and none touches another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ranges(Arc<[(u128, u128)]>);

impl Networks {
    /// These networks.
    ///
    /// # Panics
    ///
    /// While they are built, if a text is not a network. Text from outside goes through [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub fn new<T: AsRef<str>>(networks: impl IntoIterator<Item = T>) -> Self {
        literal(Self::try_new(networks))
    }

    /// These networks.
    ///
    /// ```
    /// use tollgate::Networks;
    ///
    /// let refused = Networks::try_new(["10.1.2.3/8"]).unwrap_err();
    /// assert!(refused.to_string().contains("10.1.2.3/8"));
    /// ```
    ///
    /// # Errors
    ///
    /// If a text is not an address, has more bits than its kind of address, or names an address within the network rather than
    /// the network (`10.1.2.3/8`): its author meant a smaller one. A text in the IPv6 notation of IPv4 with a prefix under 96
    /// (`::ffff:10.0.0.0/8`) is an error too, because it would cover nearly all addresses.
    pub fn try_new<T: AsRef<str>>(
        networks: impl IntoIterator<Item = T>,
    ) -> Result<Self, ConfigError> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for network in networks {
            let text = network.as_ref();
            let network = Network::parse(text).map_err(|reason| ConfigError::Network {
                network: text.chars().take(64).collect(),
                reason,
            })?;
            let ranges = if network.is_v4 { &mut v4 } else { &mut v6 };
            ranges.push(network.range);
        }
        Ok(Self {
            v4: Ranges::merge(v4),
            v6: Ranges::merge(v6),
        })
    }

    /// True if the address is in one of them.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(v4) => self.v4.contain(v4.to_bits().into()),
            IpAddr::V6(v6) => self.v6.contain(v6.to_bits()),
        }
    }
}

struct Network {
    is_v4: bool,
    range: (u128, u128),
}

impl Network {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(prefix(bits)?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| "not an address")?;
        match address {
            IpAddr::V4(v4) => Self::v4(v4, bits.unwrap_or(32)),
            IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
                Some(v4) => {
                    let bits = bits.unwrap_or(128).checked_sub(96);
                    Self::v4(
                        v4,
                        bits.ok_or("is wider than all of IPv4: write it as IPv4")?,
                    )
                }
                None => Self::v6(v6, bits.unwrap_or(128)),
            },
        }
    }

    fn v4(address: Ipv4Addr, bits: u32) -> Result<Self, &'static str> {
        let host = u32::MAX.checked_shr(bits).unwrap_or(0);
        Ok(Self {
            is_v4: true,
            range: range(address.to_bits().into(), host.into(), bits <= 32)?,
        })
    }

    fn v6(address: Ipv6Addr, bits: u32) -> Result<Self, &'static str> {
        let host = u128::MAX.checked_shr(bits).unwrap_or(0);
        Ok(Self {
            is_v4: false,
            range: range(address.to_bits(), host, bits <= 128)?,
        })
    }
}

fn range(start: u128, host: u128, fits: bool) -> Result<(u128, u128), &'static str> {
    match (fits, start & host) {
        (false, _) => Err("has a prefix longer than its address"),
        (true, 0) => Ok((start, start | host)),
        (true, _) => Err("is an address within a network: clear the bits behind the prefix"),
    }
}

fn prefix(bits: &str) -> Result<u32, &'static str> {
    let digits = bits.bytes().all(|byte| byte.is_ascii_digit());
    match bits.parse() {
        Ok(bits) if digits => Ok(bits),
        _ => Err("has no number as its prefix"),
    }
}

impl Ranges {
    fn merge(mut ranges: Vec<(u128, u128)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
        for (start, end) in ranges {
            match merged.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        Self(merged.into())
    }

    fn contain(&self, address: u128) -> bool {
        let behind = self.0.partition_point(|(start, _)| *start <= address);
        let before = behind.checked_sub(1).and_then(|last| self.0.get(last));
        before.is_some_and(|(_, end)| address <= *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(networks: &[&str], address: &str) -> bool {
        Networks::new(networks).contains(address.parse().unwrap())
    }

    #[test]
    fn a_network_is_its_addresses_and_no_others() {
        let cases = [
            ("10.0.0.0/8", "10.255.255.255", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.0.0.0/8", "9.255.255.255", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("::ffff:10.0.0.0/104", "10.9.9.9", true),
            ("::ffff:10.0.0.0/104", "11.0.0.0", false),
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("0.0.0.0/0", "255.255.255.255", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("::/0", "2001:db8::1", true),
            // `::/0` does not cover callers that have IPv4 addresses.
            ("::/0", "::ffff:192.0.2.1", false),
            ("2001:db8::/33", "2001:db8:7fff::1", true),
            ("2001:db8::/33", "2001:db8:8000::", false),
        ];
        for (network, address, expected) in cases {
            assert_eq!(
                contains(&[network], address),
                expected,
                "{address} in {network}"
            );
        }
    }

    #[test]
    fn networks_within_and_beside_each_other_do_not_hide_each_other() {
        let networks = ["10.0.0.0/8", "10.1.0.0/16", "172.16.0.0/12", "11.0.0.0/8"];
        for inside in [
            "10.0.0.1",
            "10.1.0.1",
            "10.200.0.1",
            "11.1.1.1",
            "172.31.0.1",
        ] {
            assert!(contains(&networks, inside), "{inside}");
        }
        for outside in ["12.0.0.0", "172.32.0.0", "9.9.9.9"] {
            assert!(!contains(&networks, outside), "{outside}");
        }
        assert!(!contains(&[], "10.0.0.1"));
    }

    #[test]
    fn what_is_no_network_is_refused_and_named() {
        let cases = [
            ("10.0.0.0/33", "longer than its address"),
            ("::/129", "longer than its address"),
            ("10.1.2.3/8", "is an address within a network"),
            ("2001:db8::1/64", "is an address within a network"),
            ("10.0.0.0/", "has no number"),
            ("10.0.0.0/+8", "has no number"),
            ("10.0.0.0/99999999999", "has no number"),
            ("10.0.0/8", "not an address"),
            ("010.0.0.0/8", "not an address"),
            ("proxy.example", "not an address"),
            ("", "not an address"),
        ];
        for (network, reason) in cases {
            let error = Networks::try_new([network]).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("network {network:?}")) && error.contains(reason),
                "{error}"
            );
        }
    }

    #[test]
    fn cve_2026_92395_a_mapped_network_with_a_prefix_under_96_is_refused() {
        for network in ["::ffff:10.0.0.0/8", "::ffff:10.0.0.0/95", "::ffff:0:0/0"] {
            let error = Networks::try_new([network]).unwrap_err().to_string();
            assert!(error.contains("is wider than all of IPv4"), "{error}");
        }
    }
}
