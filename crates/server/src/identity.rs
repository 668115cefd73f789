//! The identity that a gateway states in the values of a descriptor, read as the policy's key reads it in a service.
//!
//! Callers choose values. One that the key cannot read is no error: the request has no identity then, and the policy's `on_missing`
//! applies.

use std::net::{IpAddr, SocketAddr};

use http::header::{AUTHORIZATION, COOKIE, HOST, HeaderName};
use http::{HeaderValue, Request};
use tollgate::config::KeyConfig;
use tollgate::key::{BasicUser, BearerToken, Cookie, Host, KeyExtractor, Method};
use tollgate::{Key, KeyKind, Limiter, Policy, RequestView};

/// The way in which the values of a rule are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The policy has no key: a value is an address if it spells one, and any text otherwise.
    Unstated,
    /// One value for each part of the policy's key.
    Parts(Vec<Part>),
}

/// A part of a policy's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// One for all callers, whatever the value is.
    Global,
    Address,
    Host,
    Method,
    /// A token, or the whole line of `Authorization`, as Envoy's `request_headers` states it.
    BearerToken,
    /// A user, or the whole line likewise.
    BasicUser,
    /// The value of this cookie, or the whole line of `Cookie`.
    Cookie(String),
    Text,
}

/// An identity as the gateway states it, and as requests under the policy have it.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// A check makes the other of it, and must do so once: a value that is decoded twice is another one.
    pub(crate) stated: Key,
    pub(crate) canonical: Key,
}

/// The values name no identity.
#[derive(Clone, Debug)]
pub(crate) struct Missing {
    /// True if a value is there that the key cannot read, which a service may read.
    pub(crate) is_ambiguous: bool,
    /// The identity of all requests that lack the same.
    pub(crate) shared: Identity,
}

impl Reading {
    /// The way for a policy with this key and a rule with these values, of which some may be fixed.
    ///
    /// # Errors
    ///
    /// If no descriptor of the rule could name an identity of the policy: with the reason.
    pub(crate) fn of(key: Option<&KeyConfig>, values: &[Option<&str>]) -> Result<Self, String> {
        let Some(key) = key else {
            return Ok(Self::Unstated);
        };
        let mut parts = Vec::new();
        collect(key, &mut parts);
        let given = values.len();
        match parts.as_slice() {
            [KeyConfig::ByGlobal] if given == 0 => return Ok(Self::Parts(Vec::new())),
            [KeyConfig::ByGlobal] => {
                return Err("whose key is \"global\", and the rule states an identity: write `identity = []`".to_owned());
            }
            parts if parts.len() != given => {
                let parts = parts.len();
                return Err(format!(
                    "whose key has {parts} part{}, and the identity has {given}: name one entry for each part of the key by `identity`, \
                     or leave `key` out of the policy",
                    if parts == 1 { "" } else { "s" }
                ));
            }
            _ => {}
        }
        let parts: Vec<_> = parts.into_iter().map(Part::of).collect();
        for (part, value) in parts.iter().zip(values) {
            if let (Part::Address, Some(value)) = (part, value)
                && address(value.as_bytes()).is_none()
            {
                return Err(format!(
                    "whose key is an address, and the identity has the fixed value {value:?}: name other entries by `identity`"
                ));
            }
        }
        Ok(Self::Parts(parts))
    }

    /// The identity that these values name.
    pub(crate) fn read(
        &self,
        values: &[&[u8]],
        limiter: &Limiter,
        policy: &Policy,
    ) -> Result<Identity, Missing> {
        let parts = match self {
            Self::Unstated => {
                let identity = unstated(values, limiter, policy);
                let is_there = values.iter().all(|value| !value.is_empty());
                return is_there.then_some(identity.clone()).ok_or(Missing {
                    is_ambiguous: false,
                    shared: identity,
                });
            }
            Self::Parts(parts) => parts,
        };
        let found = values.iter().zip(parts).enumerate();
        let found = found.map(|(place, (value, part))| {
            let stated = part.read(value, limiter)?;
            let canonical = canonical(limiter, policy, &stated, place, parts.len());
            match canonical {
                None => Err(Lacks::Readable),
                Some(key) if is_empty(&key) => Err(Lacks::Value),
                Some(canonical) => Ok(Identity { stated, canonical }),
            }
        });
        let found: Vec<_> = found.collect();
        if found.iter().all(Result::is_ok) {
            return Ok(joined(found.into_iter().flatten().collect()));
        }
        let is_unread = |part: &Result<_, Lacks>| matches!(part, Err(Lacks::Readable));
        Err(Missing {
            is_ambiguous: found.iter().any(is_unread),
            // Requests share a budget with those alone that agree in the known parts, as in a service.
            shared: if found.iter().any(Result::is_ok) {
                let parts = found.into_iter();
                joined(
                    parts
                        .map(|part| part.unwrap_or_else(|_| nobody()))
                        .collect(),
                )
            } else {
                nobody()
            },
        })
    }
}

impl Default for Missing {
    fn default() -> Self {
        Self {
            is_ambiguous: true,
            shared: nobody(),
        }
    }
}

/// The reason why a value is no identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lacks {
    /// There is none.
    Value,
    /// There is one, and the key cannot read it.
    Readable,
}

impl Part {
    fn of(key: &KeyConfig) -> Self {
        match key {
            KeyConfig::ByGlobal => Self::Global,
            KeyConfig::ByClientIp => Self::Address,
            KeyConfig::ByHost => Self::Host,
            KeyConfig::ByMethod => Self::Method,
            KeyConfig::ByBearerToken => Self::BearerToken,
            KeyConfig::ByBasicUser => Self::BasicUser,
            KeyConfig::ByCookie(name) => Self::Cookie(name.clone()),
            _ => Self::Text,
        }
    }

    fn read(&self, value: &[u8], limiter: &Limiter) -> Result<Key, Lacks> {
        let is_blank = value.trim_ascii().is_empty();
        match self {
            Self::Global => Ok(Key::global()),
            // A method that is none counts as every other that HTTP does not define.
            Self::Method => Ok(method(value)),
            _ if is_blank => Err(Lacks::Value),
            Self::Address => {
                let address = address(value).ok_or(Lacks::Readable)?;
                Ok(limiter.client_key(address))
            }
            Self::Host => host(value).ok_or(Lacks::Readable),
            Self::BearerToken => in_line(&BearerToken, AUTHORIZATION, value, b" \t,"),
            Self::BasicUser => in_line(&BasicUser, AUTHORIZATION, value, b" \t"),
            Self::Cookie(name) => in_line(&Cookie::new(name), COOKIE, value, b"=;"),
            Self::Text => Ok(Key::bytes(value)),
        }
    }
}

/// What a whole line of this header says, as the policy's key reads it. Without any of the bytes that a line has it is a value alone.
fn in_line(
    key: &impl KeyExtractor,
    header: HeaderName,
    value: &[u8],
    of_lines: &[u8],
) -> Result<Key, Lacks> {
    if !value.iter().any(|byte| of_lines.contains(byte)) {
        return Ok(Key::bytes(value));
    }
    let line = HeaderValue::from_bytes(value).map_err(|_| Lacks::Readable)?;
    let mut request = Request::new(());
    request.headers_mut().insert(header, line);
    let found = key.extract(&RequestView::of(&request));
    found.map_err(|missing| match missing.is_ambiguous() {
        true => Lacks::Readable,
        false => Lacks::Value,
    })
}

/// The parts of a key, those of lists in it too.
fn collect<'k>(key: &'k KeyConfig, parts: &mut Vec<&'k KeyConfig>) {
    match key {
        KeyConfig::All(keys) => keys.iter().for_each(|key| collect(key, parts)),
        key => parts.push(key),
    }
}

/// The identity under a policy without a key.
fn unstated(values: &[&[u8]], limiter: &Limiter, policy: &Policy) -> Identity {
    let stated = match values {
        [] => Key::global(),
        [value] => {
            let text = Key::bytes(value);
            match (limiter.identity(policy, &text), plain_address(value)) {
                (Ok(_), _) => text,
                // The policy's key is an address, as that of a layer in a service is.
                (Err(_), Some(address)) => limiter.client_key(address),
                // It spells an address with a port, or in brackets. As a part it is the text that it is.
                (Err(_), None) => Key::tuple([&text]),
            }
        }
        values => {
            let parts: Vec<_> = values.iter().map(|value| Key::bytes(value)).collect();
            Key::tuple(&parts)
        }
    };
    Identity {
        canonical: stated.clone(),
        stated,
    }
}

/// The identity of several parts; of one it is the part itself.
fn joined(parts: Vec<Identity>) -> Identity {
    match <[Identity; 1]>::try_from(parts) {
        Ok([part]) => part,
        Err(parts) if parts.is_empty() => Identity {
            stated: Key::global(),
            canonical: Key::global(),
        },
        Err(parts) => Identity {
            stated: Key::tuple(parts.iter().map(|part| &part.stated)),
            canonical: Key::tuple(parts.iter().map(|part| &part.canonical)),
        },
    }
}

fn nobody() -> Identity {
    Identity {
        stated: Key::missing(),
        canonical: Key::missing(),
    }
}

/// This part of an identity as requests have it, if any has it. The other parts may be missing in any identity.
fn canonical(
    limiter: &Limiter,
    policy: &Policy,
    part: &Key,
    place: usize,
    parts: usize,
) -> Option<Key> {
    if parts == 1 {
        return limiter.identity(policy, part).ok();
    }
    let missing = Key::missing();
    let mut whole = vec![&missing; parts];
    *whole.get_mut(place)? = part;
    let whole = limiter.identity(policy, &Key::tuple(whole)).ok()?;
    whole.parts().nth(place)
}

fn is_empty(key: &Key) -> bool {
    key.kind() == KeyKind::Bytes && key.content().is_empty()
}

/// An address, which may have a port or stand in brackets.
fn address(value: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(value).ok()?.trim_ascii();
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let with_port = || Some(text.parse::<SocketAddr>().ok()?.ip());
    plain_address(text.as_bytes())
        .or_else(bracketed)
        .or_else(with_port)
}

fn plain_address(value: &[u8]) -> Option<IpAddr> {
    // A zone is the host's own name for a link, which says nothing of the caller. The layer drops it as well.
    let address = value.split(|byte| *byte == b'%').next()?;
    str::from_utf8(address).ok()?.parse().ok()
}

fn method(value: &[u8]) -> Key {
    let mut request = Request::new(());
    let Ok(method) = http::Method::from_bytes(value) else {
        return Key::from("");
    };
    *request.method_mut() = method;
    let key = Method.extract(&RequestView::of(&request));
    key.unwrap_or_else(|_| Key::from(""))
}

fn host(value: &[u8]) -> Option<Key> {
    let mut request = Request::new(());
    let value = HeaderValue::from_bytes(value).ok()?;
    request.headers_mut().insert(HOST, value);
    Host.extract(&RequestView::of(&request)).ok()
}
