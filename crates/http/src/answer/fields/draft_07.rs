//! The fields of draft-ietf-httpapi-ratelimit-headers-07.
//!
//! ```text
//! RateLimit-Policy: 100;w=60, 1000;w=86400
//! RateLimit: limit=100, remaining=50, reset=5
//! ```

use http::HeaderMap;
use tollgate_limiter::transport::Report;

use super::super::line::{Line, list};
use super::standing::Standing;
use super::{RATE_LIMIT, RATE_LIMIT_POLICY, has_fields, quotas};
use crate::answer::HeaderForm;
use crate::answer::texts::texts;

/// Writes both fields, if none of them is there.
pub(super) fn write(headers: &mut HeaderMap, report: Report<'_>, standing: Standing) {
    if has_fields(headers, HeaderForm::Draft07) {
        return;
    }
    let mut line = Line::new();
    line.text("limit=");
    line.integer(standing.limit);
    line.text(", remaining=");
    line.integer(standing.remaining);
    line.text(", reset=");
    line.integer(standing.seconds);
    headers.insert(RATE_LIMIT, line.value());
    let members = quotas(report);
    let members = members
        .iter()
        .map(|label| texts(label).plain_member.clone());
    headers.insert(RATE_LIMIT_POLICY, list(members));
}
