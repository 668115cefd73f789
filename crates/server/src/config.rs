//! A configuration file: the library's policies, and the rules that say which descriptors charge them.

mod document;
mod ratelimit;
mod yaml;

use std::path::Path;
use std::sync::Arc;

use http::HeaderName;
use http::header::AUTHORIZATION;
use tollgate::config::{ClientAddressConfig, CostConfig, KeyConfig, LimiterConfig, PolicyConfig};

use self::document::{Document, RuleConfig};
use crate::identity::Reading;
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
        let limiter = (&document.limiter, document.forward_auth.is_some());
        add(&mut rules, limiter, rule.get_ref()).map_err(|reason| {
            let line = line_at(text, rule.span().start);
            format!("the rule at line {line}: {reason}")
        })?;
    }
    let forward_auth = document.forward_auth.map(|forward| ForwardAuth {
        form: forward.gateway,
        allows_ambiguous_paths: forward.allow_ambiguous_paths,
        keys: key_fields(&document.limiter),
        methods: methods(&document.limiter),
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
    if limiter
        .shed
        .as_ref()
        .is_some_and(|shed| reads_body(&shed.by))
    {
        return Err(
            "shed has classes by a part of the body, which a gateway does not show; name a header or a part of the query in `shed.by`"
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
        let once = policy.once.as_ref().and_then(|once| once.by.as_ref());
        let classes = policy.classes.as_ref().map(|classes| &classes.by);
        for (field, by) in [("once", once), ("classes", classes)] {
            if by.is_some_and(reads_body) {
                return Err(format!(
                    "policy {name:?} has {field} by a part of the body, which a gateway does not show; name a header or a part of the \
                     query in `{field}.by`"
                ));
            }
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
            KeyConfig::ByBearerToken | KeyConfig::ByBasicUser => fields.push(AUTHORIZATION),
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

/// The methods that policies name.
fn methods(limiter: &LimiterConfig) -> Vec<String> {
    let policies = limiter.policies.iter();
    let methods = policies.flat_map(|policy| policy.methods.iter().chain(&policy.exempt_methods));
    methods.cloned().collect()
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

fn add(
    rules: &mut Rules,
    (limiter, has_forward_auth): (&LimiterConfig, bool),
    rule: &RuleConfig,
) -> Result<(), String> {
    if rule.domain.is_empty() {
        return Err("domain: is empty, and no gateway sends an empty one".to_owned());
    }
    let policy = charged(limiter, &rule.policy)?;
    // Questions over HTTP are about whole requests.
    let sees_requests = has_forward_auth && !policy.on_demand;
    if let Some((field, instead)) = unseen(policy, sees_requests) {
        let name = &policy.name;
        return Err(format!(
            "charges {name:?}, whose `{field}` has no effect here: {instead}; leave `{field}` out of the policy"
        ));
    }
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
    let identity = identity(rule)?;
    let values = identity
        .iter()
        .map(|place| entries[*place].value.as_deref());
    let values: Vec<_> = values.collect();
    let reading = Reading::of(policy.key.as_ref(), &values)
        .map_err(|reason| format!("charges {:?}, {reason}", rule.policy))?;
    let made = Rule {
        charge: Some(RuleCharge {
            policy: Arc::from(rule.policy.as_str()),
            identity,
            reading,
            on_missing: policy.on_missing,
            is_report: rule.report,
        }),
        name: None,
        replaces: Vec::new(),
    };
    let added = rules.add(&rule.domain, &path, made);
    added.map_err(|SecondRule| "another rule is for the same descriptors".to_owned())
}

/// The policy of this name, if a gateway's request has an answer to it.
fn charged<'l>(limiter: &'l LimiterConfig, name: &str) -> Result<&'l PolicyConfig, String> {
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
    Ok(policy)
}

/// A field of the policy that no descriptor can fulfil, and what takes its place.
fn unseen(policy: &PolicyConfig, sees_requests: bool) -> Option<(&'static str, &'static str)> {
    const RULE: &str =
        "Envoy states no request, and the descriptor of the rule says which requests it is for";
    const ID: &str = "Envoy states no id of a request, so that each one is charged";
    const HITS: &str =
        "Envoy says how many hits a request is, by `hits_addend`, and shows no message of a stream";
    let of_requests = [
        ("routes", !policy.routes.is_empty(), RULE),
        ("grpc", !policy.grpc.is_empty(), RULE),
        ("exempt_routes", !policy.exempt_routes.is_empty(), RULE),
        ("methods", !policy.methods.is_empty(), RULE),
        ("exempt_methods", !policy.exempt_methods.is_empty(), RULE),
        ("hosts", !policy.hosts.is_empty(), RULE),
        ("exempt_networks", !policy.exempt_networks.is_empty(), RULE),
        ("when", !policy.when.is_empty(), RULE),
        ("exempt_preflights", policy.exempt_preflights, RULE),
        ("exempt_health_checks", policy.exempt_health_checks, RULE),
        ("once", policy.once.is_some(), ID),
    ];
    let of_requests = of_requests.into_iter().filter(|_| !sees_requests);
    let mut fields = of_requests.chain([("per_message", policy.per_message.is_some(), HITS)]);
    let (field, _, instead) = fields.find(|(_, is_set, _)| *is_set)?;
    Some((field, instead))
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
    fn what_a_policy_says_in_vain_is_refused() {
        let rule = "\n[[envoy]]\ndomain = 'd'\npolicy = 'odd'\ndescriptor = [{ key = 'a' }]\n";
        let policy = "[[policies]]\nname = 'odd'\nquotas = '10/s'\n";
        for field in [
            "routes = ['/login']",
            "grpc = ['shop.v1.*']",
            "exempt_routes = ['/health']",
            "methods = ['POST']",
            "exempt_methods = ['GET']",
            "hosts = ['shop.example']",
            "exempt_networks = ['10.0.0.0/8']",
            "when = ['is-external']",
            "exempt_preflights = true",
            "exempt_health_checks = true",
            "once = { by = { header = 'x-id' } }",
            "per_message = { of = 'received' }",
        ] {
            let name = field.split_once(' ').unwrap().0;
            let refused = read(&format!("{policy}{field}\n{rule}")).err();
            let refused = refused.unwrap_or_default();
            let expected =
                format!("the rule at line 6: charges \"odd\", whose `{name}` has no effect here: ");
            assert!(refused.starts_with(&expected), "{refused}");
            assert!(refused.ends_with(&format!("; leave `{name}` out of the policy")));
        }
        // A policy that questions over HTTP charge as well sees their requests.
        let forward = "client_address = { x-forwarded-for = { hops = 1 } }\n[forward_auth]\ngateway = 'caddy'\n";
        let both = format!("{forward}{policy}routes = ['/login']\n{rule}");
        assert_eq!(read(&both).err(), None);
    }

    #[test]
    fn a_rule_that_no_descriptor_could_fit_is_refused() {
        let refused = |key: &str, entries: &str, identity: &str| {
            let text = format!(
                "[[policies]]\nname = 'odd'\nquotas = '10/s'\non_demand = true\nkey = {key}\n\
                 [[envoy]]\ndomain = 'd'\npolicy = 'odd'\ndescriptor = [{entries}]\n{identity}"
            );
            read(&text).err().unwrap_or_default()
        };
        let (one, two) = ("{ key = 'a' }", "{ key = 'a' }, { key = 'b' }");
        let pair = "['client-ip', { header = 'x-user' }]";
        let parts = |parts: &str, given: usize| {
            format!(
                "the rule at line 6: charges \"odd\", whose key has {parts}, and the identity has {given}: name one entry for each part of \
                 the key by `identity`, or leave `key` out of the policy"
            )
        };
        assert_eq!(refused(pair, one, ""), parts("2 parts", 1));
        assert_eq!(refused("'client-ip'", two, ""), parts("1 part", 2));
        assert_eq!(refused("'host'", one, "identity = []"), parts("1 part", 0));
        assert_eq!(
            refused("'global'", one, ""),
            "the rule at line 6: charges \"odd\", whose key is \"global\", and the rule states an identity: write `identity = []`"
        );
        assert_eq!(
            refused(
                "'client-ip'",
                "{ key = 'a', value = 'x' }",
                "identity = ['a']"
            ),
            "the rule at line 6: charges \"odd\", whose key is an address, and the identity has the fixed value \"x\": name other \
             entries by `identity`"
        );
        for (key, entries, identity) in [
            (pair, two, ""),
            ("[['client-ip', 'method']]", two, ""),
            ("['host']", two, "identity = ['b']"),
            ("'global'", two, "identity = []"),
            (
                "'client-ip'",
                "{ key = 'a', value = '192.0.2.1' }",
                "identity = ['a']",
            ),
        ] {
            assert_eq!(refused(key, entries, identity), "", "{key}");
        }
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
