//! Waiting times in headers: whole seconds, rounded up.

use std::time::Duration;

use http::HeaderValue;

use super::line::integer;

/// Whole seconds, rounded up, so that a caller that waits so long has waited long enough.
pub(super) fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// The wait as the caller is told. It is never 0: the caller would come back at once.
pub(super) fn told_seconds(wait: Duration) -> u64 {
    whole_seconds(wait).max(1)
}

/// The value of `Retry-After`.
pub(super) fn retry_after(seconds: u64) -> HeaderValue {
    integer(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pitfall_retry_after_of_zero_from_truncated_seconds() {
        let cases = [
            (1, "1"),
            (999_999, "1"),
            (1_000_000, "1"),
            (1_000_001, "2"),
            (0, "1"),
        ];
        for (us, expected) in cases {
            let seconds = told_seconds(Duration::from_micros(us));
            assert_eq!(retry_after(seconds), expected);
        }
    }
}
