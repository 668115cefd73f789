//! A further decision about a request that a layer let pass: by an annotation, or a route's own limit.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::request::Parts;

use super::Config;
use crate::answer::{RefusalReason, Writes};
use crate::ledger::Ledger;
use crate::limiter::{Judged, Limiter, Planned};
use crate::{Policy, RateLimitStatus};

/// The handle that a layer has put into a request, with what the layer was told.
#[derive(Debug)]
pub(crate) struct Further<'a> {
    status: &'a RateLimitStatus,
    config: &'a Arc<Config>,
}

impl<'a> Further<'a> {
    /// Nothing, if there is no layer around, or it was told to leave requests as they are.
    pub(crate) fn of(parts: &'a Parts) -> Option<Self> {
        let status = parts.extensions.get::<RateLimitStatus>()?;
        let config = status.config()?;
        Some(Self { status, config })
    }

    pub(crate) fn limiter(&self) -> &'a Limiter {
        &self.config.limiter
    }

    /// Decides under these policies as well. If they refuse, whatever the request was charged before comes back, and the
    /// answer is complete but for the RateLimit fields, which the layer writes for all that took part.
    pub(crate) async fn decide(
        self,
        parts: &Parts,
        policies: &[Arc<Policy>],
    ) -> Result<(), Response<Bytes>> {
        let limiter = &self.config.limiter;
        let planned = match limiter.plan_for(policies, &limiter.view_of(parts)) {
            Ok(Planned::Now(plan)) => Ok(plan),
            Ok(Planned::Later(mut resolving)) => {
                poll_fn(|cx| resolving.poll(cx, &limiter.view_of(parts))).await
            }
            Err(turned) => Err(turned),
        };
        let plan = match planned {
            Ok(plan) if plan.is_empty() => return Ok(()),
            Ok(plan) => plan,
            Err(turned) => return Err(self.refuse(parts, turned.reason(), Ledger::default())),
        };
        let decided = limiter.decide(&plan).await;
        match limiter.judge(&plan, decided) {
            Judged::Admitted(ledger) => {
                self.status.ledger().append(ledger);
                Ok(())
            }
            Judged::Denied(ledger) => Err(self.refuse(parts, RefusalReason::QuotaExceeded, ledger)),
            Judged::Undecided => Ok(()),
            Judged::Unavailable => {
                Err(self.refuse(parts, RefusalReason::Undecided, Ledger::default()))
            }
        }
    }

    fn refuse(&self, parts: &Parts, reason: RefusalReason<'_>, ledger: Ledger) -> Response<Bytes> {
        let view = self.config.limiter.view_of(parts);
        let answers = &self.config.answers;
        let response = answers.refuse(reason, &ledger, view, Writes::Nothing);
        self.status.give_back();
        self.status.ledger().append(ledger);
        response
    }
}
