//! The forms of a path that are one path.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

/// The bytes that stay encoded: invisible characters, and characters with another meaning.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'/').add(b'%');

/// The path of a request, each character in its one form.
#[derive(Debug)]
pub(crate) struct PathForms<'a> {
    /// Byte for byte, as it is here.
    raw: Cow<'a, str>,
    canonical: Cow<'a, str>,
    pub(crate) ignores_case: bool,
    /// Nearly every path has none.
    others: Option<Box<OtherForms<'a>>>,
}

/// The other forms of a path.
#[derive(Debug)]
struct OtherForms<'a> {
    /// As layers and services behind may make it, if it has slashes or dots that they remove.
    tidied: Vec<String>,
    /// With a name in place of each empty one, for a parameter that may be empty in front of a last slash.
    filled: Option<String>,
    /// The path as the caller sent it, if a layer further out has rewritten it.
    sent: Option<PathForms<'a>>,
}

impl<'a> PathForms<'a> {
    #[inline]
    pub(crate) fn of(path: &'a str, ignore_case: bool) -> Self {
        if is_plain(path, ignore_case) {
            return Self {
                raw: Cow::Borrowed(path),
                canonical: Cow::Borrowed(path),
                ignores_case: ignore_case,
                others: None,
            };
        }
        Self::of_several(Cow::Borrowed(path), None, ignore_case)
    }

    /// The forms of a path that a layer further out has made of the one that the caller sent.
    #[cold]
    pub(crate) fn rewritten(path: Cow<'a, str>, sent: &'a str, ignore_case: bool) -> Self {
        let sent = Self::of(sent, ignore_case);
        Self::of_several(path, Some(sent), ignore_case)
    }

    #[inline(never)]
    fn of_several(path: Cow<'a, str>, sent: Option<Self>, ignore_case: bool) -> Self {
        let canonical = canonical(&path, ignore_case);
        let (tidied, filled) = (tidied(&canonical), filled(&canonical));
        let has_others = !tidied.is_empty() || sent.is_some();
        Self {
            raw: path,
            canonical: Cow::Owned(canonical),
            ignores_case: ignore_case,
            others: has_others.then(|| {
                Box::new(OtherForms {
                    tidied,
                    filled,
                    sent,
                })
            }),
        }
    }

    /// All forms of the path: as it is here, and then as the caller sent it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        let sent = self.sent().into_iter().flat_map(Self::here);
        self.here().chain(sent)
    }

    /// All forms that a pattern may cover. Not all of them tell what stands in for its parameters.
    pub(crate) fn covered(&self) -> impl Iterator<Item = &str> {
        let both = [Some(self), self.sent()].into_iter().flatten();
        let filled = both.filter_map(|forms| forms.others.as_ref()?.filled.as_deref());
        self.iter().chain(filled)
    }

    /// The forms of the path as it is here: as the service behind gets it, and as it may read it.
    pub(crate) fn here(&self) -> impl Iterator<Item = &str> {
        let tidied = self.tidied().iter().map(String::as_str);
        std::iter::once(&*self.canonical).chain(tidied)
    }

    /// The path byte for byte, which is what axum routes by, and as those behind may read it: as it is here, and as the caller sent it.
    pub(crate) fn raw(&self) -> impl Iterator<Item = (&str, &[String])> {
        let all = std::iter::once(self).chain(self.sent());
        all.map(|forms| (&*forms.raw, forms.tidied()))
    }

    fn tidied(&self) -> &[String] {
        self.others.as_ref().map_or(&[], |others| &others.tidied)
    }

    fn sent(&self) -> Option<&Self> {
        self.others.as_ref()?.sent.as_ref()
    }

    /// True if a layer further out has rewritten the path.
    pub(crate) fn is_rewritten(&self) -> bool {
        self.sent().is_some()
    }

    /// True if this is the only form of the path.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.canonical, Cow::Borrowed(_)) && self.only().is_some()
    }

    /// The only form, if there is but one.
    pub(super) fn only(&self) -> Option<&str> {
        self.others.is_none().then_some(&*self.canonical)
    }
}

/// True if the path has one form, and this is it. Nearly every path has one form; the check reads eight bytes at a time.
fn is_plain(path: &str, ignore_case: bool) -> bool {
    let bytes = path.as_bytes();
    // The last word may overlap the one before it, whose bytes are then read twice.
    let last = match bytes.last_chunk() {
        Some(last) => u64::from_le_bytes(*last),
        None => (bytes.iter().rev()).fold(each(b'a'), |word, byte| word << 8 | u64::from(*byte)),
    };
    let mut found = doubtful(last) | ends(last) & slashes(last) << 8;
    let mut before = 0;
    for word in bytes.as_chunks().0 {
        let word = u64::from_le_bytes(*word);
        found |= doubtful(word) | ends(word) & (slashes(word) << 8 | before);
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

/// The bytes that make the slash before them doubtful: another one, or a dot. They differ by one bit.
fn ends(word: u64) -> u64 {
    slashes(word | each(b'/' ^ b'.'))
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

/// The forms that a path has for others: without slashes at its ends (`NormalizePath` of tower-http), without doubled ones as well,
/// with slashes and dots as the names of files have them (`ServeDir`), and without `..` (nginx behind a proxy of Rust).
fn tidied(canonical: &str) -> Vec<String> {
    let trimmed = format!("/{}", canonical.trim_matches('/'));
    let without = |path: &str, gone: &[&str]| -> String {
        let kept = path.split('/').filter(|segment| !gone.contains(segment));
        let tidied: String = kept.flat_map(|segment| ["/", segment]).collect();
        if tidied.is_empty() {
            "/".to_owned()
        } else {
            tidied
        }
    };
    let merged = without(canonical, &[""]);
    let named = without(canonical, &["", "."]);
    let decoded = without(&canonical.replace("%2F", "/"), &["", "."]);
    let (led_up, decoded_up) = (led_up(&named), led_up(&decoded));
    let mut forms = Vec::new();
    for form in [trimmed, merged, named, decoded, led_up, decoded_up] {
        if form != canonical && !forms.contains(&form) {
            forms.push(form);
        }
    }
    forms
}

/// The path to which `..` leads, for proxies behind the limiter.
fn led_up(path: &str) -> String {
    let mut kept = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            ".." => drop(kept.pop()),
            name => kept.push(name),
        }
    }
    format!("/{}", kept.join("/"))
}

/// The form in which each empty segment but the last has a name, if there is one: `/orgs//` leads to `/orgs/{id}/` with an empty parameter.
fn filled(canonical: &str) -> Option<String> {
    let path = canonical.strip_suffix('/').unwrap_or(canonical);
    let segments = path.split('/').skip(1);
    let filled =
        segments.flat_map(|segment| ["/", if segment.is_empty() { "%00" } else { segment }]);
    canonical.contains("//").then(|| filled.collect())
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
    fn a_path_that_leads_up_is_also_the_one_that_it_leads_to() {
        for path in [
            "/x/../login",
            "/x/%2e%2e/login",
            "/x/.%2e/login",
            "/x%2f..%2flogin",
            "/x/..//login",
            "/x/y/../../login",
            "/../login",
        ] {
            let forms = PathForms::of(path, false);
            assert!(forms.iter().any(|form| form == "/login"), "{path}");
        }
    }

    #[test]
    fn what_is_encoded_to_be_something_else_stays_something_else() {
        let first = |path| PathForms::of(path, false).iter().next().map(str::to_owned);
        for (one, other) in [
            ("/a%2Fb", "/a/b"),
            ("/a%252Fb", "/a%2Fb"),
            ("/a%2561", "/a%61"),
            ("/a/..", "/"),
            ("/a", "/A"),
        ] {
            assert_ne!(first(one), first(other), "{one} {other}");
        }
        assert_eq!(first("/a%2fb"), first("/a%2Fb"));
        // A percent sign that encodes nothing is itself.
        assert_eq!(first("/100%"), first("/100%25"));
        assert_eq!(first("/%zz"), first("/%25zz"));
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

                        let canonical = canonical(&path, ignore_case);
                        let only = canonical == path && tidied(&canonical).is_empty();
                        // A name may begin with a dot, which is looked at twice.
                        assert!(only || !is_plain, "{path:?} {ignore_case}");
                        let is_dotted = path.contains("/.");
                        assert!(!only || is_plain || is_dotted, "{path:?} {ignore_case}");
                    }
                }
            }
        }
    }

    /// Layers that tidy paths keep doubled slashes within them, and services of files know names.
    #[test]
    fn each_form_that_another_may_read_is_a_form() {
        let forms = |path| {
            PathForms::of(path, false)
                .iter()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(forms("/a/.b/c..d"), ["/a/.b/c..d"]);
        assert_eq!(forms("//a//b/"), ["//a//b/", "/a//b", "/a/b"]);
        assert_eq!(forms("/a/./b"), ["/a/./b", "/a/b"]);
        assert_eq!(forms("/a//./b"), ["/a//./b", "/a/./b", "/a/b"]);
        assert_eq!(forms("/a%2fb%2F"), ["/a%2Fb%2F", "/a/b"]);
        assert_eq!(forms("/%2e/a"), ["/./a", "/a"]);
    }

    #[test]
    fn case_is_ignored_where_asked() {
        let forms = PathForms::of("/LOGIN/%41%C3%89", true);
        assert_eq!(forms.only(), Some("/login/a%C3%89"));
    }
}
