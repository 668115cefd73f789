//! The limiter of a process, as a user configures it.

use axum::http::HeaderName;
use tollgate::{Limiter, OnFailure, Policy, RequestView, Share, key};
use tollgate_core::Backend;

use crate::Result;
use crate::flaw::Flaw;
use crate::order::Identified;
use crate::population::{CALLER, COST, ONE_IN, Population, WAITS_AT_MOST, number_in};

impl Population {
    /// These policies as a user configures them, each for requests that name a caller for it. Each process has its share of all
    /// but the one whose rate is replaced.
    pub(crate) fn limiter(
        &self,
        backend: impl Backend,
        flaw: Option<Flaw>,
        max_waiting: usize,
    ) -> Result<Limiter> {
        let limiter = Limiter::builder().policies(self.policies(0, flaw)?);
        let limiter = limiter.max_waiting(max_waiting);
        let waits_at_most = HeaderName::from_static(WAITS_AT_MOST);
        let limiter = limiter.deadline_header(waits_at_most);
        Ok(limiter.backend(backend).build()?)
    }

    /// The policies of such a limiter, with this version of their quotas, and one for requests with ids.
    pub(crate) fn policies(&self, version: usize, flaw: Option<Flaw>) -> Result<Vec<Policy>> {
        let share = match flaw {
            Some(Flaw::WholeShare) => Share::WHOLE,
            _ => Share::one_in(ONE_IN),
        };
        let policies = self.asked().into_iter().map(|number| {
            let quota = self.quota(number, version);
            let (caller, cost) = (format!("{CALLER}{number}"), format!("{COST}{number}"));
            let is_named = caller.clone();
            let population = self.clone();
            let on_failure = match self.is_rated(number) {
                // A share would be one of each quota.
                true => OnFailure::Deny,
                false => OnFailure::Local(share),
            };
            Policy::new(&Self::name(number), quota)
                .when(move |request| request.headers().contains_key(&is_named))
                .key(key::from_fn(move |request: &RequestView<'_>| {
                    u32::try_from(number_in(request, &caller)?)
                        .ok()
                        .map(|caller| population.key(caller))
                }))
                .cost_by(move |request| number_in(request, &cost).unwrap_or(1))
                .on_failure(on_failure)
        });
        Ok(policies.chain([Identified::policy(self)?]).collect())
    }
}
