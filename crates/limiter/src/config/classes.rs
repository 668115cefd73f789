//! Classes as they are written.

use serde::{Deserialize, Serialize};

use super::{KeyConfig, Registry, refused};
use crate::{ConfigError, Policy, Share};

/// The key of the configuration that names a class.
const FIELD: &str = "classes.by";

/// Classes of requests, for which shares of every budget are kept: see [`Policy::keep_for`](crate::Policy::keep_for).
///
/// ```
/// use tollgate::config::{ClassesConfig, KeyConfig, PolicyConfig};
///
/// let policy: PolicyConfig = toml::from_str(r#"
///     name = "api"
///     quotas = "100/min"
///
///     [classes]
///     by = { header = "x-class" }
///     keep_for = ["critical 20%", "normal 10%"]
/// "#)?;
/// let classes: Option<ClassesConfig> = policy.classes;
/// assert_eq!(classes.map(|classes| classes.by), Some(KeyConfig::ByHeader("x-class".into())));
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ClassesConfig {
    /// The part of a request that names its class, in the forms of a key.
    pub by: KeyConfig,
    /// The classes and their shares, the most important first: `"critical 20%"`.
    pub keep_for: Vec<String>,
}

impl ClassesConfig {
    pub(super) fn build(
        &self,
        mut policy: Policy,
        registry: &Registry,
    ) -> Result<Policy, ConfigError> {
        let name = policy.name().to_owned();
        let source = self.by.build_class(&name, registry);
        let source = source.map_err(in_classes)?;
        policy = policy.classes_by(source);
        for text in &self.keep_for {
            let Some((class, share)) = read(text) else {
                let reason =
                    "expected a class and its share in whole percent, such as \"critical 20%\"";
                return Err(refused(&name, "keep_for", text, reason));
            };
            policy = policy.keep_for(class, share);
        }
        Ok(policy)
    }
}

/// The error of a key that names a class.
fn in_classes(error: ConfigError) -> ConfigError {
    match error {
        ConfigError::Field {
            policy,
            value,
            reason,
            ..
        } => ConfigError::Field {
            policy,
            field: FIELD,
            value,
            reason,
        },
        ConfigError::NotRegistered {
            policy,
            name,
            known,
            ..
        } => ConfigError::NotRegistered {
            policy,
            field: FIELD,
            name,
            known,
        },
        error => error,
    }
}

fn read(text: &str) -> Option<(&str, Share)> {
    let text = text.trim().strip_suffix('%')?.trim_end();
    let (class, percent) = text.rsplit_once(char::is_whitespace)?;
    let percent: u64 = percent.parse().ok().filter(|percent| *percent <= 100)?;
    Some((class.trim(), Share::percent(percent)))
}
