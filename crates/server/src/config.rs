//! A configuration file: the library's policies, and the rules that say which descriptors charge them.

mod document;
mod ratelimit;
mod yaml;

use std::path::Path;
use std::sync::Arc;

use http::HeaderName;
use tollgate::config::{ClientAddressConfig, CostConfig, KeyConfig, LimiterConfig};

use self::document::{Document, RuleConfig};
use crate::live::Gateways;
use crate::original::ForwardAuth;
use crate::rules::{MOST_ENTRIES, Pattern, Rule, RuleCharge, Rules, SecondRule};

/// The policies and the rules of a file: one of envoy/ratelimit if it is YAML, and one of ours in TOML otherwise.
///
/// # Errors
///
/// If the text makes no sense: with the line.
pub(crate) fn read_file(path: &Path, text: &str) -> Result<(LimiterConfig, Gateways), String> {
    let extension = path.extension().unwrap_or_default();
    if extension == "yaml" || extension == "yml" {
        let (limiter, rules) = ratelimit::read(text)?;
        let gateways = Gateways {
            rules,
            forward_auth: None,
        };
        Ok((limiter, gateways))
    } else {
        read(text)
    }
}

/// The policies and the rules of a file in TOML.
fn read(text: &str) -> Result<(LimiterConfig, Gateways), String> {
    let document: Document = toml::from_str(text).map_err(|error| error.to_string())?;
    let mut rules = Rules::default();
    for rule in &document.envoy {
        add(&mut rules, &document.limiter, rule.get_ref()).map_err(|reason| {
            let line = line_at(text, rule.span().start);
            format!("the rule at line {line}: {reason}")
        })?;
    }
    let forward_auth = document.forward_auth.map(|forward| ForwardAuth {
        form: forward.gateway,
        allows_ambiguous_paths: forward.allow_ambiguous_paths,
        keys: key_fields(&document.limiter),
    });
    if forward_auth.is_some() {
        check_forward_auth(&document.limiter)
            .map_err(|reason| format!("forward_auth: {reason}"))?;
    } else if rules.len() == 0 {
        return Err(
            "there is neither an [[envoy]] rule nor [forward_auth]: nothing would have a limit"
                .to_owned(),
        );
    }
    let gateways = Gateways {
        rules,
        forward_auth,
    };
    Ok((document.limiter, gateways))
}

/// Refuses policies about requests of which a question over HTTP tells too little.
fn check_forward_auth(limiter: &LimiterConfig) -> Result<(), String> {
    let mut covering = limiter.policies.iter().filter(|policy| !policy.on_demand);
    if covering.clone().next().is_none() {
        return Err("every policy is on_demand, so that no request would have a limit".to_owned());
    }
    if limiter.client_address == ClientAddressConfig::Peer {
        return Err(
            "the peer of each question is the gateway, so that all callers would share its budget; say where it states the \
             caller's address, as in client_address = { x-forwarded-for = { networks = [\"127.0.0.1\"] } }"
                .to_owned(),
        );
    }
    covering.try_for_each(|policy| {
        let name = &policy.name;
        if policy.key.as_ref().is_some_and(reads_body) {
            return Err(format!(
                "policy {name:?} has a key in the body, which a gateway does not show"
            ));
        }
        if policy.per_message.is_some() {
            return Err(format!(
                "policy {name:?} charges messages, and a gateway asks once for a stream"
            ));
        }
        Ok(())
    })
}

/// The header fields that are keys of policies, which a question must not have twice.
fn key_fields(limiter: &LimiterConfig) -> Vec<HeaderName> {
    fn collect(key: &KeyConfig, fields: &mut Vec<HeaderName>) {
        match key {
            // A name that is not one is refused by the policy.
            KeyConfig::ByHeader(name) => fields.extend(HeaderName::try_from(name)),
            KeyConfig::All(keys) => keys.iter().for_each(|key| collect(key, fields)),
            _ => {}
        }
    }
    let mut fields = Vec::new();
    for policy in limiter.policies.iter().filter(|policy| !policy.on_demand) {
        if let Some(key) = &policy.key {
            collect(key, &mut fields);
        }
    }
    fields
}

fn reads_body(key: &KeyConfig) -> bool {
    match key {
        KeyConfig::ByFormField(_) | KeyConfig::ByJsonField(_) => true,
        KeyConfig::All(keys) => keys.iter().any(reads_body),
        _ => false,
    }
}

/// The line of this place, counted from 1.
fn line_at(text: &str, place: usize) -> usize {
    let before = text.get(..place).unwrap_or(text);
    before.bytes().filter(|byte| *byte == b'\n').count() + 1
}

fn add(rules: &mut Rules, limiter: &LimiterConfig, rule: &RuleConfig) -> Result<(), String> {
    if rule.domain.is_empty() {
        return Err("domain: is empty, and no gateway sends an empty one".to_owned());
    }
    check_policy(limiter, &rule.policy)?;
    let entries = &rule.descriptor;
    if entries.is_empty() {
        return Err("descriptor: has no entries, and no gateway sends an empty one".to_owned());
    }
    if entries.len() > MOST_ENTRIES {
        let given = entries.len();
        return Err(format!(
            "descriptor: {given} entries are more than the {MOST_ENTRIES} that a rule may have"
        ));
    }
    if entries.iter().any(|entry| entry.key.is_empty()) {
        return Err("descriptor: an entry has an empty key".to_owned());
    }
    let path = entries.iter().map(|entry| {
        let pattern = entry.value.clone().map_or(Pattern::Any, Pattern::Exact);
        (entry.key.clone(), pattern)
    });
    let path: Vec<_> = path.collect();
    let made = Rule {
        charge: Some(RuleCharge {
            policy: Arc::from(rule.policy.as_str()),
            identity: identity(rule)?,
            is_report: rule.report,
        }),
        name: None,
        replaces: Vec::new(),
    };
    let added = rules.add(&rule.domain, &path, made);
    added.map_err(|SecondRule| "another rule is for the same descriptors".to_owned())
}

/// Refuses what a gateway's request has no answer to.
fn check_policy(limiter: &LimiterConfig, name: &str) -> Result<(), String> {
    let Some(policy) = limiter.policies.iter().find(|policy| policy.name == name) else {
        let known: Vec<_> = limiter
            .policies
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        let known = known.join(", ");
        return Err(format!("charges {name:?}, and the policies are: {known}"));
    };
    if policy.cost != CostConfig::Fixed(1) {
        return Err(format!(
            "charges {name:?}, which has a cost: the gateway says how many hits a request is, by `hits_addend`"
        ));
    }
    Ok(())
}

/// The places of the entries whose values are the identity.
fn identity(rule: &RuleConfig) -> Result<Vec<usize>, String> {
    let entries = rule.descriptor.iter().enumerate();
    let Some(keys) = &rule.identity else {
        let open = entries.filter(|(_, entry)| entry.value.is_none());
        return Ok(open.map(|(place, _)| place).collect());
    };
    let mut places = Vec::new();
    for key in keys {
        let of_key = entries.clone().filter(|(_, entry)| entry.key == *key);
        let before = places.len();
        places.extend(of_key.map(|(place, _)| place));
        if places.len() == before {
            return Err(format!("identity: the descriptor has no entry {key:?}"));
        }
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(rules: &str) -> String {
        let policies = "[[policies]]\nname = 'api'\nquotas = '10/s'\non_demand = true\n\
                        [[policies]]\nname = 'dear'\nquotas = '10/s'\ncost = 2\non_demand = true\n";
        read(&format!("{policies}{rules}"))
            .err()
            .unwrap_or_default()
    }

    #[test]
    fn a_rule_that_makes_no_sense_is_refused_with_its_line_and_reason() {
        let rule = |fields: &str| format!("\n[[envoy]]\n{fields}\n");
        let whole = "domain = 'shop'\npolicy = 'api'\ndescriptor = [{ key = 'a' }]";
        let cases = [
            (
                String::new(),
                "there is neither an [[envoy]] rule nor [forward_auth]: nothing would have a limit",
            ),
            (
                rule("domain = ''\npolicy = 'api'\ndescriptor = [{ key = 'a' }]"),
                "the rule at line 11: domain: is empty, and no gateway sends an empty one",
            ),
            (
                rule("domain = 'shop'\npolicy = 'apl'\ndescriptor = [{ key = 'a' }]"),
                "the rule at line 11: charges \"apl\", and the policies are: api, dear",
            ),
            (
                rule("domain = 'shop'\npolicy = 'dear'\ndescriptor = [{ key = 'a' }]"),
                "the rule at line 11: charges \"dear\", which has a cost: the gateway says how many hits a request is, by \
                 `hits_addend`",
            ),
            (
                rule("domain = 'shop'\npolicy = 'api'\ndescriptor = []"),
                "the rule at line 11: descriptor: has no entries, and no gateway sends an empty one",
            ),
            (
                rule("domain = 'shop'\npolicy = 'api'\ndescriptor = [{ key = '' }]"),
                "the rule at line 11: descriptor: an entry has an empty key",
            ),
            (
                rule(&format!("{whole}\nidentity = ['b']")),
                "the rule at line 11: identity: the descriptor has no entry \"b\"",
            ),
            (
                rule(whole).repeat(2),
                "the rule at line 16: another rule is for the same descriptors",
            ),
            (
                rule(&format!(
                    "domain = 'shop'\npolicy = 'api'\ndescriptor = [{}]",
                    "{ key = 'a' },".repeat(17)
                )),
                "the rule at line 11: descriptor: 17 entries are more than the 16 that a rule may have",
            ),
        ];
        for (rules, expected) in cases {
            assert_eq!(refusal(&rules), expected);
        }
        let unknown = refusal(&rule(&format!("{whole}\nreports = true")));
        assert!(
            unknown.contains("line 15") && unknown.contains("unknown field `reports`"),
            "{unknown}"
        );
        let unknown = refusal(&format!("{}\n[envoi]\n", rule(whole)));
        assert!(unknown.contains("unknown field `envoi`"), "{unknown}");
    }

    #[test]
    fn the_identity_is_what_the_rule_leaves_open_unless_it_says_otherwise() {
        let places = |identity: &str| {
            let text = format!(
                "domain = 'd'\npolicy = 'p'\ndescriptor = [{{ key = 'a', value = '1' }}, {{ key = 'b' }}, {{ key = 'c' }}]\n{identity}"
            );
            identity_of(&text)
        };
        assert_eq!(places(""), [1, 2]);
        assert_eq!(places("identity = ['c']"), [2]);
        assert_eq!(places("identity = ['c', 'a']"), [2, 0]);
        assert_eq!(places("identity = []"), [0; 0]);
    }

    fn identity_of(text: &str) -> Vec<usize> {
        let rule: RuleConfig = toml::from_str(text).unwrap();
        identity(&rule).unwrap()
    }
}
