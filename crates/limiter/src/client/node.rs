//! An address as proxies write it: with a port or without, in brackets or not.

use std::net::{IpAddr, Ipv6Addr};

/// The addresses of a line of `X-Forwarded-For`, the last one first; `None` for an invalid entry.
///
/// An empty entry is invalid. No grammar of the field allows ignoring it. A proxy that does not know its peer may write nothing,
/// and the caller wrote the entries left of that. Quotes are not removed either, because no proxy writes them.
pub(super) fn list_from_the_right(line: &[u8]) -> impl Iterator<Item = Option<IpAddr>> {
    line.rsplit(|byte| *byte == b',').map(address)
}

/// The address that the text is: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`, with a
/// zone behind `%` or without.
pub(crate) fn address(text: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(text.trim_ascii()).ok()?;
    if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        let fits = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return fits.then(|| v6(host)).flatten();
    }
    match text.split_once(':') {
        None => text.parse().ok().map(IpAddr::V4),
        Some((host, port)) if !port.contains(':') => {
            let host = host.parse().ok().map(IpAddr::V4);
            host.filter(|_| is_port(port))
        }
        // More than one colon: not a port, but IPv6.
        Some(_) => v6(text),
    }
}

fn v6(text: &str) -> Option<IpAddr> {
    let address = match text.split_once('%') {
        Some((_, "")) => return None,
        Some((address, _zone)) => address,
        None => text,
    };
    address.parse().ok().map(|v6: Ipv6Addr| IpAddr::V6(v6))
}

/// A number, or the name by which `Forwarded` hides one.
fn is_port(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_in_all_its_forms_and_without_port_and_zone() {
        let cases = [
            ("192.0.2.1", "192.0.2.1"),
            (" 192.0.2.1\t", "192.0.2.1"),
            ("192.0.2.1:4711", "192.0.2.1"),
            ("192.0.2.1:_hidden", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:DB8:0::1]:4711", "2001:db8::1"),
            ("fe80::1%eth0", "fe80::1"),
            ("[fe80::1%25eth0]:80", "fe80::1"),
            ("::ffff:192.0.2.1", "::ffff:192.0.2.1"),
        ];
        for (text, expected) in cases {
            assert_eq!(address(text.as_bytes()), expected.parse().ok(), "{text}");
        }
    }

    #[test]
    fn cve_2026_47674_text_that_is_not_canonical_is_no_other_address() {
        // Octal, hexadecimal, short forms and signs are addresses to some readers and not to others.
        let none = [
            "010.0.0.1",
            "0x0a.0.0.1",
            "10.1",
            "167772161",
            "10.0.0.256",
            "+10.0.0.1",
            "10.0.0.1.",
            "10.0.0.1:",
            "10.0.0.1 :80",
            "[10.0.0.1]",
            "[::1",
            "::1]",
            "[::1]80",
            "[::1]:",
            "fe80::1%",
            "192.0.2.1, 192.0.2.2",
            "unknown",
            "_hidden",
            "\"192.0.2.1\"",
            "localhost",
            "",
        ];
        for text in none {
            assert_eq!(address(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(address(b"\xff10.0.0.1"), None);
        // One address, however it is written.
        for text in [
            "2001:db8::1",
            "2001:0DB8:0:0:0:0:0:1",
            "2001:db8:0::0:1",
            "[2001:db8::1]",
        ] {
            assert_eq!(address(text.as_bytes()), address(b"2001:db8::1"), "{text}");
        }
    }
}
