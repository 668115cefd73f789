//! A quota applied to states, on either side of the truth.
//!
//! The rule is core's own, which core's tests hold to an independent model. This checker tests everything between the rule and
//! the caller.

use std::time::Duration;

use tollgate_core::{
    Algorithm, Call, Charge, DEBT_CEILING, Key, Mode, QueueMark, Quota, Receipt, Scope, Snapshot,
    State, Timestamp, Verdict, decide,
};

/// A quota, with its precomputed figures.
#[derive(Debug)]
pub(super) struct Rule {
    quota: Quota,
    scope: Scope,
    key: Key,
}

impl Rule {
    pub(super) fn of(quota: Quota) -> Self {
        Self {
            quota,
            scope: Scope::of("checker", 0, &quota),
            key: Key::from("anybody"),
        }
    }

    pub(super) fn quota(&self) -> &Quota {
        &self.quota
    }

    pub(super) fn is_bucket(&self) -> bool {
        self.quota.algorithm() == Algorithm::Gcra
    }

    /// The time after a step back of the clock for which the windows of moved counts are unknown, because they depend on the
    /// first question after it. A bucket is one point in time, which does not move, and a window of a calendar stays until it is
    /// over: no clock steps back by a day.
    pub(super) fn blind_us(&self, back_us: u64) -> u64 {
        if self.is_bucket() || matches!(self.quota.algorithm(), Algorithm::Calendar(_)) {
            return 0;
        }
        // Refills that are owed come along with the moved count, also those of debts.
        let owed = match self.quota.algorithm() {
            Algorithm::IntervalRefill { .. } => {
                (DEBT_CEILING * self.quota.capacity()).div_ceil(self.quota.limit())
            }
            _ => 0,
        };
        back_us.saturating_add((2 + owed) * micros(self.quota.period()))
    }

    /// The budget that one loss hands out.
    pub(super) fn whole(&self) -> u64 {
        self.quota.limit().max(self.quota.capacity())
    }

    pub(super) fn full(&self) -> State {
        State::full(&self.quota)
    }

    /// The verdict that would be given, without taking anything.
    pub(super) fn probe(&self, state: &State, at_us: u64, cost: u64) -> Option<Verdict> {
        self.decide(&mut state.clone(), at_us, cost, Mode::Probe)
    }

    /// Takes the charge if it fits, and says whether it did.
    pub(super) fn admit(&self, state: &mut State, at_us: u64, cost: u64) -> bool {
        let verdict = self.decide(state, at_us, cost, Mode::Enforce);
        verdict.is_some_and(|verdict| verdict.is_allowed())
    }

    /// Takes the charge, whether it fits or not.
    pub(super) fn debit(&self, state: &mut State, at_us: u64, cost: u64) {
        if let Some(receipt) = self.receipt(at_us, 1) {
            receipt.debit_from(state, Timestamp::from_micros(at_us), cost);
        }
    }

    /// A budget of which all has just been taken.
    pub(super) fn empty(&self, at_us: u64) -> State {
        let mut state = self.full();
        self.admit(&mut state, at_us, self.quota.capacity());
        state
    }

    /// The time in which it warms up; 0 if it never does.
    pub(super) fn warm_up_us(&self) -> u64 {
        micros(self.quota.warm_up_period())
    }

    /// A bucket that is full again at this point, as this quota leaves it.
    pub(super) fn bucket(&self, at_us: u64, (us, rest): (u64, u32)) -> State {
        let mut state = self.full();
        self.admit(&mut state, at_us, 1);
        self.moved_to(&state, (us, rest))
    }

    /// A bucket that this quota has left, with another point at which it is full again, and the same idle time in store.
    pub(super) fn moved_to(&self, bucket: &State, (us, rest): (u64, u32)) -> State {
        let parts = self.quota.limit() / gcd(self.quota.limit(), self.period_us());
        let mark = u16::try_from(parts % MARKS).unwrap_or_default();
        remade(bucket, |was| Bucket {
            full_at_us: us,
            rest,
            rest_of: if rest > 0 { mark } else { 0 },
            cold_at_us: match was.cold_at_us {
                0 => 0,
                cold_at_us => (cold_at_us + us).saturating_sub(was.full_at_us),
            },
        })
    }

    /// Gives a window back the charge that was made in it at `charged_us`.
    pub(super) fn credit_window(&self, state: &mut State, at_us: u64, charged_us: u64, n: u64) {
        if let Some(receipt) = self.receipt(charged_us, n) {
            receipt.credit_to(state, Timestamp::from_micros(at_us), n);
        }
    }

    /// Says whether a refill in intervals has come in between, after which a credit of the earlier charge gives nothing back.
    pub(super) fn is_refilled_between(&self, charged_us: u64, us: u64) -> bool {
        let Algorithm::IntervalRefill { offset } = self.quota.algorithm() else {
            return false;
        };
        let window = |us: u64| (us + self.period_us() - micros(offset)) / self.period_us();
        window(charged_us) < window(us)
    }

    /// The time in which this much drains out of a bucket, rounded down.
    pub(super) fn drain_us(&self, n: u64) -> u64 {
        let us = u128::from(n) * self.quota.period().as_micros() / u128::from(self.quota.limit());
        u64::try_from(us).unwrap_or(u64::MAX)
    }

    /// The longest time for which a charge counts.
    pub(super) fn lasts_us(&self) -> u64 {
        self.drain_us(self.quota.capacity())
            .max(2 * self.period_us())
    }

    pub(super) fn period_us(&self) -> u64 {
        micros(self.quota.period())
    }

    /// The time since which charges may still count.
    pub(super) fn counts_since_us(&self, at_us: u64) -> u64 {
        match self.empty(at_us).snapshot() {
            Snapshot::Calendar { start_us, .. } => start_us,
            _ => at_us.saturating_sub(self.period_us()) + 1,
        }
    }

    /// The time since which a debt may still count. What drains carries a debt on, and a window forgets it.
    pub(super) fn debts_since_us(&self, at_us: u64) -> u64 {
        let times = match self.quota.algorithm() {
            Algorithm::Gcra | Algorithm::IntervalRefill { .. } => DEBT_CEILING,
            _ => 1,
        };
        at_us.saturating_sub(self.lasts_us().saturating_mul(times))
    }

    fn decide(&self, state: &mut State, at_us: u64, cost: u64, mode: Mode) -> Option<Verdict> {
        let charge = self.charge(cost, mode);
        let states = std::slice::from_mut(state);
        let decision = decide(Timestamp::from_micros(at_us), Call::of(&[charge]), states);
        decision.verdicts().first().copied()
    }

    fn charge(&self, cost: u64, mode: Mode) -> Charge<'_> {
        Charge {
            scope: self.scope,
            quota: &self.quota,
            key: &self.key,
            cost,
            mode,
        }
    }

    /// A receipt of a charge from a full budget.
    fn receipt(&self, at_us: u64, n: u64) -> Option<Receipt> {
        let (charge, at) = (self.charge(n, Mode::Enforce), Timestamp::from_micros(at_us));
        let decision = decide(at, Call::of(&[charge]), &mut [self.full()][..]);
        Receipt::of(&charge, decision.verdicts().first()?, at)
    }
}

/// A rest is known by its denominator modulo this.
const MARKS: u64 = 65_521;

pub(super) fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The point at which a bucket is full again: microseconds, and a rest.
pub(super) fn full_at(bucket: &State) -> (u64, u32) {
    match bucket.snapshot() {
        Snapshot::Gcra {
            full_at_us, rest, ..
        } => (full_at_us, rest),
        _ => (0, 0),
    }
}

/// The time at which a bucket is cold if nothing arrives; 0 if it has been cold for long.
pub(super) fn cold_at(bucket: &State) -> u64 {
    match bucket.snapshot() {
        Snapshot::Gcra { cold_at_us, .. } => cold_at_us,
        _ => 0,
    }
}

/// A bucket that is cold at another time if nothing arrives.
pub(super) fn cold_from(bucket: &State, cold_at_us: u64) -> State {
    remade(bucket, |was| Bucket { cold_at_us, ..was })
}

/// A bucket that will be full again this much earlier, and at the earliest now. Nothing is known of its store.
pub(super) fn hastened(bucket: &State, at_us: u64, by_us: u64) -> State {
    remade(bucket, |was| match was.full_at_us > at_us {
        true => Bucket {
            full_at_us: was.full_at_us.saturating_sub(by_us).max(at_us),
            cold_at_us: 0,
            ..was
        },
        false => was,
    })
}

/// The times of a bucket.
struct Bucket {
    full_at_us: u64,
    rest: u32,
    rest_of: u16,
    cold_at_us: u64,
}

/// A bucket with other times, without credits and turns.
fn remade(bucket: &State, change: impl FnOnce(Bucket) -> Bucket) -> State {
    let Snapshot::Gcra {
        full_at_us,
        rest,
        rest_of,
        exponent,
        thirty_seconds,
        cold_at_us,
        ..
    } = bucket.snapshot()
    else {
        return bucket.clone();
    };
    let changed = change(Bucket {
        full_at_us,
        rest,
        rest_of,
        cold_at_us,
    });
    State::from(Snapshot::Gcra {
        full_at_us: changed.full_at_us,
        rest: changed.rest,
        rest_of: changed.rest_of,
        exponent,
        thirty_seconds,
        credits: Vec::new(),
        queue: QueueMark::default(),
        cold_at_us: changed.cold_at_us,
        cold_at_ticks: 0,
    })
}

/// Says whether one bucket will be full again later than another.
pub(super) fn is_later(one: &State, other: &State) -> bool {
    let full_at_us = |state: &State| match state.snapshot() {
        Snapshot::Gcra { full_at_us, .. } => Some(full_at_us),
        _ => None,
    };
    full_at_us(one) > full_at_us(other)
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
