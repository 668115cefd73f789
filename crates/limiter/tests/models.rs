//! Models of the types that requests share, in every order that threads can take.
//!
//! The modules are the crate's own, with loom's locks in place of std's.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a model is a part of the whole, and fails by panicking"
)]

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
    pub(crate) use tollgate_testkit::models::ArcSwap;
}

#[path = "../src/key"]
mod key {
    pub(crate) mod list;
}

#[path = "../src/leasing"]
mod leasing {
    mod asking;
    mod pool;
    mod reservation;
    mod shelves;

    #[path = "../../tests/models/leasing.rs"]
    mod models;
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

use tollgate::Key;
