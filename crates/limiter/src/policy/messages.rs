//! Policies for the messages of a stream.

use super::Policy;

/// Which messages of a call a policy charges, in what, and what becomes of those that are over the quota: for
/// [`Policy::per_message`].
///
/// As it comes, each message counts as one, and one that is too many is held back until there is room: whoever sends it is slowed
/// down by gRPC's own flow control, and no more than a little is kept of what it has sent already.
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
    /// Those that the caller sends.
    pub const fn received() -> Self {
        Self::of(true, false)
    }

    /// Those that the service sends.
    pub const fn sent() -> Self {
        Self::of(false, true)
    }

    /// Those of both directions, out of one budget.
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

    /// Charges bytes rather than messages: as many as they have on the wire, compressed if they are, and the five that go before
    /// each.
    ///
    /// What a caller sends is charged as it arrives, whatever length it announces. What the service sends is charged message by
    /// message, so that a stream never ends within one; a message that is larger than a full budget ends it.
    pub const fn by_bytes(mut self) -> Self {
        self.bytes = true;
        self
    }

    /// Ends the stream at the first message that is too many, with `RESOURCE_EXHAUSTED` and when to come back, rather than
    /// holding it back.
    pub const fn end_stream(mut self) -> Self {
        self.ends = true;
        self
    }
    /// Whether they are what callers send.
    #[doc(hidden)]
    pub fn are_received(self) -> bool {
        self.received
    }
    /// Whether they are what the service sends.
    #[doc(hidden)]
    pub fn are_sent(self) -> bool {
        self.sent
    }
    /// Whether bytes are charged rather than messages.
    #[doc(hidden)]
    pub fn count_bytes(self) -> bool {
        self.bytes
    }
    /// Whether a message that is too many ends its stream.
    #[doc(hidden)]
    pub fn excess_ends(self) -> bool {
        self.ends
    }
}

impl Policy {
    /// Charges the messages of gRPC calls, and not the calls: each as it passes, in a stream or by itself.
    ///
    /// A `MessageLimitLayer` does so (feature `tonic`). Which calls, whose budget, tiers, lists, trial and the failure rule are as
    /// ever, and are asked when a call is opened. A message costs what a [request](Self::cost) would. What waits for a response
    /// ([`count_if`](Self::count_if), [`settle_by`](Self::settle_by)) has no meaning here and is refused by the limiter.
    ///
    /// ```
    /// use tollgate::{Messages, Policy, Quota};
    ///
    /// // Twenty a second are let through, and those who send more have to wait.
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

    /// Whether the layer charges requests under it.
    pub(crate) fn is_for_requests(&self) -> bool {
        !self.on_demand && self.messages.is_none()
    }

    /// Whether the messages of calls are charged under it.
    pub(crate) fn is_for_messages(&self) -> bool {
        !self.on_demand && self.messages.is_some()
    }
}
