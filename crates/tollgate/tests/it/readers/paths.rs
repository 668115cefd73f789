//! Parameters of the path.

use axum::extract::{Path, Query, State};
use axum::routing::{get as on_get, post as on_post};
use axum::{Form, Json, Router};
use serde::Deserialize;
use std::net::IpAddr;
use tollgate::key::{FormField, JsonField, PathParam};
use tollgate::{Limiter, OnMissing, Policy, Quota, RateLimitLayer, key};
use tower::ServiceExt;
use tower_http::normalize_path::NormalizePath;
use uuid::Uuid;

use crate::common::at_a_standstill;
use crate::common::served::Served;
use crate::readers::{FORM, Fields, JSON, Sent, Shared, get, is_one_budget, post};

fn by_path() -> Router<Shared> {
    Router::new().route(
        "/users/{user}",
        on_get(
            |State(shared): State<Shared>, Path(user): Path<String>| async move {
                shared.note(Some(user));
            },
        ),
    )
}

#[tokio::test]
async fn a_number_or_a_uuid_is_one_budget_however_a_typed_extractor_is_given_it() {
    #[derive(Deserialize)]
    struct Of<T> {
        user: T,
    }

    fn by<T>() -> Router<Shared>
    where
        T: serde::de::DeserializeOwned + std::fmt::Display + Send + 'static,
    {
        let note = |shared: Shared, user: T| shared.note(Some(user.to_string()));
        let in_path = move |State(shared): State<Shared>, Path(user): Path<T>| async move {
            note(shared, user);
        };
        let in_query = move |State(shared): State<Shared>, Query(of): Query<Of<T>>| async move {
            note(shared, of.user);
        };
        let in_form = move |State(shared): State<Shared>, Form(of): Form<Of<T>>| async move {
            note(shared, of.user);
        };
        Router::new()
            .route("/users/{user}", on_get(in_path))
            .route("/", on_get(in_query).post(in_form))
    }

    fn in_json<T>() -> Router<Shared>
    where
        T: serde::de::DeserializeOwned + std::fmt::Display + Send + 'static,
    {
        let by = |State(shared): State<Shared>, Json(of): Json<Of<T>>| async move {
            shared.note(Some(of.user.to_string()));
        };
        Router::new().route("/", on_post(by))
    }

    let id = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    let uuids = [
        id.to_owned(),
        id.to_uppercase(),
        id.replace('-', ""),
        format!("%7B{id}%7D"),
        format!("urn:uuid:{id}"),
    ];
    let numbers = ["7", "07", "007", "%2B7", "%2b0007", "%37"].map(str::to_owned);
    let floats = [
        "7",
        "7.0",
        "07.00",
        "7.",
        "70e-1",
        "0.7E1",
        "7.00000000000000000000000000001",
    ];
    let floats = floats.map(str::to_owned);
    let addresses = ["2001:db8::7", "2001:DB8:0:0::0007", "2001:0db8::0.0.0.7"].map(str::to_owned);
    let in_path = |policy: Policy| policy.route("/users/{user}").key(PathParam::new("user"));
    let in_query = |policy: Policy| policy.key(key::Query::new("user"));
    let in_form = |policy: Policy| policy.key(FormField::new("user"));
    for (service, texts, seen) in [
        (by::<u64> as fn() -> Router<Shared>, &numbers[..], "7"),
        (by::<Uuid>, &uuids[..], id),
        (by::<f64>, &floats[..], "7"),
        (by::<IpAddr>, &addresses[..], "2001:db8::7"),
    ] {
        let paths = texts.iter().map(|text| get(&format!("/users/{text}")));
        let queries = texts.iter().map(|text| get(&format!("/?user={text}")));
        let forms = texts.iter().map(|text| post(FORM, format!("user={text}")));
        let rows =
            |sent: Vec<Sent>| Vec::from_iter(sent.into_iter().map(|sent| (sent, Some(seen))));
        is_one_budget(service, in_path, &rows(paths.collect())).await;
        is_one_budget(service, in_query, &rows(queries.collect())).await;
        is_one_budget(service, in_form, &rows(forms.collect())).await;
    }
    let documents = uuids.iter().map(|text| {
        let text = text.replace("%7B", "{").replace("%7D", "}");
        (post(JSON, format!(r#"{{"user":"{text}"}}"#)), Some(id))
    });
    let in_field = |policy: Policy| policy.key(JsonField::new("user"));
    is_one_budget(in_json::<Uuid>, in_field, &Vec::from_iter(documents)).await;
    let close = (1_000_000_000_000_000_000_u64..).take(9);
    let of = |number: u64| post(JSON, format!(r#"{{"user":{number}}}"#));
    let mut documents = vec![(of(7), Some("7"))];
    documents.extend(close.map(|number| (of(number), Some("1000000000000000000"))));
    is_one_budget(in_json::<f64>, in_field, &documents).await;
}

fn by_nested_path() -> Router<Shared> {
    let inner = Router::new().route(
        "/{*user}",
        on_get(
            |State(shared): State<Shared>, Path(path): Path<Fields>| async move {
                shared.note(path.get("user").cloned());
            },
        ),
    );
    Router::new().nest("/files", inner)
}

#[tokio::test]
async fn a_parameter_of_the_path_is_one_budget_however_it_is_encoded() {
    let policy = |policy: Policy| policy.route("/users/{user}").key(PathParam::new("user"));
    let rows = [
        (get("/users/abc"), Some("abc")),
        (get("/users/%61bc"), Some("abc")),
        (get("/users/a%62%63?user=zzz"), Some("abc")),
        (get("/users/a%2Fb"), Some("a/b")),
        (get("/users/a%2fb"), Some("a/b")),
        (get("/users/%2F"), Some("/")),
        (get("/users/%2f"), Some("/")),
        (get("/users/a%2F%2Fb"), Some("a//b")),
        (get("/users/a%252Fb"), Some("a%2Fb")),
        (get("/users/%20"), Some(" ")),
        (get("/users//abc"), None),
        (get("/users/%ff"), None),
    ];
    is_one_budget(by_path, policy, &rows).await;

    let policy = |policy: Policy| policy.route("/files/{*user}").key(PathParam::new("user"));
    let rows = [
        (get("/files/a/b"), Some("a/b")),
        (get("/files/a%2Fb"), Some("a/b")),
        (get("/files/%61/b"), Some("a/b")),
        (get("/files/a//b"), Some("a//b")),
        (get("/files/a%2F%2fb"), Some("a//b")),
        (get("/files/a/%2Fb"), Some("a//b")),
        (get("/files//b"), Some("/b")),
        (get("/files/%2Fb"), Some("/b")),
        (get("/files/%2F"), Some("/")),
        (get("/files//"), Some("/")),
        (get("/files/b/"), Some("b/")),
        (get("/files/b%2F"), Some("b/")),
    ];
    is_one_budget(by_nested_path, policy, &rows).await;
}

#[tokio::test]
async fn a_parameter_that_two_nested_routers_name_is_one_budget() {
    let service = || {
        let inner = Router::new().route(
            "/{user}",
            on_get(
                |State(shared): State<Shared>, Path(path): Path<Fields>| async move {
                    shared.note(path.get("user").cloned());
                },
            )
            .layer(limit_by_matched_path(OnMissing::Pass)),
        );
        Router::new().nest("/{user}", inner)
    };
    let shared = Shared::new();
    let app = service().with_state(shared.clone());
    for uri in ["/abc/abc", "/x/abc", "/y/abc", "/z/%61bc"] {
        for _ in 0..2 {
            drop(app.clone().oneshot(get(uri).request()).await.unwrap());
        }
    }
    let seen = shared.seen.lock().unwrap()["abc"];
    assert!(seen <= 2, "{seen} requests of one caller for one");
}

/// Behind a layer that rewrites the path, the handler sees another path than the caller sent.
#[tokio::test]
async fn a_path_that_a_layer_rewrites_for_the_handler_is_no_second_budget_and_never_free() {
    for on_missing in [OnMissing::Pass, OnMissing::Deny] {
        let user = |Path(user): Path<String>| async move { user };
        let users = Router::new().route(
            "/users/{user}",
            on_get(user).layer(limit_by_matched_path(on_missing)),
        );
        let normalized = NormalizePath::trim_trailing_slash(users);
        let served = Served::new(Router::new().nest_service("/api", normalized)).await;
        let mut statuses = Vec::new();
        for path in ["/api/users/7", "/api///users/7", "/api/users/7/"] {
            for _ in 0..3 {
                statuses.push(served.get(path).await.status().as_u16());
            }
        }
        let passed = statuses.iter().filter(|status| **status == 200).count();
        assert!(passed <= 2, "{on_missing:?}: {statuses:?}");
    }
}

fn limit_by_matched_path(on_missing: OnMissing) -> RateLimitLayer {
    let policy = Policy::new("keyed", Quota::per_hour(1)).key(PathParam::new("user"));
    let limiter = Limiter::builder().policy(policy.on_missing(on_missing));
    RateLimitLayer::new(limiter.backend(at_a_standstill().0).build().unwrap())
}

#[tokio::test]
async fn two_routes_of_a_policy_that_capture_different_values_are_no_second_budget() {
    let service = || {
        Router::new()
            .route(
                "/{user}/posts",
                on_get(
                    |State(shared): State<Shared>, Path(user): Path<String>| async move {
                        shared.note(Some(user));
                    },
                ),
            )
            .route(
                "/staff/{user}",
                on_get(
                    |State(shared): State<Shared>, Path(user): Path<String>| async move {
                        shared.note(Some(user));
                    },
                ),
            )
    };
    let rows = [
        (get("/posts/posts"), Some("posts")),
        (get("/staff/posts"), Some("posts")),
        (get("/staff/abc"), Some("abc")),
        (get("/abc/posts"), Some("abc")),
    ];
    is_one_budget(
        service,
        |policy| {
            let policy = policy.route("/{user}/posts").route("/staff/{user}");
            policy.key(PathParam::new("user"))
        },
        &rows,
    )
    .await;
}
