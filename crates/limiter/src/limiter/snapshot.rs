//! The policies of a limiter, with everything that follows from them: an immutable value, which is replaced as a whole.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tollgate_core::MAX_CHARGES;

use super::coverage::Coverage;
use super::terms::Terms;
use super::watch::ProxyWatch;
use crate::matching::{Matcher, Pattern};
use crate::{ConfigError, Policy};

/// Six full logs. One call reads all logs of a request, and blocks a shared server for less than a millisecond: see
/// `tollgate-redis`.
pub const MOST_LOG_ENTRIES: usize = 6 * 1024;

/// The policies of a limiter.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// All, in the order in which they were added.
    pub(super) policies: Box<[Arc<Policy>]>,
    /// Those that cover requests: all but the ones on demand and those for messages.
    pub(super) requests: Coverage,
    /// Those for messages.
    pub(super) messages: Coverage,
    /// True if a response may change the cost of its request.
    pub(super) follows_responses: bool,
    pub(super) proxies: ProxyWatch,
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
            policy.complete()?;
            policy.check_cost()?;
            policy.check_coverage()?;
            policy.check_key()?;
            policy.complete_identities(&terms.client)?;
            terms.check_fit(policy)?;
            policy.warn_of_unclear_callers();
        }
        check_messages(&policies)?;
        let policies: Box<[Arc<Policy>]> = policies.into_iter().map(Arc::new).collect();
        let snapshot = Self::of(policies, terms);
        let matchers = (&snapshot.requests, &snapshot.messages);
        check_numbers(
            &snapshot.policies,
            matchers.0.matcher(),
            matchers.1.matcher(),
        )?;
        Ok(snapshot)
    }

    /// Policies that are fit to be a limiter's.
    pub(super) fn of(policies: Box<[Arc<Policy>]>, terms: &Terms) -> Self {
        let message_matcher = matcher(&policies, Policy::is_for_messages);
        let matcher = matcher(&policies, Policy::is_for_requests);
        let proxies = ProxyWatch::new(&policies);
        let coverage = |are_asked: fn(&Policy) -> bool, matcher: Option<Matcher>| {
            let policies = policies.iter().filter(|policy| are_asked(policy));
            Coverage::new(policies.cloned().collect(), matcher, terms, &proxies)
        };
        Self {
            requests: coverage(Policy::is_for_requests, matcher),
            messages: coverage(Policy::is_for_messages, message_matcher),
            follows_responses: policies.iter().any(|policy| policy.follows_responses()),
            proxies,
            policies,
        }
    }

    /// Goes on with the watch over the first requests, since a replacement does not restart the service.
    pub(super) fn go_on_from(&self, before: &Self) {
        self.proxies.go_on_from(&before.proxies);
        let proxies = [&self.proxies, &before.proxies];
        self.requests.go_on_from(&before.requests, proxies);
        self.messages.go_on_from(&before.messages, proxies);
    }

    pub(super) fn policy(&self, name: &str) -> Option<&Arc<Policy>> {
        let mut policies = self.policies.iter();
        policies.find(|policy| policy.name() == name)
    }
}

/// The patterns of all these policies as one router.
fn matcher(policies: &[Arc<Policy>], are_asked: fn(&Policy) -> bool) -> Option<Matcher> {
    let matched = policies.iter().filter(|policy| are_asked(policy));
    let patterns: Vec<_> = matched.map(|policy| policy.patterns()).collect();
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
    for asking in policies.iter().filter(|policy| policy.asks_for_quotas()) {
        let others = policies
            .iter()
            .filter(|other| other.name() != asking.name());
        for quota in asking.names_of_answers() {
            let has_it = |other: &&Policy| other.calls_a_quota(&quota);
            if let Some(other) = others.clone().find(has_it) {
                return Err(ConfigError::DuplicateQuota {
                    policies: [asking.name().into(), other.name().into()],
                    quota,
                });
            }
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

/// Refuses what a policy for messages cannot have: the cost of a message is known when it passes, so that no response changes it,
/// and a message has no end at which it would give back what it held.
fn check_messages(policies: &[Policy]) -> Result<(), ConfigError> {
    for policy in policies.iter().filter(|policy| policy.messages.is_some()) {
        let reason = if policy.outcome.is_some() {
            "charges messages, for which no response can say what they cost"
        } else if policy.waits() {
            "charges messages, which cannot wait for their turn: the stream would stand still"
        } else if policy.holds() {
            "charges messages, which cannot hold anything; a limit on calls at once is a policy of its own"
        } else if policy.ban_limit().is_some() {
            "charges messages, which ban no caller; a ban belongs to a policy for calls"
        } else {
            continue;
        };
        return Err(ConfigError::Messages {
            policy: policy.name().into(),
            reason,
        });
    }
    Ok(())
}

/// No more quotas than are decided together, whatever is asked for.
fn check_numbers(
    policies: &[Arc<Policy>],
    matcher: Option<&Matcher>,
    message_matcher: Option<&Matcher>,
) -> Result<(), ConfigError> {
    let most = |weight: fn(&Policy) -> usize| {
        let on_demand = policies.iter().filter(|policy| policy.on_demand);
        let together = [
            together(policies, matcher, Policy::is_for_requests, weight),
            together(policies, message_matcher, Policy::is_for_messages, weight),
        ];
        on_demand
            .map(|policy| weight(policy))
            .chain(together)
            .fold(0, usize::max)
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

/// The most that can meet of these policies.
fn together(
    policies: &[Arc<Policy>],
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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use http::Request;

    use super::*;
    use crate::key::{Global, Header};
    use crate::limiter::{Limiter, PolicySet, Ruling};
    use crate::{PeerAddr, Quota, RequestView, Tiers};

    /// The references to everything of a snapshot that threads share. A request that takes one writes to a cache line that all
    /// other requests read.
    fn references(limiter: &Limiter) -> Vec<usize> {
        let snapshot = limiter.snapshot();
        let mut counts = vec![Arc::strong_count(&*snapshot)];
        for policy in &snapshot.policies {
            counts.push(Arc::strong_count(policy));
            counts.extend(
                policy
                    .limits
                    .iter()
                    .map(|limit| Arc::strong_count(&limit.label)),
            );
        }
        counts
    }

    fn request() -> Request<()> {
        let mut request = Request::new(());
        let peer: SocketAddr = "10.0.0.1:1".parse().unwrap();
        request.extensions_mut().insert(PeerAddr(peer));
        let headers = request.headers_mut();
        headers.insert("x-api-key", "abc".parse().unwrap());
        request
    }

    /// The references that a request adds while it is decided, and those that its kept decision adds.
    fn added(limiter: &Limiter) -> (usize, usize) {
        let before = references(limiter);
        let sum_of_more = || -> usize {
            let now = references(limiter);
            now.iter()
                .zip(&before)
                .map(|(now, before)| now - before)
                .sum()
        };
        let request = request();
        let view = RequestView::of(&request);
        let admission = limiter.admit(
            &view,
            PolicySet::Covering,
            || true,
            |ruling| {
                let passing = sum_of_more();
                let (Ruling::Admitted(decided) | Ruling::Denied(decided)) = ruling else {
                    return (passing, 0);
                };
                let kept = decided.ledger();
                let with_kept = sum_of_more();
                drop(kept);
                (passing, with_kept - passing)
            },
        );
        let crate::limiter::Admission::Ruled(added) = admission else {
            unreachable!("the backend in memory answers at once");
        };
        assert_eq!(references(limiter), before);
        added
    }

    #[test]
    fn a_request_counts_no_reference_to_the_policies_and_a_kept_decision_one_for_each_quota() {
        let once = Quota::per_hour(1);
        let many = Quota::per_second(100);
        let tiers = Tiers::by(|_, _| Some("gold")).tier("gold", many);
        for (quotas, policies) in [
            (1, vec![Policy::new("by-peer", many)]),
            (1, vec![Policy::new("denied", once)]),
            (
                1,
                vec![Policy::new("sole", many).key(Header::new("x-api-key"))],
            ),
            (
                1,
                vec![Policy::new("routed", many).route("/{*path}").route("/")],
            ),
            (
                2,
                vec![
                    Policy::new("own", many),
                    Policy::new("all", many).key(Global),
                ],
            ),
            (1, vec![Policy::new("trial", once).shadow()]),
            (
                1,
                vec![
                    Policy::new("exempt", many).when(|_| false),
                    Policy::new("asked", many),
                ],
            ),
            (1, vec![Policy::new("tiers", once).tiers(tiers)]),
        ] {
            let limiter = Limiter::builder().policies(policies).build().unwrap();
            let name = limiter.policies()[0].name().to_owned();
            for _ in 0..3 {
                let (passing, kept) = added(&limiter);
                assert_eq!(passing, 0, "{name}");
                // A label of a tier is not among those of the policy.
                assert!(kept <= quotas, "{name}: {kept}");
            }
        }
    }
}
