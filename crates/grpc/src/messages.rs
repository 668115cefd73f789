//! A layer that charges the messages of gRPC calls, as they pass.

mod account;
mod amount;
mod body;
mod body_item;
mod body_kind;
mod call;
pub(crate) mod frames;
mod future;
mod gate;
mod meter;
mod opening;
mod read_ahead;
mod received_body;
mod sent_body;
mod service;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tollgate_http::{GrpcAnswers, RateLimitLayer};
use tollgate_limiter::Limiter;
use tower_layer::Layer;

pub use self::body::MessageBody;
pub use self::future::MessageLimitFuture;
use self::opening::Settings;
pub use self::service::MessageLimitService;

/// Charges the messages of gRPC calls under the policies of a limiter that are [for messages](tollgate_limiter::Policy::per_message), each as
/// it passes. The calls themselves are a [`RateLimitLayer`]'s to charge, when they are opened.
///
/// ```
/// use tollgate::{Limiter, MessageLimitLayer, Messages, Policy, Quota, RateLimitLayer};
/// use tonic::transport::Server;
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let limiter = Limiter::builder()
///     .policy(Policy::new("calls", Quota::per_minute(30)))
///     .policy(
///         Policy::new("messages", Quota::per_second(20))
///             .grpc("chat.v1.Chat/Talk")
///             .per_message(Messages::received()),
///     )
///     .build()?;
/// let server = Server::builder()
///     .layer(RateLimitLayer::new(&limiter))
///     .layer(MessageLimitLayer::new(limiter));
/// # Ok(()) }
/// ```
///
/// # What becomes of a stream
///
/// * A message that is over a quota is held back until there is room, and nothing more is read behind it: the sender is slowed
///   down by gRPC's flow control. Or, if the policy [says so](tollgate_limiter::Messages::end_stream), and wherever no waiting helps, the stream
///   ends with `RESOURCE_EXHAUSTED` and the details that a refused call has: in the trailers, or as the whole answer if there was
///   none yet. The service sees the end of what it reads as that error.
/// * A policy that refuses while the backend fails ends the stream with `UNAVAILABLE`.
/// * Messages pass as they came, in the chunks that they came in. They are neither copied nor decoded: what is compressed counts
///   as it is. A stream that is cut off within a message is handed on as such.
/// * The call's own deadline goes on while it is held back.
/// * What comes while a stream is held back is read ahead, [64 KiB](Self::read_ahead) of it, and the rest is slowed down by flow
///   control. That works for frames of some size (171 bytes on average), and not for messages that are smaller and come one by one:
///   long before a window is full of their frames, h2 closes the connection over them (`ENHANCE_YOUR_CALM`), with all its streams.
///   So a stream of which more than that waits ends with `RESOURCE_EXHAUSTED`, and with `UNAVAILABLE` if it waits for the backend.
///   A larger `initial_connection_window_size` of tonic's server makes h2 more patient with bursts of them.
///
/// # On a shared backend
///
/// A backend that answers at once is asked for each message. One that waits is asked for blocks of up to 256 messages (or 256 KiB),
/// and of a sixteenth of a full budget at most, rather than in a round trip for each. What is left of a block when the stream
/// ends, however it does, is given back. So a stream is over its rate by no more than one block.
///
/// # Where it goes
///
/// Around a server, a router, or one service. It changes the type of request bodies, to [`MessageBody`], which tonic's services
/// and axum's routers take. Messages of grpc-web are not read: the layer goes inside of the one that translates them (tonic-web's),
/// and outside of it refuses the calls whose messages a policy covers (`INTERNAL`). The same holds for a layer that decodes bodies
/// by their `content-encoding`, which no call has. It needs tokio's timer.
///
/// # Which requests are calls
///
/// tonic runs a method by its path alone: for any other verb than POST, and for any content type and none. So:
///
/// * Any request to a path that a policy for messages names ([`grpc`](tollgate_limiter::Policy::grpc), [`route`](tollgate_limiter::Policy::route)) is a
///   call, and so is any that says it is gRPC in its content type.
/// * Another request, under a policy that names no path, is a call for as long as its body can be messages: a message begins with
///   a byte that is 0 or 1, or tonic ends the stream before the service sees any of it. What begins otherwise passes as it is and
///   is charged nothing: JSON, forms, text, `multipart`. A file that begins with such a byte is charged as a message, so a router
///   that takes files beside calls has policies that name paths. The answer is a call's if it says that it is gRPC.
/// * A caller that a policy refuses without a charge ([`OnMissing::Deny`](tollgate_limiter::OnMissing::Deny), a block list) is refused where
///   the request is known to be a call, and otherwise as soon as a message begins, or the answer says that it is gRPC.
#[derive(Clone)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct MessageLimitLayer {
    layer: RateLimitLayer,
    read_ahead: usize,
    warned_of_misplacing: Arc<AtomicBool>,
}

/// What HTTP/2 lets a caller send before anybody has said how much is welcome.
const READ_AHEAD: usize = 64 * 1024;

impl MessageLimitLayer {
    /// A layer around a [`Limiter`], most likely the one that the [`RateLimitLayer`] has as well.
    pub fn new(limiter: impl Into<Limiter>) -> Self {
        let limiter = limiter.into();
        limiter.attend_messages();
        Self {
            layer: RateLimitLayer::new(limiter),
            read_ahead: READ_AHEAD,
            warned_of_misplacing: Arc::default(),
        }
    }

    /// Holds up to so many bytes of each stream that is held back, rather than 64 KiB.
    ///
    /// That is how many small messages a caller may send faster than they may pass. Each stream may hold as much, so more of it
    /// is for servers that know their callers.
    ///
    /// ```
    /// use tollgate::{Limiter, MessageLimitLayer, Quota};
    ///
    /// // Callers that are known, and send bursts of small messages.
    /// let layer = MessageLimitLayer::new(Quota::per_second(20)).read_ahead(1 << 20);
    /// ```
    pub fn read_ahead(mut self, bytes: usize) -> Self {
        self.read_ahead = bytes;
        self
    }

    /// What it says beyond the status at the end of a stream.
    ///
    /// ```
    /// use tollgate::{GrpcAnswers, MessageLimitLayer, Quota};
    ///
    /// let layer = MessageLimitLayer::new(Quota::per_second(20)).grpc(GrpcAnswers::new().without_pushback());
    /// ```
    pub fn grpc(mut self, answers: GrpcAnswers) -> Self {
        self.layer = self.layer.grpc(answers);
        self
    }
}

impl<S> Layer<S> for MessageLimitLayer {
    type Service = MessageLimitService<S>;

    fn layer(&self, inner: S) -> MessageLimitService<S> {
        let settings = Settings {
            config: Arc::clone(self.layer.config()),
            read_ahead: self.read_ahead,
            warned_of_misplacing: Arc::clone(&self.warned_of_misplacing),
        };
        MessageLimitService::new(inner, settings)
    }
}

impl fmt::Debug for MessageLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageLimitLayer")
            .field("config", self.layer.config())
            .field("read_ahead", &self.read_ahead)
            .finish_non_exhaustive()
    }
}
