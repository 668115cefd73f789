//! Parameters of the path.

use axum::extract::{Path, Query, State};
use axum::routing::{get as on_get, post as on_post};
use axum::{Form, Json, Router};
use serde::Deserialize;
use std::net::IpAddr;
use tollgate::key::{FormField, JsonField, KeyList, PathParam};
use tollgate::{Block, Limiter, OnMissing, Policy, Quota, RateLimitLayer, key};
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

/// The policy's pattern is wider than the route that axum matched, and has the parameter elsewhere.
#[tokio::test]
async fn the_parameter_that_the_handler_sees_counts_whatever_the_policy_s_pattern_says() {
    let tenant = |Path(path): Path<Fields>| async move { path["tenant"].clone() };
    let inner = Router::new().route("/posts/{tenant}", on_get(tenant));
    let app = Router::new()
        .route("/t/{tenant}/x", on_get(tenant))
        .route("/t/by-id/{tenant}/x", on_get(tenant))
        .nest("/n/{tenant}", inner);
    let policy = Policy::new("tenants", Quota::per_hour(2));
    let policy = policy
        .route("/t/{tenant}/{*rest}")
        .route("/n/{tenant}/{*rest}");
    let policy = policy
        .key(PathParam::new("tenant"))
        .on_missing(OnMissing::Deny);
    let policy = policy.block_keys(KeyList::from_iter(["evil"]), Block::Forbidden);
    let limiter = Limiter::builder()
        .policy(policy)
        .backend(at_a_standstill().0);
    let app = app.layer(RateLimitLayer::new(limiter.build().unwrap()));
    let app = NormalizePath::trim_trailing_slash(app);
    let served = Served::new(Router::new().fallback_service(app)).await;
    for (path, expected) in [
        ("/t/evil/x", 403),
        ("/t/by-id/evil/x", 403),
        ("/t/by-id/evil/x/", 403),
        ("/t/acme/x", 200),
        ("/t/by-id/acme/x", 200),
        ("/t/by-id/acme/x", 429),
        ("/t/by-id/bee/x", 200),
        // The handler may see either of them.
        ("/n/r0/posts/evil", 403),
        ("/n/evil/posts/r0", 403),
    ] {
        assert_eq!(served.get(path).await.status(), expected, "{path}");
    }
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

/// Passes a request on with its path in small letters.
fn lower_case<B>(request: http::Request<B>) -> http::Request<B> {
    let (mut parts, body) = request.into_parts();
    parts.uri = parts.uri.to_string().to_lowercase().parse().unwrap();
    http::Request::from_parts(parts, body)
}

/// The handler sees what a layer further out has made of the path, although an outer router remembers what the caller sent.
#[tokio::test]
async fn a_path_that_a_layer_further_out_has_rewritten_is_the_one_that_counts() {
    let seen = |Path(tenant): Path<String>| async move { tenant };
    let nested =
        |Path((api, tenant)): Path<(String, String)>| async move { format!("{api}/{tenant}") };
    let limited = |prefix: &str, app: Router| {
        let of = |name, route: &str| {
            Policy::new(name, Quota::per_hour(2)).route(&format!("{prefix}{route}"))
        };
        let tenants = of("tenants", "/t/{tenant}").key(PathParam::new("tenant"));
        let tenants = tenants.on_missing(OnMissing::Pass);
        let evil = KeyList::from_iter(["evil"]);
        let limiter = Limiter::builder()
            .policy(tenants.block_keys(&evil, Block::Forbidden))
            .policy(of("logins", "/login").key(key::Global))
            .backend(at_a_standstill().0);
        let app = app.layer(RateLimitLayer::new(limiter.build().unwrap()));
        tower::util::MapRequest::new(app, lower_case)
    };
    let inner = || Router::new().route("/login", on_get(async || "in"));
    let plain = || inner().route("/t/{tenant}", on_get(seen));
    let services = [
        ("", Router::new().fallback_service(limited("", plain()))),
        (
            "/api",
            Router::new().nest_service("/api", limited("/api", plain())),
        ),
        (
            "/v1",
            Router::new().nest_service(
                "/{api}",
                limited("/{api}", inner().route("/t/{tenant}", on_get(nested))),
            ),
        ),
    ];
    for (prefix, service) in services {
        let served = Served::new(service).await;
        let statuses = async |paths: &[&str]| {
            let mut statuses = Vec::new();
            for path in paths {
                let path = format!("{prefix}{path}");
                statuses.push(served.get(&path).await.status().as_u16());
            }
            statuses
        };
        let evil = statuses(&["/t/evil", "/t/Evil", "/T/EVIL"]).await;
        assert_eq!(evil, [403, 403, 403], "{prefix}");
        let acme = statuses(&["/t/acme", "/T/Acme", "/t/ACME", "/T/acme"]).await;
        assert_eq!(acme, [200, 200, 429, 429], "{prefix}");
        let logins = statuses(&["/Login", "/LOGIN", "/login", "/lOgin"]).await;
        assert_eq!(logins, [200, 200, 429, 429], "{prefix}");
    }
}

/// Where a nested service begins, axum has matched no route yet.
#[tokio::test]
async fn a_parameter_of_a_nest_is_found_whatever_is_nested() {
    let tenant = |Path(path): Path<Fields>| async move { path["tenant"].clone() };
    let inner = || {
        Router::new()
            .route("/x", on_get(tenant))
            .layer(limit_by_tenant(None))
    };
    for app in [
        Router::new().nest("/s/{tenant}", inner()),
        Router::new().nest_service("/s/{tenant}", inner()),
    ] {
        let served = Served::new(app).await;
        for (path, expected) in [
            ("/s/evil/x", 403),
            ("/s/acme/x", 200),
            ("/s/bob/x", 200),
            ("/s/%61cme/x", 200),
            ("/s/acme/x", 429),
            ("/s/bob/x", 200),
        ] {
            assert_eq!(served.get(path).await.status(), expected, "{path}");
        }
    }
}

/// Outside of it axum names no route, so the caller is unknown there.
#[tokio::test]
async fn a_parameter_of_a_nested_service_is_never_free_outside() {
    let tenant = |Path(path): Path<Fields>| async move { path["tenant"].clone() };
    let inner = Router::new().route("/x", on_get(tenant));
    let app = Router::new().nest_service("/s/{tenant}", inner);
    let served = Served::new(app.layer(limit_by_tenant(None))).await;
    let mut passed = 0;
    for path in [
        "/s/evil/x",
        "/s/acme/x",
        "/s/bob/x",
        "/s/evil/x",
        "/s/acme/x",
    ] {
        passed += u32::from(served.get(path).await.status() == 200);
    }
    assert_eq!(passed, 2);
}

/// Two requests of each tenant an hour, and none of `evil`.
fn limit_by_tenant(route: Option<&str>) -> RateLimitLayer {
    let policy = Policy::new("tenants", Quota::per_hour(2)).key(PathParam::new("tenant"));
    let policy = route.map_or(policy.clone(), |route| policy.route(route));
    let evil = KeyList::from_iter(["evil"]);
    let policy = policy
        .on_missing(OnMissing::Pass)
        .block_keys(&evil, Block::Forbidden);
    let limiter = Limiter::builder()
        .policy(policy)
        .backend(at_a_standstill().0);
    RateLimitLayer::new(limiter.build().unwrap())
}

/// A parameter that is not last may be empty, so that a path with a doubled slash fits the pattern in two ways.
#[tokio::test]
async fn a_doubled_slash_hides_no_parameter() {
    let tenant = |Path(path): Path<Fields>| async move { path["tenant"].clone() };
    let app = || Router::new().route("/{tenant}/{*rest}", on_get(tenant));
    let limit = || limit_by_tenant(Some("/{tenant}/{*rest}"));
    let tidy = |app| NormalizePath::trim_trailing_slash(app);
    let outside = tower::Layer::layer(&limit(), tidy(app()));
    let within = Router::new().fallback_service(tidy(app().layer(limit())));
    let outside = Served::new(Router::new().fallback_service(outside)).await;
    let within = Served::new(within).await;
    for served in [outside, within] {
        let mut passed = 0;
        for path in [
            "//acme/x", "/acme/x", "//acme/x", "//acme/x", "/acme/x", "//acme/x",
        ] {
            passed += u32::from(served.get(path).await.status() == 200);
        }
        // The limiter outside does not know whose budget it is.
        assert!(passed <= 4, "{passed}");
        assert_eq!(served.get("/evil/x").await.status(), 403);
        assert_ne!(served.get("//evil/x").await.status(), 200);
    }
}

/// Slashes at the ends of a path alone may go, and a service of files reads dots and encoded slashes.
#[tokio::test]
async fn a_path_is_covered_in_each_form_that_one_behind_may_read() {
    let limit = |route: &str| {
        let policy = Policy::new("all", Quota::per_hour(2))
            .route(route)
            .key(key::Global);
        let limiter = Limiter::builder()
            .policy(policy)
            .backend(at_a_standstill().0);
        RateLimitLayer::new(limiter.build().unwrap())
    };
    let passed = async |served: Served, paths: &[&str]| {
        let mut passed = 0;
        for path in paths {
            passed += u32::from(served.get(path).await.status() == 200);
        }
        passed
    };
    let login = || Router::new().route("/users/{id}/login", on_get(async || "in"));
    let tidy = |app| NormalizePath::trim_trailing_slash(app);
    let outside = tower::Layer::layer(&limit("/users/{id}/login"), tidy(login()));
    let outside = Router::new().fallback_service(outside);
    let within = tidy(login().layer(limit("/users/{id}/login")));
    let within = Router::new().fallback_service(within);
    for app in [outside, within] {
        let served = Served::new(app).await;
        let paths = [
            "/users/7/login",
            "/users//login/",
            "//users//login",
            "//users//login//",
        ];
        assert_eq!(passed(served, &paths).await, 2);
    }

    // A parameter in front of a last slash may be empty, without any layer.
    let inner = Router::new().route("/", on_get(async || "organisation"));
    let app = Router::new().nest_service("/orgs/{id}", inner);
    let served = Served::new(app.layer(limit("/orgs/{id}"))).await;
    let paths = ["/orgs/7", "/orgs//", "/orgs/7/", "/orgs//"];
    assert_eq!(passed(served, &paths).await, 2);

    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "text").unwrap();
    let files = tower_http::services::ServeDir::new(folder.path());
    let app = Router::new().nest_service("/static", files);
    let served = Served::new(app.layer(limit("/static/file"))).await;
    let paths = [
        "/static/file",
        "/static/./file",
        "/static/%2e/file",
        "/static%2Ffile",
        "/static/file%2F",
        "/static/file/.",
    ];
    assert_eq!(passed(served, &paths).await, 2);
}

/// An exempt pattern whose parameter is empty leads elsewhere once the slash is gone.
#[tokio::test]
async fn a_doubled_slash_exempts_no_other_route() {
    let all = || Policy::new("all", Quota::per_hour(2)).key(key::Global);
    let routes = ["/login", "/{lang}/{*page}"];
    let by_route = || all().route(routes[0]).route(routes[1]);
    let policies = [
        all().exempt_route("/{lang}/{*page}"),
        all().exempt_route("/{lang}/login"),
        by_route().exempt_by(key::MatchedRoute, KeyList::from_iter([routes[1]])),
        by_route().exempt_by(PathParam::new("page"), KeyList::from_iter(["login"])),
    ];
    for policy in policies {
        let app = Router::new().route(routes[0], on_get(async || "in"));
        let app = app.route(routes[1], on_get(async || "page"));
        let app = NormalizePath::trim_trailing_slash(app);
        let limiter = Limiter::builder().policy(policy.clone());
        let limiter = limiter.backend(at_a_standstill().0).build().unwrap();
        let app = tower::Layer::layer(&RateLimitLayer::new(limiter), app);
        let served = Served::new(Router::new().fallback_service(app)).await;
        assert_eq!(served.get("/en/login").await.status(), 200);
        assert_eq!(served.get("/en//login/").await.status(), 200);
        let mut passed = 0;
        for path in ["/login", "//login", "///login", "//login//", "/login//"] {
            passed += u32::from(served.get(path).await.status() == 200);
        }
        assert!(passed <= 2, "{passed} under {policy:?}");
        let exempt = served.get("/en/login").await.status();
        assert_eq!(exempt, 200, "{policy:?}");
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
