//! The API of the admin, asked over sockets. What counts is what the limiter does afterwards.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod outages;
mod page;
mod senseless;
mod state;
mod steered;
mod steering;
mod token;
