//! Properties that hold for any input, one body for each. A body takes bytes and panics if its property does not hold.
//!
//! `fuzz/run.sh` runs them on inputs of libFuzzer. The tests of this crate run them, each time, on the corpus in `fuzz/corpus`
//! and on random changes of it.
//!
//! A new body stands in a file of its own here, in [`BODIES`], and as a target in `fuzz/targets` and `fuzz/Cargo.toml`; its
//! first inputs in `fuzz/corpus`.

#![allow(
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a property that does not hold panics"
)]

mod config;
mod fields;
mod forwarding;
mod grpc_frames;
mod keys;
mod names;
mod paths;
mod quota;
mod redis_reply;
mod service;

pub use self::config::config;
pub use self::fields::fields;
pub use self::forwarding::forwarding;
pub use self::grpc_frames::grpc_frames;
pub use self::keys::keys;
pub use self::names::names;
pub use self::paths::paths;
pub use self::quota::quota;
pub use self::redis_reply::redis_reply;

/// A property of all bytes.
pub type Body = fn(&[u8]);

/// All bodies by their names, which are those of the targets and of the folders of the corpus.
pub const BODIES: [(&str, Body); 9] = [
    ("config", config),
    ("fields", fields),
    ("forwarding", forwarding),
    ("grpc_frames", grpc_frames),
    ("keys", keys),
    ("names", names),
    ("paths", paths),
    ("quota", quota),
    ("redis_reply", redis_reply),
];
