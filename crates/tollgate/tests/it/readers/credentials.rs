//! Bearer tokens and the users of Basic.

use axum::Router;
use axum::extract::State;
use axum::routing::any;
use axum_extra::TypedHeader;
use axum_extra::headers::Authorization;
use axum_extra::headers::authorization::{Basic, Bearer};
use tollgate::key::{BasicUser, BearerToken};

use crate::readers::{Shared, authorized, is_one_budget};

fn by_bearer() -> Router<Shared> {
    Router::new().route(
        "/",
        any(
            |State(shared): State<Shared>,
             TypedHeader(header): TypedHeader<Authorization<Bearer>>| async move {
                shared.note(Some(header.token()));
            },
        ),
    )
}

#[tokio::test]
async fn a_bearer_token_is_one_budget_however_its_scheme_is_written_and_spaced() {
    let rows = [
        (authorized("Bearer abc"), Some("abc")),
        (authorized("bearer abc"), Some("abc")),
        (authorized("BeArEr abc"), Some("abc")),
        (authorized("Bearer    abc"), Some("abc")),
        (authorized("Bearer \t abc"), Some("abc")),
        (authorized("Bearer abc "), Some("abc ")),
        (
            authorized("Bearer abc").with("authorization", "Bearer zzz"),
            Some("abc"),
        ),
        (
            authorized("Bearer abc").with("authorization", "Basic eno6eno="),
            Some("abc"),
        ),
        (authorized("Bearer ABC"), Some("ABC")),
        (authorized(" Bearer abc"), None),
        (authorized("Bearerabc"), None),
        (authorized("Basic YWJjOng="), None),
        (authorized("Bearer"), None),
    ];
    is_one_budget(by_bearer, |policy| policy.key(BearerToken), &rows).await;
}

#[tokio::test]
async fn the_user_of_basic_is_one_budget_whatever_the_password_is() {
    let rows = [
        (authorized("Basic YWJjOng="), Some("abc")),
        (authorized("basic YWJjOnk="), Some("abc")),
        (authorized("BASIC    YWJjOnk="), Some("abc")),
        (authorized("Basic YWJjOg=="), Some("abc")),
        (authorized("Basic YWJjOng6eTp6"), Some("abc")),
        (
            authorized("Basic YWJjOng=").with("authorization", "Basic enp6Ong="),
            Some("abc"),
        ),
        (authorized("Basic QUJDOng="), Some("ABC")),
        (authorized("Basic YWJj"), None),
        (authorized("Basic ????"), None),
        (authorized("Bearer abc"), None),
    ];
    let by_basic = || {
        Router::new().route(
            "/",
            any(
                |State(shared): State<Shared>,
                 TypedHeader(header): TypedHeader<Authorization<Basic>>| async move {
                    shared.note(Some(header.username()));
                },
            ),
        )
    };
    is_one_budget(by_basic, |policy| policy.key(BasicUser), &rows).await;
}
