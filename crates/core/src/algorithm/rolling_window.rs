//! A count for each of the last k parts of the period, epoch-anchored. The sum over them is held to the limit.

use super::{Budget, Decider, Passage, Point, Snapshot, count_up};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RollingWindow {
    pub(crate) limit: u64,
    pub(crate) buckets: u32,
    bucket_us: u64,
}

/// The counts, each at its bucket's number modulo their number; behind them the number of the newest bucket. They take one
/// allocation, and two words in the state.
#[derive(Clone, Debug)]
pub(super) struct BucketCounts(Box<[u64]>);

impl RollingWindow {
    /// The period must be a multiple of the number of buckets.
    pub(crate) const fn new(limit: u64, period_us: u64, buckets: u32) -> Self {
        Self {
            limit,
            buckets,
            bucket_us: period_us / buckets as u64,
        }
    }

    pub(super) const fn period_us(&self) -> u64 {
        self.bucket_us * self.buckets as u64
    }

    fn bucket(&self, time: u64) -> u64 {
        time / self.bucket_us
    }

    /// The time until the bucket that is `age` older than the newest one stops counting.
    fn expires_after(&self, state: &BucketCounts, now: u64, age: u64) -> u64 {
        (state.newest() - age + u64::from(self.buckets)) * self.bucket_us - now
    }
}

impl BucketCounts {
    /// An empty window.
    pub(super) fn of(buckets: u32) -> Self {
        Self(vec![0; buckets as usize + 1].into())
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot::RollingWindow {
            newest: self.newest(),
            counts: self.counts().to_vec(),
        }
    }

    pub(super) fn restore(newest: u64, mut counts: Vec<u64>) -> Self {
        counts.push(newest);
        Self(counts.into())
    }

    pub(super) fn fits(&self, rule: &RollingWindow) -> bool {
        self.0.len() == rule.buckets as usize + 1
    }

    fn buckets(&self) -> u64 {
        self.0.len() as u64 - 1
    }

    fn newest(&self) -> u64 {
        self.0.last().copied().unwrap_or(0)
    }

    fn set_newest(&mut self, bucket: u64) {
        if let Some(last) = self.0.last_mut() {
            *last = bucket;
        }
    }

    fn counts(&self) -> &[u64] {
        &self.0[..self.0.len() - 1]
    }

    /// The count of the bucket of this number, which must be one of the last k.
    fn count_mut(&mut self, bucket: u64) -> &mut u64 {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "below the number of buckets, 128"
        )]
        let index = (bucket % self.buckets()) as usize;
        &mut self.0[index]
    }

    fn sum(&self) -> u64 {
        self.counts().iter().sum()
    }

    /// The ages and counts of the buckets that are not empty, the oldest first.
    fn aged(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        let (newest, buckets) = (self.newest(), self.buckets());
        (0..buckets.min(newest + 1)).rev().filter_map(move |age| {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "below the number of buckets, 128"
            )]
            let count = self.0[((newest - age) % buckets) as usize];
            (count > 0).then_some((age, count))
        })
    }

    /// One period after it stops counting, because a clock that is less than a period behind may come back to it.
    pub(super) fn meaningless_at(&self, period_us: u64, buckets: u32) -> u64 {
        let bucket_us = period_us / u64::from(buckets);
        match self.aged().next_back() {
            Some((age, _)) => (self.newest() - age + u64::from(buckets)) * bucket_us + period_us,
            None if self.newest() == 0 => 0,
            None => self.newest() * bucket_us + period_us,
        }
    }
}

impl Decider for RollingWindow {
    type State = BucketCounts;

    fn advance(&self, state: &mut BucketCounts, now: u64) {
        let (bucket, newest) = (self.bucket(now), state.newest());
        if newest < bucket {
            let expired = (bucket - newest).min(state.buckets());
            for passed in bucket - expired + 1..=bucket {
                *state.count_mut(passed) = 0;
            }
            state.set_newest(bucket);
        } else if newest > bucket + state.buckets() {
            // The clock stepped back. A step of a period or more moves the counts along: the newest goes to the bucket of now.
            // After a smaller step they stay, for moved counts would be too old once the clock is back where it was.
            let aged: Vec<_> = state.aged().collect();
            state.0.fill(0);
            for (age, count) in aged {
                *state.count_mut(bucket.saturating_sub(age)) += count;
            }
            state.set_newest(bucket);
        }
    }

    fn passage(&self, state: &mut BucketCounts, now: u64, cost: u64) -> Passage {
        if cost == 0 {
            return Passage::Open;
        }
        if cost > self.limit {
            return Passage::NEVER;
        }
        let mut sum = state.sum();
        let most = self.limit - cost;
        if sum <= most {
            return Passage::Open;
        }
        let mut oldest_left = 0;
        for (age, count) in state.aged() {
            oldest_left = age;
            sum -= count;
            if sum <= most {
                break;
            }
        }
        Passage::after(self.expires_after(state, now, oldest_left))
    }

    fn take(&self, state: &mut BucketCounts, _now: u64, cost: u64) {
        let sum = state.sum();
        *state.count_mut(state.newest()) += count_up(sum, cost, self.limit) - sum;
    }

    fn give_back(&self, state: &mut BucketCounts, now: u64, at: u64, _full_at: Point, cost: u64) {
        let charged = self.bucket(at);
        if at <= now && charged + state.buckets() > state.newest() {
            let count = state.count_mut(charged);
            *count = count.saturating_sub(cost);
        }
    }

    fn budget(&self, state: &BucketCounts, now: u64) -> Budget {
        Budget {
            remaining: self.limit.saturating_sub(state.sum()),
            reset_after_us: state
                .aged()
                .next_back()
                .map_or(0, |(age, _)| self.expires_after(state, now, age)),
        }
    }
}
