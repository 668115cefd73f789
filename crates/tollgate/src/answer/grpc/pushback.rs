//! When a client may retry by itself (gRFC A6).

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use http::HeaderValue;

use crate::{Refusal, RefusalReason};

/// What tells a client not to retry.
const NEVER: HeaderValue = HeaderValue::from_static("-1");

/// What chance adds to a wait, out of all that it could.
#[derive(Clone, Copy, Debug)]
pub(super) struct Jitter(u16);

impl Jitter {
    pub(super) fn draw() -> Self {
        // Each state hashes with keys of its own, from a sequence that begins anywhere.
        let [high, low, ..] = RandomState::new().hash_one(0).to_be_bytes();
        Self(u16::from_be_bytes([high, low]))
    }

    /// At least the wait, and up to a tenth more.
    fn lengthen(self, wait: Duration) -> Option<Duration> {
        let more = wait.as_micros() / 10 * u128::from(self.0) / u128::from(u16::MAX);
        wait.checked_add(Duration::from_micros(u64::try_from(more).ok()?))
    }
}

/// The value of `grpc-retry-pushback-ms`; none where no waiting has a known end, and the client's own backoff is as good.
pub(super) fn pushback(refusal: &Refusal<'_>, jitter: Jitter) -> Option<HeaderValue> {
    match refusal.reason() {
        RefusalReason::QuotaExceeded => Some(value(refusal.retry_after(), jitter)),
        RefusalReason::Undecided => None,
        RefusalReason::Unidentified(_) | RefusalReason::Blocked(_) => Some(NEVER),
    }
}

/// Whole milliseconds, rounded up. The field holds 32 bits, which is 24 days: a client that is to wait longer should not
/// wait at all, since the field could only send it back too early.
fn value(wait: Option<Duration>, jitter: Jitter) -> HeaderValue {
    let ms = wait
        .and_then(|wait| jitter.lengthen(wait))
        .map(|wait| wait.as_micros().div_ceil(1000).max(1))
        .and_then(|ms| i32::try_from(ms).ok());
    ms.map_or(NEVER, HeaderValue::from)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn told(wait: Duration, jitter: u16) -> i64 {
        let value = value(Some(wait), Jitter(jitter));
        value.to_str().unwrap().parse().unwrap()
    }

    proptest! {
        #[test]
        fn nobody_is_sent_back_early_or_much_too_late(wait_us in 1_u64..1 << 60, jitter: u16) {
            let told_ms = told(Duration::from_micros(wait_us), jitter);
            if told_ms < 0 {
                prop_assert!(wait_us + wait_us / 10 > (i32::MAX as u64 - 1) * 1000);
            } else {
                let told_us = told_ms.unsigned_abs() * 1000;
                prop_assert!(wait_us <= told_us && told_us <= wait_us + wait_us / 10 + 1000);
            }
        }
    }

    #[test]
    fn a_wait_that_the_field_cannot_say_or_that_has_no_end_is_never() {
        assert_eq!(
            told(Duration::from_millis(i32::MAX as u64), 0),
            2_147_483_647
        );
        assert_eq!(told(Duration::from_millis(i32::MAX as u64 + 1), 0), -1);
        assert_eq!(told(Duration::MAX, u16::MAX), -1);
        assert_eq!(value(None, Jitter(0)), "-1");
    }

    #[test]
    fn chance_is_not_always_the_same() {
        let first = Jitter::draw().0;
        assert!((0..100).any(|_| Jitter::draw().0 != first));
    }
}
