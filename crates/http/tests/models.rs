//! Models of the types that requests to annotated handlers share, in every order that threads can take.
//!
//! The module is the crate's own, with loom's locks in place of std's. The modules that it uses stand in `models/registry.rs`, as
//! far as it matters here.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a model is a part of the whole, and fails by panicking"
)]

mod sync {
    pub(crate) use loom::sync::Mutex;
    pub(crate) use tollgate_testkit::models::ArcSwap;
}

#[path = "../src/annotation"]
mod annotation {
    mod registry;

    #[path = "../../tests/models/registry.rs"]
    mod models;

    use models::{build, claim, misuse, site};
}
