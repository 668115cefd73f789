//! The figures of a bucket that may change while it is in use.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_core::{Algorithm, Charge, Quota};

/// The figures by which a backend is asked about a bucket: a deploy replaces them, and a caller's deadline shortens the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The burst.
    pub burst: u64,
    /// The longest wait.
    pub wait_us: u64,
}

impl Terms {
    /// The terms of a quota.
    #[must_use]
    pub fn of(quota: &Quota) -> Self {
        Self {
            burst: quota.capacity(),
            wait_us: micros(quota.longest_wait()),
        }
    }

    /// The terms of each charge, if it is one to a bucket.
    #[must_use]
    pub fn of_charges(charges: &[Charge<'_>]) -> Vec<Option<Self>> {
        let quotas = charges.iter().map(|charge| charge.quota);
        quotas
            .map(|quota| (quota.algorithm() == Algorithm::Gcra).then(|| Self::of(quota)))
            .collect()
    }
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
