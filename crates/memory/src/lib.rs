//! Tollgate's backend in memory: exact, bounded, and never waiting.
//!
//! ```
//! use tollgate::{Call, Charge, ImmediateBackend, Key, MemoryBackend, Mode, Quota, Scope};
//!
//! let backend = MemoryBackend::new();
//! let quota = Quota::per_day(5);
//! let charge = Charge {
//!     scope: Scope::of("login", 0, &quota),
//!     quota: &quota,
//!     key: &Key::from("alice"),
//!     cost: 1,
//!     mode: Mode::Enforce,
//! };
//! for _ in 0..5 {
//!     assert!(backend.decide_now(Call::of(&[charge]))?.is_admitted());
//! }
//! assert!(!backend.decide_now(Call::of(&[charge]))?.is_admitted());
//! # Ok::<(), tollgate::BackendError>(())
//! ```
//!
//! # Guarantees
//!
//! * **Exact under concurrency.** A call holds the locks of all its keys while it is decided. However many threads ask at once,
//!   a budget of *n* admits *n*, and a call of several charges takes all of them or none. Locks are taken in one order, so no
//!   deadlock is possible.
//! * **Every answer is there at once**, and one about known keys allocates nothing: neither the call, whatever its size, nor
//!   the decision on the usual one or two charges.
//! * **Bounded work.** A call looks at no more than 16 entries to choose the one to evict, and there is neither a sweep nor a
//!   thread in the background. The longest call is one in which a shard grows into a larger table, or compacts its long keys:
//!   some hundred microseconds for its 4096 keys, some dozens of times in the life of a shard. Only callers that need this
//!   shard wait for it. (Above 16 million keys shards hold more than 4096.)
//! * **Bounded memory.** At most [`max_keys`](MemoryBackendBuilder::max_keys) keys. Each takes at most 64 bytes beside the
//!   key's own, and about 40 once the backend is full. The bytes of long keys take up to a third more while keys of changing
//!   length come and go. The buckets of a rolling window and the entries of a sliding log come on top: up to 1 KB and 16 KB per
//!   key.
//!
//! # Evicted keys
//!
//! A key whose budget is full is like one never seen. A request that took nothing leaves no entry, and each new key looks at
//! four others and drops those that are full again. So **after a burst has gone quiet** its memory is not given back to the
//! system, but reused for the next keys.
//!
//! When there are too many keys, one that still means something must be evicted. Among sixteen the backend prefers a key that
//! was charged once and never came back. Among those it picks the one whose budget would be full again soonest. The
//! consequences for the limit:
//!
//! * An evicted key starts from a full budget. For a caller that comes once and not again this changes nothing.
//! * A flood of made-up identities evicts its own. A caller that was denied has been seen twice, and outlives the flood.
//! * To push out such a caller, a flood must bring each identity twice and deeper into debt. It then pays for `max_keys`
//!   identities to gain one.
//!
//! [`Stats::evicted`] counts evictions.
//!
//! A key of which something is [held](tollgate_core::Concurrent) is never evicted. If something is held of all keys that a shard
//! has room for, a call that needs room for another one fails, takes nothing, and the failure rule of each policy acts.
//!
//! # Not guaranteed
//!
//! Budgets are this process's own and are gone with it. Several processes admit several budgets.

mod arena;
mod backend;
mod builder;
mod clock;
mod lookup;
mod shard;
mod shards;
mod stats;
mod stored_key;
mod sync;
mod table;
mod transaction;

pub use backend::MemoryBackend;
pub use builder::MemoryBackendBuilder;
pub use clock::SystemClock;
pub use stats::Stats;
