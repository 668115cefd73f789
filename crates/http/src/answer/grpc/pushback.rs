//! The time after which a client may retry by itself (gRFC A6).

use std::time::Duration;

use http::HeaderValue;
use tollgate_limiter::{Block, Share};

use crate::answer::Jitter;
use crate::{Refusal, RefusalReason};

/// The value that tells a client not to retry.
const NEVER: HeaderValue = HeaderValue::from_static("-1");

/// The value of `grpc-retry-pushback-ms`; none where no waiting has a known end, and the client's own backoff is as good.
pub(super) fn pushback(refusal: &Refusal<'_>) -> Option<HeaderValue> {
    match refusal.reason() {
        RefusalReason::QuotaExceeded if refusal.never_passes() => Some(NEVER),
        RefusalReason::Banned(Block::Forbidden) => Some(NEVER),
        RefusalReason::QuotaExceeded
        | RefusalReason::Banned(Block::TooManyRequests)
        | RefusalReason::Shed(_) => refusal.retry_after().map(|wait| {
            if refusal.has_jitter() {
                value(wait)
            } else {
                value(Jitter::from(Share::one_in(10)).draw().lengthen(wait))
            }
        }),
        RefusalReason::Undecided => None,
        RefusalReason::Unidentified(_) | RefusalReason::Blocked(_) => Some(NEVER),
    }
}

/// Whole milliseconds, rounded up. The field holds 32 bits, which is 24 days: a client that is to wait longer should not
/// wait at all, since the field could only send it back too early.
fn value(wait: Duration) -> HeaderValue {
    let ms = wait.as_nanos().div_ceil(1_000_000).max(1);
    i32::try_from(ms).map_or(NEVER, HeaderValue::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_back_early_and_what_the_field_cannot_say_is_never() {
        let cases = [
            (Duration::ZERO, "1"),
            (Duration::from_nanos(1), "1"),
            (Duration::from_micros(1_000), "1"),
            (Duration::from_micros(1_001), "2"),
            (Duration::from_millis(2_147_483_647), "2147483647"),
            (Duration::from_micros(2_147_483_647_001), "-1"),
            (Duration::MAX, "-1"),
        ];
        for (wait, expected) in cases {
            assert_eq!(value(wait), expected, "{wait:?}");
        }
    }
}
