//! A state laid open, for backends that keep states outside of the process.

/// The content of a [`State`](crate::State), as plain numbers.
///
/// For a backend that keeps its states elsewhere: it reads them there and decides here. A state survives the way there and back
/// unchanged. The backend must refuse numbers that no state of a quota can have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Snapshot {
    /// The time at which the budget is full again.
    Gcra {
        /// In whole microseconds since the epoch.
        full_at_us: u64,
        /// The rest of a microsecond, in the quota's denominator, which is that of period/limit as a fraction in lowest terms.
        rest: u32,
        /// The denominator of the rest, modulo 65,521. A rest of another quota counts as a whole microsecond. 0 if there is no
        /// rest.
        rest_of: u16,
        /// The drain of a full budget of the quota that wrote this: 2^n µs or more, and less than twice that.
        exponent: u8,
        /// The thirty-seconds of that drain beyond 2^n µs. Set only where more is owed than a full budget.
        thirty_seconds: u8,
        /// Earlier credits, the oldest first: at most 32.
        credits: Vec<CreditMark>,
        /// The promised turns, and the places that became free.
        queue: QueueMark,
        /// The time at which a quota that [warms up](crate::Quota::warm_up) will be cold if nothing arrives, in whole microseconds
        /// since the epoch. 0 if it has been cold for long.
        cold_at_us: u64,
        /// The rest of a microsecond, in 2^-20 µs: below 2^20.
        cold_at_ticks: u32,
    },
    /// The count of a window.
    FixedWindow {
        /// The number of the window; number 0 is the one that the epoch is in.
        window: u64,
        /// The units charged in it.
        count: u64,
    },
    /// The counts of a window and the one before.
    SlidingWindow {
        /// The number of the window; number 0 starts at the epoch.
        window: u64,
        /// The units charged in the one before.
        previous: u64,
        /// The units charged in it.
        current: u64,
    },
    /// The counts of the last k parts of the period.
    RollingWindow {
        /// The number of the newest part; number 0 starts at the epoch.
        newest: u64,
        /// The units charged in each part, at the part's number modulo k.
        counts: Vec<u64>,
    },
    /// Each charge with its time.
    SlidingLog {
        /// Microseconds since the epoch and counts, the oldest first.
        entries: Vec<(u64, u64)>,
    },
    /// The refills that are owed, and the part of one more.
    IntervalRefill {
        /// The number of the period; number 0 is the one that the epoch is in.
        window: u64,
        /// The whole refills that are owed beside the part.
        ahead: u64,
        /// The units of the part: 1 to the limit, or 0 if nothing is owed.
        count: u64,
    },
    /// The count of a calendar's window.
    Calendar {
        /// The start of the window, in microseconds since the epoch.
        start_us: u64,
        /// Its end.
        end_us: u64,
        /// The units charged in it.
        count: u64,
    },
    /// The units that are held.
    Held {
        /// Their number.
        held: u64,
        /// The time at which the first of them was taken. Receipts name it.
        generation_us: u64,
    },
    /// The strikes against an identity, and its last ban.
    Ban {
        /// The start of the last ban, in microseconds since the epoch. 0 if there was none.
        since_us: u64,
        /// Its end.
        until_us: u64,
        /// The number of doublings of the next ban, if nothing is forgiven until then.
        level: u8,
        /// The times of the strikes that may count, the oldest first: at most 63.
        strikes_us: Vec<u64>,
        /// The time from which all of this means nothing.
        kept_until_us: u64,
    },
    /// An id that was admitted. All zeros, if none is remembered.
    Once {
        /// The time of the admission, in microseconds since the epoch.
        since_us: u64,
        /// The time from which it is forgotten.
        until_us: u64,
        /// The replays so far.
        replays: u8,
    },
}

/// An earlier credit of a GCRA state, as far as later ones must know it: see [`Receipt`](crate::Receipt).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditMark {
    /// The time at which it was given.
    pub at_us: u64,
    /// The start of the stretch of time that it took out.
    pub from_us: u64,
    /// The length of that stretch.
    pub length_us: u64,
    /// The furthest point that any receipt could name when it was given.
    pub last_us: u64,
}

/// The queue of a GCRA state: the turns that were promised, and the free places before the last of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueMark {
    /// The latest turn that was promised, in microseconds since the epoch, rounded up. 0 if no request ever waited.
    pub until_us: u64,
    /// The denominator of the gaps' rests, modulo 65,521. 0 if there is no gap.
    pub rests_of: u16,
    /// The free places, the earliest first: at most 32.
    pub gaps: Vec<GapMark>,
}

/// A free place in the queue of a GCRA state: the stretch of a charge that was withdrawn before its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapMark {
    /// The start, in whole microseconds since the epoch.
    pub start_us: u64,
    /// The rest of a microsecond of the start.
    pub start_rest: u32,
    /// The end, in whole microseconds since the epoch.
    pub end_us: u64,
    /// The rest of a microsecond of the end.
    pub end_rest: u32,
}
