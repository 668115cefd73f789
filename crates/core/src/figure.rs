//! The figures of a backend, for metrics.

/// A figure that a backend has of itself: see [`Admin::figures`](crate::Admin::figures). A count only grows, and begins at 0
/// with the process.
///
/// ```
/// use tollgate::{Backend, Figure, MemoryBackend};
///
/// let backend = MemoryBackend::new();
/// let mut keys = None;
/// backend.admin().figures(&mut |figure, value| {
///     if figure == Figure::Keys {
///         keys = Some(value);
///     }
/// });
/// assert_eq!(keys, Some(0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Figure {
    /// A count: calls to a server.
    Calls,
    /// A count: decisions, credits, debits and resets in these calls.
    Requests,
    /// A count: bytes of these calls.
    BytesOut,
    /// A count: bytes of the answers.
    BytesIn,
    /// A count: credits that failed, or whose outcome is unknown, so that their charges may have stayed.
    LostGiveBacks,
    /// Units that this process holds now, of all limits on how many at once.
    Held,
    /// A count: keys of which the server no longer knew that this process holds something.
    LostLeases,
    /// A count: units of other processes that this one made free, because their leases had run out.
    Reclaimed,
    /// A count: decisions that no server was asked for, because their denial was known.
    KnownDenials,
    /// A count: decisions that this process made by itself, from blocks that it had leased.
    LeasedDecisions,
    /// Servers of which this process has no connection that answers, so that their callers fail at once: the breaker is open.
    ServersAway,
    /// Keys that are remembered in this process now.
    Keys,
    /// A count: keys that were evicted although their budget was not full, each of which begins anew with a full one.
    Evicted,
}

impl Figure {
    /// True for a counter, which only grows; false for a gauge.
    ///
    /// ```
    /// use tollgate::Figure;
    ///
    /// assert!(Figure::Calls.is_count());
    /// assert!(!Figure::Held.is_count());
    /// ```
    #[must_use]
    pub const fn is_count(self) -> bool {
        match self {
            Self::Calls
            | Self::Requests
            | Self::BytesOut
            | Self::BytesIn
            | Self::LostGiveBacks
            | Self::LostLeases
            | Self::Reclaimed
            | Self::KnownDenials
            | Self::LeasedDecisions
            | Self::Evicted => true,
            Self::Held | Self::ServersAway | Self::Keys => false,
        }
    }
}
