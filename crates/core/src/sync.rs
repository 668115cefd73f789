//! The types that threads share. `tests/counter.rs`, the model that tries every interleaving, brings its own.

pub(crate) use std::sync::atomic::AtomicU64;
