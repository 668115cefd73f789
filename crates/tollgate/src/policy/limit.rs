//! One quota of a policy, with everything about it that does not change from request to request.

use std::sync::Arc;

use super::name::{Labels, check_name};
use crate::{ConfigError, Quota, Scope};

/// A quota of a policy.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    pub(crate) quota: Quota,
    pub(crate) scope: Scope,
    pub(crate) labels: &'static Labels,
}

impl Limit {
    /// The same with states of this family, which is no other policy's: its name has a character that no policy's has.
    pub(super) fn in_family(&self, family: &str) -> Self {
        let scope = Scope::of(family, self.scope.slot(), &self.quota);
        let Labels { policy, quota, .. } = self.labels;
        Self {
            scope,
            labels: Labels::keep(policy, scope, quota, &self.quota),
            ..*self
        }
    }
}

/// One quota or several, for [`Policy::new`](crate::Policy::new).
///
/// In headers the first is called like its policy and the others by a number behind it, `api-2`, unless a name is given:
/// `[("burst", Quota::per_second(10)), ("daily", Quota::per_day(1000))]`.
#[derive(Clone, Debug, Default)]
pub struct Quotas(Vec<(Option<String>, Quota)>);

impl From<Quota> for Quotas {
    fn from(quota: Quota) -> Self {
        Self(vec![(None, quota)])
    }
}

impl From<Vec<Quota>> for Quotas {
    fn from(quotas: Vec<Quota>) -> Self {
        Self(quotas.into_iter().map(|quota| (None, quota)).collect())
    }
}

impl<const N: usize> From<[Quota; N]> for Quotas {
    fn from(quotas: [Quota; N]) -> Self {
        quotas.to_vec().into()
    }
}

impl<const N: usize> From<[(&str, Quota); N]> for Quotas {
    fn from(quotas: [(&str, Quota); N]) -> Self {
        Self(
            quotas
                .into_iter()
                .map(|(name, quota)| (Some(name.to_owned()), quota))
                .collect(),
        )
    }
}

impl<N: Into<String>> FromIterator<(N, Quota)> for Quotas {
    fn from_iter<I: IntoIterator<Item = (N, Quota)>>(quotas: I) -> Self {
        let quotas = quotas.into_iter();
        Self(
            quotas
                .map(|(name, quota)| (Some(name.into()), quota))
                .collect(),
        )
    }
}

impl Quotas {
    pub(super) fn into_limits(self, policy: &str) -> Result<Arc<[Limit]>, ConfigError> {
        if self.0.is_empty() {
            return Err(ConfigError::NoQuota {
                policy: policy.into(),
            });
        }
        let limits = self
            .0
            .into_iter()
            .enumerate()
            .map(|(index, (name, quota))| {
                let name = match name {
                    Some(name) => check_name(&name).map(|()| name)?,
                    None if index == 0 => policy.to_owned(),
                    None => format!("{policy}-{}", index + 1),
                };
                // A policy of more quotas than that is refused with its limiter, for having too many.
                let slot = u16::try_from(index).unwrap_or(u16::MAX);
                let scope = Scope::of(policy, slot, &quota);
                Ok(Limit {
                    quota,
                    scope,
                    labels: Labels::keep(policy, scope, &name, &quota),
                })
            });
        limits.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(quotas: impl Into<Quotas>) -> Vec<&'static str> {
        let limits = quotas.into().into_limits("api").unwrap();
        limits
            .iter()
            .map(|limit| limit.labels.quota.as_str())
            .collect()
    }

    #[test]
    fn quotas_are_named_after_their_policy_unless_they_have_names() {
        let (second, day) = (Quota::per_second(10), Quota::per_day(1000));
        assert_eq!(names(second), ["api"]);
        assert_eq!(names([second, day]), ["api", "api-2"]);
        assert_eq!(
            names([("burst", second), ("daily", day)]),
            ["burst", "daily"]
        );
    }

    #[test]
    fn a_quota_whose_name_is_none_is_refused() {
        let quotas = Quotas::from([("Daily", Quota::per_day(1))]);
        assert!(quotas.into_limits("api").is_err());
    }

    #[test]
    fn two_quotas_of_one_policy_have_states_of_their_own() {
        let limits = Quotas::from([Quota::per_second(10), Quota::per_day(1000)]);
        let limits = limits.into_limits("api").unwrap();
        assert_ne!(limits[0].scope, limits[1].scope);
    }
}
