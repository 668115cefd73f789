//! Words for operators: the changes between two configurations, and the place of a fault in a file.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value};
use tollgate_core::Unit;

use super::{LimiterConfig, PolicyConfig};
use crate::policy::Limit;
use crate::{Limiter, Policy, Quota};

/// The place of a fault, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) line: Option<usize>,
    pub(super) policy: Option<String>,
    pub(super) field: Option<String>,
}

impl Fault {
    /// The place that a message names, in this text. Our messages begin with the policy and go on with the field. Those of the
    /// reader of a format name a line.
    pub(super) fn find(text: &str, message: &str) -> Self {
        let (policy, rest) = match quoted_after(message, "policy ") {
            Some((policy, rest)) => (Some(policy), rest),
            None => (None, message),
        };
        let field = field_in(rest).or_else(|| field_in(message));
        // The first of two policies with one name stands before the one that is too many.
        let which = usize::from(message.ends_with(DOUBLE));
        // The reader of TOML names the first line of the policy, wherever the fault is in it.
        let told = line_in(message);
        let own = || line_of(text, policy?, which, field);
        let line = match field {
            _ if message.starts_with("shedding: ") => line_of_shed(text),
            Some(_) => own().or(told),
            None => told.map_or_else(own, |line| Some(line_of_unknown(text, message, line))),
        };
        Self {
            line,
            policy: policy.map(str::to_owned),
            field: field.map(str::to_owned),
        }
    }

    /// The message about it, without a reader's excerpt of another line.
    pub(super) fn words(&self, message: String) -> String {
        if line_in(&message) == self.line {
            return message;
        }
        match message.rsplit_once("^\n") {
            Some((_excerpt, words)) => words.to_owned(),
            None => message,
        }
    }
}

/// The end of the message about a second policy of one name.
const DOUBLE: &str = "two policies have this name";

/// The text in quotes after a word, and the rest of the message.
fn quoted_after<'m>(message: &'m str, word: &str) -> Option<(&'m str, &'m str)> {
    let (_, after) = message.split_once(&format!("{word}\""))?;
    after.split_once('"')
}

/// The field of a policy with which the rest of a message begins.
fn field_in(rest: &str) -> Option<&'static str> {
    let word = rest.trim_start_matches([':', ' ', ',']);
    let end = word.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let word = &word[..end.unwrap_or(word.len())];
    let is_meant = |field: &&&str| **field == word || field.strip_suffix('s') == Some(word);
    FIELDS.iter().find(is_meant).copied()
}

/// The fields of a policy.
const FIELDS: &[&str] = &[
    "name",
    "quotas",
    "quotas_by",
    "key",
    "routes",
    "grpc",
    "exempt_routes",
    "methods",
    "exempt_methods",
    "hosts",
    "exempt_networks",
    "when",
    "exempt_preflights",
    "exempt_health_checks",
    "cost",
    "outcome",
    "ban",
    "once",
    "lease",
    "tiers",
    "classes",
    "exempt_keys",
    "block_keys",
    "per_message",
    "retry_hint",
    "shadow",
    "on_demand",
    "on_missing",
    "on_failure",
];

/// The line that a reader's message names, as those of TOML, YAML and JSON do.
fn line_in(message: &str) -> Option<usize> {
    let (_, after) = message.split_once("line ")?;
    let end = after.find(|c: char| !c.is_ascii_digit());
    after[..end.unwrap_or(after.len())].parse().ok()
}

/// The line of the key that a message calls unknown, in the table that begins at this line; or else this line.
fn line_of_unknown(text: &str, message: &str, table: usize) -> usize {
    let unknown = message.split_once("unknown field `");
    let Some((key, _)) = unknown.and_then(|(_, after)| after.split_once('`')) else {
        return table;
    };
    let lines = text.lines().enumerate().skip(table - 1);
    let mut of_table = lines.take_while(|(at, line)| *at < table || !line.starts_with("[["));
    let found = of_table.find(|(_, line)| has_key(line, key));
    found.map_or(table, |(at, _)| at + 1)
}

/// The line of a field of a policy, or of the policy's name. If several policies have this name, the number chooses one, counted
/// from 0. A field in TOML, YAML or JSON stands at the beginning of a line, or on the line of the policy's name behind it.
fn line_of(text: &str, policy: &str, which: usize, field: Option<&str>) -> Option<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let names = |line: &&str| has_key(line, "name");
    let is_its =
        |line: &&str| names(line) && line.split(['"', '\'', ' ', ',']).any(|word| word == policy);
    let mut places = (0..lines.len()).filter(|place| is_its(&lines[*place]));
    let first = places.next()?;
    // Two on one line have that line.
    let at = which.checked_sub(1).and_then(|which| places.nth(which));
    let at = at.unwrap_or(first);
    let Some(field) = field else {
        return Some(at + 1);
    };
    let has_field =
        |line: &&str| has_key(line, field) || has_key(line, field.trim_end_matches('s'));
    if has_field(&lines[at]) {
        return Some(at + 1);
    }
    let behind = lines[at + 1..].iter().take_while(|line| !names(line));
    let behind = behind.enumerate().find(|(_, line)| has_field(line));
    let before = lines[..at].iter().rev().take_while(|line| !names(line));
    let before = before.enumerate().find(|(_, line)| has_field(line));
    let found = match (behind, before) {
        (Some((behind, _)), _) => at + 1 + behind,
        (None, Some((before, _))) => at - 1 - before,
        (None, None) => at,
    };
    Some(found + 1)
}

/// The line of the table with the classes that are refused under pressure.
fn line_of_shed(text: &str) -> Option<usize> {
    let is_read = |line: &str| !line.trim_start().starts_with(['#', '/']);
    let begins = |line: &str| has_key(line, "shed") || line.trim().starts_with("[shed]");
    let mut lines = text.lines();
    let at = lines.position(|line| is_read(line) && begins(line))?;
    Some(at + 1)
}

/// True if a line gives this key a value.
fn has_key(line: &str, key: &str) -> bool {
    line.match_indices(key).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + key.len()..].trim_start_matches(['"', '\'']);
        let is_whole = before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != '-');
        is_whole && (after.trim_start().starts_with(['=', ':']) || after.starts_with('.'))
    })
}

/// The changes from one configuration to another, in words, before they are made. `policies` are those that the new one
/// makes, which stands in this file.
pub(super) fn changes(
    before: &LimiterConfig,
    after: &LimiterConfig,
    file: &Path,
    limiter: &Limiter,
    policies: &[impl Borrow<Policy>],
) -> Vec<String> {
    let mut words = Vec::new();
    let named = |config: &LimiterConfig, name: &str| {
        let mut policies = config.policies.iter();
        policies.find(|policy| policy.name == name).cloned()
    };
    for policy in &after.policies {
        let name = &policy.name;
        let mut policies = policies.iter().map(Borrow::<Policy>::borrow);
        let built = policies.find(|built| built.name() == name);
        let texts = built.map(quotas_of).unwrap_or_default();
        match (named(before, name), limiter.policy(name)) {
            (Some(before), Some(running)) => {
                let budgets = built.map(|built| budgets_of(name, file, &running.limits, &built.limits));
                let quotas = format!(
                    "{} → {texts}; takes effect at once; {}",
                    quotas_of(&running),
                    budgets.unwrap_or_default()
                );
                let tiers = built.map(|built| tiers_of(name, file, &running, built));
                let told = (quotas, tiers.unwrap_or_default());
                change_of(&before, policy, &told, &mut words);
            }
            _ => words.push(format!(
                "policy {name}: new, {texts}; takes effect at once; callers that used this name before keep what they have used"
            )),
        }
    }
    for policy in &before.policies {
        if named(after, &policy.name).is_none() {
            words.push(format!(
                "policy {}: gone; it limits no caller from now on",
                policy.name
            ));
        }
    }
    let without_policies = |config: &LimiterConfig| {
        let mut fields = fields_of(config);
        fields.remove("policies");
        fields
    };
    for field in differing(&without_policies(before), &without_policies(after)) {
        words.push(format!("{field}: changed; takes effect at the next start"));
    }
    words
}

fn change_of(
    before: &PolicyConfig,
    after: &PolicyConfig,
    (quotas, tiers): &(String, String),
    words: &mut Vec<String>,
) {
    let name = &after.name;
    let mut say = |what: String| words.push(format!("policy {name}: {what}"));
    for field in differing(&fields_of(before), &fields_of(after)) {
        match field.as_str() {
            "quotas" => say(quotas.clone()),
            "tiers" => say(format!("tiers: changed; takes effect at once{tiers}")),
            "key" => say(
                "another key; takes effect at once; callers begin with a full budget".to_owned(),
            ),
            "shadow" => {
                let (from, to) = match after.shadow {
                    true => ("enforced", "on trial"),
                    false => ("on trial", "enforced"),
                };
                say(format!(
                    "{from} → {to}; takes effect at once; callers keep what they have used"
                ));
            }
            field => say(format!("{field}: changed; takes effect at once")),
        }
    }
}

/// The lot of callers when these quotas replace those: `docs/operating/changes.md` has it as a table.
fn budgets_of(policy: &str, file: &Path, before: &[Limit], after: &[Limit]) -> String {
    let heir = |limit: &Limit| before.iter().find(|other| other.scope == limit.scope);
    let mut told = if after.iter().all(|limit| heir(limit).is_some()) {
        "callers keep what they have used"
    } else {
        "callers begin with a full budget where the algorithm, the length of the window or the name of a quota has changed"
    }
    .to_owned();
    let are_reordered = are_reordered(before, after);
    if are_reordered {
        told += ", each quota what the one at its place had used: quotas with names keep their own";
    }
    let pairs = after.iter().filter_map(|limit| Some((heir(limit)?, limit)));
    let locks = pairs.filter_map(|(before, after)| {
        let is_raised = !are_reordered && is_raised(&before.quota, &after.quota);
        Some((lockout(&before.quota, &after.quota)?, is_raised))
    });
    if let Some((longest, is_raised)) = locks.max() {
        let although = match is_raised {
            true => "although the rate is raised, ",
            false => "",
        };
        let is_of_gateways = file
            .extension()
            .is_some_and(|it| it == "yaml" || it == "yml");
        let reset = match is_of_gateways {
            // The program for fleets reads no such file.
            true => format!("a reset of {policy} by the admin"),
            false => format!(
                "`tollgate reset {policy} KEY --redis URL --limits {}`",
                file.display()
            ),
        };
        told += &format!(
            "; {although}one that has spent all waits for up to {longest:?}: {reset} ends the wait"
        );
    }
    told
}

/// The lot of callers of each tier, where they begin anew or wait for longer than the tier's new quotas say.
fn tiers_of(policy: &str, file: &Path, before: &Policy, after: &Policy) -> String {
    let limits = |of: &Policy, tier: &str| -> Vec<Limit> {
        let all = of.tiers.iter().flat_map(|tiers| tiers.limits());
        let own = all.filter(|(name, _)| *name == tier);
        own.map(|(_, limit)| limit.clone()).collect()
    };
    let tiers = after.tiers.iter().flat_map(|tiers| tiers.limits());
    let tiers: BTreeSet<_> = tiers.map(|(name, _)| name).collect();
    let told = tiers.iter().filter_map(|tier| {
        let had = limits(before, tier);
        let told = budgets_of(policy, file, &had, &limits(after, tier));
        let begins_anew = !had.is_empty() && told.starts_with("callers begin");
        (begins_anew || told.contains("waits for up to")).then(|| format!("; tier {tier}: {told}"))
    });
    told.collect()
}

/// True if the second quota allows more in the same time.
fn is_raised(before: &Quota, after: &Quota) -> bool {
    let in_period =
        |quota: &Quota, other: &Quota| u128::from(quota.limit()) * other.period().as_micros();
    in_period(after, before) > in_period(before, after)
}

/// True if these are the quotas of before in another order, which have no names by which their states could be found.
fn are_reordered(before: &[Limit], after: &[Limit]) -> bool {
    let moved = |limit: &Limit| {
        let is_same = |other: &&Limit| other.quota == limit.quota;
        before.iter().find(is_same).map(|from| from.scope)
    };
    let places: Option<Vec<_>> = after.iter().map(moved).collect();
    places.is_some_and(|places| {
        let mut pairs = places.iter().zip(after);
        pairs.any(|(from, limit)| *from != limit.scope)
    })
}

/// The longest wait of a caller that spent the first quota before the second replaced it. `None` if a caller that has spent the
/// second waits at least as long. It is never longer than the first takes to drain.
fn lockout(before: &Quota, after: &Quota) -> Option<Duration> {
    let drain_us = |quota: &Quota, amount: u64| {
        let full = u128::from(amount) * quota.period().as_micros();
        full.div_ceil(u128::from(quota.limit()))
    };
    let full_us = |quota: &Quota| drain_us(quota, quota.capacity());
    let had_more = before.capacity() > after.capacity();
    let (locks_out, longest_us) = match after.unit() {
        Unit::Gcra => {
            let longer_us = full_us(before).saturating_sub(full_us(after));
            (longer_us > 0, longer_us + drain_us(after, 1))
        }
        Unit::IntervalRefill { .. } => {
            let refills = u128::from(before.capacity().div_ceil(before.limit()));
            let is_longer = full_us(before) > full_us(after);
            (is_longer, refills * before.period().as_micros())
        }
        // The present window counts on in the one after it.
        Unit::SlidingWindow { .. } => (had_more, 2 * after.period().as_micros()),
        Unit::FixedWindow { .. }
        | Unit::RollingWindow { .. }
        | Unit::SlidingLog { .. }
        | Unit::Calendar(_) => (had_more, after.period().as_micros()),
        // No time gives a place back. Bans and ids are not spent.
        Unit::Held | Unit::Ban | Unit::Once => return None,
    };
    if !locks_out {
        return None;
    }
    // Whole milliseconds are enough for an operator.
    let longest_ms = u64::try_from(longest_us.div_ceil(1_000)).unwrap_or(u64::MAX);
    Some(Duration::from_millis(longest_ms))
}

fn quotas_of(policy: &Policy) -> String {
    let quotas = policy.limits.iter().map(|limit| limit.quota.to_string());
    let quotas: Vec<_> = quotas.collect();
    match quotas.is_empty() {
        true => "none".to_owned(),
        false => quotas.join("; "),
    }
}

fn fields_of(config: &impl serde::Serialize) -> Map<String, Value> {
    match serde_json::to_value(config) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// The fields that differ, in alphabetical order. Their values are not told: some are keys of callers.
fn differing(before: &Map<String, Value>, after: &Map<String, Value>) -> Vec<String> {
    let mut fields: Vec<_> = before.keys().chain(after.keys()).cloned().collect();
    fields.sort();
    fields.dedup();
    fields.retain(|field| before.get(field) != after.get(field));
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
ipv6_prefix = 56

[[policies]]
name = \"login\"
quotas = \"5/min\"

[[policies]]
quotas = \"10/minit\"
name = \"api\"
routes = [\"/api\"]
";

    fn place(message: &str) -> (Option<usize>, Option<String>, Option<String>) {
        let fault = Fault::find(FILE, message);
        (fault.line, fault.policy, fault.field)
    }

    #[test]
    fn the_fields_are_those_of_a_policy() {
        let wrong = serde_json::json!({ "no-such-field": 0 });
        let error = serde_json::from_value::<PolicyConfig>(wrong).unwrap_err();
        let error = error.to_string();
        let (_, expected) = error.split_once("expected one of ").unwrap();
        let expected: Vec<_> = expected.split('`').skip(1).step_by(2).collect();
        assert_eq!(expected, FIELDS);
    }

    #[test]
    fn a_fault_has_the_line_of_the_field_wherever_the_name_stands() {
        let of = |line, policy: &str, field: &str| {
            (Some(line), Some(policy.to_owned()), Some(field.to_owned()))
        };
        assert_eq!(
            place("policy \"api\": quota \"10/minit\": expected a period"),
            of(8, "api", "quotas")
        );
        assert_eq!(
            place("policy \"login\": quotas: no"),
            of(5, "login", "quotas")
        );
        assert_eq!(
            place("policy \"api\": route \"/api\": no"),
            of(10, "api", "routes")
        );
        let named = (Some(4), Some("login".to_owned()), None);
        assert_eq!(
            place("policy \"login\": two policies have this name"),
            named
        );
        assert_eq!(place("a limiter without policies limits nothing").0, None);
        let twice = format!("{FILE}\n[[policies]]\nname = \"login\"\nquotas = \"6/min\"\n");
        let fault = Fault::find(&twice, "policy \"login\": two policies have this name");
        assert_eq!(fault.line, Some(13));
        let shed = Fault::find(
            "# shed: by class\n[shed]\nat = []\n",
            "shedding: no class has a threshold",
        );
        assert_eq!((shed.line, shed.field), (Some(2), None));
        let line = "TOML parse error at line 7, column 1";
        assert_eq!(place(line), (Some(7), None, None));
        let unknown = format!("{line}: policy \"api\": unknown field `routes`, expected");
        assert_eq!(place(&unknown).0, Some(10));
        let nowhere = format!("{line}: policy \"api\": unknown field `rotes`, expected");
        assert_eq!(place(&nowhere).0, Some(7));
        let field = "TOML parse error at line 3, column 1: policy \"login\": quotas: no";
        assert_eq!(place(field).0, Some(5));
    }
}
