//! `tollgate check`: says whether a file of limits is valid, what it covers, and what a change of it means for callers.

use std::path::Path;

use tollgate::config::{LimiterConfig, PolicyConfig, ShedConfig};

use crate::arguments::CheckArguments;
use crate::coverage::{self, Covered};
use crate::failure::Failure;
use crate::limits::{Limits, Registered};
use crate::policy_words;

pub(crate) fn run(asked: &CheckArguments) -> Result<String, Failure> {
    let limits = read(&asked.limits)?;
    let before = asked.against.as_deref().map(read).transpose()?;
    let covered = coverage::table(&asked.limits, limits.config()).map_err(Failure::invalid)?;

    let mut report = String::new();
    let config = limits.config();
    let policies = match config.policies.len() {
        1 => "1 policy".to_owned(),
        many => format!("{many} policies"),
    };
    line(
        &mut report,
        format_args!("{}: valid, {policies}", asked.limits.display()),
    );
    for policy in &config.policies {
        write_policy(&mut report, policy);
    }
    if let Some(shed) = &config.shed {
        write_shed(&mut report, shed);
    }
    write_covered(&mut report, &covered);
    write_refusals(&mut report, config, &covered);
    write_registered(&mut report, limits.registered());
    if let (Some(before), Some(path)) = (before, &asked.against) {
        write_changes(&mut report, path, &before.changes_to(&limits));
    }
    Ok(report)
}

fn read(path: impl AsRef<Path>) -> Result<Limits, Failure> {
    Limits::read(path.as_ref(), |_| {}, |builder| builder).map_err(Failure::invalid)
}

fn line(report: &mut String, words: std::fmt::Arguments<'_>) {
    report.push_str(&words.to_string());
    report.push('\n');
}

fn write_policy(report: &mut String, policy: &PolicyConfig) {
    let trial = if policy.shadow {
        ", on trial: it refuses no request"
    } else {
        ""
    };
    line(report, format_args!("\npolicy {}{trial}", policy.name));
    let mut say = |name: &str, words: &str| line(report, format_args!("  {name:<8} {words}"));
    say("covers", &policy_words::covers(policy));
    say("by", &policy_words::payer(policy));
    say("allows", &policy_words::quotas(policy));
    if let Some(tiers) = &policy.tiers {
        for (name, quotas) in &tiers.quotas {
            let quotas = policy_words::quotas_as_written(quotas);
            say("tier", &format!("{name}: {quotas}"));
        }
    }
    if let Some(rule) = policy_words::missing(policy) {
        say("without", &format!("an identity, requests {rule}"));
    }
    say(
        "failing",
        &format!("while the backend fails, {}", policy_words::failure(policy)),
    );
}

fn write_shed(report: &mut String, shed: &ShedConfig) {
    let trial = if shed.shadow {
        ", on trial: it refuses no request"
    } else {
        ""
    };
    line(report, format_args!("\nunder pressure{trial}"));
    let mut say = |name: &str, words: &str| line(report, format_args!("  {name:<8} {words}"));
    say("signal", &policy_words::signals(&shed.signals));
    say("class", &policy_words::key(&shed.by));
    for refused in &shed.at {
        say("refuses", &format!("{refused} and above"));
    }
}

fn write_covered(report: &mut String, covered: &[Covered]) {
    line(report, format_args!("\nwhich policies a request meets:"));
    let width = covered.iter().map(|row| row.requests.chars().count()).max();
    let width = width.unwrap_or_default();
    for Covered { requests, policies } in covered {
        let policies = match policies.as_slice() {
            [] => "no policy: it passes unlimited".to_owned(),
            policies => policies.join(", "),
        };
        line(report, format_args!("  {requests:<width$}  {policies}"));
    }
}

/// The requests and the callers that never pass.
fn write_refusals(report: &mut String, config: &LimiterConfig, covered: &[Covered]) {
    let mut refusals = Vec::new();
    for policy in config.policies.iter().filter(|policy| !policy.shadow) {
        let name = &policy.name;
        if policy_words::refuse_all(&policy.quotas) && policy.quotas_by.is_none() {
            let requests = covered.iter().filter(|row| row.policies.contains(name));
            let requests: Vec<_> = requests.map(|row| row.requests.as_str()).collect();
            let whose = match requests.is_empty() {
                // Policies on demand, which the code of the service charges, and those of messages.
                true => "nothing passes that is charged to it".to_owned(),
                false => format!("no request passes of {}", requests.join(", ")),
            };
            let except = except(policy);
            refusals.push(format!("policy {name} has the limit 0: {whose}{except}"));
        }
        for (tier, quotas) in policy.tiers.iter().flat_map(|tiers| &tiers.quotas) {
            if policy_words::refuse_all(quotas) {
                refusals.push(format!(
                    "policy {name}: no request passes of a caller in tier {tier}"
                ));
            }
        }
        let blocked = policy.block_keys.forbidden.len() + policy.block_keys.too_many_requests.len();
        if blocked > 0 {
            refusals.push(format!("policy {name}: no request passes of the callers in its block_keys (entries: {blocked})"));
        }
    }
    if !refusals.is_empty() {
        line(report, format_args!("\nwhat never passes:"));
    }
    for refusal in refusals {
        line(report, format_args!("  {refusal}"));
    }
}

/// The callers that pass a limit of 0.
fn except(policy: &PolicyConfig) -> String {
    let tiers = policy.tiers.iter().flat_map(|tiers| &tiers.quotas);
    let tiers = tiers.filter(|(_, quotas)| !policy_words::refuse_all(quotas));
    let mut callers: Vec<_> = tiers.map(|(name, _)| format!("tier {name}")).collect();
    if !policy.exempt_keys.is_empty() {
        callers.push("its exempt_keys".to_owned());
    }
    match callers.is_empty() {
        true => String::new(),
        false => format!(", except of callers in {}", callers.join(", ")),
    }
}

fn write_registered(report: &mut String, names: &[Registered]) {
    if names.is_empty() {
        return;
    }
    line(
        report,
        format_args!("\nwhat the service has to register, and this program cannot see:"),
    );
    for name in names {
        line(report, format_args!("  {}", name.words()));
    }
}

fn write_changes(report: &mut String, old: &Path, changes: &[String]) {
    let old = old.display();
    if changes.is_empty() {
        line(
            report,
            format_args!("\nnothing changes for callers against {old}"),
        );
        return;
    }
    line(report, format_args!("\nwhat changes against {old}:"));
    for change in changes {
        line(report, format_args!("  {change}"));
    }
}
