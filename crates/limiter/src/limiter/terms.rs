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

impl Terms {
    /// Refuses a policy that needs more than the backend can, or than the transport can.
    pub(super) fn check_fit(&self, policy: &Policy) -> Result<(), ConfigError> {
        if let Some(capability) = self.offered.missing(policy.needs()).next() {
            return Err(ConfigError::Capability {
                policy: policy.name().into(),
                capability,
            });
        }
        self.refuses
            .and_then(|refuses| refuses(policy))
            .map_or(Ok(()), Err)
    }
}
