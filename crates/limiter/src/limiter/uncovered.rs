//! The reason why a policy has no say in a request, for operators who ask.

use std::sync::Arc;

use super::Limiter;
use crate::key::KeyMissing;
use crate::matching::{Matcher, PathForms, Patterns};
use crate::policy::Unmet;
use crate::request::Routing;
use crate::{Policy, RequestView};

impl Limiter {
    /// The first condition of each policy that a request does not meet. It asks the functions that plan a request, and no request
    /// is decided by it.
    #[doc(hidden)]
    #[must_use]
    pub fn unmet(&self, request: &RequestView<'_>) -> Vec<(Arc<Policy>, Option<Unmet>)> {
        let snapshot = self.snapshot();
        let path = request.path_forms(self.0.terms.ignores_path_case);
        let policies = snapshot.policies.iter();
        let found = policies.map(|policy| (Arc::clone(policy), unmet_by(policy, &path, request)));
        found.collect()
    }

    /// The reason why a policy finds no identity in a request, if it finds none. A key that reads bodies is not asked.
    #[doc(hidden)]
    #[must_use]
    pub fn missing_key(&self, policy: &Policy, request: &RequestView<'_>) -> Option<KeyMissing> {
        if policy.key.later().is_some() {
            return None;
        }
        let path = request.path_forms(self.0.terms.ignores_path_case);
        let found = policy.key.extract(&request.routed(&routing(policy, &path)));
        found.err()
    }
}

fn unmet_by(policy: &Policy, path: &PathForms<'_>, request: &RequestView<'_>) -> Option<Unmet> {
    if policy.on_demand {
        return Some(Unmet::OnDemand);
    }
    if policy.messages.is_some() {
        return Some(Unmet::Messages);
    }
    let patterns = policy.patterns();
    let covers = |patterns: Patterns<'_>| {
        let matcher = Matcher::new(&[patterns]);
        matcher.is_none_or(|matcher| !matcher.covering(path).as_slice().is_empty())
    };
    if !covers(patterns) {
        let without_exempt = Patterns {
            exempt: &[],
            ..patterns
        };
        return Some(match covers(without_exempt) {
            true => Unmet::ExemptPath,
            false => Unmet::Path,
        });
    }
    policy.unmet(&request.routed(&routing(policy, path)))
}

fn routing<'a>(policy: &'a Policy, path: &'a PathForms<'a>) -> Routing<'a> {
    Routing {
        path,
        routes: policy.patterns().routes,
        is_exact: false,
    }
}
