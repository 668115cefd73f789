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
    let read = |line: &'r [u8]| {
        let line = line.trim_ascii();
        // Another scheme says as much as an empty value.
        let value = behind(scheme, line).unwrap_or_default();
        // Some readers find nothing behind a tab.
        let is_lenient = line.get(scheme.len()) == Some(&b'\t');
        [Some(value), is_lenient.then_some(&b""[..])]
    };
    Reading::by(lines.flat_map(read).flatten())
}

fn behind<'r>(scheme: &str, line: &'r [u8]) -> Option<&'r [u8]> {
    let (start, rest) = line.split_at_checked(scheme.len())?;
    let is_scheme = start.eq_ignore_ascii_case(scheme.as_bytes());
    let is_apart = matches!(rest, [b' ' | b'\t', ..]);
    (is_scheme && is_apart).then(|| rest.trim_ascii())
}
