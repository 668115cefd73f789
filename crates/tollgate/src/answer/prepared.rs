//! Headers that are prepared once and copied for each answer.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, ValuesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::fields::{RATE_LIMIT, RATE_LIMIT_POLICY};
use super::problem::{PROBLEM_JSON, problem_body};

/// A map of headers of which the first few change from answer to answer.
///
/// Copying a map takes a fraction of what building one does: nothing is hashed, and nothing grows.
#[derive(Clone, Debug)]
pub(crate) struct Prepared(HeaderMap);

impl Prepared {
    /// Headers of different names, those that change first.
    pub(crate) fn new<const N: usize>(headers: [(HeaderName, HeaderValue); N]) -> Self {
        let mut map = HeaderMap::with_capacity(N);
        for (name, value) in headers {
            map.append(name, value);
        }
        Self(map)
    }

    /// Makes `headers` a copy, and shows the values that change, in their order.
    #[inline]
    pub(crate) fn copy_to<'a>(&self, headers: &'a mut HeaderMap) -> ValuesMut<'a, HeaderValue> {
        headers.clone_from(&self.0);
        // In the order in which they were put in: nothing was ever taken out.
        headers.values_mut()
    }
}

/// What the answers have in common that say that one quota was exceeded, and no other took part.
#[derive(Debug)]
pub(crate) struct PreparedRefusal {
    /// The body.
    pub(super) problem: String,
    /// What changes is the RateLimit field and `Retry-After`.
    pub(super) with_fields: Prepared,
    /// What changes is `Retry-After`.
    pub(super) without: Prepared,
}

impl PreparedRefusal {
    /// For the quota of this name, and with this member of the `RateLimit-Policy` field.
    pub(crate) fn of(name: &str, member: &HeaderValue) -> Self {
        let changes = HeaderValue::from_static("");
        Self {
            problem: problem_body([name]),
            with_fields: Prepared::new([
                (RATE_LIMIT, changes.clone()),
                (RETRY_AFTER, changes.clone()),
                (RATE_LIMIT_POLICY, member.clone()),
                (CONTENT_TYPE, PROBLEM_JSON),
                (CACHE_CONTROL, NO_STORE),
            ]),
            without: Prepared::new([
                (RETRY_AFTER, changes),
                (CONTENT_TYPE, PROBLEM_JSON),
                (CACHE_CONTROL, NO_STORE),
            ]),
        }
    }
}

pub(super) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_headers_get_the_values_in_their_order() {
        let value = HeaderValue::from_static;
        let names = [
            HeaderName::from_static("ratelimit"),
            RETRY_AFTER,
            CONTENT_TYPE,
            CACHE_CONTROL,
        ];
        let prepared = Prepared::new(names.clone().map(|name| (name, value("as it was"))));

        let mut headers = HeaderMap::new();
        let mut changing = prepared.copy_to(&mut headers);
        *changing.next().unwrap() = value("one");
        *changing.next().unwrap() = value("two");

        let values = names.map(|name| headers[name].clone());
        assert_eq!(values, ["one", "two", "as it was", "as it was"]);
        assert_eq!(headers.len(), 4);
    }
}
