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

/// Charges each message of a gRPC call as it passes, under the policies of a limiter that are [for
/// messages](tollgate_limiter::Policy::per_message). A [`RateLimitLayer`] charges the calls themselves when they are opened.
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
/// * A message over a quota is held back until there is room, and nothing behind it is read: gRPC's flow control slows the sender
///   down. If the policy [says so](tollgate_limiter::Messages::end_stream), or if no waiting helps, the stream ends with
///   `RESOURCE_EXHAUSTED` and the details of a refused call instead. The status stands in the trailers, or is the whole answer if
///   there was none yet. The service reads that error at the end of its input.
/// * A policy that refuses while the backend fails ends the stream with `UNAVAILABLE`.
/// * Messages pass unchanged, in the chunks in which they came. They are neither copied nor decoded: compressed messages count by
///   their compressed size. A stream that is cut off within a message is passed on as such.
/// * The call's own deadline runs on while it is held back.
/// * While a stream is held back, the layer reads up to [64 KiB](Self::read_ahead) ahead, and flow control slows the rest down.
///   That works for frames of 171 bytes on average or more. It does not work for smaller messages that come one by one: long
///   before a window is full of their frames, h2 closes the connection with all its streams (`ENHANCE_YOUR_CALM`). So a stream of
///   which more waits ends with `RESOURCE_EXHAUSTED`, or with `UNAVAILABLE` if it waits for the backend. A larger
///   `initial_connection_window_size` of tonic's server makes h2 more patient with bursts.
///
/// # On a shared backend
///
/// The layer asks a backend that answers at once for each message. It asks a slower backend for blocks of up to 256 messages (or
/// 256 KiB), and of at most a sixteenth of a full budget. The rest of a block is credited when the stream ends in any way. So a
/// stream exceeds its rate by at most one block.
///
/// # Where it goes
///
/// The layer goes around a server, a router, or one service. It changes the type of request bodies to [`MessageBody`], which
/// tonic's services and axum's routers take. It does not read messages of grpc-web: it goes inside the layer that translates them
/// (tonic-web's), and outside of it refuses the calls whose messages a policy covers (`INTERNAL`). The same holds for a layer
/// that decodes bodies by their `content-encoding`, which no call has. The layer needs tokio's timer.
///
/// # Which requests are calls
///
/// tonic runs a method by its path alone, for every verb and for every content type. So:
///
/// * A request is a call if a policy for messages names its path ([`grpc`](tollgate_limiter::Policy::grpc),
///   [`route`](tollgate_limiter::Policy::route)), or if its content type is gRPC's.
/// * Any other request, under a policy that names no path, is a call as long as its body can be messages. A message begins with a
///   byte 0 or 1, or tonic ends the stream before the service sees it. Other bodies pass unchanged and uncharged: JSON, forms,
///   text, `multipart`. A file that begins with such a byte is charged as a message, so a router that takes files beside calls
///   needs policies that name paths. The answer is a call's if its content type is gRPC's.
/// * A caller that a policy refuses without a charge ([`OnMissing::Deny`](tollgate_limiter::OnMissing::Deny), a block list) is
///   refused before the service runs if the request is known to be a call, or if its path looks like one: `/package.Service/Method`,
///   or a route of axum's that ends in `/{*rest}`, as tonic's do. Otherwise it is refused when a message begins, or when the answer
///   is gRPC's.
#[derive(Clone)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct MessageLimitLayer {
    layer: RateLimitLayer,
    read_ahead: usize,
    warned_of_misplacing: Arc<AtomicBool>,
}

/// The initial window of HTTP/2.
const READ_AHEAD: usize = 64 * 1024;

impl MessageLimitLayer {
    /// Makes a layer of a [`Limiter`], which usually is the one of the [`RateLimitLayer`].
    pub fn new(limiter: impl Into<Limiter>) -> Self {
        let limiter = limiter.into();
        limiter.attend_messages();
        Self {
            layer: RateLimitLayer::new(limiter),
            read_ahead: READ_AHEAD,
            warned_of_misplacing: Arc::default(),
        }
    }

    /// Reads ahead up to this many bytes of each stream that is held back, rather than 64 KiB.
    ///
    /// This bounds the small messages that a caller may send faster than they may pass. Each stream may hold as much, so a large
    /// value is for servers that know their callers.
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

    /// Sets the parts of a refusal beyond the status, at the end of a stream.
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
