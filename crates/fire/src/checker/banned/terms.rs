//! The policy with a ban in figures, in µs.

use crate::knock::Guarded;
use crate::terms::micros;

#[derive(Debug)]
pub(super) struct Terms {
    pub(super) strikes: u64,
    pub(super) within_us: u64,
    pub(super) forgiven_us: u64,
    /// The length of a ban after each number of doublings that still lengthens it.
    pub(super) lengths_us: Vec<u64>,
    /// The time in which one unit drains, and all that the budget holds.
    pub(super) unit_us: u64,
    pub(super) whole_us: u64,
    /// The part of that which all but the important leave.
    pub(super) kept_us: u64,
}

impl Terms {
    pub(super) fn new() -> Self {
        let (strikes, _, [within_us, lasting_us, longest_us, forgiven_us]) = Guarded::BAN.figures();
        let doubled = std::iter::successors(Some(lasting_us), |us| {
            (*us < longest_us).then(|| (us * 2).min(longest_us))
        });
        let quota = Guarded::QUOTA;
        let unit_us = micros(quota.period()) / quota.limit();
        Self {
            strikes: strikes.into(),
            within_us,
            forgiven_us,
            lengths_us: doubled.collect(),
            unit_us,
            whole_us: unit_us * quota.capacity(),
            kept_us: unit_us * Guarded::KEPT,
        }
    }

    /// The longest ban, by strikes or by hand.
    pub(super) fn longest_us(&self) -> u64 {
        let by_hand_us = micros(Guarded::LONGEST_BY_HAND);
        self.longest_by_strikes_us().max(by_hand_us)
    }

    /// The longest ban by strikes.
    pub(super) fn longest_by_strikes_us(&self) -> u64 {
        self.lengths_us.last().copied().unwrap_or_default()
    }

    /// The shortest ban by strikes.
    pub(super) fn shortest_us(&self) -> u64 {
        self.lengths_us.first().copied().unwrap_or_default()
    }
}
