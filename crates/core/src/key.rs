//! The identity that owns a budget, as a short, canonical string of bytes.

mod hashing;
mod readable;
mod repr;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use self::hashing::KeyHashing;
use self::repr::{Repr, Source};

/// An identity, at most [`Key::MAX_LEN`] bytes long.
///
/// The kind of identity is part of the key. The text `10.0.0.1` from a header is not the address 10.0.0.1, and no part of a
/// request can equal the key of callers without an identity.
///
/// Longer identities are compared and stored as their SHA-256 digest, so that a header of a megabyte takes no more room in a
/// backend than one of forty bytes, and still no two collide. While a request lasts, the key also holds the identity as the
/// caller sent it: [`content`](Self::content), [`text`](Self::text) and [`parts`](Self::parts) show it, whatever its length.
/// [`compact`](Self::compact) drops it.
///
/// `Debug` shows the kind and the length only: identities are addresses and API keys, and do not belong into logs.
///
/// ```
/// use std::net::IpAddr;
/// use tollgate::{Key, KeyKind};
///
/// let alice = Key::from("alice");
/// assert_eq!((alice.kind(), alice.content()), (KeyKind::Bytes, &b"alice"[..]));
/// assert_eq!(Key::bytes(b"alice"), alice);
///
/// // Two addresses of one /64 are one caller.
/// let address = |text: &str| Key::address(text.parse::<IpAddr>().unwrap(), 64);
/// assert_eq!(address("2001:db8::1"), address("2001:db8::2"));
///
/// // The key of all callers, and that of unidentified ones, equal no key that a request brings.
/// assert_ne!(Key::global(), Key::missing());
///
/// // Parts cannot run into each other.
/// let pair = |a: &str, b: &str| Key::tuple([&Key::from(a), &Key::from(b)]);
/// assert_ne!(pair("a_b", "c"), pair("a", "b_c"));
///
/// // A key that is kept longer than a request keeps the digest of a long identity.
/// let token = Key::from("x".repeat(1_000));
/// assert_eq!(token.content().len(), 1_000);
/// assert_eq!(token.compact().kind(), KeyKind::Digest);
///
/// // A backend writes the canonical form and reads it back.
/// assert_eq!(Key::from_canonical(alice.as_bytes()), Some(alice));
/// ```
pub struct Key(Repr);

/// The kind of identity of a [`Key`].
///
/// ```
/// use tollgate::{Key, KeyKind};
///
/// /// True if the key holds a secret, such as a token, that a log must not show.
/// fn may_be_secret(key: &Key) -> bool {
///     !matches!(key.kind(), KeyKind::Global | KeyKind::Missing | KeyKind::Ipv4 | KeyKind::Ipv6)
/// }
///
/// assert!(may_be_secret(&Key::from("sk-live-12")));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum KeyKind {
    /// All callers together: one budget for all.
    Global = 0,
    /// All callers without anything that the extractor could find.
    Missing = 1,
    /// An IPv4 address: 4 bytes.
    Ipv4 = 4,
    /// An IPv6 network: the prefix length, then as many bytes as it covers.
    Ipv6 = 6,
    /// Bytes as the caller sent them.
    Bytes = b'b',
    /// The SHA-256 digest of bytes or of parts that were too long, and that are no longer known.
    Digest = b'd',
    /// Several parts, each behind its length.
    Tuple = b't',
}

impl Clone for Key {
    #[inline]
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }

    #[inline]
    fn clone_from(&mut self, source: &Self) {
        self.0.clone_from(&source.0);
    }
}

impl Key {
    /// The most bytes of a key, including the one for its kind.
    pub const MAX_LEN: usize = 128;

    /// All callers together: one budget for all.
    #[must_use]
    pub fn global() -> Self {
        Self::encode(KeyKind::Global, &[])
    }

    /// All callers that cannot be told apart, because the request lacks what would tell them apart.
    #[must_use]
    pub fn missing() -> Self {
        Self::encode(KeyKind::Missing, &[])
    }

    /// These bytes, of any content.
    #[must_use]
    #[inline]
    pub fn bytes(bytes: &[u8]) -> Self {
        Self::encode(KeyKind::Bytes, bytes)
    }

    /// An address, IPv6 grouped by its first `v6_prefix` bits (at most 128). A host with one IPv6 address usually has all of a
    /// /64, and would otherwise have as many budgets. An IPv4 address in IPv6 notation is an IPv4 address.
    #[must_use]
    #[inline]
    pub fn address(address: IpAddr, v6_prefix: u8) -> Self {
        match address {
            IpAddr::V4(v4) => Self::from(v4),
            IpAddr::V6(v6) => Self::network(v6, v6_prefix),
        }
    }

    fn network(address: Ipv6Addr, prefix: u8) -> Self {
        if let IpAddr::V4(v4) = by_its_bits(address.into()) {
            return Self::from(v4);
        }
        let prefix = prefix.min(128);
        let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
        let octets = (address.to_bits() & mask).to_be_bytes();
        let covered = usize::from(prefix).div_ceil(8);
        let mut content = [prefix; 17];
        content[1..].copy_from_slice(&octets);
        Self::encode(KeyKind::Ipv6, &content[..=covered])
    }

    /// Several identities as one. Each part stands behind its length, so that `("a_b", "c")` is not `("a", "b_c")`.
    #[must_use]
    pub fn tuple<'a, I>(parts: I) -> Self
    where
        I: IntoIterator<Item = &'a Self>,
        I::IntoIter: Clone,
    {
        let parts = parts.into_iter();
        let mut joined = Vec::with_capacity(Self::MAX_LEN);
        let mut is_whole = true;
        for part in parts.clone() {
            is_whole &= part.source().is_none();
            let part = part.as_bytes();
            // A key has at most MAX_LEN bytes, so its length fits a byte.
            joined.push(u8::try_from(part.len()).unwrap_or(u8::MAX));
            joined.extend_from_slice(part);
        }
        let key = Self::encode(KeyKind::Tuple, &joined);
        if is_whole && joined.len() < Self::MAX_LEN {
            return key;
        }
        key.of(Source::Parts(parts.cloned().collect()))
    }

    /// The key whose [canonical form](Self::as_bytes) these bytes are, if there is one. So a backend can read keys that it
    /// wrote.
    #[must_use]
    pub fn from_canonical(bytes: &[u8]) -> Option<Self> {
        let (&kind, content) = bytes.split_first()?;
        let key = match kind {
            0 => Self::global(),
            1 => Self::missing(),
            4 => Self::from(Ipv4Addr::from(<[u8; 4]>::try_from(content).ok()?)),
            6 => {
                let (&prefix, covered) = content.split_first()?;
                let mut octets = [0; 16];
                octets.get_mut(..covered.len())?.copy_from_slice(covered);
                Self::network(Ipv6Addr::from(octets), prefix)
            }
            b'b' => Self::bytes(content),
            b'd' => Self::encode(KeyKind::Digest, <&[u8; 32]>::try_from(content).ok()?),
            b't' => {
                let mut rest = content;
                while let Some((&len, behind)) = rest.split_first() {
                    let (part, behind) = behind.split_at_checked(usize::from(len))?;
                    Self::from_canonical(part)?;
                    rest = behind;
                }
                Self::encode(KeyKind::Tuple, content)
            }
            _ => return None,
        };
        // Bytes that are too long, mask bits away, or hold an IPv4 address have another form.
        (key.as_bytes() == bytes).then_some(key)
    }

    /// The kind of this identity.
    #[must_use]
    pub fn kind(&self) -> KeyKind {
        match self.source() {
            Some(Source::Bytes(_)) => KeyKind::Bytes,
            Some(Source::Parts(_)) => KeyKind::Tuple,
            None => kind_of(self.as_bytes().first()),
        }
    }

    /// The identity without its kind: of [`KeyKind::Bytes`] the bytes as the caller sent them, however many; of an address its
    /// octets. For several [`parts`](Self::parts) this is their canonical form.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        match self.source() {
            Some(Source::Bytes(bytes)) => bytes,
            _ => self.as_bytes().get(1..).unwrap_or_default(),
        }
    }

    /// The identity as text, if it is [bytes](KeyKind::Bytes) that are UTF-8.
    ///
    /// ```
    /// use tollgate::Key;
    ///
    /// let token = "x".repeat(1_000);
    /// assert_eq!(Key::from(&token).text(), Some(token.as_str()));
    /// ```
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self.kind() {
            KeyKind::Bytes => str::from_utf8(self.content()).ok(),
            _ => None,
        }
    }

    /// The parts of a [tuple](Self::tuple) in their order, each as the caller sent it. One identity alone is its only part.
    ///
    /// ```
    /// use tollgate::Key;
    ///
    /// let key = Key::tuple([&Key::from("tenant-7"), &Key::from("alice")]);
    /// assert_eq!(key.parts().nth(1).as_ref().and_then(Key::text), Some("alice"));
    /// ```
    pub fn parts(&self) -> impl Iterator<Item = Self> + '_ {
        let (known, joined, alone) = match (self.source(), self.kind()) {
            (Some(Source::Parts(parts)), _) => (&**parts, &[][..], None),
            (None, KeyKind::Tuple) => (&[][..], self.content(), None),
            _ => (&[][..], &[][..], Some(self.clone())),
        };
        let known = known.iter().cloned();
        known.chain(TupleParts(joined)).chain(alone)
    }

    /// True if it stands for callers without an identity, or one of its parts does: other callers have the same key.
    ///
    /// ```
    /// use tollgate::Key;
    ///
    /// assert!(Key::missing().is_incomplete());
    /// let nobody = Key::tuple([&Key::from("acme"), &Key::missing()]);
    /// assert!(nobody.is_incomplete());
    /// assert!(Key::tuple([&Key::from("a".repeat(1_000)), &nobody]).is_incomplete());
    /// assert!(!Key::from("alice").is_incomplete());
    /// ```
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        let has_parts =
            self.kind() == KeyKind::Tuple || matches!(self.source(), Some(Source::Parts(_)));
        self.kind() == KeyKind::Missing
            || has_parts && self.parts().any(|part| part.is_incomplete())
    }

    /// The canonical form: the kind as one byte, then the content. An identity longer than [`MAX_LEN`](Self::MAX_LEN) has the
    /// kind and content of its [digest](KeyKind::Digest). Equal identities have equal bytes, and unequal ones have unequal
    /// bytes.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// For backends that hash: the canonical form as blocks of sixteen bytes, and the bytes that are left, at most fifteen,
    /// as a number whose lowest byte is the first. Short keys lie in zeros, so that this costs a load and not a loop.
    ///
    /// ```
    /// use tollgate::Key;
    ///
    /// // Five bytes of text and one for the kind: no whole block.
    /// let key = Key::from("alice");
    /// let (blocks, rest) = key.blocks();
    /// assert!(blocks.is_empty());
    /// assert_eq!(rest.to_le_bytes()[..6], *key.as_bytes());
    /// ```
    #[must_use]
    // Inlined always: a call would hand the result over in memory.
    #[inline(always)]
    pub fn blocks(&self) -> (&[[u8; 16]], u128) {
        self.0.blocks()
    }
}

fn kind_of(byte: Option<&u8>) -> KeyKind {
    match byte {
        Some(0) => KeyKind::Global,
        Some(4) => KeyKind::Ipv4,
        Some(6) => KeyKind::Ipv6,
        Some(b'b') => KeyKind::Bytes,
        Some(b'd') => KeyKind::Digest,
        Some(b't') => KeyKind::Tuple,
        _ => KeyKind::Missing,
    }
}

/// The parts of a tuple, each behind its length.
struct TupleParts<'a>(&'a [u8]);

impl Iterator for TupleParts<'_> {
    type Item = Key;

    fn next(&mut self) -> Option<Key> {
        let (len, rest) = self.0.split_first()?;
        let (part, rest) = rest.split_at_checked(usize::from(*len))?;
        self.0 = rest;
        let (kind, content) = part.split_first()?;
        Some(Key::encode(kind_of(Some(kind)), content))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.as_bytes());
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?}, {} bytes)", self.kind(), self.as_bytes().len())
    }
}

impl From<&str> for Key {
    #[inline]
    fn from(text: &str) -> Self {
        Self::bytes(text.as_bytes())
    }
}

impl From<&String> for Key {
    #[inline]
    fn from(text: &String) -> Self {
        Self::bytes(text.as_bytes())
    }
}

impl From<String> for Key {
    #[inline]
    fn from(text: String) -> Self {
        Self::bytes(text.as_bytes())
    }
}

impl From<&[u8]> for Key {
    #[inline]
    fn from(bytes: &[u8]) -> Self {
        Self::bytes(bytes)
    }
}

/// The number in decimal, so that `42` and `"42"` are one caller, whichever type an application uses.
impl From<u64> for Key {
    fn from(number: u64) -> Self {
        let mut digits = [0; 20];
        let mut start = digits.len();
        let mut rest = number;
        loop {
            start -= 1;
            digits[start] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            rest /= 10;
            if rest == 0 {
                return Self::bytes(&digits[start..]);
            }
        }
    }
}

impl From<u32> for Key {
    fn from(number: u32) -> Self {
        Self::from(u64::from(number))
    }
}

/// The address, IPv6 grouped by /64: see [`Key::address`].
/// Returns the IPv4 address that an IPv6 address maps, or the address itself.
#[doc(hidden)]
#[inline]
#[must_use]
pub fn by_its_bits(address: IpAddr) -> IpAddr {
    /// `::ffff:0:0/96` and `64:ff9b::/96`, without the 32 bits that are the IPv4 address.
    const MAPPED: u128 = 0xffff;
    const NAT64: u128 = 0x0064_ff9b << 64;

    let IpAddr::V6(v6) = address else {
        return address;
    };
    match v6.to_bits() >> 32 {
        MAPPED | NAT64 => {
            let [.., a, b, c, d] = v6.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        _ => address,
    }
}

impl From<IpAddr> for Key {
    #[inline]
    fn from(address: IpAddr) -> Self {
        Self::address(address, 64)
    }
}

impl From<Ipv4Addr> for Key {
    #[inline]
    fn from(address: Ipv4Addr) -> Self {
        Self::encode(KeyKind::Ipv4, &address.octets())
    }
}

impl From<Ipv6Addr> for Key {
    fn from(address: Ipv6Addr) -> Self {
        Self::from(IpAddr::V6(address))
    }
}

macro_rules! parts {
    ($($name:ident),+) => {
        /// The parts in their order, as a [tuple](Key::tuple). An IPv6 address in it is grouped by /64, too.
        impl<$($name: Into<Key>),+> From<($($name,)+)> for Key {
            fn from(parts: ($($name,)+)) -> Self {
                #[expect(non_snake_case, reason = "one name for the type and its value")]
                let ($($name,)+) = parts;
                Self::tuple(&[$($name.into()),+])
            }
        }
    };
}

parts!(A, B);
parts!(A, B, C);
parts!(A, B, C, D);

#[cfg(test)]
mod tests {
    use super::*;

    fn ip_address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> Key {
        Key::from(ip_address(text))
    }

    #[test]
    fn pitfall_key_parts_joined_without_escaping() {
        let pair = |a: &str, b: &str| Key::tuple([&Key::from(a), &Key::from(b)]);
        assert_ne!(pair("a_b", "c"), pair("a", "b_c"));
        assert_ne!(pair("ab", ""), pair("", "ab"));
        assert_ne!(pair("a", "b"), Key::tuple([&pair("a", "b")]));
    }

    #[test]
    fn pitfall_ipv6_not_grouped_gives_one_host_many_budgets() {
        assert_eq!(ip("2001:db8:1:2::1"), ip("2001:db8:1:2:ffff::2"));
        assert_ne!(ip("2001:db8:1:2::1"), ip("2001:db8:1:3::1"));
    }

    #[test]
    fn an_ipv4_address_in_ipv6_notation_is_the_ipv4_address() {
        assert_eq!(ip("::ffff:10.1.2.3"), ip("10.1.2.3"));
        assert_ne!(ip("::ffff:10.1.2.3"), ip("10.1.2.4"));
    }

    #[test]
    fn prefixes_of_any_length_group_by_their_bits() {
        let under = |text: &str, prefix| Key::address(text.parse().unwrap(), prefix);
        assert_eq!(under("2001:db8::", 0), under("fe80::1", 0));
        assert_eq!(under("2001:db8:ff00::", 40), under("2001:db8:ff00:1::", 40));
        assert_eq!(under("2001:db8:0:1f::", 60), under("2001:db8:0:10::", 60));
        assert_ne!(under("2001:db8:0:1f::", 60), under("2001:db8:0:20::", 60));
        assert_ne!(under("::1", 128), under("::2", 128));
        assert_eq!(under("::1", 200), under("::1", 128));
    }

    #[test]
    fn what_a_request_brings_never_equals_what_was_missing() {
        assert_ne!(Key::bytes(&[1]), Key::missing());
        assert_ne!(Key::bytes(&[]), Key::missing());
        assert_ne!(Key::bytes(&[]), Key::global());
        assert_ne!(Key::from("10.0.0.1"), ip("10.0.0.1"));
    }

    #[test]
    fn identities_of_megabytes_neither_collide_nor_grow() {
        // Miri takes its time.
        let mega = if cfg!(miri) { 1 << 10 } else { 1 << 20 };
        let mut long = vec![b'x'; 3 * mega];
        let key = Key::bytes(&long);
        long[mega] = b'y';
        let other = Key::bytes(&long);
        assert_ne!(key, other);
        assert_eq!(key.clone().compact().kind(), KeyKind::Digest);
        assert!(key.as_bytes().len() <= Key::MAX_LEN);
        // A request cannot bring a digest: its bytes are of another kind.
        assert_ne!(Key::bytes(&key.as_bytes()[1..]), key);
    }

    #[test]
    fn the_canonical_form_is_the_kind_and_then_the_content_whatever_the_length() {
        for len in 0..Key::MAX_LEN {
            let content: Vec<u8> = (0..200).rev().take(len).collect();
            let key = Key::bytes(&content);
            assert_eq!((key.kind(), key.content()), (KeyKind::Bytes, &*content));

            let (blocks, rest) = key.blocks();
            let whole = blocks.as_flattened();
            let rest = &rest.to_le_bytes()[..(len + 1) % 16];
            assert_eq!([whole, rest].concat(), key.as_bytes());
        }
        let long = Key::bytes(&[7; Key::MAX_LEN]).compact();
        assert_eq!(long.kind(), KeyKind::Digest);
    }

    #[test]
    fn an_identity_of_any_length_shows_what_the_caller_sent() {
        for len in [0, 1, 40, 46, 127, 128, 200, 5_000] {
            let text = "j".repeat(len);
            let key = Key::from(text.as_str());
            assert_eq!(
                (key.kind(), key.content(), key.text()),
                (KeyKind::Bytes, text.as_bytes(), Some(text.as_str()))
            );

            // None of it counts in comparisons, and a stored key can do without it.
            let compact = key.clone().compact();
            assert_eq!((&compact, compact.blocks()), (&key, key.blocks()));
            assert_eq!(compact.content().len(), if len < 128 { len } else { 32 });
        }
        assert_eq!(Key::bytes(b"\xff").text(), None);
        assert_eq!(ip("10.0.0.1").text(), None);
    }

    #[test]
    fn parts_come_back_by_position_whatever_their_length() {
        let parts = |key: &Key| key.parts().collect::<Vec<_>>();
        let of = |lengths: &[usize]| -> Vec<Key> {
            let texts = lengths.iter().map(|len| "p".repeat(*len));
            texts.map(Key::from).chain([ip("2001:db8::1")]).collect()
        };
        for lengths in [
            &[][..],
            &[0, 3],
            &[100, 3],
            &[60, 60],
            &[3, 500],
            &[500, 500, 2],
        ] {
            let given = of(lengths);
            let key = Key::tuple(&given);
            assert_eq!(key.kind(), KeyKind::Tuple);
            let found = parts(&key);
            assert_eq!(found, given, "{lengths:?}");
            let contents = |keys: &[Key]| -> Vec<Vec<u8>> {
                keys.iter().map(|key| key.content().to_vec()).collect()
            };
            assert_eq!(contents(&found), contents(&given), "{lengths:?}");
            assert_eq!(key.clone().compact(), key);
        }
        // What an incomplete one lacks is known however long it is, and wherever the part stands.
        let long = Key::from("k".repeat(1_000));
        let inner = Key::tuple([&Key::missing(), &long]);
        for incomplete in [&inner, &Key::tuple([&long, &inner])] {
            let compact = incomplete.clone().compact();
            assert!(incomplete.is_incomplete() && compact.is_incomplete());
            assert_eq!(&compact, incomplete);
        }
        assert!(!Key::tuple([&long, &long]).is_incomplete());
        // A tuple in a tuple is one part, and any other key is its own only part.
        let pair = Key::tuple(&of(&[200]));
        let nested = Key::tuple([&pair, &Key::global()]);
        assert_eq!(parts(&nested), [pair, Key::global()]);
        assert_eq!(parts(&Key::from("a")), [Key::from("a")]);
    }

    #[test]
    fn a_canonical_form_is_the_form_of_one_key_and_other_bytes_are_of_none() {
        let text = Key::from("alice");
        let keys = [
            Key::global(),
            Key::missing(),
            Key::bytes(&[]),
            Key::bytes(&[0xff; Key::MAX_LEN - 1]),
            Key::bytes(&[0xff; Key::MAX_LEN]),
            ip("10.1.2.3"),
            ip("2001:db8::1"),
            Key::address(ip_address("2001:db8::1"), 128),
            Key::address(ip_address("2001:db8::1"), 0),
            Key::tuple([]),
            Key::tuple([&text, &ip("::1"), &Key::tuple([&Key::missing(), &text])]),
            Key::tuple([&Key::bytes(&[1; 100]), &Key::bytes(&[2; 100])]),
        ];
        for key in &keys {
            assert_eq!(Key::from_canonical(key.as_bytes()).as_ref(), Some(key));
        }
        let long = [&b"b"[..], &[b'x'; Key::MAX_LEN]].concat();
        let mapped = [&[6, 128][..], &[0; 10], &[0xff, 0xff, 10, 0, 0, 1]].concat();
        let not_forms: [&[u8]; 14] = [
            b"",
            b"x",
            &[0, 0],
            &[1, 1],
            &[4, 1, 2, 3],
            &[4, 1, 2, 3, 4, 5],
            &[6],
            &[6, 8],
            &[6, 4, 0x1f],
            &[6, 200],
            b"dshort",
            &[b't', 3, b'b', b'a'],
            &long,
            &mapped,
        ];
        for bytes in not_forms {
            assert_eq!(Key::from_canonical(bytes), None, "{bytes:?}");
        }
        assert_eq!(Key::from_canonical(&[b't', 1, b'x']), None);
    }

    #[test]
    fn several_parts_are_one_identity() {
        let address = ip_address("10.1.2.3");
        let parts = [Key::from(address), Key::from("alice"), Key::from(7_u64)];
        assert_eq!(Key::from((address, "alice")), Key::tuple(&parts[..2]));
        assert_eq!(Key::from((address, "alice", 7_u32)), Key::tuple(&parts));
        let [one, other, third] = parts;
        let all = Key::tuple([&one, &other, &third, &Key::global()]);
        assert_eq!(Key::from((one, other, third, Key::global())), all);
        assert_ne!(Key::from(("a_b", "c")), Key::from(("a", "b_c")));
    }

    #[test]
    fn numbers_are_their_decimal_text() {
        assert_eq!(Key::from(0_u64), Key::from("0"));
        assert_eq!(Key::from(u64::MAX), Key::from("18446744073709551615"));
    }

    #[test]
    fn debug_output_tells_no_identity() {
        assert_eq!(format!("{:?}", Key::from("secret")), "Key(Bytes, 7 bytes)");
    }
}
