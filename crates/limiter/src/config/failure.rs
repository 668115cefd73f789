//! The rule for failures as it is written in a configuration.

use std::num::NonZeroU64;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{OnFailure, Share};

/// [`OnFailure`] as it is written. Flat, so that the usual `local` needs no braces.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FailureConfig {
    Allow,
    Deny,
    Local,
    LocalOneIn(NonZeroU64),
    LocalPercent(u64),
}

impl Serialize for OnFailure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        FailureConfig::from(*self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for OnFailure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match FailureConfig::deserialize(deserializer)? {
            FailureConfig::LocalPercent(percent) if !(1..=100).contains(&percent) => {
                let reason = format!("local-percent {percent}: is not between 1 and 100");
                Err(de::Error::custom(reason))
            }
            rule => Ok(Self::from(rule)),
        }
    }
}

impl From<FailureConfig> for OnFailure {
    fn from(rule: FailureConfig) -> Self {
        match rule {
            FailureConfig::Allow => Self::Allow,
            FailureConfig::Deny => Self::Deny,
            FailureConfig::Local => Self::Local(Share::WHOLE),
            FailureConfig::LocalOneIn(n) => Self::Local(Share::one_in(n.get())),
            FailureConfig::LocalPercent(percent) => Self::Local(Share::percent(percent)),
        }
    }
}

impl From<OnFailure> for FailureConfig {
    fn from(rule: OnFailure) -> Self {
        match rule {
            OnFailure::Allow => Self::Allow,
            OnFailure::Deny => Self::Deny,
            OnFailure::Local(Share::WHOLE) => Self::Local,
            OnFailure::Local(share) => match share.one_of().and_then(NonZeroU64::new) {
                Some(n) => Self::LocalOneIn(n),
                None => Self::LocalPercent(share.in_percent()),
            },
        }
    }
}
