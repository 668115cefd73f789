//! Parameters of the query.

use axum::Router;
use axum::extract::{Query, State};
use axum::routing::any;
use tollgate::{Policy, key};

use crate::readers::{Fields, OfUser, OfUsers, Sent, Shared, get, is_one_budget};

fn queries() -> [Sent; 12] {
    [
        get("/?user=abc"),
        get("/?us%65r=%61bc"),
        get("/?user=abc&user=abc"),
        get("/?user=zzz&user=abc"),
        get("/?user&user=abc"),
        get("/?user=zzz&us%65r=abc"),
        get("/?user=abc;x=1"),
        get("/?x=1;user=abc"),
        get("/?&&user=abc&"),
        get("/?user=+a%20b"),
        get("/?user=%20a+b"),
        get("/?user=%ff"),
    ]
}

fn by_query() -> Router<Shared> {
    Router::new().route(
        "/",
        any(
            |State(shared): State<Shared>, Query(query): Query<OfUser>| async move {
                shared.note(Some(query.user));
            },
        ),
    )
}

fn by_query_map() -> Router<Shared> {
    Router::new().route(
        "/",
        any(
            |State(shared): State<Shared>, Query(query): Query<Fields>| async move {
                shared.note(query.get("user").cloned());
            },
        ),
    )
}

fn by_query_list() -> Router<Shared> {
    Router::new().route(
        "/",
        any(
            |State(shared): State<Shared>,
             axum_extra::extract::Query(query): axum_extra::extract::Query<OfUsers>| async move {
                shared.note(query.user.first().cloned());
            },
        ),
    )
}

#[tokio::test]
async fn a_query_parameter_is_one_budget_whoever_reads_it() {
    let policy = |policy: Policy| policy.key(key::Query::new("user"));
    let seen: [(fn() -> Router<Shared>, [Option<&str>; 12]); 3] = [
        (
            by_query,
            [
                Some("abc"),
                Some("abc"),
                None,
                None,
                None,
                None,
                Some("abc;x=1"),
                None,
                Some("abc"),
                Some(" a b"),
                Some(" a b"),
                Some("\u{fffd}"),
            ],
        ),
        (
            by_query_map,
            [
                Some("abc"),
                Some("abc"),
                Some("abc"),
                Some("abc"),
                Some("abc"),
                Some("abc"),
                Some("abc;x=1"),
                None,
                Some("abc"),
                Some(" a b"),
                Some(" a b"),
                Some("\u{fffd}"),
            ],
        ),
        (
            by_query_list,
            [
                Some("abc"),
                Some("abc"),
                Some("abc"),
                Some("zzz"),
                Some(""),
                Some("zzz"),
                Some("abc;x=1"),
                None,
                Some("abc"),
                Some(" a b"),
                Some(" a b"),
                Some("\u{fffd}"),
            ],
        ),
    ];
    for (service, seen) in seen {
        let rows: Vec<_> = queries().into_iter().zip(seen).collect();
        is_one_budget(service, policy, &rows).await;
    }
}
