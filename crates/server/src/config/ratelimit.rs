//! Files of envoy/ratelimit: each rate limit becomes a policy that counts in fixed windows, as that service does. A file has a
//! document for each domain.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use saphyr::MarkedYaml;
use tollgate::config::{LimiterConfig, PolicyConfig, QuotasConfig};
use tollgate::{Algorithm, MAX_NAME_LEN, OnFailure, OnMissing, Quota};

use super::yaml::{at, documents, fields, flag, line, list, number, text};
use crate::identity::Reading;
use crate::period::{period, unit_named};
use crate::rules::{MOST_ENTRIES, Pattern, Rule, RuleCharge, Rules, SecondRule};

/// The policies and the rules of a file.
pub(super) fn read(yaml: &str) -> Result<(LimiterConfig, Rules), String> {
    let mut reader = Reader::default();
    let mut domains = BTreeSet::new();
    let documents = documents(yaml)?;
    for document in &documents {
        let (domain, descriptors) = domain_of(document)?;
        if !domains.insert(domain) {
            return Err(at(
                line(document),
                format_args!(
                    "domain: {domain:?} has a document before this one: write both as one"
                ),
            ));
        }
        reader.domain = domain;
        if let Some(node) = descriptors {
            reader.descriptors(node)?;
        }
        reader.finish_domain();
    }
    let mut limiter = LimiterConfig::default();
    limiter.policies = reader.policies;
    Ok((limiter, reader.rules))
}

/// The domain of a document, and its descriptors.
fn domain_of<'n, 'y>(
    document: &'n MarkedYaml<'y>,
) -> Result<(&'n str, Option<&'n MarkedYaml<'y>>), String> {
    let (mut domain, mut descriptors) = (None, None);
    for (field, line, node) in fields(document, "the file")? {
        match field {
            "domain" => domain = text(node, field)?,
            // Envoy Gateway names its files.
            "name" => drop(text(node, field)?),
            "descriptors" => descriptors = Some(node),
            _ => return Err(unknown(field, line, "domain, descriptors, name")),
        }
    }
    match domain {
        Some(domain) => Ok((domain, descriptors)),
        None => Err(at(
            line(document),
            "domain: is missing, and no gateway sends an empty one",
        )),
    }
}

/// A file while it is read.
#[derive(Default)]
struct Reader<'t> {
    domain: &'t str,
    /// The entries down to the descriptor that is read.
    path: Vec<(String, Pattern)>,
    /// True for each of them whose values share one budget.
    shared: Vec<bool>,
    rules: Rules,
    policies: Vec<PolicyConfig>,
}

/// The fields of a descriptor.
const OF_DESCRIPTOR: &str = "key, value, rate_limit, descriptors, shadow_mode, detailed_metric, value_to_metric, share_threshold";

/// The fields of a rate limit.
const OF_RATE_LIMIT: &str = "unit, requests_per_unit, unit_multiplier, unlimited, name, replaces";

impl Reader<'_> {
    fn descriptors(&mut self, node: &MarkedYaml<'_>) -> Result<(), String> {
        for descriptor in list(node, "descriptors")? {
            self.descriptor(descriptor)?;
            self.path.pop();
            self.shared.pop();
        }
        Ok(())
    }

    fn descriptor(&mut self, node: &MarkedYaml<'_>) -> Result<(), String> {
        let (mut key, mut value) = (None, None);
        let (mut limit, mut nested) = (None, None);
        let (mut shadow, mut shared) = (false, None);
        for (field, line, node) in fields(node, "a descriptor")? {
            match field {
                "key" => key = text(node, field)?,
                "value" => value = text(node, field)?,
                // Envoy Gateway writes null where there is none.
                "rate_limit" => limit = (!matches!(text(node, field), Ok(None))).then_some(node),
                "descriptors" => nested = Some(node),
                "shadow_mode" => shadow = flag(node, field)?,
                "share_threshold" => shared = flag(node, field)?.then_some(line),
                // They change the names of metrics, which are not those of envoy/ratelimit, and no decision.
                "detailed_metric" | "value_to_metric" => drop(flag(node, field)?),
                "quota_mode" if !flag(node, field)? => {}
                "quota_mode" => {
                    return Err(at(
                        line,
                        "quota_mode: is not supported: a policy of gateway.toml is on trial with `shadow = true`",
                    ));
                }
                "metadata" => {
                    return Err(at(
                        line,
                        "metadata: is not supported: Envoy sets metadata itself, by its filter set_metadata",
                    ));
                }
                _ => return Err(unknown(field, line, OF_DESCRIPTOR)),
            }
        }
        let begin = line(node);
        let Some(key) = key else {
            return Err(at(begin, "key: is missing"));
        };
        if key.ends_with('*') {
            return Err(at(
                begin,
                format_args!(
                    "key: {key:?} stands for several keys, which is not supported: write `*` at the end of the value"
                ),
            ));
        }
        let pattern = match value {
            None => Pattern::Any,
            Some(value) => {
                let (beginning, is_beginning) = match value.strip_suffix('*') {
                    Some(beginning) => (beginning, true),
                    None => (value, false),
                };
                if beginning.contains('*') {
                    return Err(at(
                        begin,
                        format_args!(
                            "value: {value:?} has `*` before its end, which is not supported: write the values out, or let Envoy \
                             match them with `header_value_match`"
                        ),
                    ));
                }
                if is_beginning {
                    Pattern::Beginning(beginning.to_owned())
                } else {
                    Pattern::Exact(value.to_owned())
                }
            }
        };
        if let Some(line) = shared
            && !matches!(pattern, Pattern::Beginning(_))
        {
            return Err(at(
                line,
                "share_threshold: is for a value with `*` at its end, whose values share one budget then",
            ));
        }
        if self.path.len() == MOST_ENTRIES {
            return Err(at(
                begin,
                format_args!("descriptors: are nested deeper than {MOST_ENTRIES}"),
            ));
        }
        self.path.push((key.to_owned(), pattern));
        self.shared.push(shared.is_some());
        let has_nested = nested.is_some();
        // A placeholder limits nothing, and envoy/ratelimit takes a descriptor that ends there for one without a rule.
        if limit.is_some() || !has_nested {
            let rule = match limit {
                Some(node) => self.rate_limit(node, shadow)?,
                None => without_limit(),
            };
            let added = self.rules.add(self.domain, &self.path, rule);
            added.map_err(|SecondRule| {
                at(
                    begin,
                    "another descriptor of the list has the same key and value",
                )
            })?;
        }
        nested.map_or(Ok(()), |nested| self.descriptors(nested))
    }

    fn rate_limit(&mut self, node: &MarkedYaml<'_>, shadow: bool) -> Result<Rule, String> {
        let (mut unit, mut requests) = (None, 0);
        let mut multiplier = 1;
        let (mut is_unlimited, mut name, mut replaces) = (false, None, Vec::new());
        for (field, line, node) in fields(node, "rate_limit")? {
            match field {
                "unit" => unit = text(node, field)?,
                "requests_per_unit" => requests = number(node, field)?,
                "unlimited" => is_unlimited = flag(node, field)?,
                "name" => name = text(node, field)?,
                "replaces" => replaces = replaced(node)?,
                "unit_multiplier" => multiplier = number(node, field)?,
                _ => return Err(unknown(field, line, OF_RATE_LIMIT)),
            }
        }
        let begin = line(node);
        if let Some(name) = name
            && replaces.iter().any(|other| **other == *name)
        {
            return Err(at(
                begin,
                format_args!("replaces: {name:?} replaces itself"),
            ));
        }
        let charge = match (is_unlimited, unit) {
            (true, None) => None,
            (true, Some(_)) => {
                return Err(at(
                    begin,
                    "unit: stands beside unlimited: leave one of the two out",
                ));
            }
            (false, unit) => {
                let unit = unit.unwrap_or_default();
                let Some(known) = unit_named(unit) else {
                    return Err(at(
                        begin,
                        format_args!(
                            "unit: {unit:?} is not second, minute, hour, day, week, month or year"
                        ),
                    ));
                };
                if multiplier == 0 {
                    return Err(at(begin, "unit_multiplier: 0 makes a window of no length"));
                }
                let window = period(known).saturating_mul(multiplier);
                let quotas = quotas(requests, window).map_err(|error| at(begin, error))?;
                Some(self.charge(quotas, shadow))
            }
        };
        Ok(Rule {
            charge,
            name: name.map(Into::into),
            replaces,
        })
    }

    /// A budget of its own for this place in the file.
    fn charge(&mut self, quotas: QuotasConfig, shadow: bool) -> RuleCharge {
        let name = policy_name(self.domain, &self.path);
        self.policies.push(policy(&name, quotas, shadow));
        let open = self.path.iter().zip(&self.shared).enumerate();
        let open = open.filter(|(_, ((_, pattern), is_shared))| {
            !matches!(pattern, Pattern::Exact(_)) && !**is_shared
        });
        RuleCharge {
            policy: Arc::from(name),
            identity: open.map(|(place, _)| place).collect(),
            reading: Reading::Unstated,
            on_missing: OnMissing::Share,
            is_report: false,
        }
    }

    fn finish_domain(&mut self) {
        // A limit that a gateway states counts whatever the file says. The quota of the policy is never asked.
        let name = policy_name(self.domain, &[]);
        let quotas = QuotasConfig::One("1/s fixed-window".to_owned());
        self.policies.push(policy(&name, quotas, false));
        self.rules.read_as_envoy_does(self.domain, name.into());
    }
}

fn without_limit() -> Rule {
    Rule {
        charge: None,
        name: None,
        replaces: Vec::new(),
    }
}

fn policy(name: &str, quotas: QuotasConfig, shadow: bool) -> PolicyConfig {
    let mut policy = PolicyConfig::default();
    policy.name = name.to_owned();
    policy.quotas = quotas;
    policy.on_demand = true;
    policy.shadow = shadow;
    // What Envoy does then is Envoy's to say: `failure_mode_deny`.
    policy.on_failure = OnFailure::Deny;
    policy
}

fn quotas(requests: u32, period: Duration) -> Result<QuotasConfig, String> {
    if requests == 0 {
        return Ok(QuotasConfig::One("none".to_owned()));
    }
    let offset = Duration::ZERO;
    let quota = Quota::try_new(requests.into(), period);
    let quota = quota.and_then(|quota| quota.try_using(Algorithm::FixedWindow { offset }));
    match quota {
        Ok(quota) => Ok(QuotasConfig::One(quota.to_string())),
        Err(error) => Err(format!("requests_per_unit: {error}")),
    }
}

/// The names of the rate limits that this one replaces.
fn replaced(node: &MarkedYaml<'_>) -> Result<Vec<Box<str>>, String> {
    let mut names = BTreeSet::new();
    for one in list(node, "replaces")? {
        let mut name = None;
        for (field, line, node) in fields(one, "an entry of replaces")? {
            match field {
                "name" => name = text(node, field)?,
                _ => return Err(unknown(field, line, "name")),
            }
        }
        let Some(name) = name else {
            return Err(at(line(one), "replaces: an entry has no name"));
        };
        names.insert(name.into());
    }
    Ok(names.into_iter().collect())
}

fn unknown(field: &str, line: usize, known: &str) -> String {
    at(
        line,
        format_args!("{field}: there is no such field here; the fields are {known}"),
    )
}

/// The most bytes of a name that go before its hash.
const MOST_READABLE: usize = 45;

/// The name of the policy at this place in a file: a state in Redis is found by it, so that it depends on nothing else in the file.
fn policy_name(domain: &str, path: &[(String, Pattern)]) -> String {
    let mut name = domain.to_owned();
    for (key, pattern) in path {
        name.push('/');
        name.push_str(key);
        match pattern {
            Pattern::Exact(value) => name.extend([".", value]),
            Pattern::Beginning(beginning) => name.extend([".", beginning, "*"]),
            Pattern::Any => {}
        }
    }
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    let parts = path.iter().flat_map(|(key, pattern)| match pattern {
        Pattern::Exact(value) => [key.as_str(), value],
        Pattern::Beginning(_) => [key.as_str(), "*"],
        Pattern::Any => [key.as_str(), ""],
    });
    let is_whole = parts.chain([domain]).all(|part| part.chars().all(is_plain))
        && domain.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.len() <= MAX_NAME_LEN;
    if is_whole {
        return name;
    }
    // Two names that are shortened or respelled alike differ in their hash.
    let hash = hash(domain, path);
    let readable = name.chars().take(MOST_READABLE);
    let readable: String = readable
        .map(|c| match c.to_ascii_lowercase() {
            c if is_plain(c) || c == '.' || c == '/' => c,
            _ => '-',
        })
        .collect();
    format!("e-{readable}-{hash:016x}")
}

/// FNV-1a over the parts, each behind its length.
fn hash(domain: &str, path: &[(String, Pattern)]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |kind: u8, part: &str| {
        let length = u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes();
        for byte in [kind].into_iter().chain(length).chain(part.bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    add(0, domain);
    for (key, pattern) in path {
        add(1, key);
        match pattern {
            Pattern::Exact(value) => add(2, value),
            Pattern::Beginning(beginning) => add(3, beginning),
            Pattern::Any => {}
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use tollgate::config::Registry;

    use super::*;
    use crate::rules::Found;

    fn refusal(yaml: &str) -> String {
        read(yaml).err().unwrap_or_default()
    }

    /// The name, the quotas and the trial of each policy, without that for stated limits.
    fn policies(yaml: &str) -> Vec<(String, String, bool)> {
        let (limiter, _) = read(yaml).unwrap();
        assert!(limiter.build(&Registry::new()).unwrap().build().is_ok());
        let (_, policies) = limiter.policies.split_last().unwrap();
        let of = |policy: &PolicyConfig| {
            let quotas = format!("{:?}", policy.quotas);
            let quotas = quotas.split('"').nth(1).unwrap().to_owned();
            (policy.name.clone(), quotas, policy.shadow)
        };
        policies.iter().map(of).collect()
    }

    #[test]
    fn a_file_is_read_as_it_is() {
        let yaml = "
domain: messaging
descriptors:
  # Only five marketing messages a day for each number.
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        rate_limit: { unit: Day, requests_per_unit: 5 }
  - key: to_number
    rate_limit:
      unit: day
      requests_per_unit: 100
    shadow_mode: yes
    detailed_metric: true
  - key: client
    value: 007
    rate_limit: { unit: minute, requests_per_unit: 0 }
  - key: client
    value: free*
    share_threshold: true
    rate_limit: { unit: month, requests_per_unit: 3, name: free, replaces: [{ name: other }] }
  - key: client
    value: known
    rate_limit: { unlimited: true }
  - key: client
    value: slow
    rate_limit: { unit: minute, unit_multiplier: 5, requests_per_unit: 20 }
  - key: white
";
        assert_eq!(
            policies(yaml),
            [
                (
                    "messaging/message_type.marketing/to_number".into(),
                    "5/day fixed-window".into(),
                    false
                ),
                (
                    "messaging/to_number".into(),
                    "100/day fixed-window".into(),
                    true
                ),
                ("messaging/client.007".into(), "none".into(), false),
                (
                    "e-messaging/client.free--44826dfd8712498d".into(),
                    "3/30day fixed-window".into(),
                    false
                ),
                (
                    "messaging/client.slow".into(),
                    "20/5min fixed-window".into(),
                    false
                ),
            ] as [(String, String, bool); 5]
        );
        let (_, rules) = read(yaml).unwrap();
        let find = |entries: &[(&str, &str)]| match rules.find(
            "messaging",
            entries.iter().map(|(key, value)| (*key, value.as_bytes())),
            false,
        ) {
            Found::Rule(rule) => match &rule.charge {
                Some(charge) => format!("{} {:?}", charge.policy, charge.identity),
                None => "no limit".to_owned(),
            },
            _ => "no rule".to_owned(),
        };
        let marketing = ("message_type", "marketing");
        assert_eq!(
            find(&[marketing, ("to_number", "1")]),
            "messaging/message_type.marketing/to_number [1]"
        );
        assert_eq!(find(&[marketing]), "no rule");
        assert_eq!(find(&[("to_number", "1")]), "messaging/to_number [0]");
        assert_eq!(find(&[("client", "007")]), "messaging/client.007 []");
        assert!(find(&[("client", "free-1")]).ends_with(" []"));
        assert_eq!(find(&[("client", "known")]), "no limit");
        assert_eq!(find(&[("white", "x")]), "no limit");
    }

    /// The fields that Envoy Gateway writes behind each descriptor.
    const REST: &str =
        "quota_mode: false, detailed_metric: false, value_to_metric: false, share_threshold: false";

    /// A descriptor as Envoy Gateway writes it, with these parts in place of what it leaves empty.
    fn generated(key: &str, value: &str, limit: &str, nested: &str, shadow: bool) -> String {
        format!(
            "{{ key: {key}, value: \"{value}\", rate_limit: {limit}, descriptors: [{nested}], shadow_mode: {shadow}, {REST} }}"
        )
    }

    /// A rate limit as Envoy Gateway writes it.
    fn generated_limit(requests: u32, unit: &str) -> String {
        format!(
            "{{ requests_per_unit: {requests}, unit: {unit}, unlimited: false, name: \"\", replaces: [] }}"
        )
    }

    /// The policies, each with 0 in place of the hash of its name.
    fn in_words(yaml: &str) -> Vec<String> {
        let words = policies(yaml).into_iter().map(|(name, quotas, is_trial)| {
            let name = match name.rsplit_once('-') {
                Some((readable, _)) if name.starts_with("e-") => format!("{readable}-0"),
                _ => name,
            };
            let trial = if is_trial { ", on trial" } else { "" };
            format!("{name}: {quotas}{trial}")
        });
        words.collect()
    }

    #[test]
    fn each_shape_that_envoy_gateway_writes_is_read() {
        let five = generated_limit(5, "SECOND");
        let five = |key: &str, value: &str| generated(key, value, &five, "", false);
        let without = |key: &str, nested: &str| generated(key, key, "null", nested, false);
        let masked = |is_trial| {
            let limit = generated_limit(7, "HOUR");
            generated("masked_remote_address", "0.0.0.0/0", &limit, "", is_trial)
        };
        let yearly = generated("match", "match", &generated_limit(1, "YEAR"), "", false);
        let open =
            "{ requests_per_unit: 0, unit: \"\", unlimited: true, name: \"\", replaces: [] }";
        for (descriptors, expected) in [
            (
                without("shop", &five("match", "match")),
                &["web/shop.shop/match.match: 5/s fixed-window"][..],
            ),
            // One budget for each value, beside budgets of single values.
            (
                without(
                    "shop",
                    &[five("match", ""), five("match", "client-a")].join(", "),
                ),
                &[
                    "web/shop.shop/match: 5/s fixed-window",
                    "web/shop.shop/match.client-a: 5/s fixed-window",
                ],
            ),
            // Below the name of a policy of Kubernetes.
            (
                without("ns/p/0", &five("match--1", "match--1")),
                &["e-web/ns/p/0.ns/p/0/match--1.match--1-0: 5/s fixed-window"],
            ),
            // Networks below a header, and the same on trial.
            (
                without("shop", &without("match", &masked(false))),
                &["e-web/shop.shop/match.match/masked_remote_addre-0: 7/h fixed-window"],
            ),
            (
                without("shop", &masked(true)),
                &["e-web/shop.shop/masked_remote_address.0.0.0.0/0-0: 7/h fixed-window, on trial"],
            ),
            // Several routes, for any value.
            (
                ["shop", "blog"]
                    .map(|key| generated(key, "", "null", &yearly, false))
                    .join(", "),
                &[
                    "web/shop/match.match: 1/365day fixed-window",
                    "web/blog/match.match: 1/365day fixed-window",
                ],
            ),
            // No limit, and no descriptors.
            (
                without("shop", &generated("match", "match", open, "", false)),
                &[],
            ),
            (String::new(), &[]),
        ] {
            for yaml in [
                format!("name: web\ndomain: web\ndescriptors: [{descriptors}]\n"),
                format!("name: web\ndomain: web\ndescriptors: [{descriptors}]\n")
                    .replace("detailed_metric: false", "detailed_metric: true"),
            ] {
                assert_eq!(in_words(&yaml), expected, "{yaml}");
            }
        }
    }

    #[test]
    fn each_document_of_a_file_is_a_domain_of_its_own() {
        let document = |domain: &str, requests: u32| {
            let limit = generated_limit(requests, "HOUR");
            let descriptor = generated("account", "", &limit, "", false);
            format!("name: {domain}\ndomain: {domain}\ndescriptors: [{descriptor}]\n")
        };

        let (limiter, rules) =
            read(&[document("web", 5), document("ns/policy", 7)].join("---\n")).unwrap();

        assert!(limiter.build(&Registry::new()).unwrap().build().is_ok());
        let quotas = |domain: &str| {
            let found = rules.find(domain, [("account", &b"acme"[..])].into_iter(), false);
            let Found::Rule(Rule {
                charge: Some(charge),
                ..
            }) = found
            else {
                return None;
            };
            let mut policies = limiter.policies.iter();
            let policy = policies.find(|policy| *policy.name == *charge.policy)?;
            Some(format!("{:?}", policy.quotas))
        };
        for (domain, expected) in [("web", "5/h"), ("ns/policy", "7/h")] {
            let quotas = quotas(domain).unwrap();
            assert!(quotas.contains(expected), "{domain}: {quotas}");
            // A gateway may state a limit of its own in each.
            let stated = rules.find(domain, [("other", &b""[..])].into_iter(), true);
            assert!(matches!(stated, Found::Override(_)), "{stated:?}");
        }
        assert!(quotas("third").is_none());
    }

    #[test]
    fn what_is_not_supported_or_wrong_is_refused_with_its_line() {
        let of = |descriptor: &str| format!("domain: d\ndescriptors:\n  - key: a\n{descriptor}");
        let cases = [
            (String::new(), "the file is empty"),
            ("domain: d\n  x: [".to_owned(), "line 2: "),
            (
                "descriptors: []".to_owned(),
                "line 1: domain: is missing, and no gateway sends an empty one",
            ),
            (
                "domain: a\n---\ndomain: a".to_owned(),
                "line 3: domain: \"a\" has a document before this one: write both as one",
            ),
            (
                "domain: a\nlimits: []".to_owned(),
                "line 2: limits: there is no such field here; the fields are domain, descriptors",
            ),
            ("- a".to_owned(), "line 1: the file is a map of fields"),
            (
                "domain: a\ndescriptors: 3".to_owned(),
                "line 2: descriptors: is a list",
            ),
            (
                "domain: a\ndescriptors:\n  - value: b".to_owned(),
                "line 3: key: is missing",
            ),
            (
                "domain: a\ndescriptors:\n  - key: b*".to_owned(),
                "line 3: key: \"b*\" stands for several keys, which is not supported: write `*`",
            ),
            (
                of("    values: b"),
                "line 4: values: there is no such field here; the fields are key, value, rate_limit",
            ),
            (of("    key: b"), "line 4: "),
            (
                of("    quota_mode: true"),
                "line 4: quota_mode: is not supported: ",
            ),
            (
                of("    shadow_mode: maybe"),
                "line 4: shadow_mode: \"maybe\" is neither true nor false",
            ),
            (
                of("    share_threshold: true"),
                "line 4: share_threshold: is for a value with `*` at its end",
            ),
            (
                of("    rate_limit: 5"),
                "line 4: rate_limit is a map of fields",
            ),
            (
                of("    rate_limit:\n      unit: fortnight\n      requests_per_unit: 1"),
                "line 5: unit: \"fortnight\" is not second, minute, hour, day, week, month or year",
            ),
            (
                of("    rate_limit:\n      requests_per_unit: 1"),
                "line 5: unit: \"\" is not second, ",
            ),
            (
                of("    rate_limit:\n      unit: day\n      requests_per_unit: -1"),
                "line 6: requests_per_unit: \"-1\" is not a whole number from 0 to 4294967295",
            ),
            (
                of("    rate_limit:\n      unit: day\n      unlimited: true"),
                "line 5: unit: stands beside unlimited: leave one of the two out",
            ),
            (
                of("    rate_limit: { unit: day, unit_multiplier: 0 }"),
                "line 4: unit_multiplier: 0 makes a window of no length",
            ),
            (
                of(
                    "    rate_limit: { unit: year, requests_per_unit: 1, unit_multiplier: 4000000000 }",
                ),
                "line 4: requests_per_unit: ",
            ),
            (
                of("    metadata: { name: x }"),
                "line 4: metadata: is not supported: Envoy sets metadata itself",
            ),
            (
                of("    value: /api*v1"),
                "line 3: value: \"/api*v1\" has `*` before its end, which is not supported: write the values out",
            ),
            (
                of("    value: a**"),
                "line 3: value: \"a**\" has `*` before its end",
            ),
            (
                of("    rate_limit: { unit: day, name: x, replaces: [{ name: x }] }"),
                "line 4: replaces: \"x\" replaces itself",
            ),
            (
                of("    rate_limit: { unit: day, replaces: [{}] }"),
                "line 4: replaces: an entry has no name",
            ),
            (
                of("    rate_limit: { unit: day, algorithm: x }"),
                "line 4: algorithm: there is no such field here; the fields are unit",
            ),
            (
                of("  - key: a"),
                "line 4: another descriptor of the list has the same key and value",
            ),
        ];
        for (yaml, expected) in cases {
            let refusal = refusal(&yaml);
            assert!(
                !expected.is_empty() && refusal.starts_with(expected),
                "{yaml}: {refusal:?}"
            );
        }
        let mut deep = "domain: d\n".to_owned();
        for level in 0..17 {
            let indent = "  ".repeat(level);
            deep.push_str(&format!("{indent}descriptors:\n{indent}- key: a\n"));
        }
        assert_eq!(
            refusal(&deep),
            "line 35: descriptors: are nested deeper than 16"
        );
    }

    #[test]
    fn the_names_of_two_places_differ() {
        let exact = |key: &str, value: &str| (key.to_owned(), Pattern::Exact(value.to_owned()));
        let names = [
            policy_name("d", &[exact("a_b", "c")]),
            policy_name("d", &[exact("a", "b_c")]),
            policy_name("d", &[exact("a", "b/c")]),
            policy_name("d", &[exact("a", "b"), ("c".to_owned(), Pattern::Any)]),
            policy_name("d", &[exact("a.b", "c")]),
            policy_name("d", &[exact("A", "b")]),
            policy_name("d", &[exact("a", "b")]),
            policy_name("d", &[("a".to_owned(), Pattern::Beginning("b".to_owned()))]),
            policy_name("d", &[exact("a", &"x".repeat(100))]),
            policy_name("d", &[exact("a", &"x".repeat(101))]),
            policy_name("-d", &[]),
            policy_name("Ärger", &[]),
        ];
        let different: BTreeSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len(), "{names:?}");
        for name in &names {
            let policy = policy(name, QuotasConfig::One("1/s".to_owned()), false);
            let mut limiter = LimiterConfig::default();
            limiter.policies = vec![policy];
            assert!(limiter.build(&Registry::new()).is_ok(), "{name}");
        }
    }
}
