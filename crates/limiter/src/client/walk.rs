//! From the peer back through the proxies that are believed.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Hops, TrustedProxies};

/// More proxies than any service has in a row. A longer list was not written by proxies, and is not read to its end.
const MAX_HOPS: usize = 64;

/// The caller, from the entries of a forwarding header, the last one first. `None` stands for an invalid entry.
pub(super) fn walk(
    proxies: &TrustedProxies,
    peer: Option<IpAddr>,
    entries: impl Iterator<Item = Option<IpAddr>>,
) -> Option<IpAddr> {
    match proxies {
        TrustedProxies::Hops(Hops(0)) => return peer,
        TrustedProxies::Networks(networks) if !peer.is_some_and(|peer| networks.contains(peer)) => {
            return peer;
        }
        _ => {}
    }
    let mut last = peer;
    for (index, entry) in entries.enumerate() {
        let Some(entry) = entry else {
            warn_once();
            return last;
        };
        let is_caller = match proxies {
            TrustedProxies::Hops(Hops(hops)) => index + 1 == usize::from(*hops),
            TrustedProxies::Networks(networks) => !networks.contains(entry),
        };
        if is_caller {
            return Some(entry);
        }
        if matches!(proxies, TrustedProxies::Networks(_)) && index + 1 >= MAX_HOPS {
            return peer;
        }
        last = Some(entry);
    }
    peer
}

/// Behind a proxy that writes other text than addresses, all callers share its budget, and the operator would not know why. Once:
/// a caller within a trusted network can write such entries, too.
fn warn_once() {
    static WARNED: AtomicBool = AtomicBool::new(false);

    if !WARNED.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            "a forwarding header from a trusted proxy has an entry that is not an address; the caller is then the last proxy that \
             wrote one, or the peer, and all callers behind it share its budget"
        );
    }
}
