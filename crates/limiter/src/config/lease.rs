//! The lease of a policy, as plain data.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Lease;

/// The terms by which a process leases blocks of a policy's budgets, as plain data: `{ up_to = 500 }`.
///
/// ```
/// use tollgate::config::{LeaseConfig, PolicyConfig};
///
/// let policy: PolicyConfig = toml::from_str(r#"
///     name = "api"
///     quotas = "5000/s"
///     lease = { up_to = 500, within_ms = 200 }
/// "#)?;
/// let lease: Option<LeaseConfig> = policy.lease;
/// assert_eq!(lease.map(|lease| lease.up_to), Some(500));
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LeaseConfig {
    /// The most units of one budget that a process leases at a time: see [`Lease::up_to`].
    pub up_to: u64,
    /// The milliseconds within which it spends them: see [`Lease::within`].
    #[serde(default = "usual_ms")]
    pub within_ms: u64,
}

fn usual_ms() -> u64 {
    let usual = Lease::up_to(0).time().as_millis();
    u64::try_from(usual).unwrap_or(u64::MAX)
}

impl LeaseConfig {
    pub(super) fn build(self) -> Lease {
        Lease::up_to(self.up_to).within(Duration::from_millis(self.within_ms))
    }
}
