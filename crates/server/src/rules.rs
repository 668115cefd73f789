//! The rules that turn descriptors into charges.
//!
//! The rules of a domain form a tree, one level for each entry. A descriptor is looked up with one step for each of its entries,
//! in tables by hash, so that the number of rules does not matter.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tollgate::OnMissing;

use crate::identity::Reading;

/// The most entries of a rule. It bounds the steps of a lookup, whatever a descriptor has.
pub(crate) const MOST_ENTRIES: usize = 16;

/// One entry of a descriptor: its key and its value, which need not be UTF-8.
pub(crate) type Entry<'d> = (&'d str, &'d [u8]);

/// The rules of all domains.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    domains: HashMap<Box<str>, Domain>,
    count: usize,
    /// The names of the policies that they charge.
    charged: HashSet<Arc<str>>,
}

#[derive(Debug, Default)]
struct Domain {
    root: Node,
    /// The policy that a descriptor with a limit of its own charges, whatever the rules say.
    overrides: Option<Arc<str>>,
    /// True if a value that has a branch is not looked for among the rules for any value, as in files of envoy/ratelimit.
    is_without_return: bool,
}

#[derive(Debug, Default)]
struct Node {
    keys: HashMap<Box<str>, Values>,
    /// The rule of the descriptors that end here.
    rule: Option<Rule>,
}

/// The branches of one key.
#[derive(Debug, Default)]
struct Values {
    exact: HashMap<Box<[u8]>, Node>,
    beginnings: Beginnings,
    any: Option<Box<Node>>,
}

/// The branches of values that begin in some way.
#[derive(Debug, Default)]
struct Beginnings {
    /// Their lengths, each once: a lookup takes one step for each.
    lengths: Vec<usize>,
    /// With their numbers: the first one that fits counts.
    nodes: HashMap<Box<[u8]>, (usize, Node)>,
}

/// The values of an entry for which a rule holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    Exact(String),
    Beginning(String),
    Any,
}

/// A rule, without the descriptors that it is for.
#[derive(Debug)]
pub(crate) struct Rule {
    /// The budget that they charge; `None` if they have no limit.
    pub(crate) charge: Option<RuleCharge>,
    /// The name by which other rules replace it.
    pub(crate) name: Option<Box<str>>,
    /// The names of the rules that it replaces within a request.
    pub(crate) replaces: Vec<Box<str>>,
}

/// The budget that a rule charges.
#[derive(Debug)]
pub(crate) struct RuleCharge {
    pub(crate) policy: Arc<str>,
    /// The places of the entries whose values are the identity.
    pub(crate) identity: Vec<usize>,
    /// The way in which they are read.
    pub(crate) reading: Reading,
    /// The policy's rule for a request without an identity.
    pub(crate) on_missing: OnMissing,
    /// True if it is charged afterwards, and decides nothing.
    pub(crate) is_report: bool,
}

/// The result of a lookup.
#[derive(Debug)]
pub(crate) enum Found<'r> {
    Rule(&'r Rule),
    /// The gateway states a limit, and the domain has a policy for such limits, whatever the rules say.
    Override(&'r Arc<str>),
    /// No rule of the domain is for such a descriptor.
    NoRule,
    /// There is no such domain.
    NoDomain,
}

/// Two rules are for the same descriptors.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SecondRule;

impl Rules {
    pub(crate) fn add(
        &mut self,
        domain: &str,
        path: &[(String, Pattern)],
        rule: Rule,
    ) -> Result<(), SecondRule> {
        let root = &mut self.domains.entry(domain.into()).or_default().root;
        let node = path
            .iter()
            .fold(root, |node, (key, pattern)| node.branch(key, pattern));
        if node.rule.is_some() {
            return Err(SecondRule);
        }
        self.charged.extend(
            rule.charge
                .as_ref()
                .map(|charge| Arc::clone(&charge.policy)),
        );
        node.rule = Some(rule);
        self.count += 1;
        Ok(())
    }

    /// Makes a domain one of envoy/ratelimit, whose lookups never return from a branch, and in which a descriptor with a limit of
    /// its own charges this policy.
    pub(crate) fn read_as_envoy_does(&mut self, domain: &str, overrides: Arc<str>) {
        let domain = self.domains.entry(domain.into()).or_default();
        domain.is_without_return = true;
        self.charged.insert(Arc::clone(&overrides));
        domain.overrides = Some(overrides);
    }

    /// True if there is a rule that charges this policy.
    pub(crate) fn charge(&self, policy: &str) -> bool {
        self.charged.contains(policy)
    }

    /// The number of rules.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The rule for a descriptor. The entries of both are the same in number and order. A rule for exactly this value comes before
    /// one for values that begin like it, and that before one for any value.
    pub(crate) fn find<'d>(
        &self,
        domain: &str,
        entries: impl ExactSizeIterator<Item = Entry<'d>>,
        states_limit: bool,
    ) -> Found<'_> {
        let Some(domain) = self.domains.get(domain) else {
            return Found::NoDomain;
        };
        if let Some(policy) = &domain.overrides
            && states_limit
        {
            return Found::Override(policy);
        }
        // No rule is longer.
        if entries.len() > MOST_ENTRIES {
            return Found::NoRule;
        }
        let entries: Vec<_> = entries.collect();
        let rule = domain.root.find(&entries, domain.is_without_return);
        rule.map_or(Found::NoRule, Found::Rule)
    }
}

impl Node {
    fn branch(&mut self, key: &str, pattern: &Pattern) -> &mut Self {
        let values = self.keys.entry(key.into()).or_default();
        match pattern {
            Pattern::Exact(value) => values.exact.entry(value.as_bytes().into()).or_default(),
            Pattern::Any => values.any.get_or_insert_default(),
            Pattern::Beginning(beginning) => values.beginnings.branch(beginning),
        }
    }

    fn find(&self, entries: &[Entry<'_>], is_without_return: bool) -> Option<&Rule> {
        let Some(((key, value), rest)) = entries.split_first() else {
            return self.rule.as_ref();
        };
        let values = self.keys.get(*key)?;
        let mut branches = values.branches(value);
        if is_without_return {
            return branches.next()?.find(rest, is_without_return);
        }
        branches.find_map(|branch| branch.find(rest, is_without_return))
    }
}

impl Values {
    /// The branches for a value, the most exact first.
    fn branches(&self, value: &[u8]) -> impl Iterator<Item = &Node> {
        let exact = self.exact.get(value).into_iter();
        let begun = self.beginnings.find(value).into_iter();
        exact.chain(begun).chain(self.any.as_deref())
    }
}

impl Beginnings {
    fn branch(&mut self, beginning: &str) -> &mut Node {
        if !self.lengths.contains(&beginning.len()) {
            self.lengths.push(beginning.len());
        }
        let number = self.nodes.len();
        let new = || (number, Node::default());
        &mut self
            .nodes
            .entry(beginning.as_bytes().into())
            .or_insert_with(new)
            .1
    }

    fn find(&self, value: &[u8]) -> Option<&Node> {
        let begun = self.lengths.iter().filter_map(|length| {
            let beginning = value.get(..*length)?;
            self.nodes.get(beginning)
        });
        begun
            .min_by_key(|(number, _)| *number)
            .map(|(_, node)| node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(policy: &str) -> Rule {
        Rule {
            charge: Some(RuleCharge {
                policy: policy.into(),
                identity: Vec::new(),
                reading: Reading::Unstated,
                on_missing: OnMissing::Share,
                is_report: false,
            }),
            name: None,
            replaces: Vec::new(),
        }
    }

    fn path(entries: &[(&str, &str)]) -> Vec<(String, Pattern)> {
        let pattern = |value: &str| match value.strip_suffix('*') {
            Some("") => Pattern::Any,
            Some(beginning) => Pattern::Beginning(beginning.to_owned()),
            None => Pattern::Exact(value.to_owned()),
        };
        let entries = entries.iter();
        entries
            .map(|(key, value)| ((*key).to_owned(), pattern(value)))
            .collect()
    }

    fn rules(of: &[&[(&str, &str)]]) -> Rules {
        let mut rules = Rules::default();
        for (number, entries) in of.iter().enumerate() {
            let added = rules.add("shop", &path(entries), rule(&number.to_string()));
            assert_eq!(added, Ok(()));
        }
        rules
    }

    fn found(rules: &Rules, entries: &[(&str, &str)]) -> String {
        let entries = entries.iter().map(|(key, value)| (*key, value.as_bytes()));
        match rules.find("shop", entries, false) {
            Found::Rule(rule) => rule
                .charge
                .as_ref()
                .map_or_else(String::new, |charge| charge.policy.to_string()),
            Found::Override(policy) => policy.to_string(),
            Found::NoRule => "no rule".to_owned(),
            Found::NoDomain => "no domain".to_owned(),
        }
    }

    #[test]
    fn the_most_exact_rule_counts_and_the_length_must_agree() {
        let rules = rules(&[
            &[("a", "1"), ("b", "*")],
            &[("a", "*"), ("c", "*")],
            &[("a", "*")],
            &[("a", "x*")],
            &[("a", "xy*")],
        ]);
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&[("a", "1"), ("b", "2")], "0"),
            // There is a branch for 1, but only the one for any value goes on with c.
            (&[("a", "1"), ("c", "2")], "1"),
            (&[("a", "1")], "2"),
            (&[("a", "xyz")], "3"),
            (&[("a", "x")], "3"),
            (&[("a", "ä")], "2"),
            (&[("b", "1")], "no rule"),
            (&[("a", "1"), ("b", "2"), ("b", "2")], "no rule"),
            (&[], "no rule"),
        ];
        for (entries, expected) in cases {
            assert_eq!(found(&rules, entries), *expected, "{entries:?}");
        }
    }

    #[test]
    fn a_domain_of_envoys_files_never_returns_from_a_branch_and_has_a_policy_for_stated_limits() {
        let mut rules = rules(&[&[("a", "1"), ("b", "*")], &[("a", "*"), ("c", "*")]]);
        rules.read_as_envoy_does("shop", "override".into());
        assert_eq!(found(&rules, &[("a", "1"), ("c", "2")]), "no rule");
        assert_eq!(found(&rules, &[("a", "2"), ("c", "2")]), "1");
        assert!(rules.charge("1") && rules.charge("override") && !rules.charge("2"));
        let stated = rules.find("shop", [("x", &b"1"[..])].into_iter(), true);
        assert!(matches!(stated, Found::Override(policy) if **policy == *"override"));
    }

    #[test]
    fn two_rules_for_the_same_descriptors_are_refused() {
        let mut rules = rules(&[&[("a", "1")]]);
        assert_eq!(
            rules.add("shop", &path(&[("a", "1")]), rule("x")),
            Err(SecondRule)
        );
        assert_eq!(rules.add("other", &path(&[("a", "1")]), rule("x")), Ok(()));
        assert_eq!(rules.len(), 2);
    }

    #[test]
    fn a_thousand_rules_cost_the_steps_of_one() {
        let names: Vec<_> = (0..1000).map(|number| format!("value-{number}")).collect();
        let mut rules = Rules::default();
        for name in &names {
            let path = path(&[("a", name), ("b", "*")]);
            assert_eq!(rules.add("shop", &path, rule(name)), Ok(()));
        }
        // The tables are those of the standard library: one step for the key and one for the value, at each level.
        let values = &rules.domains["shop"].root.keys["a"];
        assert_eq!(
            (values.exact.len(), values.beginnings.lengths.len()),
            (1000, 0)
        );
        assert_eq!(
            found(&rules, &[("a", "value-999"), ("b", "x")]),
            "value-999"
        );
    }

    #[test]
    fn a_descriptor_of_ten_thousand_entries_has_no_rule() {
        let rules = rules(&[&[("a", "*")]]);
        let entries = vec![("a", "1"); 10_000];
        assert_eq!(found(&rules, &entries), "no rule");
    }
}
