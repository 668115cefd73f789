//! The kinds of identities that a key can be. An identity that no request ever has is refused where it is named.

use std::fmt;

use super::spelling::Spelling;
use crate::client::{ClientAddress, address_in};
use crate::{Key, KeyKind};

/// The kinds of identities that an extractor finds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum KeyShape {
    /// Unknown: a closure, a type of the application.
    Any,
    /// Not stated: addresses for requests, and any text for [`check`](crate::Limiter::check).
    Unstated,
    /// All callers are one.
    Global,
    /// The address of the client.
    Address,
    /// The bytes at that place in the request.
    Bytes,
    /// The same, where an operator may spell one identity in several ways.
    Spelled(Spelling),
    /// One of each, in this order.
    Parts(Vec<Self>),
}

impl KeyShape {
    /// The kinds that requests have whose policy is charged by no check by hand.
    pub(crate) fn without_checks(&self) -> &Self {
        match self {
            Self::Unstated => &Self::Address,
            stated => stated,
        }
    }

    /// The reason why no request under a limiter with this client address ever has this identity, and the value to pass; `None`
    /// if one may. The sentence goes on from "policy ..: ".
    pub(crate) fn misfit(&self, key: &Key, client: &ClientAddress) -> Option<String> {
        let kind = key.kind();
        // Requests without a key share one budget.
        if kind == KeyKind::Missing {
            return None;
        }
        let is_address = matches!(kind, KeyKind::Ipv4 | KeyKind::Ipv6);
        match self {
            Self::Any => None,
            // A check by hand may use any identity.
            Self::Unstated if is_address => network_of_another_size(key, client),
            Self::Unstated => {
                let text = key.text()?;
                address_in(text.as_bytes())?;
                Some(format!(
                    "its key is the client's address, and this is text that spells one; {PASS_ADDRESS}"
                ))
            }
            Self::Address if is_address => network_of_another_size(key, client),
            Self::Address => Some(format!(
                "its key is the client's address, and this is {}; {PASS_ADDRESS}",
                Kind(kind)
            )),
            Self::Global if kind == KeyKind::Global => None,
            Self::Global => Some(format!(
                "its key is that of all callers, and this is {}; pass Key::global()",
                Kind(kind)
            )),
            Self::Spelled(spelling) if kind == KeyKind::Bytes => spelling.misfit(key.content()),
            Self::Bytes | Self::Spelled(_) if matches!(kind, KeyKind::Bytes | KeyKind::Digest) => {
                None
            }
            Self::Bytes | Self::Spelled(_) => Some(format!(
                "its key is what a request says, and this is {}; pass that as text or bytes",
                Kind(kind)
            )),
            Self::Parts(_) if kind == KeyKind::Digest => None,
            Self::Parts(shapes) if kind == KeyKind::Tuple => parts_misfit(shapes, key, client),
            Self::Parts(shapes) => Some(format!(
                "its key has {} parts, and this is {}; pass a tuple of all parts in their order",
                shapes.len(),
                Kind(kind)
            )),
        }
    }
}

impl KeyShape {
    /// True if an identity may be named otherwise than requests have it.
    pub(super) fn has_spellings(&self) -> bool {
        match self {
            Self::Spelled(_) => true,
            Self::Parts(shapes) => shapes.iter().any(Self::has_spellings),
            Self::Any | Self::Unstated | Self::Global | Self::Address | Self::Bytes => false,
        }
    }

    /// True if every request has such an identity.
    pub(crate) fn is_always_known(&self) -> bool {
        match self {
            Self::Unstated | Self::Global | Self::Address => true,
            Self::Parts(shapes) => shapes.iter().all(Self::is_always_known),
            Self::Any | Self::Bytes | Self::Spelled(_) => false,
        }
    }

    /// The kinds of identities under a limiter that ignores the case of paths.
    pub(crate) fn ignore_path_case(&mut self) {
        match self {
            Self::Spelled(spelling) => spelling.ignore_path_case(),
            Self::Parts(shapes) => shapes.iter_mut().for_each(Self::ignore_path_case),
            _ => {}
        }
    }

    /// This identity as requests have it, if that is spelled otherwise. An operator who bans `+49171` means the caller `49171`.
    pub(crate) fn respelled(&self, key: &Key) -> Option<Key> {
        if !self.has_spellings() {
            return None;
        }
        match (self, key.kind()) {
            (Self::Spelled(spelling), KeyKind::Bytes) => {
                let form = spelling.one_form(key.content())?;
                (form != key.content()).then(|| Key::bytes(&form))
            }
            (Self::Parts(shapes), KeyKind::Tuple) => {
                let parts: Vec<_> = key.parts().collect();
                let respelled = shapes
                    .iter()
                    .zip(&parts)
                    .map(|(shape, part)| shape.respelled(part));
                let respelled: Vec<_> = respelled.collect();
                if parts.len() != shapes.len() || respelled.iter().all(Option::is_none) {
                    return None;
                }
                let parts = parts.iter().zip(&respelled);
                Some(Key::tuple(
                    parts.map(|(part, other)| other.as_ref().unwrap_or(part)),
                ))
            }
            _ => None,
        }
    }
}

const PASS_ADDRESS: &str = "pass an IpAddr, or better limiter.client_key(address)";

fn parts_misfit(shapes: &[KeyShape], key: &Key, client: &ClientAddress) -> Option<String> {
    let parts: Vec<_> = key.parts().collect();
    if parts.len() != shapes.len() {
        return Some(format!(
            "its key has {} parts, and this has {}; pass a tuple of all parts in their order",
            shapes.len(),
            parts.len()
        ));
    }
    let mut parts = (1..).zip(shapes.iter().zip(&parts));
    parts.find_map(|(number, (shape, part))| {
        let reason = shape.misfit(part, client)?;
        Some(format!("part {number} of its key: {reason}"))
    })
}

/// An IPv6 address is known as a network of the limiter's size.
fn network_of_another_size(key: &Key, client: &ClientAddress) -> Option<String> {
    let bits = match key.kind() {
        KeyKind::Ipv6 => *key.content().first()?,
        _ => return None,
    };
    let grouped_by = client.grouped_by();
    (bits != grouped_by).then(|| {
        format!(
            "this is an IPv6 network of {bits} bits, and the limiter groups addresses by {grouped_by}; pass \
             limiter.client_key(address)"
        )
    })
}

/// The kind in words.
struct Kind(KeyKind);

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            KeyKind::Ipv4 | KeyKind::Ipv6 => "an address",
            KeyKind::Global => "the key of all callers",
            KeyKind::Tuple => "an identity of several parts",
            _ => "text or bytes",
        })
    }
}
