//! Every argument, alone and with others.

use tollgate::key::{Global, Method};
use tollgate::{ClientIp, rate_limit};

#[rate_limit("10/min")]
async fn quota() {}

#[rate_limit("10/min",)]
async fn trailing_comma() {}

#[rate_limit("10/min burst 20")]
async fn burst_in_the_text() {}

#[rate_limit("10/min", burst = 20)]
async fn burst() {}

#[rate_limit("1000/day sliding-window", cost = 2)]
async fn algorithm() {}

#[rate_limit("10/min", key = ClientIp)]
async fn key() {}

#[rate_limit("10/min", key = (tollgate::ClientIp, Method))]
async fn keys() {}

#[rate_limit("10/min", once_by = "idempotency-key")]
async fn once() {}

#[rate_limit("10/min", shadow, cost = 1, name = "all/of-it", key = Global, burst = 1, crate = ::tollgate)]
async fn everything() {}

#[rate_limit(policy = "search")]
async fn policy() {}

#[rate_limit(policy = "search", cost = 7)]
async fn cost() {}

fn main() {}
