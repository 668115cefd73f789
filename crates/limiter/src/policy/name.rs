//! Valid names.

use tollgate_core::{MAX_NAME_LEN, is_name};

use crate::ConfigError;

/// Refuses what headers, logs and Redis keys could not carry as it is.
pub(super) fn check_name(name: &str) -> Result<(), ConfigError> {
    if is_name(name) {
        return Ok(());
    }
    Err(ConfigError::PolicyName {
        name: name.chars().take(MAX_NAME_LEN).collect(),
    })
}
