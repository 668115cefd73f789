//! The time that a gRPC caller waits for an answer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::HeaderName;
use tokio::time::{Sleep, sleep};
use tollgate_limiter::RequestView;

use crate::answer::Dialect;

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The caller's deadline, counted from when it was read. tonic's server enforces it by itself, and a router of axum's does not.
pub struct Deadline(Pin<Box<Sleep>>);

impl Deadline {
    /// `None` if the caller speaks no gRPC or states no deadline.
    pub fn of(request: &RequestView<'_>) -> Option<Self> {
        Dialect::of(request)?;
        let timeout = parse(request.headers().get(GRPC_TIMEOUT)?.as_bytes())?;
        Some(Self(Box::pin(sleep(timeout))))
    }

    /// Ready when it has passed.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
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

impl fmt::Debug for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Deadline")
    }
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
}
