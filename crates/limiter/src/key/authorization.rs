//! Reads `Authorization`.

use http::HeaderValue;
use http::header::AUTHORIZATION;

use super::reading::Reading;
use crate::RequestView;

/// The text behind the scheme, without blanks around it. Schemes are case-insensitive. RFC 9110 has one space behind them, and
/// readers accept any number. Lines that differ are ambiguous: a reader looks at one of them, and readers differ about which.
pub(super) fn credentials<'r>(request: &RequestView<'r>, scheme: &str) -> Reading<&'r [u8]> {
    let lines = request.headers().get_all(AUTHORIZATION).into_iter();
    let lines = lines.map(HeaderValue::as_bytes);
    // Another scheme says as much as an empty value.
    Reading::by(lines.map(|line| behind(scheme, line.trim_ascii()).unwrap_or_default()))
}

fn behind<'r>(scheme: &str, line: &'r [u8]) -> Option<&'r [u8]> {
    let (start, rest) = line.split_at_checked(scheme.len())?;
    let is_scheme = start.eq_ignore_ascii_case(scheme.as_bytes());
    let rest = rest
        .strip_prefix(b" ")
        .or_else(|| rest.strip_prefix(b"\t"))?;
    is_scheme.then(|| rest.trim_ascii())
}
