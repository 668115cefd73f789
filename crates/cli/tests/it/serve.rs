//! `tollgate serve`, run as an operator runs it.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod admin;
#[cfg(target_os = "linux")]
mod deployed;
#[allow(dead_code, reason = "the server's tests take more of it")]
#[path = "../../../server/tests/it/common/http.rs"]
mod http;
mod log;
#[cfg(target_os = "linux")]
mod open_files;
mod outages;
mod program;
mod running;
mod tls;
