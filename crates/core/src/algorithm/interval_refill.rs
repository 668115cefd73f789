//! Units that come all at once: the limit at the start of each period, up to the burst.
//!
//! A state tells what is owed, as whole refills and the part of one more. Time takes whole refills away, whatever the limit. So
//! quotas of other limits can share a state, as while a deploy changes one: a refill is owed for as long under each of them, and
//! the part of a refill is a number of units to each, a whole refill at most.
//!
//! A credit in the period of its charge returns all of it, which is exact: nothing has come meanwhile. Afterwards it returns
//! nothing, because a part of the charge has been refilled already, and a state does not tell which part is whose.

use super::packed::PackedInteger;
use super::{Budget, Decider, Passage, Point, Snapshot, Step, count_up};
use crate::{MAX_DRAIN, QuotaError};

/// Packed, so that a rule takes 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct IntervalRefill {
    limit: PackedInteger<6>,
    burst: PackedInteger<6>,
    period_us: PackedInteger<6>,
    /// Below the period.
    offset_us: PackedInteger<6>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct OwedRefills {
    window: PackedInteger<7>,
    /// The whole refills that are owed beside the part.
    ahead: PackedInteger<6>,
    /// The part of a refill: 1 to the limit, or 0 if nothing is owed.
    count: PackedInteger<6>,
}

impl IntervalRefill {
    pub(crate) const fn new(
        limit: u64,
        period_us: u64,
        offset_us: u64,
        burst: u64,
    ) -> Result<Self, QuotaError> {
        // Times stay exact in Lua, debts included.
        let refill_us = burst.div_ceil(limit) as u128 * period_us as u128;
        if refill_us > MAX_DRAIN.as_micros() {
            return Err(QuotaError::DrainTooLong { burst });
        }
        Ok(Self {
            limit: PackedInteger::of(limit),
            burst: PackedInteger::of(burst),
            period_us: PackedInteger::of(period_us),
            offset_us: PackedInteger::of(offset_us),
        })
    }

    pub(crate) const fn limit(&self) -> u64 {
        self.limit.get()
    }

    pub(crate) const fn period_us(&self) -> u64 {
        self.period_us.get()
    }

    pub(crate) const fn offset_us(&self) -> u64 {
        self.offset_us.get()
    }

    #[inline]
    fn figures(&self) -> Figures {
        Figures {
            limit: self.limit.get(),
            burst: self.burst.get(),
            period_us: self.period_us.get(),
            offset_us: self.offset_us.get(),
        }
    }
}

/// The figures of a rule, unpacked once for each of its operations.
struct Figures {
    limit: u64,
    burst: u64,
    period_us: u64,
    offset_us: u64,
}

/// A state, unpacked likewise.
#[derive(Clone, Copy)]
struct Account {
    window: u64,
    ahead: u64,
    count: u64,
}

impl Figures {
    /// The number of the period that holds `time`, as of a fixed window.
    fn window(&self, time: u64) -> u64 {
        (time + (self.period_us - self.offset_us)) / self.period_us
    }

    /// The time until this many refills after the present one have come. The account was brought to `now`.
    fn until(&self, account: &Account, refills: u64, now: u64) -> u64 {
        (account.window + refills) * self.period_us + self.offset_us - now
    }

    /// The part of a refill that is owed. Another limit may have left a larger one.
    fn part(&self, account: &Account) -> u64 {
        account.count.min(self.limit)
    }

    fn owed(&self, account: &Account) -> u64 {
        let part = self.part(account);
        match account.ahead {
            0 => part,
            ahead => ahead.saturating_mul(self.limit).saturating_add(part),
        }
    }

    fn advance(&self, account: &mut Account, now: u64) {
        let window = self.window(now);
        if account.window < window {
            let passed = window - account.window;
            match account.ahead.checked_sub(passed) {
                Some(ahead) => account.ahead = ahead,
                None => (account.ahead, account.count) = (0, 0),
            }
            account.window = window;
        } else if account.window > window + 1 {
            // The clock stepped back, and all that is owed moves to the clock's period. A step of less than a period moves
            // nothing: the state waits for the clock, or else the same refill would come twice.
            account.window = window;
        }
    }

    fn passage(&self, account: &Account, now: u64, cost: u64) -> Passage {
        if cost == 0 {
            return Passage::Open;
        }
        let Some(room) = self.burst.checked_sub(cost) else {
            return Passage::NEVER;
        };
        let refills = match room.checked_sub(self.part(account)) {
            Some(_) if account.ahead == 0 => return Passage::Open,
            Some(room) => account.ahead.saturating_sub(room / self.limit),
            // Only when nothing is owed any more.
            None => account.ahead + 1,
        };
        match refills.checked_sub(1) {
            None => Passage::Open,
            Some(others) => Passage::after(self.until(account, others, now)),
        }
    }

    fn take(&self, account: &mut Account, cost: u64) {
        let owed = self.owed(account);
        let after = count_up(owed, cost, self.burst);
        if after > owed {
            self.owe(account, after);
        }
    }

    /// Sets the units that are owed, one at least.
    #[inline]
    fn owe(&self, account: &mut Account, units: u64) {
        // Mostly, and without a division.
        if units <= self.limit {
            (account.ahead, account.count) = (0, units);
            return;
        }
        account.ahead = (units - 1) / self.limit;
        account.count = units - account.ahead * self.limit;
    }

    fn budget(&self, account: &Account, now: u64) -> Budget {
        Budget {
            remaining: self.burst.saturating_sub(self.owed(account)),
            reset_after_us: if account.count == 0 {
                0
            } else {
                self.until(account, account.ahead, now)
            },
        }
    }
}

impl Decider for IntervalRefill {
    type State = OwedRefills;

    fn advance(&self, state: &mut OwedRefills, now: u64) {
        let mut account = state.account();
        self.figures().advance(&mut account, now);
        *state = account.packed();
    }

    fn passage(&self, state: &mut OwedRefills, now: u64, cost: u64) -> Passage {
        self.figures().passage(&state.account(), now, cost)
    }

    fn take(&self, state: &mut OwedRefills, _now: u64, cost: u64) {
        let mut account = state.account();
        self.figures().take(&mut account, cost);
        *state = account.packed();
    }

    /// Gives back the units as refills of the quota that charged them, rounded up, even if the state's last quota had another
    /// limit.
    fn give_back(&self, state: &mut OwedRefills, now: u64, at: u64, _full_at: Point, cost: u64) {
        let (figures, mut account) = (self.figures(), state.account());
        if at > now || figures.window(at) != account.window {
            return;
        }
        if cost < account.count {
            account.count -= cost;
        } else {
            let rest = cost - account.count;
            let broken = rest / figures.limit + 1;
            (account.ahead, account.count) = match account.ahead.checked_sub(broken) {
                Some(whole) => (whole, broken * figures.limit - rest),
                None => (0, 0),
            };
        }
        *state = account.packed();
    }

    fn budget(&self, state: &OwedRefills, now: u64) -> Budget {
        self.figures().budget(&state.account(), now)
    }

    fn step(&self, state: &mut OwedRefills, now: u64, cost: u64, take: bool) -> Step {
        let (figures, mut account) = (self.figures(), state.account());
        figures.advance(&mut account, now);
        let passage = figures.passage(&account, now, cost);
        if take && cost > 0 && passage == Passage::Open {
            let owed = figures.owed(&account);
            figures.owe(&mut account, owed + cost);
        }
        *state = account.packed();
        (passage, Point::ZERO, figures.budget(&account, now))
    }
}

impl Account {
    /// No refills and no part of a quota are larger, and no time has a larger window.
    #[inline]
    fn packed(self) -> OwedRefills {
        OwedRefills {
            window: PackedInteger::fitting(self.window),
            ahead: PackedInteger::fitting(self.ahead),
            count: PackedInteger::fitting(self.count),
        }
    }
}

impl OwedRefills {
    #[inline]
    fn account(&self) -> Account {
        Account {
            window: self.window.get(),
            ahead: self.ahead.get(),
            count: self.count.get(),
        }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot::IntervalRefill {
            window: self.window.get(),
            ahead: self.ahead.get(),
            count: self.count.get(),
        }
    }

    pub(super) fn restore(window: u64, ahead: u64, count: u64) -> Self {
        Self {
            window: window.into(),
            ahead: ahead.into(),
            count: count.into(),
        }
    }

    /// One period after nothing is owed any more, because a clock that is less than a period behind may come back to it.
    pub(super) fn meaningless_at(&self, period_us: u64, offset_us: u64) -> u64 {
        let window = self.window.get();
        match (window, self.count.get()) {
            (0, 0) => 0,
            (_, 0) => window * period_us + offset_us,
            _ => (window + self.ahead.get() + 1) * period_us + offset_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::IntervalRefill;
    use crate::Quota;
    use crate::algorithm::{Algorithm, Point, State};

    const MINUTE: u64 = 60_000_000;

    #[test]
    fn while_a_clock_that_stepped_back_is_behind_its_period_nothing_is_given_back() {
        // given a charge at the start of a period, and a clock that steps back by half of one
        let offset = Duration::ZERO;
        let quota = Quota::per_minute(10).using(Algorithm::IntervalRefill { offset });
        let quota = quota.burst(30);
        let rule = quota.rule();
        let mut state = State::empty(quota.unit());
        let (starts, behind) = (1_000 * MINUTE, 1_000 * MINUTE - MINUTE / 2);
        rule.step(&mut state, starts, 4, true);
        let credit = |state: &mut State, now, at, n| {
            rule.refund(state, now, at, Point::ZERO, n);
            rule.budget(state, now).remaining
        };

        // when it is credited, and so is a charge that is made meanwhile: then nothing comes back
        assert_eq!(credit(&mut state, behind, starts, 4), 26);
        rule.step(&mut state, behind, 3, true);
        assert_eq!(credit(&mut state, behind + 1, behind, 3), 23);

        // when the clock is there again: then the first charge can be given back, and the other cannot
        assert_eq!(credit(&mut state, starts, behind, 3), 23);
        assert_eq!(credit(&mut state, starts, starts, 4), 27);
        rule.passage(&mut state, starts + MINUTE, 0);
        assert_eq!(rule.budget(&mut state, starts + MINUTE).remaining, 30);
    }
    fn refilled(limit: u64, burst: u64) -> Quota {
        let offset = Duration::from_secs(7);
        let quota = Quota::per_minute(limit).using(Algorithm::IntervalRefill { offset });
        quota.burst(burst)
    }

    #[test]
    fn a_rule_tells_the_figures_of_its_quota() {
        let rule = IntervalRefill::new(10, MINUTE, 7, 30).expect("a rule");

        let figures = (rule.limit(), rule.period_us(), rule.offset_us());
        assert_eq!(figures, (10, MINUTE, 7));
    }

    #[test]
    fn what_is_owed_moves_to_a_clock_that_stepped_back_by_more_than_a_period() {
        let quota = refilled(10, 30);
        let (rule, mut state) = (quota.rule(), State::empty(quota.unit()));
        rule.step(&mut state, 1_000 * MINUTE, 25, true);

        let (_, _, budget) = rule.step(&mut state, 10 * MINUTE, 0, false);

        assert_eq!((budget.remaining, budget.reset_after_us), (5, 127_000_000));
        let (_, _, later) = rule.step(&mut state, 12 * MINUTE, 0, false);
        assert_eq!(later.remaining, 25);
    }

    #[test]
    fn a_charge_of_nothing_leaves_the_part_that_another_limit_owes() {
        let (large, small) = (refilled(10, 30), refilled(4, 30));
        let mut state = State::empty(large.unit());
        let now = 1_000 * MINUTE;
        large.rule().step(&mut state, now, 9, true);
        let owed = state.snapshot();

        small.rule().step(&mut state, now, 0, true);
        assert_eq!(state.snapshot(), owed);
        small.rule().debit(&mut state, now, 0);
        assert_eq!(state.snapshot(), owed);
    }
}
