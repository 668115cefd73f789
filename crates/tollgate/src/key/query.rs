//! A parameter of the query.

use super::form_field::decoded;
use super::{KeyExtractor, KeyMissing};
use crate::{Key, RequestView};

/// The value of a query parameter, decoded as axum's `Query` decodes it: `?user=a%20b` and `?user=a+b` are one identity, and
/// what is not UTF-8 is replaced.
///
/// It is missing if there is none of that name, if it is empty, or if there are several with different values.
///
/// Anybody can send any query. Use a parameter as identity only if something checks it.
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
    /// The parameter of this name, as it is when decoded.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            missing: KeyMissing::shared(format!("single query parameter {name}")),
        }
    }
}

impl KeyExtractor for Query {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        let query = request.uri().query().unwrap_or_default();
        match decoded(query.as_bytes(), &self.name) {
            Some(value) => Ok(Key::from(value)),
            None => Err(self.missing.clone()),
        }
    }

    fn needs_whole_request(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn extract(uri: &str) -> Option<Key> {
        let request = Request::get(uri).body(()).unwrap();
        Query::new("user").extract(&RequestView::of(&request)).ok()
    }

    #[test]
    fn a_parameter_is_its_decoded_value() {
        for uri in [
            "/?user=a+b",
            "/?x=1&user=a%20b&y",
            "/?us%65r=a+b",
            "/?user=a+b&user=a%20b",
        ] {
            assert_eq!(extract(uri), Some(Key::from("a b")), "{uri}");
        }
        assert_eq!(extract("/?user=%ff"), Some(Key::from("\u{fffd}")));
    }

    #[test]
    fn two_values_are_none_and_so_is_an_empty_one() {
        for uri in [
            "/",
            "/?",
            "/?user",
            "/?user=",
            "/?user=a&user=b",
            "/?User=a",
            "/?xuser=a",
        ] {
            assert_eq!(extract(uri), None, "{uri}");
        }
    }
}
