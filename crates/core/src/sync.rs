//! What threads share. The model that tries its every interleaving, `tests/counter.rs`, brings its own.

pub(crate) use std::sync::atomic::AtomicU64;
