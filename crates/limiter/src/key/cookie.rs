//! The value of a cookie.

use std::borrow::Cow;

use http::HeaderValue;
use http::header::COOKIE;
use percent_encoding::percent_decode;

use super::reading::{ELSEWHERE, Reading, is_alike};
use super::spelling::{Spelling, plain_cookie};
use super::{KeyExtractor, KeyMissing, KeyShape};
use crate::{Key, RequestView};

/// The reasons why a cookie that some readers drop is ambiguous.
const NO_TEXT: &str = "it is not text";
const QUOTED: &str = "it stands between quotes";
const ENCODED_TWICE: &str = "it is encoded twice";

/// The value of a cookie, decoded as axum-extra's `CookieJar` decodes it: `sid=%61bc` and `%73id=abc` are the session `abc`.
///
/// Quotes around the value do not count, since some readers remove them. The key is missing if there is no cookie of that name, or
/// if it is empty. Several cookies of one name with different values are [ambiguous](KeyMissing::ambiguous): axum-extra's jar takes
/// the last and `Cookie` of the crate `headers` the first, and a caller could show one to the limiter and another to the handler. A
/// cookie that is not text, or stands beside others that are not text, is ambiguous too: some readers drop it and others see it. So
/// is one between the quotes of another one's value: the jar sees it and `Cookie` of `headers` does not. One that is encoded twice
/// is ambiguous as well: an entry of a list could not tell it from the one that is encoded once. So is one with a blank or a comma
/// in it, where some services begin another cookie, one with a backslash, and one beside a name that some take for the same, such
/// as `Session`.
///
/// The value of a `SignedCookieJar` or `PrivateCookieJar` is the text that the caller sent: each time that the cookie is set
/// anew, it is another identity. If that matters, let an outer layer open the jar, and use an [`Extension`](super::Extension).
///
/// Any caller can send any cookie. Use one as identity only if something checks it.
///
/// ```
/// use tollgate::key::Cookie;
/// use tollgate::{OnMissing, Policy, Quota};
///
/// let policy = Policy::new("session", Quota::per_minute(60))
///     .key(Cookie::new("session"))
///     .on_missing(OnMissing::Pass);
/// ```
#[derive(Clone, Debug)]
pub struct Cookie {
    name: Box<[u8]>,
    missing: KeyMissing,
}

impl Cookie {
    /// The cookie of this decoded name. No limiter is built if the name is invalid (`"s=id"`).
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.as_bytes().into(),
            missing: KeyMissing::shared(format!("cookie {name}")),
        }
    }

    fn find<'r>(&self, request: &RequestView<'r>) -> Result<Reading<Cow<'r, [u8]>>, &'static str> {
        let (mut is_text, mut is_quoted, mut is_encoded_twice) = (true, false, false);
        let mut is_elsewhere = false;
        // Readers join the lines.
        let lines = request.headers().get_all(COOKIE);
        let are_text = lines.iter().all(|line| line.to_str().is_ok());
        let lines = lines.into_iter().map(HeaderValue::as_bytes);
        let pairs = lines.flat_map(|line| line.split(|byte| *byte == b';'));
        let mut is_open = false;
        let told = Reading::by(pairs.filter_map(|pair| {
            let begins_open = is_open;
            is_open ^= pair.iter().filter(|byte| **byte == b'"').count() % 2 == 1;
            is_elsewhere |= self.is_elsewhere(pair);
            let equals = pair.iter().position(|byte| *byte == b'=')?;
            let (name, value) = pair.split_at_checked(equals)?;
            let value = value.strip_prefix(b"=")?.trim_ascii();
            if !self.is_called(name.trim_ascii()) {
                return None;
            }
            // Python reads `\\141` as `a`.
            is_elsewhere |= value.contains(&b'\\');
            let value = plain_cookie(value);
            is_text &= are_text && str::from_utf8(&value).is_ok();
            is_quoted |= begins_open;
            is_encoded_twice |= plain_cookie(&value) != value;
            Some(value)
        }));
        match () {
            () if !is_text => Err(NO_TEXT),
            () if is_quoted => Err(QUOTED),
            () if is_encoded_twice => Err(ENCODED_TWICE),
            () if is_elsewhere => Err(ELSEWHERE),
            () => Ok(told),
        }
    }

    /// True if some reader finds the cookie where it is not, or cuts it: Python's `SimpleCookie` ends a value at a blank, and older
    /// readers at a comma.
    fn is_elsewhere(&self, pair: &[u8]) -> bool {
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        let is_end = |byte: &u8| is_blank(byte) || *byte == b',';
        // Blanks around the sign end nothing.
        let sides = pair
            .trim_ascii()
            .split(|byte| *byte == b'=')
            .map(<[u8]>::trim_ascii);
        let pair = sides.collect::<Vec<_>>().join(&b'=');
        let is_cut = pair.iter().any(is_end);
        pair.split(is_end).any(|part| {
            let equals = part.iter().position(|byte| *byte == b'=');
            let name = equals.and_then(|equals| part.get(..equals));
            name.is_some_and(|name| is_alike(name, &self.name) && (is_cut || !self.is_called(name)))
        })
    }

    /// Some readers decode names, and others do not.
    fn is_called(&self, name: &[u8]) -> bool {
        *name == *self.name
            || (name.contains(&b'%') && percent_decode(name).eq(self.name.iter().copied()))
    }
}

impl KeyExtractor for Cookie {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        match self.find(request) {
            Ok(told) => told.key(&self.missing),
            Err(why) => Err(self.missing.clone().ambiguous(why)),
        }
    }

    fn shape(&self) -> KeyShape {
        KeyShape::Spelled(Spelling::Cookie)
    }

    fn flaw(&self, _: Option<&[&str]>) -> Option<String> {
        let name = String::from_utf8_lossy(&self.name);
        let is_none = name.is_empty() || name.trim() != name || name.contains(['=', ';']);
        is_none.then(|| {
            format!(
                "cookie {name:?}: invalid name of a cookie; write the name alone, as in \"session\""
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn extract(lines: &[&[u8]]) -> Result<Key, KeyMissing> {
        let mut request = Request::new(());
        for line in lines {
            let value = HeaderValue::from_bytes(line).unwrap();
            request.headers_mut().append(COOKIE, value);
        }
        Cookie::new("session").extract(&RequestView::of(&request))
    }

    #[test]
    fn a_cookie_is_found_wherever_it_stands_and_however_it_is_written() {
        let found: &[&[&[u8]]] = &[
            &[b"session=abc"],
            &[b"other=1; session=abc; more=2"],
            &[b"other=1;session=\"abc\""],
            &[b"other=1", b"session=abc"],
            &[b"session=abc; session=abc"],
            &[b"session=abc; session=%61bc"],
            &[b"junk; =; session = abc "],
            &[b"%73ession=%61%62%63"],
            &[b"session=%22abc%22"],
            &[b"session=\"%22abc%22\""],
        ];
        for lines in found {
            assert_eq!(extract(lines), Ok(Key::from("abc")), "{lines:?}");
        }
        assert_eq!(extract(&[b"session=a=b"]), Ok(Key::from("a=b")));
        assert!(extract(&[b"session=%2561"]).is_err_and(|missing| missing.is_ambiguous()));
        assert_eq!(extract(&[b"session=\""]), Ok(Key::from("\"")));
    }

    #[test]
    fn an_empty_value_is_absent_and_two_values_are_ambiguous() {
        let absent: &[&[&[u8]]] = &[
            &[],
            &[b"session="],
            &[b"session=\"\""],
            &[b"session=; session="],
            &[b"xsession=a"],
            &[b"session"],
        ];
        for lines in absent {
            let missing = extract(lines).unwrap_err();
            assert!(!missing.is_ambiguous(), "{lines:?}");
        }
        let ambiguous: &[&[&[u8]]] = &[
            &[b"session=a; session=b"],
            &[b"session=a", b"session=b"],
            &[b"session=a; %73ession=b"],
            &[b"session=; session=b"],
            &[b"session=\xff"],
            &[b"session=%ff"],
            &[b"session=a; other=\xff"],
            &[b"other=\xff; session=a", b"session=a"],
            &[b"other=\"; session=a; more=\""],
            &[b"other=\"open; session=a"],
            &[b"other=\"open", b"session=a", b"more=\""],
            &[b"session=a", b"other=\xff"],
            &[b"Session=a"],
            &[b"session=a b"],
            &[b"session = a b"],
            &[b"session=a,b"],
            &[br"session=\141"],
            &[br#"session="\141""#],
            &[b"other=1 session=a"],
            &[b"other=1,session=a; session=a"],
            &[b"session=a; other = 1 session = b"],
        ];
        for lines in ambiguous {
            let missing = extract(lines).unwrap_err();
            assert!(missing.is_ambiguous(), "{lines:?}");
        }
    }
}
