//! The terms of the leases of a limiter's policies.

use tollgate_core::{Charge, Lease, Mode, Scope};

use crate::Policy;

/// The leases of the policies, by the numbers of their scopes: a look-up is a look at a list.
#[derive(Clone, Debug, Default)]
pub(super) struct LeaseTerms {
    leases: Vec<Option<Lease>>,
    /// Those of handlers, whose policies are not replaced with the limiter's.
    of_handlers: Vec<(Scope, Lease)>,
}

impl LeaseTerms {
    /// These policies' terms, in place of all but those of handlers.
    pub(super) fn replaced<'p>(&self, policies: impl IntoIterator<Item = &'p Policy>) -> Self {
        let mut terms = Self {
            leases: Vec::new(),
            of_handlers: self.of_handlers.clone(),
        };
        for (scope, lease) in &self.of_handlers {
            terms.set(*scope, *lease);
        }
        for (scope, lease) in policies.into_iter().flat_map(leases_of) {
            terms.set(scope, lease);
        }
        terms
    }

    /// These terms and those of the policy of a handler.
    pub(super) fn with_handler(&self, policy: &Policy) -> Self {
        let mut terms = self.clone();
        for (scope, lease) in leases_of(policy) {
            terms.of_handlers.retain(|(other, _)| *other != scope);
            terms.of_handlers.push((scope, lease));
            terms.set(scope, lease);
        }
        terms
    }

    fn set(&mut self, scope: Scope, lease: Lease) {
        let place = scope.number() as usize;
        if self.leases.len() <= place {
            self.leases.resize(place + 1, None);
        }
        if let Some(entry) = self.leases.get_mut(place) {
            *entry = Some(lease);
        }
    }

    /// The lease under which this charge may be spent. A probe takes nothing, so that there is nothing to spend; a peek, too.
    #[inline]
    pub(super) fn for_charge(&self, charge: &Charge<'_>) -> Option<&Lease> {
        let lease = self.leases.get(charge.scope.number() as usize)?.as_ref()?;
        (charge.mode != Mode::Probe && charge.cost > 0).then_some(lease)
    }
}

fn leases_of(policy: &Policy) -> impl Iterator<Item = (Scope, Lease)> {
    let lease = policy.lease.into_iter();
    lease.flat_map(|lease| policy.scopes().into_iter().map(move |scope| (scope, lease)))
}
