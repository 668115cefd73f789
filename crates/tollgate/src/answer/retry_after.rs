//! Waiting times as headers say them: whole seconds, rounded up.

use std::time::Duration;

use http::HeaderValue;

/// Whole seconds, rounded up: who waits so long has waited long enough.
pub(super) fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// The value of `Retry-After`. Never 0: a caller told to come back at once would.
pub(super) fn retry_after(wait: Duration) -> HeaderValue {
    // `HeaderValue::from` a number works for numbers of any size, at three times the price.
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(whole_seconds(wait).max(1));
    HeaderValue::from_str(digits).unwrap_or_else(|_| HeaderValue::from_static("1"))
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
            assert_eq!(retry_after(Duration::from_micros(us)), expected);
        }
    }
}
