//! Limits that stand in the contract of a gRPC service.

#![cfg(feature = "proto")]

use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use crate::common::tokio_clock::in_tokio_time;
use axum::extract::ConnectInfo;
use http::{Request, Response};
use tollgate::proto::{Contract, INCLUDE, ProtoError};
use tollgate::{Limiter, Messages, Policy, Quota, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

/// The contract of a service with these options, as a build would write it.
fn contract(service_options: &str, place_options: &str) -> Contract {
    contract_of_streams(service_options, place_options, "")
}

fn contract_of_streams(
    service_options: &str,
    place_options: &str,
    upload_options: &str,
) -> Contract {
    let folder = tempfile::tempdir().unwrap();
    let shop = folder.path().join("shop.proto");
    let text = format!(
        r#"
        syntax = "proto3";
        package shop.v1;
        import "tollgate/v1/limit.proto";
        message Order {{}}
        service Orders {{
          {service_options}
          rpc Place(Order) returns (Order) {{ {place_options} }}
          rpc List(Order) returns (Order);
          rpc Upload(stream Order) returns (Order) {{ {upload_options} }}
        }}
        "#
    );
    fs::write(&shop, text).unwrap();
    let includes = [folder.path(), INCLUDE.as_ref()];
    let mut compiler = protox::Compiler::new(includes).unwrap();
    compiler.include_imports(true).open_file(&shop).unwrap();
    Contract::read(&compiler.encode_file_descriptor_set()).unwrap()
}

fn limit(fields: &str) -> String {
    format!("option (tollgate.v1.limit) = {{ {fields} }};")
}

fn message_limit(fields: &str) -> String {
    format!("option (tollgate.v1.message_limit) = {{ {fields} }};")
}

#[tokio::test]
async fn the_options_of_methods_and_services_are_policies() {
    let contract = contract(
        r#"option (tollgate.v1.service_limit) = { quota: "100/s" name: "orders" };"#,
        &limit(r#"quota: "10/h" burst: 4 cost: 2"#),
    );

    let policies = contract.policies().unwrap();

    let names: Vec<_> = policies.iter().map(Policy::name).collect();
    assert_eq!(names, ["orders", "shop.v1.orders/place"]);
    let limiter = Limiter::builder().policies(policies).build().unwrap();
    contract.check(&limiter).unwrap();
    // A burst of 4 at a cost of 2.
    for allowed in [true, true, false] {
        let checked = limiter.check("shop.v1.orders/place", "alice").await;
        assert_eq!(checked.unwrap().is_allowed(), allowed);
    }
}

#[tokio::test]
async fn an_option_takes_the_quotas_that_a_policy_takes() {
    for quotas in [
        "10/h; 5/s",
        "10/h burst 3, 5 per second",
        "10/h",
        "30/min; 5 at once",
        "5 at once",
        "10/min interval-refill burst 30",
        "100/s burst 1 warm up 10s",
        "none",
    ]
    .into_iter()
    .chain(cfg!(feature = "calendar").then_some("1000/month in Europe/Berlin"))
    {
        let contract = contract("", &limit(&format!(r#"quota: "{quotas}" name: "place""#)));
        let expected = Policy::new("place", quotas).grpc("shop.v1.Orders/Place");
        let policies = contract.policies().unwrap();
        assert_eq!(format!("{policies:#?}"), format!("{:#?}", [expected]));
    }
    // The error names a text that would work, and the place of a burst.
    for (fields, expected) in [
        (r#"quota: "10/h 5/s""#, "quota \"10/h 5/s\": "),
        (r#"quota: "10/h 5/s""#, "did you mean \"10/h; 5/s\""),
        (r#"quota: "0""#, "\"none\" refuses every request"),
        (r#"quota: "10/""#, "did you mean \"10/s\""),
        (r#"quota: "10/1.5h" burst: 2"#, "90min for 1.5h"),
        (r#"quota: "unlimited""#, "leave the policy out"),
        (
            r#"quota: "10/h; 5/s" burst: 9"#,
            "`burst` belongs to a single quota, but `quota` is \"10/h; 5/s\"",
        ),
        (r#"quota: "none" burst: 9"#, "`quota` is \"none\""),
        (r#"quota: "5 at once" burst: 9"#, "has no period"),
    ] {
        let error = contract("", &limit(fields))
            .policies()
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("shop.v1.Orders/Place: "), "{error}");
        assert!(error.contains(expected), "{fields}: {error}");
    }
}

#[tokio::test]
async fn an_option_limits_how_many_calls_run_at_once_and_not_how_many_messages() {
    let upload = limit(r#"quota: "30/min; 2 at once""#);
    let contract = contract_of_streams("", "", &upload);
    let limiter = Limiter::builder()
        .policies(contract.policies().unwrap())
        .build()
        .unwrap();
    let upload = || limiter.check("shop.v1.orders/upload", "alice");
    let held = [upload().await.unwrap(), upload().await.unwrap()];
    assert!(held.iter().all(tollgate::CheckOutcome::is_allowed));
    let refused = upload().await.unwrap();
    assert!(!refused.is_allowed() && refused.retry_after().is_none());
    drop(held);
    assert!(upload().await.unwrap().is_allowed());

    let messages = message_limit(r#"quota: "2 at once" of: RECEIVED"#);
    let policies = contract_of_streams("", "", &messages).policies().unwrap();
    let refused = Limiter::builder().policies(policies).build().unwrap_err();
    let says = "policy \"shop.v1.orders/upload/messages\": charges messages, which cannot hold";
    assert!(refused.to_string().starts_with(says), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn an_option_lets_calls_wait_and_not_messages() {
    let place = limit(r#"quota: "10/s burst 1 wait 1s""#);
    let limiter = Limiter::builder()
        .policies(contract("", &place).policies().unwrap())
        .backend(in_tokio_time())
        .build()
        .unwrap();
    for turn in [0, 100, 100] {
        let acquired = limiter.acquire("shop.v1.orders/place", "alice").await;
        assert_eq!(acquired.unwrap().waited(), Duration::from_millis(turn));
    }

    let messages = message_limit(r#"quota: "10/s wait 1s" of: RECEIVED"#);
    let policies = contract_of_streams("", "", &messages).policies().unwrap();
    let refused = Limiter::builder().policies(policies).build().unwrap_err();
    let says = "policy \"shop.v1.orders/upload/messages\": charges messages, which cannot wait";
    assert!(refused.to_string().starts_with(says), "{refused}");
}

#[tokio::test]
async fn an_option_bans_callers_who_are_denied_too_often() {
    let ban = r#"quota: "1/h" ban: "2 in 10min for 1day""#;
    let limiter = Limiter::builder().policies(contract("", &limit(ban)).policies().unwrap());
    let limiter = limiter.build().unwrap();
    let name = "shop.v1.orders/place";

    for is_banned in [false, false, true] {
        let _checked = limiter.check(name, "mallory").await.unwrap();
        let banned = limiter.banned(name, "mallory").await.unwrap();
        assert_eq!(banned.is_some(), is_banned);
    }
    let checked = limiter.check(name, "mallory").await.unwrap();
    assert!(checked.retry_after() > Some(Duration::from_secs(86_000)));
}

async fn place(_: Request<String>) -> Result<Response<String>, Infallible> {
    Ok(Response::new(String::new()))
}

#[tokio::test]
async fn an_option_charges_calls_with_the_same_id_once() {
    let once = r#"quota: "2/h" once_by: "idempotency-key""#;
    let limiter = Limiter::builder().policies(contract("", &limit(once)).policies().unwrap());
    let limiter = limiter.build().unwrap();
    let service = RateLimitLayer::new(limiter).layer(service_fn(place));
    let called = async |id: &'static str| {
        let call = Request::post("/shop.v1.Orders/Place")
            .header("content-type", "application/grpc")
            .header("idempotency-key", id)
            .extension(ConnectInfo(SocketAddr::from(([192, 0, 2, 1], 1))));
        let call = call.body(String::new()).unwrap();
        let answer = service.clone().oneshot(call).await.unwrap();
        !answer.headers().contains_key("grpc-status")
    };

    for (id, passes) in [
        ("a", true),
        ("a", true),
        ("b", true),
        ("c", false),
        ("b", true),
    ] {
        assert_eq!(called(id).await, passes, "{id}");
    }
}

#[test]
fn a_contract_without_limits_has_no_policies() {
    assert!(contract("", "").policies().unwrap().is_empty());
}

#[test]
fn messages_have_policies_of_their_own_beside_that_of_the_calls() {
    let upload = [
        limit(r#"quota: "30/min""#),
        message_limit(r#"quota: "20/s" burst: 40 of: RECEIVED"#),
        message_limit(r#"quota: "9/h" of: SENT by_bytes: true end_stream: true name: "out""#),
        message_limit(r#"quota: "9/h" of: BOTH name: "all""#),
    ];
    let policies = contract_of_streams("", "", &upload.concat())
        .policies()
        .unwrap();

    let of_code = |name: &str, quota: Quota| Policy::new(name, quota).grpc("shop.v1.Orders/Upload");
    let sent = Messages::sent().by_bytes().end_stream();
    let expected = [
        of_code("shop.v1.orders/upload", Quota::per_minute(30)),
        of_code(
            "shop.v1.orders/upload/messages",
            Quota::per_second(20).burst(40),
        )
        .per_message(Messages::received()),
        of_code("out", Quota::per_hour(9)).per_message(sent),
        of_code("all", Quota::per_hour(9)).per_message(Messages::both()),
    ];
    assert_eq!(format!("{policies:#?}"), format!("{expected:#?}"));
}

#[test]
fn a_wrong_option_for_messages_names_its_method() {
    let cases = [
        (r#"quota: "20/s""#, "the direction of the messages"),
        (r#"quota: "many" of: SENT"#, "\"many\""),
        (r#"of: SENT"#, "the limit is wrong"),
        (
            r#"quota: "1/s" of: SENT name: "Not A Name""#,
            "invalid name",
        ),
    ];
    for (fields, expected) in cases {
        let contract = contract_of_streams("", "", &message_limit(fields));
        let error = contract.policies().unwrap_err().to_string();
        assert!(error.starts_with("shop.v1.Orders/Upload: "), "{error}");
        assert!(error.contains(expected), "{fields}: {error}");
    }

    // Two that were not told apart.
    let twice = message_limit(r#"quota: "1/s" of: SENT"#).repeat(2);
    let policies = contract_of_streams("", "", &twice).policies().unwrap();
    let error = Limiter::builder().policies(policies).build().unwrap_err();
    let name = "shop.v1.orders/upload/messages";
    assert!(error.to_string().contains(name), "{error}");
}

#[cfg(feature = "tonic")]
#[tokio::test]
async fn what_the_contract_says_of_messages_is_enforced_by_a_server() {
    use tollgate::MessageLimitLayer;
    use tollgate_testkit::shop::{Order, OrdersClient, OrdersServer, Shop};

    let options = message_limit(r#"quota: "3/h" of: RECEIVED end_stream: true"#);
    let policies = contract_of_streams("", "", &options).policies().unwrap();
    let limiter = Limiter::builder().policies(policies).build().unwrap();
    let server = tonic::transport::Server::builder()
        .layer(MessageLimitLayer::new(limiter))
        .add_service(OrdersServer::new(Shop::default()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    tokio::spawn(server.serve_with_incoming(incoming));
    let endpoint = tonic::transport::Endpoint::new(url).unwrap();
    let mut client = OrdersClient::new(endpoint.connect().await.unwrap());
    let mut upload = async |count| {
        let orders = tokio_stream::iter(vec![Order::default(); count]);
        client.upload(orders).await
    };

    assert_eq!(upload(3).await.unwrap().into_inner().count, 3);
    let denied = upload(1).await.unwrap_err();
    assert_eq!(denied.code(), tonic::Code::ResourceExhausted);
}

#[test]
fn a_wrong_option_names_its_method() {
    let cases = [
        ("", "shop.v1.Orders/Place: the limit is wrong: "),
        (r#"quota: "ten""#, "\"ten\""),
        (r#"quota: "0/s""#, "shop.v1.Orders/Place: "),
        (
            r#"quota: "1/s fixed-window" burst: 9"#,
            "shop.v1.Orders/Place: ",
        ),
        (r#"quota: "1/s" name: "Not A Name""#, "invalid name"),
        (
            r#"quota: "1/s" ban: "0 in 1min for 1h""#,
            "ban \"0 in 1min for 1h\": a ban after 0 strikes: a ban counts 1 to 64",
        ),
        (
            r#"quota: "1/s" once_by: "idempotency key""#,
            "once_by: \"idempotency key\" is not the name of metadata",
        ),
    ];
    for (fields, expected) in cases {
        let error = contract("", &limit(fields)).policies().unwrap_err();
        assert!(matches!(error, ProtoError::Option { .. }), "{error:?}");
        assert!(error.to_string().contains(expected), "{fields}: {error}");
    }
}

#[test]
fn a_policy_for_a_method_that_does_not_exist_is_found() {
    let contract = contract("", "");
    let check = |methods: &str| {
        let policy = Policy::new("orders", Quota::per_second(1)).grpc(methods);
        contract.check(&Limiter::from(policy))
    };

    for methods in ["shop.v1.Orders/Place", "shop.v1.Orders/*", "shop.*"] {
        check(methods).unwrap();
    }
    for methods in ["shop.v1.Orders/Buy", "shop.v1.Order/*", "shop.v2.*"] {
        let error = check(methods).unwrap_err().to_string();
        assert!(
            error.starts_with("policy \"orders\": there is no method"),
            "{error}"
        );
    }
}

#[test]
fn what_is_no_descriptor_set_is_refused() {
    let error = Contract::read(b"no descriptors").unwrap_err();
    assert!(matches!(error, ProtoError::Descriptors(_)), "{error:?}");
}
