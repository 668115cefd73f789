//! A real nginx with Tollgate's Lua module, a real Redis, and services with Tollgate's layer beside it. What counts is what reaches
//! the services.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says what it expects by panicking"
)]

mod budgets;
mod client;
mod guide;
mod handlers;
mod long_fields;
mod odd;
mod outages;
mod pace;
mod page;
mod readings;
mod redirects;
mod served;
mod vectors;
mod written;
