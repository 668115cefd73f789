//! `tollgate check`: says whether a file of limits is valid, what it covers, and what a change of it means for callers.

mod checked;
mod json;
mod text;

use std::path::Path;

use tollgate::OnMissing;
use tollgate::config::{LimiterConfig, PolicyConfig, ShedConfig, TierSource};

use self::checked::{Checked, Described};
use crate::arguments::CheckArguments;
use crate::coverage;
use crate::failure::Failure;
use crate::limits::{Limits, Registered};
use crate::policy_words;

pub(crate) fn run(asked: &CheckArguments) -> Result<String, Failure> {
    let limits = read(&asked.limits)?;
    let before = asked.against.as_deref().map(read).transpose()?;
    let config = limits.config();
    let covered = coverage::examples(&asked.limits, config).map_err(Failure::invalid)?;
    let policies = config.policies.iter();
    let registered = limits.registered().iter().map(Registered::words);
    let checked = Checked {
        policies: policies.map(|it| policy(it, config)).collect(),
        pressure: config.shed.as_ref().map(shed),
        never_pass: refusals(config),
        covered,
        registered: registered.collect(),
        changes: before.map(|before| before.changes_to(&limits)),
    };
    Ok(match asked.json {
        true => json::report(asked, &checked),
        false => text::report(asked, &checked),
    })
}

fn read(path: impl AsRef<Path>) -> Result<Limits, Failure> {
    Limits::read(path.as_ref(), |_| {}, |builder| builder).map_err(Failure::invalid)
}

fn policy(policy: &PolicyConfig, config: &LimiterConfig) -> Described {
    let mut facts = vec![
        ("covers", policy_words::covers(policy, config)),
        ("by", policy_words::payer(policy)),
        ("allows", policy_words::quotas(policy)),
    ];
    for (name, quotas) in policy.tiers.iter().flat_map(|tiers| &tiers.quotas) {
        let quotas = policy_words::quotas_as_written(quotas);
        facts.push(("tier", format!("{name}: {quotas}")));
    }
    if let Some(rule) = policy_words::missing(policy) {
        facts.push(("without", format!("an identity, requests {rule}")));
    }
    if !policy_words::asks_nobody(policy) {
        let failing = policy_words::failure(policy);
        facts.push(("failing", format!("while the backend fails, {failing}")));
    }
    Described {
        name: policy.name.clone(),
        is_trial: policy.shadow,
        facts,
    }
}

fn shed(shed: &ShedConfig) -> Described {
    let mut facts = vec![
        ("signal", policy_words::signals(&shed.signals)),
        ("class", policy_words::key(&shed.by)),
    ];
    let refused = shed.at.iter();
    facts.extend(refused.map(|refused| ("refuses", format!("{refused} and above"))));
    Described {
        name: "under pressure".to_owned(),
        is_trial: shed.shadow,
        facts,
    }
}

/// The requests and the callers that never pass.
fn refusals(config: &LimiterConfig) -> Vec<String> {
    let mut refusals = Vec::new();
    for policy in config.policies.iter().filter(|policy| !policy.shadow) {
        let name = &policy.name;
        if policy_words::refuse_all(&policy.quotas) && policy.quotas_by.is_none() {
            let except = except(policy);
            let whose = match policy.on_demand {
                true => "it refuses whatever is charged to it",
                false => "it refuses every request that it covers",
            };
            refusals.push(format!("policy {name} has the limit 0: {whose}{except}"));
        }
        let others = policy_words::unclear(policy);
        for (tier, quotas) in policy.tiers.iter().flat_map(|tiers| &tiers.quotas) {
            if policy_words::refuse_all(quotas) {
                refusals.push(format!(
                    "policy {name}: it refuses callers in tier {tier}{others}"
                ));
            }
        }
        for tier in policy_words::stricter_tiers(policy).filter(|_| !others.is_empty()) {
            refusals.push(format!(
                "policy {name}: callers in tier {tier} have less than those in none{others}"
            ));
        }
        let blocked = policy.block_keys.forbidden.len() + policy.block_keys.too_many_requests.len();
        if blocked > 0 {
            refusals.push(format!("policy {name}: it refuses the callers in its block_keys (entries: {blocked}){others}"));
        }
    }
    refusals
}

/// The callers that pass a limit of 0.
fn except(policy: &PolicyConfig) -> String {
    let tiers = policy.tiers.iter().flat_map(|tiers| &tiers.quotas);
    let tiers = tiers.filter(|(_, quotas)| !policy_words::refuse_all(quotas));
    let mut callers: Vec<_> = tiers
        .map(|(name, _)| format!("callers in tier {name}"))
        .collect();
    if let Some(TierSource::Registered(name)) = policy.tiers.as_ref().map(|tiers| &tiers.by) {
        callers.push(format!(
            "callers to whom the registered tiers {name} give quotas"
        ));
    }
    if !policy.exempt_keys.is_empty() {
        callers.push("callers in its exempt_keys".to_owned());
    }
    if policy.on_missing == OnMissing::Pass && policy_words::missing(policy).is_some() {
        callers.push("requests without an identity".to_owned());
    }
    match callers.is_empty() {
        true => String::new(),
        false => format!(", except of {}", callers.join(", ")),
    }
}
