//! Identities that are absent or ambiguous.

use axum::Router;
use tollgate::key::{
    BasicUser, BearerToken, FormField, Header, JsonField, KeyMissing, from_async_fn, from_fn,
};
use tollgate::{BufferBodyLayer, Key, Limiter, OnMissing, Policy, RateLimitLayer, key};
use tower::ServiceExt;

use crate::common::at_a_standstill;
use crate::readers::{FORM, JSON, Sent, authorized, cookies, get, one_an_hour, padded, post};

async fn statuses(policy: Policy, layer: Option<BufferBodyLayer>, sent: &[Sent]) -> Vec<u16> {
    let limiter = Limiter::builder().policy(policy);
    let limiter = limiter.backend(at_a_standstill().0).build().unwrap();
    let app = Router::new()
        .fallback(|| async {})
        .layer(RateLimitLayer::new(limiter));
    let app = match layer {
        Some(layer) => app.layer(layer),
        None => app,
    };
    let mut statuses = Vec::new();
    for sent in sent {
        let response = app.clone().oneshot(sent.request()).await.unwrap();
        statuses.push(response.status().as_u16());
    }
    statuses
}

#[tokio::test]
async fn what_is_absent_passes_and_what_is_ambiguous_shares_one_budget() {
    let cases: &[(fn(Policy) -> Policy, Sent, &[Sent])] = &[
        (
            |policy| policy.key(key::Cookie::new("sid")),
            cookies("other=1"),
            &[cookies("sid=a; sid=b"), cookies("sid=b; sid=c")],
        ),
        (
            |policy| policy.key(key::Query::new("k")),
            get("/?x=1"),
            &[get("/?k=b&k=a"), get("/?k=c&k")],
        ),
        (
            |policy| policy.key(FormField::new("user")),
            post(FORM, "x=1"),
            &[
                post(FORM, "user=a&user=b"),
                post(FORM, padded("user=a")),
                post("text/plain", "user=a"),
            ],
        ),
        (
            |policy| policy.key(JsonField::new("user")),
            post(JSON, r#"{"x":1}"#),
            &[
                post(JSON, r#"{"user":"a","user":"b"}"#),
                post(JSON, r#"{"user":true}"#),
                post(JSON, r#"{"user":"a""#),
                post(JSON, format!("[{}]", "1,".repeat(100))),
                post("text/plain", "{}"),
            ],
        ),
        (
            |policy| policy.key(BearerToken),
            authorized("Digest abc"),
            &[authorized("Bearer a").with("authorization", "Bearer b")],
        ),
        (
            |policy| policy.key(BasicUser),
            authorized("Bearer abc"),
            &[authorized("Basic YWJj"), authorized("Basic ?")],
        ),
        (
            |policy| policy.key((Header::new("x-tenant"), key::Cookie::new("sid"))),
            get("/"),
            &[cookies("sid=a; sid=b")],
        ),
        (
            |policy| {
                policy.key(from_fn(|request| match request.uri().query() {
                    None => Ok(Key::from("a")),
                    Some("x") => Err(KeyMissing::new("session")),
                    Some(_) => Err(KeyMissing::new("session").ambiguous("it has two owners")),
                }))
            },
            get("/?x"),
            &[get("/?y"), get("/?z")],
        ),
        (
            |policy| {
                policy.key_async(from_async_fn(|request| {
                    let query = request.uri().query().map(str::to_owned);
                    async move {
                        match query.as_deref() {
                            None => Ok(Key::from("a")),
                            Some("x") => Err(KeyMissing::new("session")),
                            Some(_) => {
                                Err(KeyMissing::new("session").ambiguous("it has two owners"))
                            }
                        }
                    }
                }))
            },
            get("/?x"),
            &[get("/?y"), get("/?z")],
        ),
    ];
    for (policy, absent, ambiguous) in cases {
        let buffer = || Some(BufferBodyLayer::new(100));
        let absents = vec![absent.clone(); 3];
        let pass = policy(one_an_hour(OnMissing::Pass));
        assert_eq!(
            statuses(pass, buffer(), &absents).await,
            [200; 3],
            "{absent:?}"
        );

        // One of them all is admitted, and none spends what is left of it by being absent.
        let pass = policy(one_an_hour(OnMissing::Pass));
        let sent = absents.into_iter().chain(ambiguous.iter().cloned());
        let sent: Vec<_> = sent.chain(ambiguous.iter().cloned()).collect();
        let found = statuses(pass, buffer(), &sent).await;
        let mut expected = vec![429; sent.len()];
        expected[..4].fill(200);
        assert_eq!(found, expected, "{ambiguous:?}");

        let deny = policy(one_an_hour(OnMissing::Deny));
        let found = statuses(deny, buffer(), ambiguous).await;
        assert_eq!(found, vec![403; ambiguous.len()], "{ambiguous:?}");
    }
}

#[tokio::test]
async fn a_body_that_nothing_has_read_is_ambiguous_and_one_that_is_empty_is_absent() {
    let by_field = || one_an_hour(OnMissing::Pass).key(FormField::new("user"));
    let empty = vec![post("text/plain", ""); 3];
    let found = statuses(by_field(), Some(BufferBodyLayer::new(100)), &empty).await;
    assert_eq!(found, [200; 3]);

    // Without a layer that reads bodies the identity is unknown.
    let found = statuses(
        by_field(),
        None,
        &[post(FORM, "user=a"), post(FORM, "user=b")],
    )
    .await;
    assert_eq!(found, [200, 429]);
    // A form in the query is not all that a handler may read.
    let gets = ["a", "b"].map(|user| Sent {
        body: b"user=c".to_vec(),
        ..get(&format!("/?user={user}"))
    });
    let found = statuses(by_field(), Some(BufferBodyLayer::new(100)), &gets).await;
    assert_eq!(found, [200, 429]);
    // `Form` sees nothing of these bodies, and so they name nobody.
    let gets = ["a", "b", "c"].map(|user| Sent {
        body: format!("user={user}").into_bytes(),
        ..get("/")
    });
    let found = statuses(by_field(), Some(BufferBodyLayer::new(100)), &gets).await;
    assert_eq!(found, [200, 429, 429]);
    let by_field = one_an_hour(OnMissing::Pass).key(JsonField::new("user"));
    let found = statuses(by_field, None, &vec![post(JSON, r#"{"user":"a"}"#); 2]).await;
    assert_eq!(found, [200, 429]);
}

#[test]
fn what_is_ambiguous_says_why_and_names_no_value() {
    let request = cookies("sid=secret; sid=other").request();
    let view = tollgate::RequestView::of(&request);
    let missing = key::KeyExtractor::extract(&key::Cookie::new("sid"), &view).unwrap_err();

    assert!(missing.is_ambiguous());
    let text = format!("{missing} {missing:?}");
    assert!(
        text.starts_with("an ambiguous cookie sid in the request: "),
        "{text}"
    );
    assert!(!text.contains("secret"), "{text}");

    let absent = KeyMissing::new("session");
    assert!(!absent.is_ambiguous());
    assert_eq!(absent.to_string(), "no session in the request");

    for key in [format!("{BearerToken:?}"), format!("{BasicUser:?}")] {
        assert!(!key.contains("secret"), "{key}");
    }
}
