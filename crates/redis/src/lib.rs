//! Tollgate's shared backend: a fleet enforces one budget, decided in Redis by atomic scripts.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tollgate_core::{Backend, Charge, Key, Mode, Quota, Scope};
//! use tollgate_redis::RedisBackend;
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
//! if backend.decide(&[charge]).await?.is_admitted() {
//!     println!("come in");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What is guaranteed
//!
//! * **One budget.** Whoever asks, in whatever process, is decided by one script on the server's one clock. The clocks of
//!   the application's hosts do not matter.
//! * **Many decisions, one call.** While a call is on its way requests gather and leave together; a lone request leaves at
//!   once. There is no timer in between.
//! * **At most once.** A call of which nobody knows whether it ran is never sent again. After a missed deadline a charge
//!   may have been taken without passing, never the reverse; if the answer still comes, it is given back.
//! * **Bounded.** So many wait and no more; each answer, or the news that there is none, comes within the deadline.
//!
//! # On the server
//!
//! Least rights, of which each is needed:
//!
//! ```text
//! ACL SETUSER gate on >password ~tollgate:* -@all +evalsha +script|load +time +get +mget +exists +set +setrange +del
//! ```
//!
//! Every key has an expiry, so that `volatile-*` eviction takes live budgets first, and whoever is evicted starts from a
//! full one: give the limiter a server, or a `maxmemory`, of its own, with `noeviction`. Then a full server refuses to
//! decide, and the failure rule acts. A GCRA state with a name of 31 bytes takes about 105 to 180 bytes.
//!
//! # What is not
//!
//! Sentinel, Cluster and TLS are not there yet. A server that fails over forgets what replication had not carried.

mod across;
mod backend;
mod call;
mod cluster;
mod config;
mod dispatch;
mod error;
mod fleet;
mod hello;
mod job;
mod link;
mod name;
mod queue;
mod script;
mod sentinel;
mod server;
mod slot;
mod slots;
mod wire;

pub use backend::RedisBackend;
pub use config::RedisBackendBuilder;
pub use error::ConnectError;
