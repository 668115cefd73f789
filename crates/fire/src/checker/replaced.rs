//! Says whether each question was asked by a quota that was in force: quotas are replaced in one step, at known times.

use std::collections::BTreeMap;

use tollgate_core::Quota;

use crate::attempt::{Attempt, Outcome};
use crate::history::History;
use crate::population::part_of_version;
use crate::replacement::Replacement;

/// The findings about replaced quotas, beside the impossible.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplacedFindings {
    /// The charges that were decided by a quota of the same algorithm in place of the first one.
    pub by_another: u64,
    /// Those by a quota of another algorithm.
    pub by_another_algorithm: u64,
}

/// The quotas in force, by process and limiter.
pub(super) struct InForce<'a> {
    history: &'a History,
    replaced: BTreeMap<(u32, u32), Vec<Replacement>>,
}

impl<'a> InForce<'a> {
    pub(super) fn of(history: &'a History) -> Self {
        let mut replaced: BTreeMap<_, Vec<Replacement>> = BTreeMap::new();
        for one in &history.replaced {
            let limiter = (one.process, one.limiter);
            replaced.entry(limiter).or_default().push(*one);
        }
        for all in replaced.values_mut() {
            all.sort_by_key(|one| one.from_us);
        }
        Self { history, replaced }
    }

    /// A question by a quota that was not in force between its start and the moment at which the backend was asked.
    pub(super) fn stale(
        &self,
        attempt: &Attempt,
        findings: &mut ReplacedFindings,
    ) -> Option<String> {
        let Outcome::Decided(decided) = &attempt.outcome else {
            return None;
        };
        let charges = attempt.verb.asked().iter().zip(&decided.verdicts);
        for (asked, said) in charges {
            let policy = asked.budget.policy;
            let (Some(terms), true) = (said.terms, self.history.replacements.contains_key(&policy))
            else {
                continue;
            };
            let first = self.quota(policy, 0)?;
            findings.by_another += u64::from(terms.is_bucket && !terms.can_be_of(&first));
            findings.by_another_algorithm += u64::from(!terms.is_bucket);
            let versions = self.versions(attempt);
            let mut quotas = versions.iter().filter_map(|it| self.quota(policy, *it));
            if !versions.is_empty() && !quotas.any(|quota| terms.can_be_of(&quota)) {
                return Some(format!(
                    "policy {policy} was asked by {terms:?}, and in force was a version of {versions:?}"
                ));
            }
        }
        None
    }

    /// The versions that may have been in force; none if that is not recorded.
    fn versions(&self, attempt: &Attempt) -> Vec<usize> {
        if self.history.replaced.is_empty() || attempt.asker.process == u32::MAX {
            return Vec::new();
        }
        let limiter = (attempt.asker.process, attempt.limiter);
        let all = self.replaced.get(&limiter).map_or(&[][..], Vec::as_slice);
        let to_us = attempt
            .asking
            .map_or(attempt.heard_us, |asking| asking.asked_us);
        let before = all.iter().rfind(|one| one.to_us <= attempt.sent_us);
        let meanwhile = all
            .iter()
            .filter(|one| one.to_us > attempt.sent_us && one.from_us <= to_us);
        let before = before.map_or(0, |one| one.version);
        [before]
            .into_iter()
            .chain(meanwhile.map(|one| one.version))
            .collect()
    }

    fn quota(&self, policy: usize, version: usize) -> Option<Quota> {
        let is_rated = self.history.others.contains_key(&policy);
        match part_of_version(is_rated, version) {
            0 => self.history.quotas.get(policy).copied(),
            later => self
                .history
                .replacements
                .get(&policy)?
                .get(later - 1)
                .copied(),
        }
    }
}
