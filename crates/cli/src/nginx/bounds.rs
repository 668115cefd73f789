//! The bounds of nginx: what a file of limits may ask of a service, and not of nginx.

use std::collections::HashSet;

use tollgate::config::{
    CostConfig, EntryConfig, KeyConfig, LimiterConfig, PolicyConfig, TierSource,
};
use tollgate::{OnFailure, Quota};

use crate::limits::quotas_of;

/// A part of a file that nginx cannot do.
#[derive(Debug)]
pub(super) struct Beyond {
    /// `None` for what stands at the top of the file.
    policy: Option<String>,
    field: &'static str,
    reason: String,
}

impl Beyond {
    /// The part in words, with its line in the text of the file if it is found there.
    pub(super) fn words(&self, text: &str) -> String {
        let place = match &self.policy {
            Some(policy) => format!("policy {policy:?}: {}", self.field),
            None => self.field.to_owned(),
        };
        let line = line_of(text, self.policy.as_deref(), self.field);
        let line = line
            .map(|line| format!("line {line}: "))
            .unwrap_or_default();
        format!("{line}{place}: {}", self.reason)
    }
}

/// The line of a field of a policy, or of the policy's name; counted from 1.
fn line_of(text: &str, policy: Option<&str>, field: &str) -> Option<usize> {
    let field = field.trim_matches(['[', ']']);
    let says = |line: &str, word: &str| {
        let mut words = line.split(|c: char| !(c.is_alphanumeric() || "-_./".contains(c)));
        words.any(|found| found == word)
    };
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    let Some(policy) = policy else {
        return lines.find(|(_, line)| says(line, field)).map(|(at, _)| at);
    };
    let (start, first) = lines.find(|(_, line)| says(line, "name") && says(line, policy))?;
    let own =
        lines.take_while(|(_, line)| !(line.trim_start().starts_with("[[") || says(line, "name")));
    let mut own = std::iter::once((start, first)).chain(own);
    let found = own.find(|(_, line)| says(line, field));
    Some(found.map_or(start, |(at, _)| at))
}

/// Everything that nginx cannot do.
pub(super) fn beyond(config: &LimiterConfig) -> Vec<Beyond> {
    let mut found = Vec::new();
    let mut add = |field, reason: &str| {
        found.push(Beyond {
            policy: None,
            field,
            reason: reason.to_owned(),
        });
    };
    if config.shed.is_some() {
        add(
            "[shed]",
            "nginx does not know the pressure on your services",
        );
    }
    if config.exempt_preflights {
        add("exempt_preflights", FORMS_OF_REQUESTS);
    }
    if config.exempt_health_checks {
        add("exempt_health_checks", FORMS_OF_REQUESTS);
    }
    let mut names = HashSet::new();
    let mut charged = 0;
    for policy in config.policies.iter().filter(|policy| !policy.on_demand) {
        charged += 1;
        let reasons = reasons(policy);
        found.extend(reasons.into_iter().map(|(field, reason)| Beyond {
            policy: Some(policy.name.clone()),
            field,
            reason,
        }));
        if !names.insert(&policy.name) {
            found.push(Beyond {
                policy: Some(policy.name.clone()),
                field: "name",
                reason: "another policy has this name, and nginx charges each budget once"
                    .to_owned(),
            });
        }
    }
    if charged == 0 {
        found.push(Beyond {
            policy: None,
            field: "policies",
            reason: "no policy covers requests by itself: all are on_demand, or there is none"
                .to_owned(),
        });
    }
    found
}

const FORMS_OF_REQUESTS: &str = "nginx charges every form of a request; name paths in exempt_routes, or methods in exempt_methods";

const IN_THE_SERVICE: &str = "only the code of a service has what is registered";

fn reasons(policy: &PolicyConfig) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let mut add = |field, is_beyond: bool, reason: &str| {
        if is_beyond {
            found.push((field, reason.to_owned()));
        }
    };
    add(
        "grpc",
        !policy.grpc.is_empty(),
        "nginx does not answer calls of gRPC in its own words",
    );
    add(
        "per_message",
        policy.per_message.is_some(),
        "nginx does not see the messages of a stream",
    );
    add("when", !policy.when.is_empty(), IN_THE_SERVICE);
    add(
        "exempt_preflights",
        policy.exempt_preflights,
        FORMS_OF_REQUESTS,
    );
    add(
        "exempt_health_checks",
        policy.exempt_health_checks,
        FORMS_OF_REQUESTS,
    );
    add(
        "cost",
        matches!(policy.cost, CostConfig::Registered(_)),
        IN_THE_SERVICE,
    );
    add(
        "outcome",
        policy.outcome.is_some(),
        "nginx does not correct a charge by the response",
    );
    add("quotas_by", policy.quotas_by.is_some(), IN_THE_SERVICE);
    add(
        "classes",
        policy.classes.is_some(),
        "nginx keeps no shares for classes",
    );
    add("once", policy.once.is_some(), "nginx does not remember ids");
    add("lease", policy.lease.is_some(), "nginx leases nothing");
    let tiers = policy.tiers.as_ref();
    let are_registered = tiers.is_some_and(|tiers| matches!(tiers.by, TierSource::Registered(_)));
    add("tiers", are_registered, IN_THE_SERVICE);
    let strikes = policy
        .ban
        .as_ref()
        .is_some_and(|ban| ban.strike_if.is_some());
    add(
        "strike_if",
        strikes,
        "nginx does not count responses as strikes",
    );
    let blocked = &policy.block_keys;
    let lists = [
        ("exempt_keys", &policy.exempt_keys),
        ("block_keys", &blocked.forbidden),
        ("block_keys", &blocked.too_many_requests),
        ("exempt_networks", &policy.exempt_networks),
    ];
    for (field, list) in lists {
        let is_registered = |entry: &EntryConfig| matches!(entry, EntryConfig::Registered { .. });
        add(field, list.iter().any(is_registered), IN_THE_SERVICE);
    }
    add(
        "on_failure",
        matches!(policy.on_failure, OnFailure::Local(_)),
        "the workers of nginx have no budgets of their own: say \"allow\" or \"deny\"",
    );
    for quota in quotas_of(policy) {
        if let Some(reason) = beyond_quota(&quota) {
            add("quotas", true, &format!("{quota}: {reason}"));
        }
    }
    if let Some(key) = &policy.key
        && let Some(reason) = beyond_key(key, policy)
    {
        add("key", true, &reason);
    }
    found
}

fn beyond_quota(quota: &Quota) -> Option<&'static str> {
    if quota.is_held() {
        Some("nginx does not give back what a request holds")
    } else if quota.waits() {
        Some("requests do not wait in nginx for their turn")
    } else {
        None
    }
}

fn beyond_key(key: &KeyConfig, policy: &PolicyConfig) -> Option<String> {
    let reason = match key {
        KeyConfig::ByClientIp
        | KeyConfig::ByGlobal
        | KeyConfig::ByHost
        | KeyConfig::ByMethod
        | KeyConfig::ByBasicUser
        | KeyConfig::ByBearerToken
        | KeyConfig::ByHeader(_)
        | KeyConfig::ByCookie(_)
        | KeyConfig::ByQuery(_)
        | KeyConfig::ByFormField(_)
        | KeyConfig::ByJsonField(_) => return None,
        KeyConfig::ByPathParam(name) => {
            let (param, rest) = (format!("{{{name}}}"), format!("{{*{name}}}"));
            let has_it = |route: &String| route.contains(&param) || route.contains(&rest);
            return match &*policy.routes {
                [] => Some(format!(
                    "nginx knows the parameter {name} only by the routes of the policy, and it has none"
                )),
                routes if routes.iter().all(has_it) => None,
                _ => Some(format!(
                    "a route of the policy does not have the parameter {name}, and nginx knows no other routes"
                )),
            };
        }
        KeyConfig::ByMatchedRoute => "nginx does not know the routes of your services",
        KeyConfig::ByRegistered(_) => IN_THE_SERVICE,
        KeyConfig::All(keys) => return keys.iter().find_map(|key| beyond_key(key, policy)),
        _ => "nginx does not know this kind of key",
    };
    Some(reason.to_owned())
}
