//! Quotas as they are written.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tollgate_core::is_name;

use super::refused;
use crate::policy::{Quotas, is_none, why_no_quota};
use crate::{ConfigError, ParseQuotaError, Quota};

/// One quota, `"10/s burst 20"`, several in one text, `"10/s; 1000/day"`, a list of texts, or a map of names to quotas; or `"none"`
/// for a limit of 0, which refuses every request.
///
/// A map is taken in the order of its names, since most formats keep no other. A quota with a name keeps its budgets by it; one
/// without has its place among the others as a part of where its budgets are, so that a new one before it starts them afresh.
///
/// ```
/// use tollgate::config::{PolicyConfig, QuotasConfig};
///
/// let policy = |quotas: &str| toml::from_str::<PolicyConfig>(&format!("name = 'api'\nquotas = {quotas}"));
/// assert_eq!(policy("'10/s; 1000/day'")?.quotas, QuotasConfig::One("10/s; 1000/day".into()));
/// assert!(matches!(policy("['10/s', '1000/day']")?.quotas, QuotasConfig::Many(_)));
/// assert!(matches!(policy("{ second = '10/s', day = '1000/day' }")?.quotas, QuotasConfig::Named(_)));
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "quotas are a text such as \"10/s\", a list of such texts, or a map of names to such texts"
)]
pub enum QuotasConfig {
    /// One, named like its policy, or several in one text.
    One(String),
    /// Several, named like their policy and by a number.
    Many(Vec<String>),
    /// Several with names, which belong to the policy: headers call the quota `day` of the policy `api` `api-day`.
    Named(BTreeMap<String, String>),
}

impl Default for QuotasConfig {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl QuotasConfig {
    pub(super) fn read(&self, policy: &str, field: &'static str) -> Result<Quotas, ConfigError> {
        let wrong = |text: &str, error: ParseQuotaError| {
            refused(policy, field, text, why_no_quota(text, &error))
        };
        match self {
            Self::One(text) if is_none(text) => Ok(Quotas::none()),
            Self::One(text) => match Quota::parse_all(text) {
                Ok(quotas) => Ok(quotas.into()),
                Err(error) => Err(wrong(text, error)),
            },
            Self::Many(texts) => {
                let mut quotas = Vec::new();
                for text in texts {
                    quotas.extend(Quota::parse_all(text).map_err(|error| wrong(text, error))?);
                }
                Ok(quotas.into())
            }
            Self::Named(texts) => {
                let quotas = texts.iter().map(|(name, text)| {
                    if is_name(name) {
                        let quota = text.parse().map_err(|error| wrong(text, error))?;
                        Ok((name.as_str(), quota))
                    } else {
                        Err(refused(policy, field, name, "invalid name for a quota"))
                    }
                });
                quotas.collect()
            }
        }
    }
}
