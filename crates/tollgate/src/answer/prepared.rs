//! Headers that are prepared once and copied for each answer.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use super::fields::{RATE_LIMIT, RATE_LIMIT_POLICY, state};
use super::problem::{PROBLEM_JSON, problem_body};
use super::rendered::{About, Says, copy_headers, render_headers};
use super::retry_after::retry_after;
use crate::report::PolicyVerdict;

/// A map of headers of which the first few change from answer to answer.
///
/// Copying a map takes a fraction of what building one does: nothing is hashed, and nothing grows.
#[derive(Clone, Debug)]
pub(super) struct Prepared(HeaderMap);

impl Prepared {
    /// Headers of different names, those that change first.
    pub(super) fn new<const N: usize>(headers: [(HeaderName, HeaderValue); N]) -> Self {
        let mut map = HeaderMap::with_capacity(N);
        for (name, value) in headers {
            map.append(name, value);
        }
        Self(map)
    }

    /// Makes `headers` a copy in which the first have these values, in their order.
    #[inline]
    pub(super) fn copy_to<const N: usize>(
        &self,
        headers: &mut HeaderMap,
        values: [HeaderValue; N],
    ) {
        copy_headers(headers, &self.0);
        // In the order in which they were put in: nothing was ever taken out.
        let mut changing = headers.values_mut();
        for value in values {
            if let Some(header) = changing.next() {
                *header = value;
            }
        }
    }
}

/// What the answers have in common that say that one quota was exceeded, and no other took part.
#[derive(Debug)]
pub(super) struct PreparedRefusal {
    /// The body.
    pub(super) problem: String,
    /// What changes is the RateLimit field and `Retry-After`.
    pub(super) with_fields: Prepared,
    /// What changes is `Retry-After`.
    pub(super) without: Prepared,
}

impl PreparedRefusal {
    /// For the quota of this name, and with this member of the `RateLimit-Policy` field.
    pub(super) fn of(name: &str, member: &HeaderValue) -> Self {
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

    /// The answer to a caller who is to come back in so many seconds.
    #[inline]
    pub(super) fn response<R>(
        &'static self,
        sole: &PolicyVerdict,
        seconds: u64,
        has_fields: bool,
        body: fn(Bytes) -> R,
    ) -> Response<R> {
        let problem = Bytes::from_static(self.problem.as_bytes());
        let mut response = Response::new(body(problem));
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        self.write(response.headers_mut(), sole, seconds, has_fields);
        response
    }

    fn write(
        &'static self,
        headers: &mut HeaderMap,
        sole: &PolicyVerdict,
        seconds: u64,
        has_fields: bool,
    ) {
        let prepared = if has_fields {
            &self.with_fields
        } else {
            &self.without
        };
        let says = Says {
            about: About::of(prepared),
            number: 0,
            seconds,
        };
        render_headers(headers, says, |headers| {
            let retry_after = retry_after(seconds);
            if has_fields {
                prepared.copy_to(headers, [state(sole, Some(seconds)), retry_after]);
            } else {
                prepared.copy_to(headers, [retry_after]);
            }
        });
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
        prepared.copy_to(&mut headers, [value("one"), value("two")]);

        let values = names.map(|name| headers[name].clone());
        assert_eq!(values, ["one", "two", "as it was", "as it was"]);
        assert_eq!(headers.len(), 4);
    }
}
