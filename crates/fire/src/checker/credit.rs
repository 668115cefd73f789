//! Credits.

use super::timeline::Moment;
use crate::terms::Terms;

/// A credit between two moments, if it was done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credit {
    pub(super) from: Moment,
    pub(super) to: Moment,
    pub(super) n: u64,
    /// The time of its charge, if the clock of that is known.
    pub(super) charged: Option<Moment>,
    /// The time of its charge by a clock that may be unknown, and the time at which the budget was to be full again after it.
    pub(super) at_us: u64,
    pub(super) full_at: (u64, u32),
    /// The terms by which it was charged, if they are not the quota's own.
    pub(super) terms: Option<Terms>,
    /// The time until which the charge surely shows in a bucket.
    pub(super) shows_until_us: u64,
    /// True if it surely was done by the end.
    pub(super) is_certain: bool,
    /// The time by which it surely was done if nothing was in its way, which it is not known to be after a disturbance.
    pub(super) returned_by: Option<Moment>,
}
