//! The rule for failures as it is written in a configuration.

use std::num::NonZeroU64;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{OnFailure, Share};

/// [`OnFailure`] as it is written. Flat, so that the usual `local` needs no braces.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FailureConfig {
    Allow,
    Deny,
    Local,
    LocalOneIn(NonZeroU64),
}

impl Serialize for OnFailure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        FailureConfig::from(*self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for OnFailure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        FailureConfig::deserialize(deserializer).map(Self::from)
    }
}

impl From<FailureConfig> for OnFailure {
    fn from(rule: FailureConfig) -> Self {
        match rule {
            FailureConfig::Allow => Self::Allow,
            FailureConfig::Deny => Self::Deny,
            FailureConfig::Local => Self::Local(Share::WHOLE),
            FailureConfig::LocalOneIn(n) => Self::Local(Share::one_in(n.get())),
        }
    }
}

impl From<OnFailure> for FailureConfig {
    fn from(rule: OnFailure) -> Self {
        match rule {
            OnFailure::Allow => Self::Allow,
            OnFailure::Deny => Self::Deny,
            OnFailure::Local(share) => match NonZeroU64::new(share.parts()) {
                Some(n) if n > NonZeroU64::MIN => Self::LocalOneIn(n),
                _ => Self::Local,
            },
        }
    }
}
