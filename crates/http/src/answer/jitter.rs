//! A random extra wait, so that callers that were refused together do not come back together.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tollgate_limiter::Share;

/// A random extra wait for refused callers, so that they do not all come back at once.
///
/// Each refusal adds a random time to its `Retry-After`, between zero and a maximum. A caller is never told to come back before
/// it would pass. The maximum is a time or a share of the wait:
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Jitter, Quota, RateLimitLayer, Share};
///
/// let layer = RateLimitLayer::new(Quota::per_minute(100)).jitter(Duration::from_secs(5));
/// let a_quarter: Jitter = Share::one_in(4).into();
/// let layer = RateLimitLayer::new(Quota::per_hour(100)).jitter(a_quarter);
/// ```
///
/// `Retry-After` has whole seconds, so a jitter of less than one seldom shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter(JitterBound);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JitterBound {
    Time(Duration),
    Share(Share),
}

/// At most this much.
impl From<Duration> for Jitter {
    fn from(most: Duration) -> Self {
        Self(JitterBound::Time(most))
    }
}

/// At most this share of the wait.
impl From<Share> for Jitter {
    fn from(most: Share) -> Self {
        Self(JitterBound::Share(most))
    }
}

/// A jitter, with the number that was drawn this time.
#[derive(Clone, Copy, Debug)]
pub(super) struct JitterDraw {
    jitter: Jitter,
    chance: u64,
}

impl Jitter {
    /// At most this share of the wait.
    pub(super) const fn share(most: Share) -> Self {
        Self(JitterBound::Share(most))
    }

    pub(super) fn draw(self) -> JitterDraw {
        JitterDraw {
            jitter: self,
            chance: chance(),
        }
    }
}

impl JitterDraw {
    /// The wait that the caller is told.
    pub(super) fn lengthen(self, wait: Duration) -> Duration {
        let most_us = match self.jitter.0 {
            JitterBound::Time(most) => most.as_micros(),
            JitterBound::Share(share) => share.part_of(wait.as_micros()),
        };
        // `chance` is a part of 2^64, and below the whole: at most `most_us` is added.
        let most_us = u64::try_from(most_us).unwrap_or(u64::MAX);
        let more_us = ((u128::from(most_us) + 1) * u128::from(self.chance)) >> u64::BITS;
        let more_us = u64::try_from(more_us).unwrap_or(u64::MAX);
        wait.saturating_add(Duration::from_micros(more_us))
    }
}

/// A number that is hard to guess without effort: a sequence of the thread's own (SplitMix64), with a random start.
fn chance() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
    }
    // A thread that ends has no sequence any more.
    let state = STATE.try_with(|state| {
        state.set(state.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        state.get()
    });
    let mut z = state.unwrap_or_default();
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn chance_reaches_from_nothing_to_the_most() {
        let told = |jitter: Jitter, chance| JitterDraw { jitter, chance }.lengthen(SECOND * 8);
        for (jitter, most) in [
            (Jitter::from(SECOND * 3), SECOND * 3),
            (Jitter::from(Share::one_in(4)), SECOND * 2),
            (Jitter::from(Duration::ZERO), Duration::ZERO),
        ] {
            assert_eq!(told(jitter, 0), SECOND * 8);
            assert_eq!(told(jitter, u64::MAX), SECOND * 8 + most);
        }
    }

    #[test]
    fn chance_is_spread_evenly() {
        // given a thousand draws, in ten parts of the whole
        let mut parts = [0; 10];
        for _ in 0..1000 {
            let part = (u128::from(chance()) * 10) >> u64::BITS;
            parts[usize::try_from(part).unwrap()] += 1;
        }
        // then no part has half or twice what it should: once in some ten million runs one does
        assert!(parts.iter().all(|n| (50..200).contains(n)), "{parts:?}");
    }

    proptest! {
        #[test]
        fn nobody_is_told_to_come_back_early_or_later_than_stated(
            wait_us in 1..=u64::MAX / 4,
            most_us in 0..=u64::MAX / 4,
            chance: u64,
        ) {
            let (wait, most) = (Duration::from_micros(wait_us), Duration::from_micros(most_us));
            let told = JitterDraw { jitter: most.into(), chance }.lengthen(wait);
            prop_assert!(wait <= told && told <= wait + most);
        }
    }
}
