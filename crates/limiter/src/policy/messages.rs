//! Policies for the messages of a stream.

use super::Policy;

/// The messages of a call that a policy charges, their unit, and the rule for messages over the quota: for
/// [`Policy::per_message`].
///
/// By default each message costs 1, and a message over the quota is held back until there is room. gRPC's own flow control slows
/// its sender down, and only a little of what was already sent is buffered.
///
/// ```
/// use tollgate::{Messages, Policy, Quota};
///
/// // Uploads: too many bytes end the stream.
/// let uploads = Policy::new("uploads", Quota::per_hour(1 << 30))
///     .per_message(Messages::received().by_bytes().end_stream());
/// // Downloads: messages are held back.
/// let downloads = Policy::new("downloads", Quota::per_second(20)).per_message(Messages::sent());
/// // A chat: one budget for both directions.
/// let chat = Policy::new("chat", Quota::per_second(50)).per_message(Messages::both());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "it does nothing until a policy has it"]
pub struct Messages {
    received: bool,
    sent: bool,
    bytes: bool,
    ends: bool,
}

impl Messages {
    /// Messages that the caller sends.
    pub const fn received() -> Self {
        Self::of(true, false)
    }

    /// Messages that the service sends.
    pub const fn sent() -> Self {
        Self::of(false, true)
    }

    /// Messages of both directions, out of one budget.
    pub const fn both() -> Self {
        Self::of(true, true)
    }

    const fn of(received: bool, sent: bool) -> Self {
        Self {
            received,
            sent,
            bytes: false,
            ends: false,
        }
    }

    /// Charges bytes rather than messages: the bytes on the wire, compressed or not, and the five bytes in front of each message.
    ///
    /// Bytes from the caller are charged as they arrive, whatever length a message announces. Bytes from the service are charged
    /// message by message, so that a stream never ends within one; a message that is larger than a full budget ends the stream.
    pub const fn by_bytes(mut self) -> Self {
        self.bytes = true;
        self
    }

    /// Ends the stream at the first message over the quota, with `RESOURCE_EXHAUSTED` and the time to wait, rather than holding
    /// the message back.
    pub const fn end_stream(mut self) -> Self {
        self.ends = true;
        self
    }
    /// True if callers send them.
    #[doc(hidden)]
    pub fn are_received(self) -> bool {
        self.received
    }
    /// True if the service sends them.
    #[doc(hidden)]
    pub fn are_sent(self) -> bool {
        self.sent
    }
    /// True if bytes are charged rather than messages.
    #[doc(hidden)]
    pub fn count_bytes(self) -> bool {
        self.bytes
    }
    /// True if a message over the quota ends its stream.
    #[doc(hidden)]
    pub fn excess_ends(self) -> bool {
        self.ends
    }
}

impl Policy {
    /// Charges the messages of gRPC calls, and not the calls: each as it passes, in a stream or by itself.
    ///
    /// A `MessageLimitLayer` does so (feature `tonic`). Conditions, key, tiers, lists, trial and the failure rule are the same as
    /// for requests, and are evaluated when a call is opened. A message costs what a [request](Self::cost) would. Rules that wait
    /// for a response ([`count_if`](Self::count_if), [`settle_by`](Self::settle_by)) have no meaning here, and the limiter
    /// refuses them.
    ///
    /// ```
    /// use tollgate::{Messages, Policy, Quota};
    ///
    /// // Twenty a second are let through, and callers that send more have to wait.
    /// let chat = Policy::new("chat", Quota::per_second(20))
    ///     .grpc("chat.v1.Chat/Talk")
    ///     .per_message(Messages::received());
    /// // Ten megabytes a minute, and that is the end of it.
    /// let upload = Policy::new("upload", Quota::per_minute(10_000_000))
    ///     .grpc("files.v1.Files/Upload")
    ///     .per_message(Messages::received().by_bytes().end_stream());
    /// ```
    #[must_use]
    pub fn per_message(mut self, messages: Messages) -> Self {
        self.messages = Some(messages);
        self
    }

    /// True if the layer charges requests under the policy.
    pub(crate) fn is_for_requests(&self) -> bool {
        !self.on_demand && self.messages.is_none()
    }

    /// True if the policy charges the messages of calls.
    pub(crate) fn is_for_messages(&self) -> bool {
        !self.on_demand && self.messages.is_some()
    }
}
