//! Models of the types that threads share: the registry of annotated handlers, and the status of a request with its holds. In
//! every order that threads can take.
//!
//! The modules are the crate's own, with loom's locks in place of std's. The modules that they use stand in `models`, as far as it
//! matters here.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a model is a part of the whole, and fails by panicking"
)]

mod sync {
    pub(crate) use loom::sync::atomic::AtomicBool;
    pub(crate) use loom::sync::{Mutex, MutexGuard};
    pub(crate) use tollgate_testkit::models::ArcSwap;
}

#[path = "../src/annotation"]
mod annotation {
    mod registry;

    #[path = "../../tests/models/registry.rs"]
    mod models;

    use models::{build, claim, misuse, site};
}

#[path = "../src/hold.rs"]
mod hold;
#[path = "../src/status.rs"]
mod status;

mod settings {
    /// The settings of a layer, of which nothing matters here.
    #[derive(Debug, Default)]
    pub(crate) struct Config;
}

#[path = "models/holds.rs"]
mod holds;

use status::RateLimitStatus;
