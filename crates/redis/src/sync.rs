//! The types that threads share, and the passing of time. The models that try orders of the threads, `tests/inline_call.rs` and
//! `tests/dispatch.rs`, bring others.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64};
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock};

pub(crate) use tokio::time::{Instant, sleep, sleep_until, timeout_at};

pub(crate) use crate::runtime::Handle;
