//! What stands in `Authorization`.

use http::HeaderValue;
use http::header::AUTHORIZATION;

use super::reading::Reading;
use crate::RequestView;

/// What follows the scheme, without blanks around it. Schemes have no case, and RFC 9110 has one space behind them, of which
/// readers take any number. Lines that do not say the same are several: no reader looks at more than one, and which one is theirs
/// to choose.
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
