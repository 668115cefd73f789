//! The types that threads share. The models in `tests/models.rs`, which try the orders in which threads may run, replace them.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64};
pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) use arc_swap::ArcSwap;
