//! The value of a cookie.

use http::HeaderValue;
use http::header::COOKIE;

use super::{KeyExtractor, KeyMissing};
use crate::{Key, RequestView};

/// The value of a cookie, byte for byte but for quotes around it.
///
/// It is missing if there is none of that name, if it is empty, or if there are several with different values: readers of
/// cookies do not agree on which of them counts, and a caller could show one to the limiter and another to the handler. Names
/// are compared as they are, with their case, and nothing is decoded.
///
/// Anybody can send any cookie. Use one as identity only if something checks it.
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
    /// The cookie of this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.as_bytes().into(),
            missing: KeyMissing::shared(format!("single cookie {name}")),
        }
    }

    fn find<'r>(&self, request: &RequestView<'r>) -> Option<&'r [u8]> {
        let lines = request.headers().get_all(COOKIE).into_iter();
        let pairs = lines
            .map(HeaderValue::as_bytes)
            .flat_map(|line| line.split(|byte| *byte == b';'));
        let values = pairs.filter_map(|pair| {
            let equals = pair.iter().position(|byte| *byte == b'=')?;
            let (name, value) = pair.split_at_checked(equals)?;
            let value = value.strip_prefix(b"=")?.trim_ascii();
            (*name.trim_ascii() == *self.name).then(|| unquoted(value))
        });
        single(values)
    }
}

fn unquoted(value: &[u8]) -> &[u8] {
    let inner = value.strip_prefix(b"\"");
    inner
        .and_then(|inner| inner.strip_suffix(b"\""))
        .unwrap_or(value)
}

/// The one value, if there is one, not empty, however often it is there.
pub(super) fn single<T: AsRef<[u8]>>(mut values: impl Iterator<Item = T>) -> Option<T> {
    let first = values.next()?;
    let agree = values.all(|other| other.as_ref() == first.as_ref());
    (agree && !first.as_ref().is_empty()).then_some(first)
}

impl KeyExtractor for Cookie {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        match self.find(request) {
            Some(value) => Ok(Key::bytes(value)),
            None => Err(self.missing.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn extract(lines: &[&[u8]]) -> Option<Key> {
        let mut request = Request::new(());
        for line in lines {
            let value = HeaderValue::from_bytes(line).unwrap();
            request.headers_mut().append(COOKIE, value);
        }
        Cookie::new("session")
            .extract(&RequestView::of(&request))
            .ok()
    }

    #[test]
    fn a_cookie_is_found_wherever_it_stands() {
        let found: &[&[&[u8]]] = &[
            &[b"session=abc"],
            &[b"other=1; session=abc; more=2"],
            &[b"other=1;session=\"abc\""],
            &[b"other=1", b"session=abc"],
            &[b"session=abc; session=abc"],
            &[b"junk; =; session = abc "],
        ];
        for lines in found {
            assert_eq!(extract(lines), Some(Key::from("abc")), "{lines:?}");
        }
        assert_eq!(extract(&[b"session=a=b"]), Some(Key::from("a=b")));
        assert_eq!(extract(&[b"session=\xff"]), Some(Key::bytes(b"\xff")));
        assert_eq!(extract(&[b"session=%61"]), Some(Key::from("%61")));
    }

    #[test]
    fn two_values_are_none_and_so_is_an_empty_one() {
        let missing: &[&[&[u8]]] = &[
            &[],
            &[b"session=a; session=b"],
            &[b"session=a", b"session=b"],
            &[b"session="],
            &[b"session=\"\""],
            &[b"Session=a"],
            &[b"xsession=a"],
            &[b"session"],
        ];
        for lines in missing {
            assert_eq!(extract(lines), None, "{lines:?}");
        }
    }
}
