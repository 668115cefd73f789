//! The forms with three headers of one number each: draft-ietf-httpapi-ratelimit-headers-06, and the headers before it.
//!
//! ```text
//! RateLimit-Limit: 100             X-RateLimit-Limit: 100
//! RateLimit-Remaining: 50          X-RateLimit-Remaining: 50
//! RateLimit-Reset: 5               X-RateLimit-Reset: 1767225605
//! ```

use http::{HeaderMap, HeaderName};

use super::super::line::integer;
use super::standing::Standing;

/// The names of the limit, of what remains, and of the time.
type Names = [HeaderName; 3];

pub(super) static DRAFT_06: Names = [
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
];

pub(super) static LEGACY: Names = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

/// Writes all three, if none of them is there.
pub(super) fn write(headers: &mut HeaderMap, names: &Names, standing: Standing) {
    if names.iter().any(|name| headers.contains_key(name)) {
        return;
    }
    let Standing {
        limit,
        remaining,
        seconds,
        ..
    } = standing;
    headers.reserve(names.len());
    for (name, number) in names.iter().zip([limit, remaining, seconds]) {
        headers.insert(name, integer(number));
    }
}
