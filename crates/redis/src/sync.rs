//! The lock and the runtime of [`handed`](crate::handed). The model that tries its every interleaving, `tests/handed.rs`, brings
//! others.

pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) use tokio::runtime::Handle;
