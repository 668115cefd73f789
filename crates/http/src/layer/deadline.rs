//! The time that a gRPC caller waits for an answer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Sleep, sleep};
use tollgate_limiter::RequestView;
use tollgate_limiter::transport::{Dialect, grpc_timeout};

/// The caller's deadline, counted from when it was read. tonic's server enforces it by itself, and a router of axum's does not.
pub struct Deadline(Pin<Box<Sleep>>);

impl Deadline {
    /// `None` if the caller speaks no gRPC or states no deadline.
    pub fn of(request: &RequestView<'_>) -> Option<Self> {
        Dialect::of(request)?;
        let timeout = grpc_timeout(request.headers())?;
        Some(Self(Box::pin(sleep(timeout))))
    }

    /// Ready when it has passed.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Deadline")
    }
}
