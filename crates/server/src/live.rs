//! The state that requests share: the limiter, the rules that hold now, and the counts.

use arc_swap::ArcSwap;
use tollgate::Limiter;

use crate::counts::Counters;
use crate::rules::Rules;

/// The state that requests share.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) limiter: Limiter,
    pub(crate) rules: ArcSwap<Rules>,
    pub(crate) counts: Counters,
}
