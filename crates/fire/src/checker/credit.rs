//! What was given back.

use super::timeline::Moment;

/// What was given back, if it was, between two moments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credit {
    pub(super) from: Moment,
    pub(super) to: Moment,
    pub(super) n: u64,
    /// When that was charged, if one can say by which clock.
    pub(super) charged: Option<Moment>,
    /// Until when it surely still shows in a bucket.
    pub(super) shows_until_us: u64,
    /// Whether it surely was given back by the end.
    pub(super) is_certain: bool,
}
