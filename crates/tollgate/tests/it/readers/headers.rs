//! Blanks around a header.

use axum::Router;
use axum::extract::State;
use axum::routing::any;
use http::HeaderMap;
use tollgate::key::Header;

use crate::readers::{Shared, get, is_one_budget};

#[tokio::test]
async fn blanks_around_a_header_are_no_second_budget() {
    let by_header = || {
        Router::new().route(
            "/",
            any(
                |State(shared): State<Shared>, headers: HeaderMap| async move {
                    let key = headers.get("x-api-key").and_then(|key| key.to_str().ok());
                    let key = key.map(str::trim).filter(|key| !key.is_empty());
                    shared.note(key);
                },
            ),
        )
    };
    let keyed = |value: &str| get("/").with("x-api-key", value);
    let rows = [
        (keyed("abc"), Some("abc")),
        (keyed(" abc"), Some("abc")),
        (keyed("abc\t "), Some("abc")),
        (keyed("abc").with("x-api-key", "zzz"), Some("abc")),
        (keyed(" ").with("x-api-key", "abc"), None),
        (keyed(" "), None),
    ];
    is_one_budget(
        by_header,
        |policy| policy.key(Header::new("x-api-key")),
        &rows,
    )
    .await;
}
