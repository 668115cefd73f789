//! What threads share. The models that try the orders in which they may run, `crates/tollgate/tests/models.rs`, bring others.

pub(crate) use std::sync::{Mutex, MutexGuard};
