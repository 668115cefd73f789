//! The figures of a quota that may change while it is in use.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_core::{Algorithm, Charge, Quota};

/// The figures by which a backend is asked: a deploy replaces them, and a caller's deadline shortens the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The largest budget.
    pub burst: u64,
    /// The longest wait.
    pub wait_us: u64,
    /// The units of a period.
    pub limit: u64,
    /// The period.
    pub period_us: u64,
    /// True if it is a bucket, which has another state than a window or a log.
    pub is_bucket: bool,
}

impl Terms {
    /// The terms of a quota.
    #[must_use]
    pub fn of(quota: &Quota) -> Self {
        Self {
            burst: quota.capacity(),
            wait_us: micros(quota.longest_wait()),
            limit: quota.limit(),
            period_us: micros(quota.period()),
            is_bucket: quota.algorithm() == Algorithm::Gcra,
        }
    }

    /// The terms of each charge.
    #[must_use]
    pub fn of_charges(charges: &[Charge<'_>]) -> Vec<Option<Self>> {
        let quotas = charges.iter().map(|charge| charge.quota);
        quotas.map(|quota| Some(Self::of(quota))).collect()
    }

    /// Says whether a question with these terms can have been one of this quota: a caller's deadline only shortens the wait.
    #[must_use]
    pub fn can_be_of(&self, quota: &Quota) -> bool {
        let whole = Self::of(quota);
        let wait_us = self.wait_us;
        wait_us <= whole.wait_us && *self == Self { wait_us, ..whole }
    }
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
