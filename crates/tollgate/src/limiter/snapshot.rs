//! The policies of a limiter, with everything that follows from them: an immutable value, which is replaced as a whole.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tollgate_core::MAX_CHARGES;

use super::MOST_LOG_ENTRIES;
use super::observer::Observers;
use super::plan::{Entry, Plan};
use super::planning::{self, Planned, Refused, Site};
use super::watch::{ProxyWatch, Watch};
use crate::matching::{Covering, Matcher, PathForms, Pattern};
use crate::request::FoundClient;
use crate::{ClientAddress, ConfigError, Policy, RequestView};

/// What a limiter was told beside its policies, for as long as it lives.
#[derive(Debug, Default)]
pub(super) struct Terms {
    pub(super) client: ClientAddress,
    pub(super) ignores_path_case: bool,
    pub(super) exempts_preflights: bool,
    pub(super) exempts_health_checks: bool,
    pub(super) may_be_empty: bool,
    /// Why a policy cannot be one of this limiter's.
    pub(super) refuses: Option<fn(&Policy) -> Option<ConfigError>>,
}

/// The policies of a limiter.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// All, in the order in which they were added.
    pub(super) policies: Box<[Arc<Policy>]>,
    /// Those that cover requests: all but the ones on demand and those for messages.
    pub(super) requests: Coverage,
    /// Those for messages.
    pub(super) messages: Coverage,
    /// Whether a response may change what its request cost.
    pub(super) has_outcomes: bool,
    pub(super) proxies: ProxyWatch,
}

/// The policies of one kind, and how those are found that cover a request.
///
/// There are three ways, of which one is chosen when the policies are put together:
///
/// * **sole**: one policy, without routes, tiers, lists or a key that has to be waited for, under which nothing is exempt and a request
///   costs the same whatever it is. It is what `RateLimitLayer::new(quota)` makes. Only its key is looked for: a request takes a
///   third of the instructions (625 instead of 1,900, the decision among them).
/// * **by path**: where policies have routes, a router tells which of them the path concerns, so that a hundred cost as much as one.
/// * **each**: otherwise all are asked, one by one.
///
/// The first leaves what it cannot do (a request without an identity) to the last, which can do everything.
#[derive(Debug)]
pub(super) struct Coverage {
    pub(super) policies: Box<[Arc<Policy>]>,
    /// Whether the first way is chosen.
    is_sole: bool,
    /// Nothing, if no policy has a route.
    matcher: Option<Matcher>,
    pub(super) watch: Watch,
}

impl Snapshot {
    /// The policies, if they are fit to be a limiter's.
    pub(super) fn new(mut policies: Vec<Policy>, terms: &Terms) -> Result<Self, ConfigError> {
        if policies.is_empty() && !terms.may_be_empty {
            return Err(ConfigError::NoPolicy);
        }
        check_names(&policies)?;
        let grpc = policies.iter().flat_map(Policy::grpc_patterns);
        let grpc: Arc<[Pattern]> = grpc.cloned().collect();
        for policy in &mut policies {
            if terms.ignores_path_case {
                policy.ignore_path_case();
            }
            let preflights = terms.exempts_preflights;
            let health_checks = terms.exempts_health_checks;
            policy.exemptions.extend(preflights, health_checks, &grpc);
            if policy.messages.is_some() {
                policy.exemptions.charge_preflights();
            }
            policy.check_cost()?;
            policy.check_coverage()?;
            policy.check_identities(&terms.client)?;
            if let Some(error) = terms.refuses.and_then(|refuses| refuses(policy)) {
                return Err(error);
            }
        }
        check_messages(&policies)?;
        let message_matcher = matcher(&policies, Policy::is_for_messages);
        let matcher = matcher(&policies, Policy::is_for_requests);
        check_numbers(&policies, matcher.as_ref(), message_matcher.as_ref())?;
        let policies: Box<[Arc<Policy>]> = policies.into_iter().map(Arc::new).collect();
        let proxies = ProxyWatch::new(&policies);
        let coverage = |are_asked: fn(&Policy) -> bool, matcher: Option<Matcher>| {
            let policies = policies.iter().filter(|policy| are_asked(policy));
            let policies: Box<[_]> = policies.cloned().collect();
            let is_sole = matches!(&policies[..], [sole] if sole.is_plain())
                && matcher.is_none()
                && !terms.ignores_path_case;
            Coverage {
                watch: Watch::new(&policies, &proxies),
                is_sole,
                policies,
                matcher,
            }
        };
        Ok(Self {
            requests: coverage(Policy::is_for_requests, matcher),
            messages: coverage(Policy::is_for_messages, message_matcher),
            has_outcomes: policies.iter().any(|policy| policy.outcome.is_some()),
            proxies,
            policies,
        })
    }

    pub(super) fn policy(&self, name: &str) -> Option<&Arc<Policy>> {
        let mut policies = self.policies.iter();
        policies.find(|policy| policy.name() == name)
    }
}

impl Coverage {
    /// The positions of the policies that have a route which covers this path. Nothing, if no policy has a route.
    pub(super) fn covering(&self, path: &PathForms<'_>) -> Option<Covering<'_>> {
        Some(self.matcher.as_ref()?.covering(path))
    }

    /// The plan for a request to the only policy, if all there is to be found is who pays.
    #[inline]
    pub(super) fn sole_plan(&self, request: &RequestView<'_>) -> Option<Plan> {
        let [policy] = &self.policies[..] else {
            return None;
        };
        if !self.is_sole {
            return None;
        }
        if !policy.covers(request) {
            return Some(Plan::default());
        }
        let key = policy.key.extract(request).ok()?;
        let cost = policy.cost.fixed()?;
        Some(Plan::of(Entry::new(policy, None, key, cost, false)))
    }

    /// Which policies cover a request, whose budgets they spend, and how much.
    pub(super) fn plan(
        &self,
        request: &RequestView<'_>,
        terms: &Terms,
        observers: &Observers,
    ) -> Result<Planned, Refused> {
        let found = FoundClient::new();
        let request = request.remembering(&found);
        if self.matcher.is_none() && !terms.ignores_path_case {
            let all = self.policies.iter();
            return planning::plan(all, &request, None, Site::Layer, observers);
        }
        let path = PathForms::of(request.original_uri().path(), terms.ignores_path_case);
        match self.covering(&path) {
            None => {
                let all = self.policies.iter();
                planning::plan(all, &request, Some(&path), Site::Layer, observers)
            }
            Some(covering) => {
                let positions = covering.as_slice().iter();
                let covering = positions.filter_map(|position| self.policies.get(*position));
                planning::plan(covering, &request, Some(&path), Site::Layer, observers)
            }
        }
    }
}

/// Whose budgets a request spends under the policies of the handler that it has come to.
pub(super) fn plan_at_handler(
    policies: &[Arc<Policy>],
    request: &RequestView<'_>,
    observers: &Observers,
) -> Result<Planned, Refused> {
    let found = FoundClient::new();
    let request = request.remembering(&found);
    planning::plan(policies.iter(), &request, None, Site::Handler, observers)
}

/// The patterns of all these policies as one router.
fn matcher(policies: &[Policy], are_asked: fn(&Policy) -> bool) -> Option<Matcher> {
    let matched = policies.iter().filter(|policy| are_asked(policy));
    let patterns: Vec<_> = matched.map(Policy::patterns).collect();
    Matcher::new(&patterns)
}

/// No name twice: neither of policies nor of quotas.
fn check_names(policies: &[Policy]) -> Result<(), ConfigError> {
    let mut names = HashSet::new();
    for policy in policies {
        if !names.insert(policy.name()) {
            return Err(ConfigError::DuplicatePolicy {
                policy: policy.name().into(),
            });
        }
    }
    let mut labels = HashMap::new();
    for policy in policies {
        let own = policy.limits.iter().map(|limit| (None, limit));
        let tiers = policy.tiers.iter().flat_map(|tiers| tiers.limits());
        let mut of_policy = HashSet::new();
        for (tier, limit) in own.chain(tiers.map(|(tier, limit)| (Some(tier), limit))) {
            let label = limit.label.quota();
            // A caller is in one tier, so that each may call its quotas as the others do.
            let is_new = of_policy.insert((tier, label));
            let other = labels.insert(label, policy.name());
            let other = other.filter(|other| *other != policy.name() || !is_new);
            if let Some(other) = other {
                return Err(ConfigError::DuplicateQuota {
                    quota: label.to_owned(),
                    policies: [other.into(), policy.name().into()],
                });
            }
        }
    }
    Ok(())
}

/// What a message costs is known when it passes, and never by a response.
fn check_messages(policies: &[Policy]) -> Result<(), ConfigError> {
    let waits = |policy: &&Policy| policy.messages.is_some() && policy.outcome.is_some();
    match policies.iter().find(waits) {
        Some(policy) => Err(ConfigError::Messages {
            policy: policy.name().into(),
            reason: "charges messages, for which no response can say what they cost",
        }),
        None => Ok(()),
    }
}

/// No more quotas than are decided together, whatever is asked for.
fn check_numbers(
    policies: &[Policy],
    matcher: Option<&Matcher>,
    message_matcher: Option<&Matcher>,
) -> Result<(), ConfigError> {
    let most = |weight: fn(&Policy) -> usize| {
        let on_demand = policies.iter().filter(|policy| policy.on_demand);
        let together = [
            together(policies, matcher, Policy::is_for_requests, weight),
            together(policies, message_matcher, Policy::is_for_messages, weight),
        ];
        on_demand.map(weight).chain(together).fold(0, usize::max)
    };
    let quotas = most(Policy::most_limits);
    if quotas > MAX_CHARGES {
        return Err(ConfigError::TooManyQuotas { quotas });
    }
    let entries = most(Policy::most_log_entries);
    if entries > MOST_LOG_ENTRIES {
        let most = MOST_LOG_ENTRIES;
        return Err(ConfigError::TooManyLogEntries { entries, most });
    }
    Ok(())
}

/// How much of these policies can meet.
fn together(
    policies: &[Policy],
    matcher: Option<&Matcher>,
    are_asked: fn(&Policy) -> bool,
    weight: fn(&Policy) -> usize,
) -> usize {
    let policies: Vec<_> = policies.iter().filter(|policy| are_asked(policy)).collect();
    let weight = |policy: usize| weight(policies[policy]);
    match matcher {
        Some(matcher) => matcher.heaviest(weight),
        None => (0..policies.len()).map(weight).sum(),
    }
}
