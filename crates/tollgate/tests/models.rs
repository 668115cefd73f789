//! What requests share, in every order that threads can take.
//!
//! The modules are the crate's own, with loom's locks in place of std's. What they use besides stands in `models/parts.rs`, as
//! far as it matters here.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::panic,
    clippy::unwrap_used,
    clippy::let_unit_value,
    clippy::needless_pass_by_value,
    clippy::unused_self,
    reason = "a model is a part of the whole, and fails by panicking"
)]

#[path = "models/parts.rs"]
mod parts;
#[path = "models/sync.rs"]
mod sync;

#[path = "../src/annotation"]
mod annotation {
    mod registry;

    #[path = "../../tests/models/registry.rs"]
    mod models;

    use models::{build, claim, misuse, site};
}

#[path = "../src/key"]
mod key {
    pub(crate) mod list;
}

#[path = "../src/layer/messages"]
mod messages {
    mod call;

    #[path = "../../../tests/models/call.rs"]
    mod models;

    use models::meter;
}

#[path = "../src/limiter"]
mod limiter {
    mod health;
    mod outages;

    #[path = "../../tests/models/limiter.rs"]
    mod models;
}

#[path = "models/lists.rs"]
mod lists;

use loom::thread::JoinHandle;
use parts::{Limiter, answer, layer, ledger, report, settings};
use tollgate::{Key, Policy};

/// Every order in which three threads are interrupted no more than three times.
fn in_every_order(play: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(play);
}

/// Waits for all of them.
fn end<const N: usize>(threads: [JoinHandle<()>; N]) {
    for thread in threads {
        thread.join().unwrap();
    }
}
