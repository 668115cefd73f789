//! Tollgate for tonic: limits on the calls of a server and on the messages of their streams.
//!
//! The layer of `tollgate-http` limits calls and answers them in gRPC. This crate adds what needs tonic itself:
//! [`RateLimitInterceptor`] for one service, [`MessageLimitLayer`] for the messages of streams, limits at methods, and limits
//! in `.proto` files (feature `proto`).
//!
//! **Users write `tollgate`**, which has everything here under one name.

mod call;
mod interceptor;
mod messages;
#[cfg(feature = "axum")]
pub mod method;
#[cfg(feature = "proto")]
pub mod proto;
mod sync;

pub use self::interceptor::RateLimitInterceptor;
pub use self::messages::{MessageBody, MessageLimitFuture, MessageLimitLayer, MessageLimitService};

/// The parser of gRPC's frames, for fuzz targets. No code uses it otherwise.
#[doc(hidden)]
pub mod __frames {
    pub use crate::messages::frames::*;
}
