//! Models of the types that calls share, in every order that threads can take.
//!
//! The modules are the crate's own, with loom's locks in place of std's.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "a model is a part of the whole, and fails by panicking"
)]

mod sync {
    pub(crate) use loom::sync::atomic::AtomicU64;
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

#[path = "../src/known"]
mod known {
    mod sets;

    #[path = "../../tests/models/known.rs"]
    mod models;
}
