//! Identities as text, both ways.
//!
//! ```text
//! all              all callers                10.1.2.3         an IPv4 address
//! none             no identity was found      2001:db8::/64    an IPv6 network
//! =alice           these bytes                d9f86d0…         the SHA-256 digest of what was too long
//! (=a,10.1.2.3)    several identities         h60303ae…        a hash under a key, of which nothing can be read
//! ```
//!
//! A byte outside of [`PLAIN`] stands as `%` and two hexadecimal digits, as in a URL. So an identity can be neither a hash tag
//! nor a pattern, and needs no quotes in a shell, except for the parentheses of a tuple.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use hmac::{Hmac, Mac};
use sha2::Sha256;
use tollgate_core::Key;

use super::{Name, number};

/// The length of a keyed hash in a name: enough bits that no collision happens by chance.
pub(super) const HASH_BYTES: usize = 16;

/// Each part of a tuple takes two bytes of a key at least, so that no key holds tuples deeper than this.
const DEEPEST: usize = Key::MAX_LEN / 2;

/// The bytes that need no escape: letters, digits, and the signs of e-mail addresses, paths and base64. None of them has a
/// meaning to a hash tag, to a tuple, to a pattern of `SCAN`, to a shell or to `xargs`.
pub(super) const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let bytes = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._:@/+=";
    let mut n = 0;
    while n < bytes.len() {
        plain[bytes[n] as usize] = true;
        n += 1;
    }
    plain
};

/// `h` and the hash.
pub(super) fn hashed(name: &mut Name, secret: &Hmac<Sha256>, key: &[u8]) {
    let hash = secret.clone().chain_update(key).finalize().into_bytes();
    name.push(b'h');
    hexadecimals(name, hash.iter().take(HASH_BYTES));
}

/// The canonical form of a key as text.
pub(super) fn readable(name: &mut Name, key: &[u8]) {
    let Some((kind, content)) = key.split_first() else {
        return;
    };
    match kind {
        0 => name.extend_from_slice(b"all"),
        1 => name.extend_from_slice(b"none"),
        4 => ipv4(name, content),
        6 => ipv6(name, content),
        b'd' => {
            name.push(b'd');
            hexadecimals(name, content);
        }
        b't' => tuple(name, content),
        _ => {
            name.push(b'=');
            escaped(name, content);
        }
    }
}

fn ipv4(name: &mut Name, octets: &[u8]) {
    for (n, octet) in octets.iter().enumerate() {
        if n > 0 {
            name.push(b'.');
        }
        number(name, *octet);
    }
}

/// The address as RFC 5952 writes it, and the length of the prefix.
fn ipv6(name: &mut Name, content: &[u8]) {
    let Some((&prefix, covered)) = content.split_first() else {
        return;
    };
    if covered.len() <= 8 {
        network(name, covered);
    } else {
        let mut octets = [0; 16];
        for (octet, covered) in octets.iter_mut().zip(covered) {
            *octet = *covered;
        }
        // A write into memory does not fail.
        let _written = write!(name, "{}", Ipv6Addr::from(octets));
    }
    name.push(b'/');
    number(name, prefix);
}

/// The first half of an address, or less: the longest run of zeros stands behind it. Written by hand, because each decision
/// about an IPv6 caller does this, and the standard library takes ten times as long.
fn network(name: &mut Name, covered: &[u8]) {
    let end = covered.iter().rposition(|byte| *byte != 0);
    let end = end.map_or(0, |last| last + 1);
    for pair in covered[..end].chunks(2) {
        let group = u16::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u16::from(*low));
        let digits = 4 - group.leading_zeros() / 4;
        for digit in (0..digits.max(1)).rev() {
            name.push(DIGITS[usize::from(group >> (4 * digit) & 0xf)]);
        }
        name.push(b':');
    }
    name.extend_from_slice(if end == 0 { b"::" } else { b":" });
}

fn tuple(name: &mut Name, content: &[u8]) {
    name.push(b'(');
    let mut rest = content;
    while let Some((&len, behind)) = rest.split_first() {
        let (part, behind) = behind.split_at(usize::from(len).min(behind.len()));
        if rest.len() < content.len() {
            name.push(b',');
        }
        readable(name, part);
        rest = behind;
    }
    name.push(b')');
}

pub(super) fn escaped(name: &mut Name, mut text: &[u8]) {
    let is_odd = |byte: &u8| !PLAIN[usize::from(*byte)];
    while let Some(odd) = text.iter().position(is_odd) {
        let (plain, rest) = text.split_at(odd);
        name.extend_from_slice(plain);
        name.push(b'%');
        hexadecimals(name, &rest[..1]);
        text = &rest[1..];
    }
    name.extend_from_slice(text);
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

pub(super) fn hexadecimals<'a>(name: &mut Name, bytes: impl IntoIterator<Item = &'a u8>) {
    for byte in bytes {
        name.push(DIGITS[usize::from(byte >> 4)]);
        name.push(DIGITS[usize::from(byte & 0xf)]);
    }
}

/// The form of a hash, of which nothing can be read.
pub(super) fn is_hashed(identity: &str) -> bool {
    let digits = identity.strip_prefix('h').and_then(bytes);
    digits.is_some_and(|hash| hash.len() == HASH_BYTES)
}

/// The key that this text stands for. Several texts may give one key: the caller compares with the text that would be written.
pub(super) fn key(identity: &str) -> Option<Key> {
    let (canonical, rest) = read(identity, 0)?;
    if !rest.is_empty() {
        return None;
    }
    Key::from_canonical(&canonical)
}

/// The canonical form of the identity at the beginning of a text, and the rest of the text.
fn read(text: &str, depth: usize) -> Option<(Vec<u8>, &str)> {
    if let Some(parts) = text.strip_prefix('(') {
        return read_tuple(parts, depth + 1);
    }
    let (text, rest) = text.split_at(text.find([',', ')']).unwrap_or(text.len()));
    Some((read_one(text)?, rest))
}

fn read_tuple(mut text: &str, depth: usize) -> Option<(Vec<u8>, &str)> {
    if depth > DEEPEST {
        return None;
    }
    let mut canonical = vec![b't'];
    if let Some(rest) = text.strip_prefix(')') {
        return Some((canonical, rest));
    }
    loop {
        let (part, rest) = read(text, depth)?;
        canonical.push(u8::try_from(part.len()).ok()?);
        canonical.extend(part);
        match rest.strip_prefix(',') {
            Some(next) => text = next,
            None => return Some((canonical, rest.strip_prefix(')')?)),
        }
    }
}

fn read_one(text: &str) -> Option<Vec<u8>> {
    let of_kind = |kind: u8, content: &[u8]| [&[kind][..], content].concat();
    if let Some(escaped) = text.strip_prefix('=') {
        return Some(of_kind(b'b', &unescaped(escaped)?));
    }
    if let Some((address, prefix)) = text.split_once('/') {
        let octets = address.parse::<Ipv6Addr>().ok()?.octets();
        let prefix: u8 = prefix.parse().ok()?;
        let covered = octets.get(..usize::from(prefix).div_ceil(8))?;
        return Some([&[6, prefix][..], covered].concat());
    }
    match text {
        "all" => Some(vec![0]),
        "none" => Some(vec![1]),
        _ => match text.strip_prefix('d') {
            Some(digest) => Some(of_kind(b'd', &bytes(digest)?)),
            None => Some(of_kind(4, &text.parse::<Ipv4Addr>().ok()?.octets())),
        },
    }
}

pub(super) fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('%');
    let mut content = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, plain) = part.split_at_checked(2)?;
        content.extend(bytes(digits)?);
        content.extend_from_slice(plain.as_bytes());
    }
    Some(content)
}

/// The bytes that hexadecimal digits stand for.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| {
        let value = DIGITS.iter().position(|known| *known == digit)?;
        u8::try_from(value).ok()
    };
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let bytes = (pairs.iter()).map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    rest.is_empty().then(|| bytes.collect())?
}
