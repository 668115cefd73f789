//! The policies that charge the messages of calls. A call is planned for once, and each of its messages decided by that plan.

use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use super::entry::Entrant;
use super::planning::{PendingPlan, Planning, Rejection};
use super::{Limiter, Plan};
use crate::RequestView;
use crate::policy::has_form_of_call;
use crate::request::Routing;

impl Limiter {
    /// True if some policy is for messages.
    #[doc(hidden)]
    pub fn has_messages(&self) -> bool {
        !self.snapshot().messages.policies.is_empty()
    }

    /// A layer charges messages.
    #[doc(hidden)]
    pub fn attend_messages(&self) {
        self.0.attends_messages.store(true, Ordering::Relaxed);
    }

    /// True if a policy for messages names the path. Every request to it is then a call.
    #[doc(hidden)]
    pub fn names_messages_of(&self, call: &RequestView<'_>) -> bool {
        let ignores_case = self.0.terms.ignores_path_case;
        let path = call.path_forms(ignores_case);
        self.snapshot().messages.policies.iter().any(|policy| {
            let routes = policy.patterns().routes;
            let routing = Routing {
                path: &path,
                routes,
                is_exact: false,
            };
            routing.covering().next().is_some()
        })
    }

    /// True if a gRPC service might run the request, whatever its content type is.
    #[doc(hidden)]
    #[must_use]
    pub fn may_be_call(request: &RequestView<'_>) -> bool {
        has_form_of_call(request)
    }

    /// The policies that cover the messages of a call, the budgets that they spend, and how much of them. A call is refused under
    /// pressure, unless a layer of the limiter further out has let it in.
    #[doc(hidden)]
    pub fn plan_messages(
        &self,
        call: &RequestView<'_>,
        is_let_in: bool,
    ) -> Result<Planning<'static>, Rejection> {
        if !is_let_in
            && self.is_shedding()
            && let Some(refused) = self.shed(Entrant::Request(call))
        {
            return Err(refused);
        }
        let (policies, terms) = (self.snapshot(), &self.0.terms);
        policies.messages.watch(call, terms, &policies.proxies);
        let planned = policies.messages.plan(call, terms, &self.0.observers);
        self.warned(planned).map(Planning::kept)
    }
    /// The plan for the messages of a call, once the payer is known.
    #[doc(hidden)]
    pub fn poll_plan(
        &self,
        resolving: &mut PendingPlan,
        cx: &mut Context<'_>,
        request: Option<&RequestView<'_>>,
    ) -> Poll<Result<Plan<'static>, Rejection>> {
        resolving.poll(cx, request, &self.0.observers)
    }
}
