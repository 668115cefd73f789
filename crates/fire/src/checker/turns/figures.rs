//! The figures of a quota whose charges may wait. Times are in *parts* of a microsecond, in which all of them are whole.

use tollgate_core::Quota;

use super::super::rule::{gcd, micros};
use crate::terms::Terms;

#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    pub(super) burst: u64,
    pub(super) limit: u64,
    pub(super) period_us: u64,
    /// The time that a cost of one takes to drain.
    units: u128,
    /// The number of parts in a microsecond.
    pub(super) denominator: u128,
    /// The time that a full budget takes to drain.
    pub(super) full: u128,
    pub(super) longest_wait_us: u64,
}

impl Figures {
    pub(super) fn of(quota: &Quota) -> Self {
        let (limit, period_us) = (quota.limit(), micros(quota.period()));
        let divisor = gcd(limit, period_us);
        let units = u128::from(period_us / divisor);
        Self {
            burst: quota.capacity(),
            limit,
            period_us,
            units,
            denominator: u128::from(limit / divisor),
            full: u128::from(quota.capacity()) * units,
            longest_wait_us: micros(quota.longest_wait()),
        }
    }

    /// The figures of a charge by these terms, or by the quota's own. A replaced quota keeps its rate, and so the parts.
    pub(super) fn by(&self, terms: Option<Terms>) -> Self {
        let Some(Terms { burst, wait_us, .. }) = terms else {
            return *self;
        };
        Self {
            burst,
            longest_wait_us: wait_us,
            ..*self
        }
        .of_its_burst()
    }

    fn of_its_burst(self) -> Self {
        Self {
            full: u128::from(self.burst) * self.units,
            ..self
        }
    }

    /// The largest figures of all that a quota is replaced by.
    pub(super) fn widest(&self, replacements: &[Quota]) -> Self {
        let terms = || replacements.iter().map(Terms::of);
        let bursts = terms().map(|it| it.burst);
        let waits = terms().map(|it| it.wait_us);
        Self {
            burst: bursts.fold(self.burst, u64::max),
            longest_wait_us: waits.fold(self.longest_wait_us, u64::max),
            ..*self
        }
        .of_its_burst()
    }

    pub(super) fn drain(&self, n: u64) -> u128 {
        u128::from(n) * self.units
    }

    /// The number of whole units that drain in this time.
    pub(super) fn drained(&self, parts: u128) -> u64 {
        u64::try_from(parts / self.units).unwrap_or(u64::MAX)
    }

    pub(super) fn parts(&self, us: u64) -> u128 {
        u128::from(us) * self.denominator
    }

    pub(super) fn point(&self, (us, rest): (u64, u32)) -> u128 {
        self.parts(us) + u128::from(rest)
    }

    pub(super) fn micros_up(&self, parts: u128) -> u64 {
        u64::try_from(parts.div_ceil(self.denominator)).unwrap_or(u64::MAX)
    }

    /// The time at which a charge passes that was decided at `at_us` and drains until `end`.
    pub(super) fn turn_us(&self, at_us: u64, end: u128) -> u64 {
        self.micros_up(end.saturating_sub(self.full)).max(at_us)
    }

    /// The time after which a charge no longer shows: the longest wait and a full drain.
    pub(super) fn span_us(&self) -> u64 {
        self.longest_wait_us + self.micros_up(self.full)
    }
}
