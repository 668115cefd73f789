//! Builds the policies of a handler or route from its limits and its place.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_core::{MAX_CHARGES, is_name};
use tollgate_limiter::transport::MOST_LOG_ENTRIES;
use tollgate_limiter::{ConfigError, Limiter, Policy};

use super::claim::Claim;
use super::misuse::MisuseKind;
use super::rule::{OwnPolicy, Rule};
use super::site::{Site, described};

/// The parts of which policies are built.
pub(super) struct Build<'a> {
    limiter: &'a Limiter,
    /// The names that other handlers and routes have taken in this limiter.
    taken: &'a HashMap<String, Claim>,
    site: &'a dyn Site,
    method: &'static str,
    route: &'a str,
    claims: Vec<(String, Claim)>,
}

type Policies = Arc<[Arc<Policy>]>;

impl<'a> Build<'a> {
    pub(super) fn new(
        limiter: &'a Limiter,
        taken: &'a HashMap<String, Claim>,
        site: &'a dyn Site,
        method: &'static str,
        route: &'a str,
    ) -> Self {
        Self {
            limiter,
            taken,
            site,
            method,
            route,
            claims: Vec::new(),
        }
    }

    /// The policies, and the names that they take.
    pub(super) fn policies(mut self) -> Result<(Policies, Vec<(String, Claim)>), MisuseKind> {
        let mut nameless = 0;
        let mut policies = Vec::new();
        for (index, rule) in self.site.rules().into_iter().enumerate() {
            let policy = match rule {
                Rule::Named { policy, cost } => self.policy_of_the_limiter(&policy, cost)?,
                Rule::Inline(own) => {
                    nameless += usize::from(own.name.is_none());
                    Arc::new(self.policy_of_its_own(index, own, nameless)?)
                }
            };
            if let Some(method) = self.site.grpc() {
                policy.check_methods(&method).map_err(MisuseKind::Config)?;
            }
            policies.push(policy);
        }
        let quotas = policies.iter().map(|policy| policy.most_limits()).sum();
        if quotas > MAX_CHARGES {
            return Err(MisuseKind::TooManyQuotas { quotas });
        }
        let entries = policies
            .iter()
            .map(|policy| policy.most_log_entries())
            .sum();
        if entries > MOST_LOG_ENTRIES {
            let most = MOST_LOG_ENTRIES;
            return Err(MisuseKind::Config(ConfigError::TooManyLogEntries {
                entries,
                most,
            }));
        }
        Ok((policies.into(), self.claims))
    }

    fn policy_of_the_limiter(
        &self,
        name: &str,
        cost: Option<u64>,
    ) -> Result<Arc<Policy>, MisuseKind> {
        let unknown = || MisuseKind::UnknownPolicy {
            policy: name.into(),
        };
        let policy = self.limiter.policy(name).ok_or_else(unknown)?;
        Ok(match cost {
            Some(cost) => {
                let policy = Policy::clone(&policy).cost(cost);
                policy.check_cost().map_err(MisuseKind::Config)?;
                Arc::new(policy)
            }
            None => policy,
        })
    }

    fn policy_of_its_own(
        &mut self,
        index: usize,
        own: OwnPolicy,
        nameless: usize,
    ) -> Result<Policy, MisuseKind> {
        let (name, mount) = match own.name {
            Some(name) => (name, None),
            None => (
                self.name_of_route(nameless)?,
                Some((self.method, self.route.into())),
            ),
        };
        let policy = Policy::try_new(&name, own.quotas).map_err(MisuseKind::Config)?;
        let mut policy = (own.finish)(policy);
        policy.complete().map_err(MisuseKind::Config)?;
        policy.check_key().map_err(MisuseKind::Config)?;
        self.limiter
            .check_fit(&policy)
            .map_err(MisuseKind::Config)?;
        for limit in policy.limits() {
            let claim = Claim {
                owner: self.site.owner(),
                index,
                mount: mount.clone(),
                who: described(self.site, self.route),
                place: self.site.place(),
            };
            self.claim(limit.label.quota(), claim)?;
        }
        Ok(self.limiter.switched(policy))
    }

    fn name_of_route(&self, nameless: usize) -> Result<String, MisuseKind> {
        if self.route.is_empty() {
            return Err(MisuseKind::NoRoute);
        }
        let mut name = self.site.name(self.method, self.route);
        if nameless > 1 {
            name = format!("{name}-{nameless}");
        }
        if is_name(&name) {
            Ok(name)
        } else {
            Err(MisuseKind::NoName { name })
        }
    }

    fn claim(&mut self, name: &str, claim: Claim) -> Result<(), MisuseKind> {
        let policies = self.limiter.policies();
        let mut quotas = policies.iter().flat_map(|policy| policy.limits().iter());
        if quotas.any(|limit| limit.label.quota() == name || limit.label.policy() == name) {
            return Err(MisuseKind::NameOfPolicy { name: name.into() });
        }
        let by_others = self.taken.get(name);
        let by_itself = self.claims.iter().find(|(taken, _)| taken == name);
        if let Some(taken) = by_others.or(by_itself.map(|(_, claim)| claim))
            && !taken.is_the_same(&claim)
        {
            let (name, by) = (name.into(), Box::new(taken.clone()));
            return Err(if taken.is_around(&claim) {
                MisuseKind::LimitedTwice { name, by }
            } else {
                MisuseKind::NameTaken { name, by }
            });
        }
        self.claims.push((name.into(), claim));
        Ok(())
    }
}
