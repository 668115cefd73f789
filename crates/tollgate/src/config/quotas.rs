//! Quotas as they are written.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tollgate_core::is_name;

use super::refused;
use crate::policy::Quotas;
use crate::{ConfigError, ParseQuotaError, Quota};

/// One quota, `"10/s burst 20"`, a list of them, or a map of names to quotas.
///
/// A map is taken in the order of its names, since most formats keep no other. The place of a quota among the others is part
/// of where its budgets are: a new one before it starts them afresh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "quotas are a text such as \"10/s\", a list of such texts, or a map of names to such texts"
)]
pub enum QuotasConfig {
    /// One, named like its policy.
    One(String),
    /// Several, named like their policy and by a number.
    Many(Vec<String>),
    /// Several with names.
    Named(BTreeMap<String, String>),
}

impl Default for QuotasConfig {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl QuotasConfig {
    pub(super) fn read(&self, policy: &str, field: &'static str) -> Result<Quotas, ConfigError> {
        let parse = |text: &String| -> Result<Quota, ConfigError> {
            text.parse()
                .map_err(|error: ParseQuotaError| refused(policy, field, text, error.to_string()))
        };
        match self {
            Self::One(text) => parse(text).map(Into::into),
            Self::Many(texts) => {
                let quotas: Vec<Quota> = texts.iter().map(parse).collect::<Result<_, _>>()?;
                Ok(quotas.into())
            }
            Self::Named(texts) => {
                let quotas = texts.iter().map(|(name, text)| {
                    if is_name(name) {
                        Ok((name.as_str(), parse(text)?))
                    } else {
                        Err(refused(policy, field, name, "is no name for a quota"))
                    }
                });
                quotas.collect()
            }
        }
    }
}
