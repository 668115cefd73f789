//! Hosts, of which a request may state several.

use axum::Router;
use axum::extract::State;
use axum::routing::any;
use http::header::HOST;
use http::{HeaderMap, Uri};
use tollgate::{Policy, key};

use crate::readers::{Sent, Shared, get, is_one_budget};

fn hosts() -> [Sent; 13] {
    let host = |lines: &[&str]| {
        let none = get("/");
        lines
            .iter()
            .fold(none, |sent, line| sent.with("host", line))
    };
    [
        host(&["a.example"]),
        host(&["A.Example"]),
        host(&["a.example:80"]),
        host(&["a.example:443"]),
        host(&["a.example."]),
        host(&[" a.example "]),
        host(&["a.example", "a.example"]),
        host(&["a.example", "b.example"]),
        host(&["b.example", "a.example"]),
        get("http://a.example/"),
        get("http://user@A.example.:80/"),
        get("http://a.example/").with("host", "b.example"),
        get("http://b.example/").with("host", "a.example"),
    ]
}

/// A name is the same however it is written, and a handler that compares names knows.
fn bare(host: &str) -> String {
    let name = host.trim().split(':').next().unwrap();
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[tokio::test]
async fn a_host_is_one_budget_whichever_of_several_statements_is_read() {
    let by_header = || {
        Router::new().route(
            "/",
            any(
                |State(shared): State<Shared>, headers: HeaderMap| async move {
                    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
                    shared.note(host.map(bare));
                },
            ),
        )
    };
    let by_target = || {
        Router::new().route(
            "/",
            any(
                |State(shared): State<Shared>, uri: Uri, headers: HeaderMap| async move {
                    let last = headers.get_all(HOST).iter().next_back();
                    let host = last.and_then(|host| host.to_str().ok());
                    shared.note(uri.host().or(host).map(bare));
                },
            ),
        )
    };
    #[allow(deprecated, reason = "it is what handlers have")]
    let by_extractor = || {
        Router::new().route(
            "/",
            any(
                |State(shared): State<Shared>,
                 axum_extra::extract::Host(host): axum_extra::extract::Host| async move {
                    shared.note(Some(bare(host.rsplit('@').next().unwrap())));
                },
            ),
        )
    };
    let (a, b) = (Some("a.example"), Some("b.example"));
    let of_header = [a, a, a, a, a, a, a, a, b, None, None, b, a];
    let of_target = [a, a, a, a, a, a, a, b, a, a, a, a, b];
    let of_extractor = [a, a, a, a, a, a, a, a, b, a, a, b, a];
    let policy = |policy: Policy| policy.key(key::Host);
    for (service, seen) in [
        (by_header as fn() -> Router<Shared>, of_header),
        (by_target, of_target),
        (by_extractor, of_extractor),
    ] {
        let rows: Vec<_> = hosts().into_iter().zip(seen).collect();
        is_one_budget(service, policy, &rows).await;
    }
}
