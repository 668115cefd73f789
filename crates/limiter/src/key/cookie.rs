//! The value of a cookie.

use std::borrow::Cow;

use http::header::COOKIE;
use percent_encoding::percent_decode;

use super::reading::Reading;
use super::{KeyExtractor, KeyMissing, KeyShape};
use crate::{Key, RequestView};

/// The reason why a cookie that some readers drop is ambiguous.
const NO_TEXT: &str = "it is not text";

/// The value of a cookie, decoded as axum-extra's `CookieJar` decodes it: `sid=%61bc` and `%73id=abc` are the session `abc`.
///
/// Quotes around the value do not count, since some readers remove them. The key is missing if there is no cookie of that name,
/// or if it is empty. Several cookies of one name with different values are [ambiguous](KeyMissing::ambiguous): axum-extra's jar
/// takes the last and `Cookie` of the crate `headers` the first, and a caller could show one to the limiter and another to the
/// handler. A cookie that is not text, or stands in a line that is not text, is ambiguous too: the jar drops it and other readers
/// see it. Names are case-sensitive.
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
        let mut is_text = true;
        let lines = request.headers().get_all(COOKIE).into_iter();
        let pairs = lines.flat_map(|line| {
            let is_text = line.to_str().is_ok();
            let pairs = line.as_bytes().split(|byte| *byte == b';');
            pairs.map(move |pair| (pair, is_text))
        });
        let told = Reading::by(pairs.filter_map(|(pair, is_in_text)| {
            let equals = pair.iter().position(|byte| *byte == b'=')?;
            let (name, value) = pair.split_at_checked(equals)?;
            let value = value.strip_prefix(b"=")?.trim_ascii();
            if !self.is_called(name.trim_ascii()) {
                return None;
            }
            let value = plain(value);
            is_text &= is_in_text && str::from_utf8(&value).is_ok();
            Some(value)
        }));
        if is_text { Ok(told) } else { Err(NO_TEXT) }
    }

    /// Some readers decode names, and others do not.
    fn is_called(&self, name: &[u8]) -> bool {
        *name == *self.name
            || (name.contains(&b'%') && percent_decode(name).eq(self.name.iter().copied()))
    }
}

/// The value without what some readers see and others do not. Quotes go last: they may be encoded themselves.
fn plain(value: &[u8]) -> Cow<'_, [u8]> {
    match Cow::from(percent_decode(value)) {
        Cow::Borrowed(value) => Cow::Borrowed(unquoted(value)),
        Cow::Owned(value) => Cow::Owned(unquoted(&value).to_vec()),
    }
}

fn unquoted(value: &[u8]) -> &[u8] {
    let is_quote = |byte: &u8| *byte == b'"';
    let first = value.iter().position(|byte| !is_quote(byte));
    let last = value.iter().rposition(|byte| !is_quote(byte));
    match (first, last) {
        (Some(first), Some(last)) => value.get(first..=last).unwrap_or(value),
        // Two are an empty value. Any other number is an identity.
        _ if value == b"\"\"" => b"",
        _ => value,
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
        KeyShape::Bytes
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
    use http::{HeaderValue, Request};

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
        assert_eq!(extract(&[b"session=%2561"]), Ok(Key::from("%61")));
        assert_eq!(extract(&[b"session=\""]), Ok(Key::from("\"")));
    }

    #[test]
    fn an_empty_value_is_absent_and_two_values_are_ambiguous() {
        let absent: &[&[&[u8]]] = &[
            &[],
            &[b"session="],
            &[b"session=\"\""],
            &[b"session=; session="],
            &[b"Session=a"],
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
        ];
        for lines in ambiguous {
            let missing = extract(lines).unwrap_err();
            assert!(missing.is_ambiguous(), "{lines:?}");
        }
    }
}
