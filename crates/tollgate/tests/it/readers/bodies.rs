//! Fields of forms and of JSON.

use axum::body::Bytes;
use axum::extract::State;
use axum::routing::{any, post as on_post};
use axum::{Form, Json, Router};
use http::{HeaderMap, Method};
use serde::Deserialize;
use serde_json::Value;
use tollgate::Policy;
use tollgate::key::{FormField, JsonField};

use crate::readers::{
    FORM, Fields, JSON, OfUser, OfUsers, Sent, Shared, get, is_one_budget, padded, post,
};

fn by_form_map() -> Router<Shared> {
    Router::new().route(
        "/",
        any(
            |State(shared): State<Shared>, Form(form): Form<Fields>| async move {
                shared.note(form.get("user").cloned());
            },
        ),
    )
}

#[tokio::test]
async fn a_form_field_is_one_budget_wherever_axums_form_reads_it() {
    let rows = [
        (post(FORM, "user=abc"), Some("abc")),
        (post(FORM, "us%65r=%61bc"), Some("abc")),
        (post(FORM, "user=zzz&user=abc"), Some("abc")),
        (post(FORM, padded("user=abc")), Some("abc")),
        (
            post(&format!("{FORM}; charset=utf-8"), "user=abc"),
            Some("abc"),
        ),
        (post(&format!("{FORM}x"), "user=abc"), Some("abc")),
        (post(&format!("{FORM}+json"), "user=abc"), Some("abc")),
        (
            post(FORM, "user=abc").with("content-type", JSON),
            Some("abc"),
        ),
        (post(FORM, "user=abc").by(Method::PATCH), Some("abc")),
        // A HEAD is read like a POST, and a GET from its query.
        (post(FORM, "user=abc").by(Method::HEAD), Some("abc")),
        (get("/?user=abc"), Some("abc")),
        (get("/?user=%61bc").with("content-type", FORM), Some("abc")),
        (get("/?user=zzz&user=abc"), Some("abc")),
        (
            Sent {
                uri: "/?user=abc".to_owned(),
                ..post(FORM, "user=zzz").by(Method::GET)
            },
            Some("abc"),
        ),
        (
            Sent {
                uri: "/?user=zzz".to_owned(),
                ..post(FORM, "user=abc")
            },
            Some("abc"),
        ),
        (post(JSON, "user=abc"), None),
        (post("text/plain", "user=abc"), None),
    ];
    is_one_budget(
        by_form_map,
        |policy| policy.key(FormField::new("user")),
        &rows,
    )
    .await;

    let by_extra = || {
        Router::new().route(
            "/",
            any(
                |State(shared): State<Shared>,
                 axum_extra::extract::Form(form): axum_extra::extract::Form<OfUsers>| async move {
                    shared.note(form.user.last().cloned());
                },
            ),
        )
    };
    is_one_budget(by_extra, |policy| policy.key(FormField::new("user")), &rows).await;
}

#[tokio::test]
async fn a_handler_that_takes_the_body_for_what_it_does_not_say_it_is_sees_nobody_for_free() {
    let by_bytes_of_a_form = || {
        Router::new().route(
            "/",
            any(|State(shared): State<Shared>, body: Bytes| async move {
                let mut fields = form_urlencoded::parse(&body);
                shared.note(
                    fields
                        .find(|(name, _)| name == "user")
                        .map(|(_, user)| user),
                );
            }),
        )
    };
    let rows = [
        (post(FORM, "user=abc"), Some("abc")),
        (post(JSON, "user=abc"), Some("abc")),
        (post("text/plain", "user=abc"), Some("abc")),
        (post("multipart/form-data", "user=abc"), Some("abc")),
        (
            Sent {
                headers: Vec::new(),
                ..post("", "user=abc")
            },
            Some("abc"),
        ),
    ];
    is_one_budget(
        by_bytes_of_a_form,
        |policy| policy.key(FormField::new("user")),
        &rows,
    )
    .await;

    let by_bytes_of_json = || {
        Router::new().route(
            "/",
            any(|State(shared): State<Shared>, body: Bytes| async move {
                let document = serde_json::from_slice::<Value>(&body).ok();
                let user = document
                    .as_ref()
                    .and_then(|document| document["user"].as_str());
                shared.note(user);
            }),
        )
    };
    let document = r#"{"user":"abc"}"#;
    let rows = [
        (post(JSON, document), Some("abc")),
        (post(FORM, document), Some("abc")),
        (post("text/plain", document), Some("abc")),
        (post("text/json", document), Some("abc")),
    ];
    is_one_budget(
        by_bytes_of_json,
        |policy| policy.key(JsonField::new("user")),
        &rows,
    )
    .await;
}

/// A handler that chooses its reader by the content type, as in axum's own example.
#[tokio::test]
async fn a_body_of_the_other_kind_is_no_way_around_a_limit() {
    let by_either = || {
        let note = |State(shared): State<Shared>, headers: HeaderMap, body: Bytes| async move {
            let user = if headers["content-type"] == JSON {
                let document: Option<Value> = serde_json::from_slice(&body).ok();
                document.and_then(|document| document["user"].as_str().map(str::to_owned))
            } else {
                let mut fields = form_urlencoded::parse(&body);
                let user = fields.find(|(name, _)| name == "user");
                user.map(|(_, user)| user.into_owned())
            };
            shared.note(user);
        };
        Router::new().route("/", on_post(note))
    };
    let mut rows = vec![
        (post(FORM, "user=abc"), Some("abc")),
        (post(JSON, r#"{"user":"abc"}"#), Some("abc")),
    ];
    for other in ["x", "y", "z"] {
        let as_json = format!(r#"{{"user":"abc","x":"&user={other}&"}}"#);
        rows.push((post(JSON, as_json), Some("abc")));
        let as_form = format!(r#"{{"user":"{other}","x":"&user=abc&"}}"#);
        rows.push((post(FORM, as_form), Some("abc")));
    }
    let by_form = |policy: Policy| policy.key(FormField::new("user"));
    is_one_budget(by_either, by_form, &rows).await;
    let by_json = |policy: Policy| policy.key(JsonField::new("user"));
    is_one_budget(by_either, by_json, &rows).await;
}

fn by_json() -> Router<Shared> {
    Router::new().route(
        "/",
        on_post(
            |State(shared): State<Shared>, Json(body): Json<OfUser>| async move {
                shared.note(Some(body.user));
            },
        ),
    )
}

fn by_json_value() -> Router<Shared> {
    Router::new().route(
        "/",
        on_post(
            |State(shared): State<Shared>, Json(body): Json<Value>| async move {
                shared.note(body["user"].as_str());
            },
        ),
    )
}

#[tokio::test]
async fn a_json_field_is_one_budget_whether_a_struct_or_a_value_reads_it() {
    let policy = |policy: Policy| policy.key(JsonField::new("user"));
    let long = format!(r#"{{"user":"abc","padding":"{}"}}"#, "x".repeat(100));
    let plain = r#"{"user":"abc"}"#;

    // Each row: the request, the value that a struct reads, and that of a `Value`.
    let rows = [
        (post(JSON, plain), Some("abc"), Some("abc")),
        (
            post(JSON, r#"{"us\u0065r":"\u0061bc"}"#),
            Some("abc"),
            Some("abc"),
        ),
        (
            post(JSON, r#" { "x": [{"user":1}], "user" : "abc" } "#),
            Some("abc"),
            Some("abc"),
        ),
        (
            post("application/vnd.api+json; charset=utf-8", plain),
            Some("abc"),
            Some("abc"),
        ),
        (post("APPLICATION/JSON", plain), Some("abc"), Some("abc")),
        (
            post(JSON, plain).with("content-type", FORM),
            Some("abc"),
            Some("abc"),
        ),
        (post(JSON, &long), Some("abc"), Some("abc")),
        (
            post(JSON, r#"{"user":"zzz","user":"abc"}"#),
            None,
            Some("abc"),
        ),
        (
            post(JSON, r#"{"user":null,"user":"abc"}"#),
            None,
            Some("abc"),
        ),
        (
            post(JSON, r#"{"user":{},"us\u0065r":"abc"}"#),
            None,
            Some("abc"),
        ),
        // A struct is read from a list as well.
        (post(JSON, r#"["abc"]"#), Some("abc"), None),
        (post(JSON, r#"["\u0061bc"]"#), Some("abc"), None),
        (post(JSON, format!("\u{feff}{plain}")), None, None),
        (post(JSON, format!("{plain}{plain}")), None, None),
        (post("text/json", plain), None, None),
    ];
    let of_struct: Vec<_> = rows.iter().map(|row| (row.0.clone(), row.1)).collect();
    is_one_budget(by_json, policy, &of_struct).await;
    let of_value: Vec<_> = rows.iter().map(|row| (row.0.clone(), row.2)).collect();
    is_one_budget(by_json_value, policy, &of_value).await;
}

#[tokio::test]
async fn a_number_in_json_is_one_budget_however_its_readers_take_it() {
    #[derive(Deserialize)]
    struct Account {
        id: f64,
    }

    #[derive(Deserialize)]
    struct Of {
        account: Account,
    }

    let by_number = || {
        Router::new().route(
            "/",
            on_post(
                |State(shared): State<Shared>, Json(body): Json<Of>| async move {
                    shared.note(Some(body.account.id.to_string()));
                },
            ),
        )
    };
    let of = |id: &str| post(JSON, format!(r#"{{"account":{{"id":{id}}}}}"#));
    let rows = [
        (of("7"), Some("7")),
        (of("7.0"), Some("7")),
        (of("70e-1"), Some("7")),
        (of("0.7e1"), Some("7")),
        (of("7.5"), Some("7.5")),
        (of("75e-1"), Some("7.5")),
        (of("0"), Some("0")),
        (of("0e9"), Some("0")),
        (of("36893488147419103232"), Some("36893488147419103000")),
        (of("36893488147419103233"), Some("36893488147419103000")),
        (post(JSON, r#"{"account":[7]}"#), Some("7")),
        (post(JSON, "[[7]]"), Some("7")),
        (of("\"7\""), None),
    ];
    is_one_budget(
        by_number,
        |policy| policy.key(JsonField::new("account.id")),
        &rows,
    )
    .await;
}
