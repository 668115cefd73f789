//! The state that requests share: the limiter, what the file says of gateways, and the counts.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tollgate::Limiter;

use crate::counts::Counters;
use crate::original::ForwardAuth;
use crate::rules::Rules;

/// The state that requests share.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) limiter: Limiter,
    pub(crate) gateways: ArcSwap<Gateways>,
    pub(crate) counts: Arc<Counters>,
}

/// The part of a configuration that the library does not know.
#[derive(Debug, Default)]
pub(crate) struct Gateways {
    /// The rules for Envoy.
    pub(crate) rules: Rules,
    /// The gateway that asks over HTTP, if one may.
    pub(crate) forward_auth: Option<ForwardAuth>,
}
