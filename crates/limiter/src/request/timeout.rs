//! The time that a caller waits for an answer, as far as it says so.

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use tokio::time::Instant;

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The time at which the caller goes away, as read by the first limiter that let the request wait. It travels with the request, so
/// that limits further in do not count the deadline anew.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallerDeadline(pub(crate) Instant);

/// The time that the gRPC caller of these headers waits. tonic's server enforces it by itself, and a router of axum's does not.
#[must_use]
pub fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    parse(headers.get(GRPC_TIMEOUT)?.as_bytes())
}

/// The time that the caller waits by a header with a whole number of milliseconds. An invalid one states nothing.
pub(crate) fn millis(headers: &HeaderMap, name: &HeaderName) -> Option<Duration> {
    let text = headers.get(name)?.to_str().ok()?.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(())?;
    Some(Duration::from_millis(text.parse().unwrap_or(u64::MAX)))
}

/// Reads at most eight digits and a unit. An invalid text states nothing, as for tonic.
fn parse(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits
        .iter()
        .fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(number * 60 * 60),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_digits_and_a_unit() {
        let cases = [
            ("1H", Some(Duration::from_secs(3_600))),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("40m", Some(Duration::from_millis(40))),
            ("50u", Some(Duration::from_micros(50))),
            ("60n", Some(Duration::from_nanos(60))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3_600))),
            ("0S", Some(Duration::ZERO)),
            ("", None),
            ("S", None),
            ("1", None),
            ("1s", None),
            ("-1S", None),
            ("1 S", None),
            ("999999999S", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn milliseconds_are_digits() {
        let name = HeaderName::from_static("x-timeout-ms");
        let cases = [
            ("250", Some(Duration::from_millis(250))),
            (" 0 ", Some(Duration::ZERO)),
            (
                "99999999999999999999",
                Some(Duration::from_millis(u64::MAX)),
            ),
            ("", None),
            ("+5", None),
            ("1.5", None),
            ("5ms", None),
        ];
        for (text, expected) in cases {
            let headers = [(name.clone(), text.parse().expect("a value"))];
            let headers: HeaderMap = headers.into_iter().collect();
            assert_eq!(millis(&headers, &name), expected, "{text:?}");
        }
        assert_eq!(millis(&HeaderMap::new(), &name), None);
    }
}
