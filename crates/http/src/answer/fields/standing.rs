//! The state of a budget, in the numbers of headers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use http::header::RETRY_AFTER;
use tollgate_core::Timestamp;
use tollgate_limiter::PolicyVerdict;

use super::super::retry_after::{told_seconds, whole_seconds};

/// The state of a budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) limit: u64,
    pub(super) remaining: u64,
    /// Whole seconds until it is full again or, to a refused caller, until it comes back.
    pub(super) seconds: u64,
    /// No time can be told: the request costs more than a full budget holds, or others hold what it needs.
    pub(super) is_timeless: bool,
    /// The exact time.
    wait: Duration,
}

impl Standing {
    /// To a refused caller nothing is left, whatever a cheaper request could still get, and the time is that of
    /// `Retry-After`, which is `told`, so that the two never disagree.
    #[inline]
    pub(super) fn of(one: &PolicyVerdict, told: Option<u64>) -> Self {
        let verdict = one.verdict();
        let stands = |remaining, wait| Self {
            limit: one.limit(),
            remaining,
            seconds: whole_seconds(wait),
            is_timeless: one.is_held(),
            wait,
        };
        if !one.refuses() {
            return stands(verdict.remaining(), verdict.reset_after());
        }
        match verdict.retry_after() {
            Some(wait) => Self {
                seconds: told.unwrap_or_else(|| whole_seconds(wait)),
                ..stands(0, wait)
            },
            None => Self {
                is_timeless: told.is_none() || !one.is_held(),
                seconds: told.unwrap_or_else(|| match one.is_held() {
                    // Forms that must state a time do not say 0: the caller would come back at once.
                    true => 1,
                    false => whole_seconds(verdict.reset_after()),
                }),
                ..stands(0, verdict.reset_after())
            },
        }
    }

    /// The state with its time since the Unix epoch, by the clock of the backend that decided `at`. If the backend failed, the
    /// clock is this machine's.
    pub(super) fn until(self, at: Option<Timestamp>) -> Self {
        let now = at.map_or_else(
            || SystemTime::now().duration_since(UNIX_EPOCH),
            |at| Ok(Duration::from_micros(at.as_micros())),
        );
        // The time is as exact as it is known, so that it does not wobble from answer to answer.
        let wait = if told_seconds(self.wait) >= self.seconds {
            self.wait
        } else {
            Duration::from_secs(self.seconds)
        };
        let until = now.unwrap_or_default().saturating_add(wait);
        Self {
            seconds: whole_seconds(until),
            ..self
        }
    }
}

/// The wait in the response to a caller that this verdict refuses. It may be longer than necessary, and an answer of the user's
/// own may state another.
#[inline]
pub(super) fn told_wait(headers: &HeaderMap, tightest: &PolicyVerdict) -> Option<u64> {
    if !tightest.refuses() {
        return None;
    }
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?;
    seconds.parse().ok()
}
