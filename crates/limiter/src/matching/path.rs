//! The forms of a path that are one path.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

/// The bytes that stay encoded: invisible characters, and characters with another meaning.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'/').add(b'%');

/// The path of a request, each character in its one form.
#[derive(Debug)]
pub(crate) struct PathForms<'a> {
    /// Byte for byte as the caller sent it.
    raw: &'a str,
    as_sent: Cow<'a, str>,
    /// Without slashes that are doubled or at the end, if there were any.
    tidied: Option<String>,
}

impl<'a> PathForms<'a> {
    #[inline]
    pub(crate) fn of(path: &'a str, ignore_case: bool) -> Self {
        if is_plain(path, ignore_case) {
            return Self {
                raw: path,
                as_sent: Cow::Borrowed(path),
                tidied: None,
            };
        }
        Self::of_several(path, ignore_case)
    }

    #[inline(never)]
    fn of_several(path: &'a str, ignore_case: bool) -> Self {
        let as_sent = canonical(path, ignore_case);
        let untidy = as_sent.len() > 1 && (as_sent.ends_with('/') || as_sent.contains("//"));
        Self {
            raw: path,
            tidied: untidy.then(|| tidy(&as_sent)),
            as_sent: Cow::Owned(as_sent),
        }
    }

    /// The path with its slashes as they came, and without those that are too many.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        [Some(&*self.as_sent), self.tidied.as_deref()]
            .into_iter()
            .flatten()
    }

    /// The path with its slashes as they came.
    pub(crate) fn as_sent(&self) -> &str {
        &self.as_sent
    }

    /// The path byte for byte, which is what axum routes by.
    pub(crate) fn raw(&self) -> &'a str {
        self.raw
    }

    /// True if the caller sent the only form of the path.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.as_sent, Cow::Borrowed(_)) && self.tidied.is_none()
    }

    /// The only form, if there is but one.
    pub(super) fn only(&self) -> Option<&str> {
        match self.tidied {
            None => Some(&self.as_sent),
            Some(_) => None,
        }
    }
}

/// True if the path has one form, and this is it. Nearly every path has one form; the check reads eight bytes at a time.
fn is_plain(path: &str, ignore_case: bool) -> bool {
    let bytes = path.as_bytes();
    // The last word may overlap the one before it, whose bytes are then read twice.
    let last = match bytes.last_chunk() {
        Some(last) => u64::from_le_bytes(*last),
        None => bytes
            .iter()
            .fold(each(b'a'), |word, byte| word << 8 | u64::from(*byte)),
    };
    let mut found = doubtful(last) | slashes(last) & slashes(last) << 8;
    let mut before = 0;
    for word in bytes.as_chunks().0 {
        let word = u64::from_le_bytes(*word);
        found |= doubtful(word) | slashes(word) & (slashes(word) << 8 | before);
        before = slashes(word) >> 56;
    }
    let ends_with_slash = bytes.len() > 1 && bytes.ends_with(b"/");
    let has_capitals = ignore_case && bytes.iter().any(u8::is_ascii_uppercase);
    found == 0 && !ends_with_slash && !has_capitals
}

const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// The highest bit of a byte says something about it.
const BITS: u64 = each(0x80);

/// True if one of the bytes is a percent sign or an invisible character. Only the lowest bit tells which one.
fn doubtful(word: u64) -> u64 {
    let below = word.wrapping_sub(each(b'!')) & !word;
    let percent = word ^ each(b'%');
    let percent = percent.wrapping_sub(each(1)) & !percent;
    let above = word.wrapping_add(each(1)) | word;
    (below | percent | above) & BITS
}

/// The bytes that are slashes, if none is [`doubtful`].
fn slashes(word: u64) -> u64 {
    !(word ^ each(b'/')).wrapping_add(each(0x7f)) & BITS
}

/// Every character in one form, slashes as they came.
pub(super) fn canonical(path: &str, ignore_case: bool) -> String {
    let mut canonical = String::with_capacity(path.len() + 16);
    for (index, segment) in path.split('/').enumerate() {
        if index > 0 {
            canonical.push('/');
        }
        let mut decoded: Vec<u8> = percent_decode_str(segment).collect();
        if ignore_case {
            decoded.make_ascii_lowercase();
        }
        canonical.extend(percent_encode(&decoded, ENCODED));
    }
    canonical
}

fn tidy(path: &str) -> String {
    let mut tidy = String::with_capacity(path.len());
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        tidy.push('/');
        tidy.push_str(segment);
    }
    if tidy.is_empty() {
        tidy.push('/');
    }
    tidy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pitfall_variants_of_one_path_as_several_budgets() {
        let cases = [
            ("/login", "/login"),
            ("/log%69n", "/login"),
            ("/%6c%6F%67in", "/login"),
            ("//login", "/login"),
            ("/login/", "/login"),
            ("///login//", "/login"),
            ("/caf\u{e9}", "/caf%C3%A9"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/a%20b", "/a%20b"),
            ("/a%7Eb", "/a~b"),
            ("/", "/"),
            ("//", "/"),
        ];
        for (path, expected) in cases {
            let forms = PathForms::of(path, false);
            assert_eq!(forms.iter().last(), Some(expected), "{path}");
        }
    }

    #[test]
    fn what_is_encoded_to_be_something_else_stays_something_else() {
        let last = |path| PathForms::of(path, false).iter().last().map(str::to_owned);
        for (one, other) in [
            ("/a%2Fb", "/a/b"),
            ("/a%252Fb", "/a%2Fb"),
            ("/a%2561", "/a%61"),
            ("/a/..", "/"),
            ("/a", "/A"),
        ] {
            assert_ne!(last(one), last(other), "{one} {other}");
        }
        assert_eq!(last("/a%2fb"), last("/a%2Fb"));
        // A percent sign that encodes nothing is itself.
        assert_eq!(last("/100%"), last("/100%25"));
        assert_eq!(last("/%zz"), last("/%25zz"));
    }

    #[test]
    fn a_path_is_plain_if_it_has_no_other_form() {
        // given paths of every length up to some words, with something odd at every place
        let oddities = (0..=0x7f).map(|byte| char::from(byte).to_string());
        let oddities = oddities.chain(["//", "/\u{e9}", "%61/", "\u{80}\u{ff}"].map(str::to_owned));
        for oddity in oddities {
            for length in 0..20 {
                for place in 1..=length + 1 {
                    let mut path = "/Abcdefg/ijklmnopqrst"[..=length].to_owned();
                    path.insert_str(place, &oddity);

                    for ignore_case in [false, true] {
                        let is_plain = is_plain(&path, ignore_case);

                        let only = tidy(&canonical(&path, ignore_case)) == path;
                        assert_eq!(is_plain, only, "{path:?} {ignore_case}");
                    }
                }
            }
        }
    }

    #[test]
    fn case_is_ignored_where_asked() {
        let forms = PathForms::of("/LOGIN/%41%C3%89", true);
        assert_eq!(forms.only(), Some("/login/a%C3%89"));
    }
}
