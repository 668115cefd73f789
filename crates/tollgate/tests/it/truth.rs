//! A limit has no way around it: a request that reached its handler was charged by every policy that covers it, or is on the
//! operator's list of exemptions.
//!
//! Services, policies and hostile requests are drawn at random. The handlers know the truth: which of them ran, and which
//! caller the usual extractors show them. [`judge`] holds that against what the backend was asked.
//!
//! A failure prints the seed, the service, and the fewest policies and requests that show it. `TOLLGATE_SEED=…` draws the same
//! again, and `TOLLGATE_EFFORT=100` as many as a full run.

#![allow(
    clippy::print_stderr,
    reason = "a test says what it expects by panicking"
)]
#![cfg(all(feature = "json", feature = "macros", feature = "tonic"))]

mod book;
mod campaign;
mod catches;
mod in_flight;
mod judge;
mod policies;
mod proxies;
mod readings;
mod requests;
mod services;
mod sockets;

mod weaknesses;

use campaign::Campaign;
use tollgate_testkit::cases;

/// The requests of a full run, each of them decided by memory and answered by axum or tonic without a socket.
const REQUESTS: u64 = 110_000;
/// Further requests over a socket, as hyper reads them: written byte by byte in HTTP/1.1, and frame by frame in HTTP/2.
const OVER_SOCKETS: u64 = 3_000;

#[test]
fn a_request_that_reached_its_handler_was_charged_by_every_policy_that_covers_it() {
    let campaign = Campaign::drawn();
    let requests = usize::try_from(cases(REQUESTS)).unwrap();

    let report = campaign.run(requests);

    report.assert_says_something(requests, REQUESTS);
    let one_in = if cases(100) < 100 { 800 } else { 200 };
    assert!(report.refused * one_in >= report.requests, "{report:?}");
    eprintln!("{report:?}");
}

#[test]
fn a_request_over_a_socket_was_charged_by_every_policy_that_covers_it() {
    let campaign = Campaign::drawn();
    let requests = usize::try_from(cases(OVER_SOCKETS)).unwrap();

    let report = sockets::run(&campaign, requests);

    report.assert_says_something(requests, OVER_SOCKETS);
    eprintln!("{report:?}");
}
