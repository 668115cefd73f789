//! The settings of a limiter besides its policies.

use tollgate_core::Capabilities;

use crate::{ClientAddress, ConfigError, Policy};

/// The settings of a limiter besides its policies. They never change.
#[derive(Debug, Default)]
pub(super) struct Terms {
    pub(super) client: ClientAddress,
    pub(super) ignores_path_case: bool,
    pub(super) exempts_preflights: bool,
    pub(super) exempts_health_checks: bool,
    pub(super) may_be_empty: bool,
    /// The capabilities of the backend beyond quotas.
    pub(super) offered: Capabilities,
    /// Why a policy cannot be one of this limiter's.
    pub(super) refuses: Option<fn(&Policy) -> Option<ConfigError>>,
}
