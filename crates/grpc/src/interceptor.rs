//! The limiter as an interceptor of tonic's.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tollgate_core::ImmediateBackend;
use tollgate_http::{GrpcAnswers, RateLimitLayer};
use tollgate_limiter::transport::{Admission, PolicySet};
use tollgate_limiter::{ConfigError, Limiter, LimiterBuilder, Policy};
use tonic::Status;
use tonic::metadata::MetadataMap;
use tonic::service::Interceptor;

use crate::call::{call_head, refusal_status};

/// Limits the calls to a service that is made with tonic's `with_interceptor`.
///
/// An interceptor cannot wait, and sees neither the called method nor the answer. So the backend must always answer at once, and
/// building fails if a policy would have to wait or to know more. [`RateLimitLayer`] is for whole servers, for methods, and for
/// Redis. It also goes around a single service: `RateLimitLayer::new(..).layer(OrdersServer::new(..))` can be served like the
/// service itself.
///
/// ```
/// use tollgate::{Limiter, MemoryBackend, Policy, Quota, RateLimitInterceptor};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let policies = Limiter::builder().policy(Policy::new("orders", Quota::per_second(10)));
/// let interceptor = RateLimitInterceptor::new(policies, MemoryBackend::new())?;
/// # Ok(()) }
/// ```
///
/// `OrdersServer::with_interceptor(orders, interceptor)` adds it to a service. Clones share their budgets. The answer to a
/// refused call is the layer's. Calls that pass are answered without RateLimit fields, which an interceptor cannot write. A key
/// of your own sees only metadata and extensions.
#[derive(Clone, Debug)]
#[must_use = "an interceptor does nothing until a service has it"]
pub struct RateLimitInterceptor {
    layer: RateLimitLayer,
}

impl RateLimitInterceptor {
    /// Makes an interceptor of these policies on this backend, which replaces the builder's.
    ///
    /// # Errors
    ///
    /// If the limiter cannot be built, or if a policy needs a part that an interceptor lacks: a route, a host, a method of HTTP, a key
    /// that is read from the target or from a body, a closure that reads the request ([`when`](tollgate_limiter::Policy::when),
    /// [`cost_by`](tollgate_limiter::Policy::cost_by)), a class that is read from there, an async key, tiers that are asked for, or
    /// a charge for messages or by the response.
    pub fn new(
        limiter: LimiterBuilder,
        backend: impl ImmediateBackend,
    ) -> Result<Self, ConfigError> {
        let limiter = limiter
            .backend(backend)
            .refusing(beyond_an_interceptor)
            .build()?;
        if limiter.class_needs_whole_request() {
            return Err(ConfigError::Shedding {
                reason: "the class of a request is found in a part that an interceptor lacks; use RateLimitLayer".into(),
            });
        }
        Ok(Self {
            layer: RateLimitLayer::new(limiter),
        })
    }

    /// Sets the parts of answers to refused calls beyond the status.
    ///
    /// ```
    /// use tollgate::{GrpcAnswers, Limiter, MemoryBackend, Policy, Quota, RateLimitInterceptor};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let policies = Limiter::builder().policy(Policy::new("orders", Quota::per_second(10)));
    /// let interceptor = RateLimitInterceptor::new(policies, MemoryBackend::new())?
    ///     .grpc(GrpcAnswers::new().domain("shop.example.com"));
    /// # Ok(()) }
    /// ```
    pub fn grpc(mut self, answers: GrpcAnswers) -> Self {
        self.layer = self.layer.grpc(answers);
        self
    }

    /// The limiter behind it, to [check](Limiter::check), to reset or to [replace](Limiter::replace) its policies. A policy that
    /// could not be an interceptor's is refused then as well.
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryBackend, Policy, Quota, RateLimitInterceptor};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let policies = Limiter::builder().policy(Policy::new("orders", Quota::per_second(10)));
    /// let interceptor = RateLimitInterceptor::new(policies, MemoryBackend::new())?;
    ///
    /// let limiter = interceptor.limiter();
    /// limiter.replace([Policy::new("orders", Quota::per_second(20))])?;
    /// assert!(limiter.replace([Policy::new("orders", "5 at once")]).is_err());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        &self.layer.config().limiter
    }

    fn decide(&self, request: &mut Request<()>) -> Result<(), Status> {
        let config = self.layer.config();
        let limiter = self.limiter();
        let mut answer = None;
        let admission = limiter.admit(
            &limiter.view(request),
            PolicySet::Covering,
            || false,
            |ruling| config.conclude(request, &ruling, &mut answer),
        );
        match (admission, answer) {
            (_, Some(refused)) => Err(status(&refused)),
            (Admission::Ruled(Some(passage)), None) => {
                passage.enter(request);
                Ok(())
            }
            (Admission::Ruled(None), None) => Ok(()),
            // No policy waits: those that could were refused when this was built.
            (Admission::Pending(_), None) => Err(Status::internal(
                "the limiter's backend is one that answers at once, and has not",
            )),
        }
    }
}

/// The reason why a policy cannot be an interceptor's.
fn beyond_an_interceptor(policy: &Policy) -> Option<ConfigError> {
    let reason = policy.beyond_an_interceptor()?;
    Some(ConfigError::Interceptor {
        policy: policy.name().into(),
        reason,
    })
}

impl Interceptor for RateLimitInterceptor {
    fn call(&mut self, call: tonic::Request<()>) -> Result<tonic::Request<()>, Status> {
        let (metadata, extensions, ()) = call.into_parts();
        let mut request = Request::from_parts(call_head(metadata, extensions), ());
        self.decide(&mut request)?;
        let (parts, ()) = request.into_parts();
        let metadata = MetadataMap::from_headers(parts.headers);
        Ok(tonic::Request::from_parts(metadata, parts.extensions, ()))
    }
}

/// The layer's answer, as a status.
fn status(refused: &Response<Full<Bytes>>) -> Status {
    refusal_status(refused.headers())
}
