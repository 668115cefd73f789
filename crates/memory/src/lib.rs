//! Tollgate's backend in memory: exact, bounded, and nobody ever waits.
//!
//! ```
//! use tollgate_core::{Charge, ImmediateBackend, Key, Mode, Quota, Scope};
//! use tollgate_memory::MemoryBackend;
//!
//! let backend = MemoryBackend::new();
//! let quota = Quota::per_minute(5);
//! let charge = Charge {
//!     scope: Scope::of("login", 0, &quota),
//!     quota: &quota,
//!     key: &Key::from("alice"),
//!     cost: 1,
//!     mode: Mode::Enforce,
//! };
//! for _ in 0..5 {
//!     assert!(backend.decide_now(&[charge])?.is_admitted());
//! }
//! assert!(!backend.decide_now(&[charge])?.is_admitted());
//! # Ok::<(), tollgate_core::BackendError>(())
//! ```
//!
//! # What is guaranteed
//!
//! * **Exact under concurrency.** A call holds the locks of all its keys while it is decided: of a budget of *n*, however
//!   many threads ask at once, *n* is admitted, and a call of several charges takes all of them or none. Locks are taken in
//!   one order, so nobody waits for somebody who waits for them.
//! * **Every answer is there at once**, and one about known keys allocates nothing: neither the call, whatever its size, nor
//!   the decision on the usual one or two charges.
//! * **Bounded work.** No call looks at more than 16 entries to find out whom to forget, and there is neither a sweep nor
//!   a thread in the background. The longest that a call ever takes is the time in which one shard moves into a larger table,
//!   or its long keys together: some hundred microseconds for its 4096 keys, some dozens of times in the life of a
//!   shard.
//!   Others wait only if they need the same shard. (Above 16 million keys shards hold more than 4096.)
//! * **Bounded memory.** At most [`max_keys`](MemoryBackendBuilder::max_keys) keys, at most 64 bytes for each of them
//!   beside the key's own, about 40 once there are as many as there may be, up to a third more for the bytes of long keys
//!   while keys of changing length come and go. The buckets of a rolling window and the entries of a sliding log come on
//!   top: up to 1 KB and 16 KB per key.
//!
//! # Who is forgotten
//!
//! A key whose budget is full is the same as one never seen. Nothing is kept for a request that took nothing; and each
//! new key looks at four others and drops those that are full again. So **after a burst has gone quiet** its memory is not
//! given back to the system, it is there for the keys that come next.
//!
//! When there are too many keys, one must go that still means something. Of sixteen the backend picks one that was charged
//! once and never came back, rather than one that did; of those, the one whose budget would be full again soonest. What
//! that means for the limit:
//!
//! * Whoever is forgotten starts from a full budget. Of a caller who comes once and not again nobody notices.
//! * A flood of made-up identities evicts its own. A caller who was denied, and thereby seen again, outlives it.
//! * To push out such a caller, a flood must come twice with each identity and bring them deeper into debt: it then pays
//!   for `max_keys` identities what it would gain for one.
//!
//! [`Stats::evicted`] counts them.
//!
//! # What is not
//!
//! Budgets are this process's own and are gone with it. Several processes admit several budgets.

mod arena;
mod backend;
mod builder;
mod hashing;
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
pub use stats::Stats;
