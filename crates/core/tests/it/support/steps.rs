//! The steps of a budget's history, told in terms of its quota, so that one random sequence is awkward for every quota.

use std::ops::Range;

use proptest::prelude::*;
use tollgate_core::{Algorithm, Quota};

use super::budget::{Budget, micros};

/// A length of time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Span {
    Micros(u64),
    /// A multiple of the time in which one unit comes back, and a microsecond more or less.
    Units(u64, i64),
    /// A number of sixteenths of a period, and a microsecond more or less.
    Sixteenths(u64, i64),
    /// A number of buckets, or windows, from the start of this one, and a microsecond more or less.
    Boundaries(u64, i64),
}

impl Span {
    pub(crate) fn micros(self, quota: &Quota, now: u64) -> u64 {
        let period = micros(quota.period());
        let (span, jitter) = match self {
            Self::Micros(us) => (us, 0),
            Self::Units(n, jitter) => (n * period / quota.limit(), jitter),
            Self::Sixteenths(n, jitter) => (n * period / 16, jitter),
            Self::Boundaries(n, jitter) => {
                let (length, offset) = match quota.algorithm() {
                    Algorithm::RollingWindow { buckets } => (period / u64::from(buckets), 0),
                    Algorithm::FixedWindow { offset } | Algorithm::IntervalRefill { offset } => {
                        (period, micros(offset))
                    }
                    _ => (period, 0),
                };
                let into = (now + length - offset % length) % length;
                ((n * length).saturating_sub(into), jitter)
            }
        };
        span.saturating_add_signed(jitter)
    }
}

/// A cost.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Amount {
    Units(u64),
    /// A number of sixteenths of a full budget, and one more or less.
    Sixteenths(u64, i64),
    /// The whole rest, and one more or less.
    Remaining(i64),
}

impl Amount {
    pub(crate) fn units(self, budget: &Budget, now: u64) -> u64 {
        let (units, jitter) = match self {
            Self::Units(units) => (units, 0),
            Self::Sixteenths(n, jitter) => (budget.capacity() * n / 16, jitter),
            Self::Remaining(jitter) => (budget.peek(now).remaining(), jitter),
        };
        units.saturating_add_signed(jitter)
    }
}

/// One step. Receipts are named by a number, taken modulo how many there are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Wait(Span),
    Charge(Amount),
    Credit(usize, Amount),
    Debit(Amount),
}

#[allow(dead_code, reason = "the oracle takes steps of its own")]
impl Step {
    pub(crate) fn charge(n: u64) -> Self {
        Self::Charge(Amount::Units(n))
    }

    pub(crate) fn debit(n: u64) -> Self {
        Self::Debit(Amount::Units(n))
    }
}

pub(crate) fn spans() -> impl Strategy<Value = Span> {
    prop_oneof![
        2 => (1_u64..=4).prop_map(Span::Micros),
        2 => (1_u64..=6, -1_i64..=1).prop_map(|(n, jitter)| Span::Units(n, jitter)),
        2 => (1_u64..=40, -1_i64..=1).prop_map(|(n, jitter)| Span::Sixteenths(n, jitter)),
        2 => (1_u64..=3, -1_i64..=1).prop_map(|(n, jitter)| Span::Boundaries(n, jitter)),
    ]
}

pub(crate) fn amounts() -> impl Strategy<Value = Amount> {
    prop_oneof![
        3 => (1_u64..=4).prop_map(Amount::Units),
        2 => (0_u64..=18, -1_i64..=1).prop_map(|(n, jitter)| Amount::Sixteenths(n, jitter)),
        3 => (-1_i64..=1).prop_map(Amount::Remaining),
    ]
}

/// Any step but one of the clock back.
pub(crate) fn steps(count: Range<usize>) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => spans().prop_map(Step::Wait),
        5 => amounts().prop_map(Step::Charge),
        3 => (any::<usize>(), amounts()).prop_map(|(n, amount)| Step::Credit(n, amount)),
        1 => amounts().prop_map(Step::Debit),
    ];
    prop::collection::vec(step, count)
}

/// Charges only, and time between them.
pub(crate) fn charges(count: Range<usize>) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        1 => spans().prop_map(Step::Wait),
        2 => amounts().prop_map(Step::Charge),
    ];
    prop::collection::vec(step, count)
}

/// The start of a history: at the epoch, soon after it, and today.
pub(crate) fn starts() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => Just(0),
        4 => 0_u64..100,
        2 => 1_700_000_000_000_000_u64..1_900_000_000_000_000,
    ]
}
