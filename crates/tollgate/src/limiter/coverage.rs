//! Policies of one kind, and how those are found that cover a request.

use std::sync::Arc;

use super::observer::Observers;
use super::plan::{Entry, Plan};
use super::planning::{self, Planned, Refused, Site};
use super::terms::Terms;
use super::watch::{ProxyWatch, Watch};
use crate::matching::{Matcher, PathForms};
use crate::request::FoundClient;
use crate::{Policy, RequestView};

/// The policies of one kind, and how those are found that cover a request.
///
/// There are three ways, of which one is chosen when the policies are put together:
///
/// * **sole**: one policy, without routes, tiers, lists or a key that has to be waited for, under which nothing is exempt and a request
///   costs the same whatever it is. It is what `RateLimitLayer::new(quota)` makes. Only its key is looked for: the layer
///   takes 1,206 instructions of a request instead of 2,100, the decision among them.
/// * **by path**: where policies have routes, a router tells which of them the path concerns, so that a hundred cost as much as one.
/// * **each**: otherwise all are asked, one by one.
///
/// The first leaves what it cannot do (a request without an identity) to the last, which can do everything.
#[derive(Debug)]
pub(super) struct Coverage {
    pub(super) policies: Box<[Arc<Policy>]>,
    /// Whether the first way is chosen.
    is_sole: bool,
    /// Nothing, if no policy has a route.
    matcher: Option<Matcher>,
    watch: Watch,
}

impl Coverage {
    pub(super) fn new(
        policies: Box<[Arc<Policy>]>,
        matcher: Option<Matcher>,
        terms: &Terms,
        proxies: &ProxyWatch,
    ) -> Self {
        let is_sole = matches!(&policies[..], [sole] if sole.is_plain())
            && matcher.is_none()
            && !terms.ignores_path_case;
        Self {
            watch: Watch::new(&policies, proxies),
            is_sole,
            policies,
            matcher,
        }
    }

    /// Looks at a request if it is one of the first.
    pub(super) fn watch(&self, request: &RequestView<'_>, terms: &Terms, proxies: &ProxyWatch) {
        let matcher = self.matcher.as_ref();
        self.watch
            .look(&self.policies, matcher, request, terms, proxies);
    }

    /// The plan for a request to the only policy, if all there is to be found is who pays.
    #[inline]
    pub(super) fn sole_plan(&self, request: &RequestView<'_>) -> Option<Plan> {
        let [policy] = &self.policies[..] else {
            return None;
        };
        if !self.is_sole {
            return None;
        }
        if !policy.covers(request) {
            return Some(Plan::default());
        }
        let key = policy.key.extract(request).ok()?;
        let cost = policy.cost.fixed()?;
        Some(Plan::of(Entry::new(policy, None, key, cost, false)))
    }

    /// Which policies cover a request, whose budgets they spend, and how much.
    pub(super) fn plan(
        &self,
        request: &RequestView<'_>,
        terms: &Terms,
        observers: &Observers,
    ) -> Result<Planned, Refused> {
        let found = FoundClient::new();
        let request = request.remembering(&found);
        if self.matcher.is_none() && !terms.ignores_path_case {
            let all = self.policies.iter();
            return planning::plan(all, &request, None, Site::Layer, observers);
        }
        let path = PathForms::of(request.original_uri().path(), terms.ignores_path_case);
        match &self.matcher {
            None => {
                let all = self.policies.iter();
                planning::plan(all, &request, Some(&path), Site::Layer, observers)
            }
            Some(matcher) => {
                let covering = matcher.covering(&path);
                let positions = covering.as_slice().iter();
                let covering = positions.filter_map(|position| self.policies.get(*position));
                planning::plan(covering, &request, Some(&path), Site::Layer, observers)
            }
        }
    }
}

/// Whose budgets a request spends under the policies of the handler that it has come to.
pub(super) fn plan_at_handler(
    policies: &[Arc<Policy>],
    request: &RequestView<'_>,
    observers: &Observers,
) -> Result<Planned, Refused> {
    let found = FoundClient::new();
    let request = request.remembering(&found);
    planning::plan(policies.iter(), &request, None, Site::Handler, observers)
}
