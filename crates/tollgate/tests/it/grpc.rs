//! Over gRPC: real servers, real clients, real sockets.

#![cfg(feature = "tonic")]

#[cfg(feature = "macros")]
mod annotations;
mod answers;
mod at_once;
#[cfg(feature = "macros")]
mod at_once_annotated;
mod bans;
#[cfg(feature = "macros")]
mod bans_annotated;
mod health;
mod interceptor;
mod keys;
mod messages;
mod routes;
mod serving;
#[cfg(feature = "axum")]
mod shared;
mod shedding;
#[cfg(feature = "tls")]
mod tls;
mod waiting;
mod waiting_turns;
mod web;
