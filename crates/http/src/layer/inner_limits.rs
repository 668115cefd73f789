//! A further decision about a request that a layer let pass: by an annotation, or a route's own limit.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use tollgate_limiter::transport::{Admission, Ledger, PolicySet, Ruling};
use tollgate_limiter::{Limiter, Policy};

#[cfg(feature = "tonic")]
use super::deadline::Deadline;
use crate::RateLimitStatus;
use crate::answer::RefusalReason;
#[cfg(feature = "tonic")]
use crate::answer::too_late;
use crate::settings::Config;

/// The handle that a layer has put into a request, with the layer's settings. If there are several layers, it is the handle of
/// the nearest one, whose policies handlers name.
#[derive(Debug)]
pub(crate) struct InnerLimits<'a> {
    status: &'a RateLimitStatus,
    config: &'a Arc<Config>,
}

impl<'a> InnerLimits<'a> {
    /// `None` if there is no layer around, or if it puts no status into requests.
    pub(crate) fn of(parts: &'a Parts) -> Option<Self> {
        let status = parts.extensions.get::<RateLimitStatus>()?;
        let config = status.config()?;
        Some(Self { status, config })
    }

    pub(crate) fn limiter(&self) -> &'a Limiter {
        &self.config.limiter
    }

    /// Decides under these policies as well. If they refuse, earlier charges of the request are refunded. The answer lacks only
    /// the RateLimit fields, which the layer writes for all policies that took part.
    pub(crate) async fn decide(
        self,
        parts: &Parts,
        policies: &[Arc<Policy>],
    ) -> Result<(), Response<Bytes>> {
        let limiter = &self.config.limiter;
        let conclude = |ruling: Ruling<'_>| self.conclude(parts, ruling);
        match limiter.admit(
            &limiter.view_of(parts),
            PolicySet::Handler(policies),
            || true,
            conclude,
        ) {
            Admission::Ruled(refused) => refused.map_or(Ok(()), Err),
            Admission::Pending(mut pending) => {
                let concluded = |cx: &mut Context<'_>| {
                    pending.poll(cx, limiter, Some(&limiter.view_of(parts)), conclude)
                };
                let refused = self.in_time(parts, concluded).await?;
                refused.map_or(Ok(()), Err)
            }
        }
    }

    /// Enters the decision. Returns the answer if the request is refused.
    fn conclude(&self, parts: &Parts, ruling: Ruling<'_>) -> Option<Response<Bytes>> {
        match ruling {
            Ruling::Admitted(decided) => {
                self.status.enter(decided.ledger());
                None
            }
            Ruling::Uncharged | Ruling::Undecided(_, None) => {
                self.status.enter(Ledger::default());
                None
            }
            Ruling::Undecided(_, Some(assumed)) => {
                self.status.enter(assumed.ledger());
                None
            }
            Ruling::Denied(decided) => {
                Some(self.refuse(parts, RefusalReason::QuotaExceeded, decided.ledger()))
            }
            Ruling::Refused(refused) => {
                let reason = RefusalReason::of(&refused);
                Some(self.refuse(parts, reason, Ledger::default()))
            }
        }
    }

    /// The result of `poll`, unless it takes longer than a gRPC caller waits.
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
            // A decision that is there at once needs no timer.
            match deadline.get_or_insert_with(|| Deadline::of(&call)) {
                Some(deadline) => deadline.poll(cx).map(|()| {
                    let mark = self.status.refuse(Ledger::default());
                    let mut late = too_late(&call);
                    late.extensions_mut().insert(mark);
                    late
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
        let mut response = answers.refuse(reason, ledger.report(), view, false);
        let mark = self.status.refuse(ledger);
        response.extensions_mut().insert(mark);
        response
    }
}
