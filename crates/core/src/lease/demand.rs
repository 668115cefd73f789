//! The units that a process has needed lately, and the amount that it may lease by what it was told.

use std::cmp;

/// The demand for one budget, and the answers of the backend. Times are microseconds of this process's own clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// The length of a stretch: the time of a lease.
    stretch_us: u64,
    began_us: u64,
    wanted: u64,
    wanted_before: u64,
    /// The most that is asked for at a time, by the answers so far.
    cap: u64,
    /// The most that the process holds.
    most: u64,
    was_denied: bool,
    /// The rest of the budget when the backend told it last.
    left: Option<u64>,
}

impl Demand {
    pub(super) fn new(stretch_us: u64, most: u64, now_us: u64) -> Self {
        Self {
            stretch_us,
            began_us: now_us,
            wanted: 0,
            wanted_before: 0,
            cap: most,
            most,
            was_denied: false,
            left: None,
        }
    }

    /// Counts what a request needs.
    pub(super) fn want(&mut self, now_us: u64, cost: u64) {
        self.advance(now_us);
        self.wanted = self.wanted.saturating_add(cost);
    }

    fn advance(&mut self, now_us: u64) {
        let passed = now_us.saturating_sub(self.began_us) / self.stretch_us;
        if passed == 0 {
            return;
        }
        self.wanted_before = if passed == 1 { self.wanted } else { 0 };
        self.wanted = 0;
        self.began_us += passed * self.stretch_us;
        if !self.was_denied {
            let doublings = u32::try_from(passed).unwrap_or(u32::MAX);
            let factor = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
            self.cap = cmp::min(self.cap.saturating_mul(factor), self.most);
        }
        self.was_denied = false;
    }

    /// The units that one time of the lease needs, by this stretch and the one before.
    pub(super) fn of_a_stretch(&self) -> u64 {
        cmp::max(self.wanted, self.wanted_before)
    }

    /// The units that were needed in this stretch and the one before.
    pub(super) fn of_two_stretches(&self) -> u64 {
        self.wanted.saturating_add(self.wanted_before)
    }

    /// The most that may be asked for: by what is left, half of it at most, and by the answers so far. Nothing before the backend
    /// has told what is left.
    pub(super) fn allowance(&self) -> u64 {
        let half = self.left.unwrap_or(0) / 2;
        cmp::min(self.cap, half)
    }

    /// The most that the process may hold by its terms.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// The backend told what is left.
    pub(super) fn told(&mut self, left: u64) {
        self.left = Some(left);
    }

    /// The backend denied: half as much is asked for, and after a stretch without a denial twice as much again.
    pub(super) fn denied(&mut self, left: u64) {
        self.told(left);
        if !self.was_denied {
            self.cap = cmp::max(self.cap / 2, 1);
        }
        self.was_denied = true;
    }

    /// True if nothing was needed in this stretch and the one before.
    pub(super) fn is_over(&self, now_us: u64) -> bool {
        now_us.saturating_sub(self.began_us) >= 2 * self.stretch_us
    }
}
