//! A state laid open, for backends that keep states outside of the process.

/// What a [`State`](crate::State) says, as plain numbers.
///
/// For a backend that keeps its states elsewhere: it decides here what it read there. A state survives the way there and
/// back as it was. Numbers that no state of a quota can have are for the backend to refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Snapshot {
    /// When the budget is full again.
    Gcra {
        /// In whole microseconds since the epoch.
        full_at_us: u64,
        /// The rest of a microsecond, in the quota's denominator: that of period/limit as a fraction in lowest terms.
        rest: u32,
        /// By which denominator the rest counts: that modulo 65,521. Another quota's rest counts as a whole microsecond. 0
        /// where there is no rest.
        rest_of: u16,
        /// How long a full budget of the quota that left this takes to drain: 2^n µs or more, and less than twice that.
        exponent: u8,
        /// Only where more is owed than a full budget: so many thirty-seconds of that more.
        thirty_seconds: u8,
        /// What earlier credits returned, the oldest first: at most 32.
        credits: Vec<CreditMark>,
    },
    /// The count of a window.
    FixedWindow {
        /// The number of the window; number 0 is the one that the epoch is in.
        window: u64,
        /// What was charged in it.
        count: u64,
    },
    /// The counts of a window and the one before.
    SlidingWindow {
        /// The number of the window; number 0 starts at the epoch.
        window: u64,
        /// What was charged in the one before.
        previous: u64,
        /// What was charged in it.
        current: u64,
    },
    /// The counts of the last k parts of the period.
    RollingWindow {
        /// The number of the newest part; number 0 starts at the epoch.
        newest: u64,
        /// What was charged in each, at its number modulo k.
        counts: Vec<u64>,
    },
    /// What was charged when.
    SlidingLog {
        /// Microseconds since the epoch and counts, the oldest first.
        entries: Vec<(u64, u64)>,
    },
}

/// What an earlier credit of a GCRA state returned, as far as later ones must know it: see [`Receipt`](crate::Receipt).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditMark {
    /// When it was given.
    pub at_us: u64,
    /// Where the stretch of time began that it took out.
    pub from_us: u64,
    /// How long that was.
    pub length_us: u64,
    /// The furthest point that any receipt could name when it was given.
    pub last_us: u64,
}
