//! The value of a header.

use http::HeaderName;
use http::header::{HOST, InvalidHeaderName};

use super::reading::SEVERAL;
use super::spelling::Spelling;
use super::{KeyExtractor, KeyMissing, KeyShape};
use crate::literal::literal;
use crate::{Key, RequestView};

/// The value of a header, such as an API key or a session, byte for byte. Blanks around it do not count: HTTP/1 removes them and
/// HTTP/2 does not.
///
/// The first of several lines counts, which is the line that `HeaderMap::get` shows to a handler. An empty value is missing; if a
/// later line is not empty, it is [ambiguous](KeyMissing::ambiguous). The value need not be UTF-8. A value of any length takes at
/// most [`Key::MAX_LEN`] bytes.
///
/// Any caller can send any header. Use one as identity only if something checks it: with unchecked values, a caller has as many
/// budgets as there are values.
///
/// ```
/// use tollgate::key::Header;
/// use tollgate::{OnMissing, Policy, Quota};
///
/// let api = Policy::new("api", Quota::per_second(10))
///     .key(Header::new("x-api-key"))
///     .on_missing(OnMissing::Deny);
/// ```
#[derive(Clone, Debug)]
pub struct Header {
    name: HeaderName,
    missing: KeyMissing,
}

impl Header {
    /// The header of this name.
    ///
    /// # Panics
    ///
    /// While it is built, if `name` is not a header name. Names from outside go through [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub fn new(name: &str) -> Self {
        literal(Self::try_new(name).map_err(|error| format!("header {name:?}: {error}")))
    }

    /// The header of this name.
    ///
    /// ```
    /// use tollgate::key::Header;
    ///
    /// let named_by_an_operator = "x api key";
    /// assert!(Header::try_new(named_by_an_operator).is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// If `name` is not a header name.
    pub fn try_new(name: &str) -> Result<Self, InvalidHeaderName> {
        let name: HeaderName = name.parse()?;
        let missing = KeyMissing::shared(format!("header {name}"));
        Ok(Self { name, missing })
    }
}

impl KeyExtractor for Header {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        let first = request.headers().get(&self.name);
        let first = first.map_or(&b""[..], |line| line.as_bytes().trim_ascii());
        if !first.is_empty() {
            return Ok(Key::bytes(first));
        }
        let mut lines = request.headers().get_all(&self.name).into_iter();
        if lines.any(|line| !line.as_bytes().trim_ascii().is_empty()) {
            return Err(self.missing.clone().ambiguous(SEVERAL));
        }
        Err(self.missing.clone())
    }

    /// The line that a handler sees is the first, and the one that a proxy sets may be the last.
    fn extract_class(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        let lines = request.headers().get_all(&self.name).into_iter();
        let mut lines = lines.map(|line| line.as_bytes().trim_ascii());
        let first = lines.next();
        if lines.any(|line| Some(line) != first) {
            return Err(self.missing.clone().ambiguous(SEVERAL));
        }
        self.extract(request)
    }

    fn shape(&self) -> KeyShape {
        KeyShape::Spelled(Spelling::Field)
    }

    fn flaw(&self, _: Option<&[&str]>) -> Option<String> {
        (self.name == HOST).then(|| {
            "header \"host\": requests over HTTP/2 have none; use the key of the host".to_owned()
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
            request
                .headers_mut()
                .append("x-api-key", HeaderValue::from_bytes(line).unwrap());
        }
        Header::new("X-Api-Key").extract(&RequestView::of(&request))
    }

    #[test]
    fn values_that_are_not_utf_8_are_identities_like_any_other() {
        assert_eq!(extract(&[b"\xff\xfe"]), Ok(Key::bytes(b"\xff\xfe")));
        assert_ne!(extract(&[b"\xff\xfe"]), extract(&[b"\xff\xfd"]));
    }

    #[test]
    fn of_several_lines_the_first_counts() {
        assert_eq!(extract(&[b"a", b"b"]), extract(&[b"a"]));
    }

    #[test]
    fn an_empty_value_is_a_missing_one_unless_a_later_line_has_another() {
        for lines in [&[b"".as_slice()][..], &[b" \t"], &[b"", b" "], &[]] {
            assert_eq!(
                extract(lines).unwrap_err().to_string(),
                "no header x-api-key in the request"
            );
        }
        assert!(extract(&[b"", b"a"]).unwrap_err().is_ambiguous());
    }

    #[test]
    fn blanks_around_a_value_are_no_part_of_it() {
        for line in [&b" a"[..], b"a ", b"\t a\t"] {
            assert_eq!(extract(&[line]), extract(&[b"a"]));
        }
        assert_ne!(extract(&[b"a b"]), extract(&[b"ab"]));
    }

    #[test]
    fn a_value_of_a_megabyte_costs_no_more_than_a_short_one() {
        let key = extract(&[&vec![b'x'; 1 << 20]]).unwrap();
        assert!(key.as_bytes().len() <= Key::MAX_LEN);
    }

    #[test]
    #[should_panic(expected = "header \"x api key\"")]
    fn a_name_that_is_none_is_refused_while_it_is_built() {
        drop(Header::new("x api key"));
    }
}
