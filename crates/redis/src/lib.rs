//! Tollgate's shared backend: a fleet enforces one budget, decided in Redis by atomic scripts.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tollgate::{Call, Backend, Charge, Key, Mode, Quota, RedisBackend, Scope};
//!
//! let backend = RedisBackend::connect("redis://127.0.0.1/").await?;
//! let quota = Quota::per_minute(5);
//! let charge = Charge {
//!     scope: Scope::of("login", 0, &quota),
//!     quota: &quota,
//!     key: &Key::from("alice"),
//!     cost: 1,
//!     mode: Mode::Enforce,
//! };
//! if backend.decide(Call::of(&[charge])).await?.is_admitted() {
//!     println!("come in");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! * **One budget.** Every caller in every process is decided by one script on the server's one clock. The clocks of the
//!   application's hosts do not matter.
//! * **Many decisions, one call.** While a call is on its way requests gather and leave together; a lone request leaves at
//!   once. There is no timer in between.
//! * **At most once.** A call with an unknown outcome is never sent again. After a missed deadline a charge may have been taken
//!   without passing, never the reverse; if the answer still comes, the charge is given back.
//! * **Brief.** No call of many requests takes the server more than 6.4 million instructions, which is less than a millisecond
//!   at two instructions in each cycle of 3.2 GHz. A single request may take more if it names more than six sliding logs of a
//!   thousand entries, of some 150 µs each, or more than fourteen rolling windows of 128 buckets.
//! * **Bounded.** The number of waiting requests is bounded. Each answer, or the news that there is none, comes within the
//!   deadline. A request that cannot be answered by then, judged by recent round trips, fails at once.
//!
//! # On the server
//!
//! These are the least rights, and all of them are needed. In a cluster add the second line to the first; on a Sentinel use the
//! third alone:
//!
//! ```text
//! ACL SETUSER gate on >password ~tollgate:* -@all +evalsha +script|load +time +get +mget +exists +set +setrange +del
//! ACL SETUSER gate +cluster|slots +asking
//! ACL SETUSER gate on >password -@all resetchannels &+switch-master +subscribe +sentinel|get-master-addr-by-name
//! ```
//!
//! To list bans and budgets in use takes `+scan` beside these. [`RedisBackendBuilder::examine`] sees more with `+info`,
//! `+config|get`, `+scan` and `+memory|usage`.
//!
//! Every key has an expiry, so that `volatile-*` eviction takes live budgets first, and an evicted budget starts full again:
//! give the limiter a server, or a `maxmemory`, of its own, with `noeviction`. Then a full server refuses to decide, and the
//! failure rule acts. A GCRA state with a name of 31 bytes takes about 105 to 180 bytes.
//!
//! # Kinds of servers
//!
//! * [`RedisBackend::connect`]: one server.
//! * [`RedisBackend::sentinel`]: the master that the Sentinels name, asked for again with every connection. The backend listens
//!   to the Sentinels and asks them each second, so that connections to a replaced master are closed at once.
//! * [`RedisBackend::cluster`]: each node has a queue and connections of its own. All budgets of one identity live in one slot.
//!   A request that names several identities may need several slots: these are charged in turn, and given back if a later one
//!   denies. In between others may be denied. A give-back that fails stays charged: [`Stats::lost_give_backs`].
//!
//! All three run on Redis 6.2 to 8, and Valkey 8 and 9. The feature `tls` adds `rediss://`: nodes and masters must then announce
//! their TLS ports (`tls-cluster yes`, `tls-replication yes`). TLS is that of rustls; its cryptography provider is the one that the
//! process has chosen, or else `ring`.
//!
//! # Why the client for clusters is our own
//!
//! The protocol, its parser and the connections are those of the crate `redis`. Its `ClusterClient` is not used, for reasons that
//! are specific to a limiter:
//!
//! * **A charge must not be sent twice.** `ClusterClient` of version 1.8 repeats a command up to 16 times by default, also after a
//!   dropped connection or an I/O error, when the script may have run. `retries(0)` stops that, and stops it from following `MOVED`
//!   and `ASK` as well. This crate sends a call again only after a reply that proves that the call did not run.
//! * **Decisions share calls.** Requests that arrive while a call is under way leave together in the next one. The unit is a
//!   node and a hash tag, so each node needs a queue of its own in front of its connections.
//! * **One deadline covers everything**: the wait in the queue, redirections, and the steps of a request that spans slots. The
//!   client's time-outs cover one command each.
//! * **A request may span slots.** Its charges are taken slot by slot, and given back if a later slot denies.
//! * **A stalled node delays no other.** Each node's queue fails by itself, and its callers hear of it at once.
//!
//! # Not guaranteed
//!
//! A failover loses the writes that replication had not carried: for each key at most one full budget. If the new master's
//! clock differs from the old one's, budgets see that as time that has passed, or has stood still.

mod backend;
mod bans;
mod cluster;
mod config;
mod connection;
mod departure;
mod dispatch;
mod error;
mod examine;
mod fleet;
#[doc(hidden)]
pub mod gateway;
mod heartbeat;
mod hello;
mod holder;
mod inline_call;
mod job;
mod known;
mod learning;
mod link;
mod name;
mod queue;
mod redirect;
mod rights;
mod runtime;
mod saga;
mod script;
mod sentinel;
mod server;
mod slot;
mod slots;
mod stats;
mod stream;
mod sync;
#[cfg(feature = "bench")]
mod taught;
#[cfg(test)]
mod timing;
mod tls;
#[cfg(feature = "tls")]
mod trust;
#[cfg(test)]
mod twins;
mod used;
mod walk;
mod wire;

pub use backend::RedisBackend;
pub use config::RedisBackendBuilder;
pub use error::ConnectError;
pub use examine::{Examination, ExaminedSentinel, ExaminedServer};
pub use name::StateName;
pub use stats::Stats;
pub use used::{Holding, UsedBudget, UsedBudgets};
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub use wire::forged;
