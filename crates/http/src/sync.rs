//! The types that threads share. The models in `tests/models.rs`, which try the orders in which threads may run, replace them.

pub(crate) use std::sync::atomic::AtomicBool;
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(feature = "axum")]
pub(crate) use arc_swap::ArcSwap;
