//! A parameter of the query.

use super::form_field::{is_elsewhere, values};
use super::reading::{ELSEWHERE, Reading};
use super::spelling::Spelling;
use super::{KeyExtractor, KeyMissing, KeyShape};
use crate::{Key, RequestView};

/// The value of a query parameter, decoded as axum's `Query` does: `?user=a%20b` and `?user=a+b` are one identity. Bytes that are
/// not UTF-8 are replaced.
///
/// A number, a UUID or an IPv6 address is its value, since a handler may read it as one: `?user=007`, `?user=7.0` and `?user=%2B7`
/// are the identity `7`. A UUID is in lower case with hyphens, and lists and tiers name it in that form. So are a ULID, and sixteen
/// hexadecimal digits or more, in lower case. Do not let a handler read identities as floating-point numbers: it takes neighbours
/// above 2^53 for one, and as `f32` above 2^24, and these are several identities here.
///
/// The key is missing if there is no parameter of that name, or if it is empty. Several parameters with different values are
/// [ambiguous](KeyMissing::ambiguous): axum's `Query` takes the last or refuses, and axum-extra's takes all. So is one with a `;`
/// in it, where some services begin another parameter, and one beside a name that some services take for the same: `User`, or
/// `user.id` for `user_id`.
///
/// Any caller can send any query. Use a parameter as identity only if something checks it.
///
/// ```
/// use tollgate::key::Query;
/// use tollgate::{Policy, Quota};
///
/// let policy = Policy::new("lookup", Quota::per_minute(30)).route("/lookup").key(Query::new("user"));
/// ```
#[derive(Clone, Debug)]
pub struct Query {
    name: Box<str>,
    missing: KeyMissing,
}

impl Query {
    /// The parameter of this decoded name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            missing: KeyMissing::shared(format!("query parameter {name}")),
        }
    }
}

impl KeyExtractor for Query {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        let query = request.uri().query().unwrap_or_default();
        if is_elsewhere(query.as_bytes(), &self.name) {
            return Err(self.missing.clone().ambiguous(ELSEWHERE));
        }
        Reading::by(values(query.as_bytes(), &self.name)).key(&self.missing)
    }

    fn needs_whole_request(&self) -> bool {
        true
    }

    fn shape(&self) -> KeyShape {
        KeyShape::Spelled(Spelling::Typed)
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn extract(uri: &str) -> Result<Key, KeyMissing> {
        let request = Request::get(uri).body(()).unwrap();
        Query::new("user").extract(&RequestView::of(&request))
    }

    #[test]
    fn a_parameter_is_its_decoded_value() {
        for uri in [
            "/?user=a+b",
            "/?x=1&user=a%20b&y",
            "/?us%65r=a+b",
            "/?user=a+b&user=a%20b",
        ] {
            assert_eq!(extract(uri), Ok(Key::from("a b")), "{uri}");
        }
        assert_eq!(extract("/?user=%ff"), Ok(Key::from("\u{fffd}")));
    }

    #[test]
    fn an_empty_value_is_absent_and_two_values_are_ambiguous() {
        for uri in ["/", "/?", "/?user", "/?user=", "/?xuser=a", "/?x=;y"] {
            assert!(!extract(uri).unwrap_err().is_ambiguous(), "{uri}");
        }
        for uri in ["/?user=a&user=b", "/?user&user=b", "/?user=a&us%65r="] {
            assert!(extract(uri).unwrap_err().is_ambiguous(), "{uri}");
        }
    }

    #[test]
    fn a_parameter_that_services_find_elsewhere_is_ambiguous() {
        for uri in [
            "/?user=a;b",
            "/?x=1;user=a",
            "/?user=a;user=a",
            "/?User=a",
            "/?user=a&%20user=b",
            "/?user=a&us%65R=b",
        ] {
            let said = extract(uri).unwrap_err();
            assert!(said.is_ambiguous(), "{uri}");
        }
        let request = Request::get("/?user_id=a&user.id=b").body(()).unwrap();
        let said = Query::new("user_id").extract(&RequestView::of(&request));
        assert!(said.unwrap_err().is_ambiguous());
        assert_eq!(extract("/?user=a%3Bb&x=1;2"), Ok(Key::from("a;b")));
    }
}
