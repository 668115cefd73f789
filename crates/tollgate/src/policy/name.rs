//! What may be a name, and what a quota is called.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use tollgate_core::{MAX_NAME_LEN, is_name};

use crate::attached::Attached;
use crate::{ConfigError, Quota, Scope};

/// What a quota of a policy is called, and what else is said of it after a decision.
///
/// Every thread reads them on every request. They live as long as the process, so that no reference count is needed that
/// threads would fight over; equal ones are kept once, so that what is kept is bounded by what was ever configured.
#[derive(Debug)]
pub(crate) struct Labels {
    /// The policy's name.
    pub(crate) policy: String,
    /// The quota's name in headers: the policy's for its first, and unique within a limiter.
    pub(crate) quota: String,
    /// The quota itself, and where its states are: what a receipt says.
    pub(crate) rule: Quota,
    pub(crate) scope: Scope,
    /// What answers have rendered of it.
    pub(crate) attached: Attached,
}

impl Labels {
    /// Those of a quota of a policy whose states are there.
    pub(super) fn keep(policy: &str, scope: Scope, name: &str, quota: &Quota) -> &'static Self {
        type Known = HashMap<(Scope, String, Quota), &'static Labels>;
        static KNOWN: OnceLock<Mutex<Known>> = OnceLock::new();

        let mut known = KNOWN
            .get_or_init(Mutex::default)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        known
            .entry((scope, name.to_owned(), *quota))
            .or_insert_with(|| {
                Box::leak(Box::new(Self {
                    policy: policy.to_owned(),
                    quota: name.to_owned(),
                    rule: *quota,
                    scope,
                    attached: Attached::default(),
                }))
            })
    }
}

/// Refuses what headers, logs and Redis keys could not carry as it is.
pub(super) fn check_name(name: &str) -> Result<(), ConfigError> {
    if is_name(name) {
        return Ok(());
    }
    Err(ConfigError::PolicyName {
        name: name.chars().take(MAX_NAME_LEN).collect(),
    })
}
