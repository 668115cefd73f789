//! A further decision about a request that a layer let pass: by an annotation, or a route's own limit.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http::request::Parts;

use super::Config;
#[cfg(feature = "tonic")]
use super::deadline::Deadline;
#[cfg(feature = "tonic")]
use crate::answer::too_late;
use crate::answer::{RefusalReason, Writes};
use crate::ledger::Ledger;
use crate::limiter::{Judged, Limiter, Planned};
use crate::status::Nearest;
use crate::{Policy, RateLimitStatus};

/// The handle that a layer has put into a request, with what the layer was told. Of several layers it is the nearest one's:
/// whoever puts another around all of them does not change whose policies handlers name.
#[derive(Debug)]
pub(crate) struct Further<'a> {
    status: &'a RateLimitStatus,
    config: &'a Arc<Config>,
    /// The handle that shows what all layers have charged.
    carried: &'a RateLimitStatus,
}

impl<'a> Further<'a> {
    /// Nothing, if there is no layer around, or it was told to leave requests as they are.
    pub(crate) fn of(parts: &'a Parts) -> Option<Self> {
        let carried = parts.extensions.get::<RateLimitStatus>()?;
        let nearest = parts.extensions.get().map(|Nearest(status)| status);
        let status = nearest.unwrap_or(carried);
        let config = status.config()?;
        Some(Self {
            status,
            config,
            carried,
        })
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
                let resolved = |cx: &mut Context<'_>| resolving.poll(cx, &limiter.view_of(parts));
                self.in_time(parts, resolved).await?
            }
            Err(turned) => Err(turned),
        };
        let plan = match planned {
            Ok(plan) if plan.is_empty() => return Ok(()),
            Ok(plan) => plan,
            Err(turned) => return Err(self.refuse(parts, turned.reason(), Ledger::default())),
        };
        let mut decide = limiter.decide(&plan);
        let decided = self
            .in_time(parts, |cx| Pin::new(&mut decide).poll(cx))
            .await?;
        match limiter.judge(&plan, decided) {
            Judged::Admitted(ledger) => {
                self.status.enter(ledger);
                Ok(())
            }
            Judged::Denied(ledger) => Err(self.refuse(parts, RefusalReason::QuotaExceeded, ledger)),
            Judged::Undecided => Ok(()),
            Judged::Unavailable => {
                Err(self.refuse(parts, RefusalReason::Undecided, Ledger::default()))
            }
        }
    }

    /// What `poll` comes to, unless that takes longer than a caller of gRPC waits.
    async fn in_time<T>(
        &self,
        parts: &Parts,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Result<T, Response<Bytes>> {
        #[cfg(not(feature = "tonic"))]
        let (_, late) = (parts, |_: &mut Context<'_>| Poll::Pending);
        #[cfg(feature = "tonic")]
        let mut deadline = None;
        #[cfg(feature = "tonic")]
        let mut late = |cx: &mut Context<'_>| {
            let call = self.config.limiter.view_of(parts);
            // Nobody needs a timer who is answered at once.
            match deadline.get_or_insert_with(|| Deadline::of(&call)) {
                Some(deadline) => deadline.poll(cx).map(|()| {
                    self.carried.give_back();
                    too_late(&call)
                }),
                None => Poll::Pending,
            }
        };
        poll_fn(|cx| match poll(cx) {
            Poll::Ready(done) => Poll::Ready(Ok(done)),
            Poll::Pending => late(cx).map(Err),
        })
        .await
    }

    fn refuse(&self, parts: &Parts, reason: RefusalReason<'_>, ledger: Ledger) -> Response<Bytes> {
        let view = self.config.limiter.view_of(parts);
        let answers = &self.config.answers;
        let response = answers.refuse(reason, &ledger, view, Writes::Nothing);
        self.carried.give_back();
        self.status.enter(ledger);
        response
    }
}
