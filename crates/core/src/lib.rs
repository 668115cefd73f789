//! The pure heart of Tollgate.
//!
//! Everything here is arithmetic on values: no IO, no async runtime, no HTTP, no Redis, and no hidden reading of a clock. A
//! backend brings the states and the time, this crate brings the rule.
//!
//! | noun | type |
//! | --- | --- |
//! | how much, per how long, by which algorithm | [`Quota`] |
//! | between which days | [`Calendar`] |
//! | how much at once | [`Concurrent`] |
//! | how many denials until a ban, and for how long | [`Ban`] |
//! | whose budget | [`Key`], within a [`Scope`] |
//! | one quota of one policy, resolved for one request | [`Charge`] |
//! | what came out | [`Decision`], one [`Verdict`] per charge |
//! | what is needed to undo it honestly | [`Receipt`] |
//! | where it is decided | [`Backend`] |
//!
//! # Guarantees
//!
//! * **All or nothing.** A call takes all of its enforced charges, or none.
//! * **Retry-after is a promise.** Denied at *t* with retry-after *r*: if nothing else arrives, the same charge passes
//!   at *t + r*, and not a microsecond earlier.
//! * **Exact.** Times are whole microseconds, counts are integers and rates are fractions of the two. There is no
//!   floating-point number in any rule, so nothing drifts, however long it runs.
//!
//! # Example
//!
//! The rule, without any backend: a state, a time, a charge.
//!
//! ```
//! use tollgate_core::{Call, Charge, Key, Mode, Quota, Scope, State, Timestamp, decide};
//!
//! let quota = Quota::per_second(10).burst(2);
//! let charge = Charge {
//!     scope: Scope::of("search", 0, &quota),
//!     quota: &quota,
//!     key: &Key::from("alice"),
//!     cost: 1,
//!     mode: Mode::Enforce,
//! };
//! let now = Timestamp::from_micros(1_700_000_000_000_000);
//! let mut states = [State::full(&quota)];
//!
//! assert!(decide(now, Call::of(&[charge]), &mut states[..]).is_admitted());
//! assert!(decide(now, Call::of(&[charge]), &mut states[..]).is_admitted());
//! let denied = decide(now, Call::of(&[charge]), &mut states[..]);
//! assert_eq!(denied.retry_after(), Some(std::time::Duration::from_millis(100)));
//! ```

mod algorithm;
mod backend;
mod ban;
mod ban_list;
mod bounds;
mod calendar;
mod call;
mod capability;
mod charge;
mod clock;
mod concurrent;
mod engine;
mod error;
mod figure;
mod key;
mod lease;
mod name;
mod once;
mod quota;
mod quota_error;
mod receipt;
mod scope;
mod time;
mod verdict;
mod words;

pub use algorithm::{
    Algorithm, CreditMark, DEBT_CEILING, GapMark, QueueMark, RetryAfter, Snapshot, State, Unit,
};
pub use backend::{Admin, Answer, Backend, ImmediateBackend, LateAnswer, Settlement};
pub use ban::Ban;
pub use ban_list::{BanList, BannedCaller};
pub use bounds::{
    MAX_BUCKETS, MAX_COLD_FACTOR, MAX_DRAIN, MAX_LIMIT, MAX_LOG_LIMIT, MAX_ONCE_LIFE, MAX_PERIOD,
    MAX_REPLAYS, MAX_STRIKES, MAX_WAIT, MAX_WAIT_INTERVALS, MAX_WARM_UP,
};
pub use calendar::{Calendar, Zone};
pub use call::Call;
pub use capability::{Capabilities, Capability};
pub use charge::{Charge, MAX_CHARGES, Mode};
pub use clock::{Clock, ManualClock};
pub use concurrent::Concurrent;
pub use engine::{States, decide, deny_by_known};
pub use error::{BackendError, FailureKind};
pub use figure::Figure;
#[doc(hidden)]
pub use key::KeyHashing;
#[doc(hidden)]
pub use key::by_its_bits;
pub use key::{Key, KeyKind};
pub use lease::Lease;
#[doc(hidden)]
pub use lease::{Blocks, Part};
pub use name::{MAX_NAME_LEN, is_name};
pub use once::Once;
pub use quota::Quota;
pub use quota_error::{ParseQuotaError, QuotaError};
pub use receipt::{Receipt, ReceiptId};
pub use scope::Scope;
pub use time::Timestamp;
pub use verdict::{Decision, Outcome, Verdict};
