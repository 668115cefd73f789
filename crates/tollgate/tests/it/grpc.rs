//! Over gRPC: real servers, real clients, real sockets.

#![cfg(feature = "tonic")]

#[cfg(feature = "macros")]
mod annotations;
mod answers;
mod bans;
#[cfg(feature = "macros")]
mod bans_annotated;
mod concurrency;
#[cfg(feature = "macros")]
mod concurrency_annotated;
mod deadlines;
mod health;
mod interceptor;
mod keys;
mod messages;
mod queueing;
mod routes;
mod serving;
#[cfg(feature = "axum")]
mod shared;
mod shedding;
#[cfg(feature = "tls")]
mod tls;
mod web;
