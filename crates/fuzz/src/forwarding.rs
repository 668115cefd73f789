//! Forwarding headers of proxies, and headers of a caller that they pass on.

use std::net::{IpAddr, Ipv4Addr};

use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate::{ClientAddress, Hops, Limiter, Networks, TrustedProxies};

const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// A caller's address, which is in no trusted network, in its first four bytes; behind them the lines of a forwarding header
/// that it sends. The proxy in front appends the address to the last of them, or sends a line of its own.
pub fn forwarding(data: &[u8]) {
    let (address, sent) = data.split_at_checked(4).unwrap_or((&[], data));
    let caller = match address {
        [a, b, c, d] if *a != 10 => Ipv4Addr::new(*a, *b, *c, *d),
        _ => Ipv4Addr::new(203, 0, 113, 7),
    };
    let lines: Vec<&[u8]> = sent.split(|byte| *byte == b'\n').collect();

    for form in [Form::XForwardedFor, Form::Forwarded] {
        let by_network = form.trusting(Networks::new(["10.0.0.0/8"]).into());
        let by_hops = form.trusting(Hops(1).into());
        let headers = form.headers(lines.iter().map(|line| line.to_vec()));

        // Only a proxy's word counts.
        let stranger = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
        assert_eq!(by_network.resolve(Some(stranger), &headers), Some(stranger));
        // The result is the same the next time.
        let found = by_network.resolve(Some(PROXY), &headers);
        assert!(found.is_some());
        assert_eq!(found, by_network.resolve(Some(PROXY), &headers));

        // Behind a proxy the caller is the one that the proxy names.
        for element in form.elements(caller) {
            for headers in form.appended(&lines, &element) {
                for address in [&by_network, &by_hops] {
                    let found = address.resolve(Some(PROXY), &headers);
                    assert_eq!(found, Some(IpAddr::V4(caller)), "{address:?} {headers:?}");
                    same_identity(address, caller, found);
                }
            }
        }
    }
}

/// All spellings of an address are one identity.
fn same_identity(address: &ClientAddress, caller: Ipv4Addr, found: Option<IpAddr>) {
    let limiter = Limiter::builder()
        .allow_no_policies()
        .client_address(address.clone())
        .build()
        .unwrap();
    let mapped = IpAddr::V6(caller.to_ipv6_mapped());
    let key = found.map(|found| limiter.client_key(found));
    assert_eq!(key, Some(limiter.client_key(mapped)));
}

#[derive(Clone, Copy)]
enum Form {
    XForwardedFor,
    Forwarded,
}

impl Form {
    fn name(self) -> HeaderName {
        match self {
            Self::XForwardedFor => HeaderName::from_static("x-forwarded-for"),
            Self::Forwarded => http::header::FORWARDED,
        }
    }

    fn trusting(self, proxies: TrustedProxies) -> ClientAddress {
        match self {
            Self::XForwardedFor => ClientAddress::x_forwarded_for(proxies),
            Self::Forwarded => ClientAddress::forwarded(proxies),
        }
    }

    /// The forms in which a proxy writes an address.
    fn elements(self, caller: Ipv4Addr) -> Vec<String> {
        let mapped = caller.to_ipv6_mapped();
        match self {
            Self::XForwardedFor => vec![
                caller.to_string(),
                format!("{caller}:4711"),
                mapped.to_string(),
                format!("[{mapped}]:4711"),
            ],
            Self::Forwarded => vec![
                format!("for={caller}"),
                format!("for=\"{caller}:4711\";proto=https"),
                format!("by=_x;for=\"[{mapped}]:4711\""),
            ],
        }
    }

    /// The headers with an element in a line of its own, and at the end of the last line.
    fn appended(self, lines: &[&[u8]], element: &str) -> [HeaderMap; 2] {
        let own = lines
            .iter()
            .map(|line| line.to_vec())
            .chain([element.into()]);
        let mut last: Vec<Vec<u8>> = lines.iter().map(|line| line.to_vec()).collect();
        match last.pop() {
            Some(line) => last.push([&line[..], b", ", element.as_bytes()].concat()),
            None => last.push(element.into()),
        }
        // A proxy never appends to a line that could not be sent.
        if last
            .iter()
            .any(|line| HeaderValue::from_bytes(line).is_err())
        {
            last = vec![element.into()];
        }
        [self.headers(own), self.headers(last.into_iter())]
    }

    fn headers(self, lines: impl Iterator<Item = Vec<u8>>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            if let Ok(line) = HeaderValue::from_bytes(&line) {
                headers.append(self.name(), line);
            }
        }
        headers
    }
}
