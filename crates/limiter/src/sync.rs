//! What threads share. The models that try the orders in which they may run, `tests/models.rs`, bring others.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64};
pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) use arc_swap::ArcSwap;
