//! `debug_handler` above has counted the arguments before there was one more. It goes below.

use axum::debug_handler;
use tollgate::rate_limit;

#[debug_handler]
#[rate_limit("10/min")]
async fn login(body: String) -> String {
    body
}

fn main() {}
