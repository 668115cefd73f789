//! Requests that tonic serves although they are not calls by the letter of gRPC: by any method of HTTP, of any content
//! type.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tollgate::key::{Global, Header, KeyList};
use tollgate::{Block, MessageLimitLayer, Messages, OnMissing, Policy, Quota, Quotas, Tiers};
use tollgate_testkit::shop::{OrdersServer, Shop};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic_web::GrpcWebLayer;

use crate::grpc::serving::incoming;

/// An hour's budget.
const ALLOWED: usize = 12;
/// Messages in a request.
const SENT: usize = 60;

fn policy(messages: Messages) -> Policy {
    Policy::new("messages", Quota::per_hour(ALLOWED as u64))
        .key(Global)
        .per_message(messages.end_stream())
}

/// Messages without a word in them.
fn messages() -> Vec<u8> {
    vec![0; 5 * SENT]
}

/// An order of so many receipts.
fn watch() -> Vec<u8> {
    vec![0, 0, 0, 0, 2, 8, u8::try_from(SENT).unwrap()]
}

/// Requests that tonic might serve: methods and content types, with none among them.
fn requests() -> impl Iterator<Item = (Method, Option<&'static str>)> {
    let methods = [
        Method::POST,
        Method::PUT,
        Method::GET,
        Method::OPTIONS,
        Method::DELETE,
        Method::from_bytes(b"BREW").unwrap(),
    ];
    let content_types = [
        None,
        Some("application/grpc"),
        Some("application/GRPC"),
        Some("application/grpcx"),
        Some("application/grpc+json"),
        Some("application/json"),
        Some("text/html"),
    ];
    methods
        .into_iter()
        .flat_map(move |method| content_types.map(|content_type| (method.clone(), content_type)))
}

/// A server of the shop, in a router that has pages as well.
async fn served(layer: MessageLimitLayer) -> (Shop, String) {
    let shop = Shop::default();
    let router = Routes::new(OrdersServer::new(shop.clone()))
        .into_axum_router()
        .route("/echo", axum::routing::any(async |body: Bytes| body));
    let mut server = Server::builder().layer(layer);
    let (address, incoming) = incoming().await;
    tokio::spawn(
        server
            .add_routes(Routes::from(router))
            .serve_with_incoming(incoming),
    );
    (shop, format!("http://{address}"))
}

/// Sends a body in pieces that cut messages, with the headers of a preflight.
async fn send(
    uri: String,
    method: Method,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Response<Incoming> {
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http();
    let pieces: Vec<_> = body.chunks(7).map(Bytes::copy_from_slice).collect();
    let frames = pieces
        .into_iter()
        .map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
    let mut request = Request::builder()
        .method(method)
        .uri(uri)
        .header("origin", "https://example.com")
        .header("access-control-request-method", "POST");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(StreamBody::new(tokio_stream::iter(frames)));
    client.request(request.unwrap()).await.unwrap()
}

/// The messages of a response, and its headers and trailers together.
async fn received(response: Response<Incoming>) -> (usize, HeaderMap) {
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap();
    let mut headers = head.headers;
    headers.extend(body.trailers().cloned().unwrap_or_default());
    let mut rest = &body.to_bytes()[..];
    let mut count = 0;
    while let [_, length @ ..] = rest {
        let length = u32::from_be_bytes(length[..4].try_into().unwrap());
        rest = &rest[5 + length as usize..];
        count += 1;
    }
    (count, headers)
}

#[tokio::test]
async fn whatever_tonic_takes_for_a_call_has_its_messages_charged() {
    for (policy, way) in [
        (policy as fn(Messages) -> Policy, "everywhere"),
        (
            |messages| policy(messages).grpc("shop.v1.Orders/*"),
            "by name",
        ),
    ] {
        for (method, content_type) in requests() {
            let case = format!("{way}: {method} {content_type:?}");
            let headers = content_type.map(|value| ("content-type", value));
            let headers: Vec<_> = headers.into_iter().collect();

            let (shop, uri) = served(MessageLimitLayer::new(policy(Messages::received()))).await;
            let uri = format!("{uri}/shop.v1.Orders/Upload");
            let answer = send(uri, method.clone(), &headers, messages()).await;
            let (_, answer) = received(answer).await;
            assert_eq!(shop.received(), ALLOWED, "{case}");
            assert_eq!(answer["grpc-status"], "8", "{case}");

            let (_, uri) = served(MessageLimitLayer::new(policy(Messages::sent()))).await;
            let uri = format!("{uri}/shop.v1.Orders/Watch");
            let answer = send(uri, method, &headers, watch()).await;
            let (count, answer) = received(answer).await;
            assert_eq!(count, ALLOWED, "{case}");
            assert_eq!(answer["grpc-status"], "8", "{case}");
        }
    }
}

#[tokio::test]
async fn a_caller_that_must_say_who_it_is_sends_and_gets_no_message_without_that() {
    let who = |messages| {
        let quota = Quota::per_hour(ALLOWED as u64);
        Policy::new("messages", quota)
            .key(Header::new("x-api-key"))
            .on_missing(OnMissing::Deny)
            .per_message(messages)
    };
    for (policy, named) in [
        (who(Messages::both()), false),
        (who(Messages::both()).grpc("shop.v1.Orders/*"), true),
    ] {
        let (shop, uri) = served(MessageLimitLayer::new(policy)).await;
        for (method, content_type) in requests() {
            let case = format!("{named} {method} {content_type:?}");
            let headers = content_type.map(|value| ("content-type", value));
            let headers: Vec<_> = headers.into_iter().collect();
            for (name, body) in [("Upload", messages()), ("Watch", watch()), ("Chat", vec![])] {
                let uri = format!("{uri}/shop.v1.Orders/{name}");
                let answer = send(uri, method.clone(), &headers, body).await;
                let status = answer.status();
                let answer = match status {
                    StatusCode::OK => received(answer).await.1,
                    _ => answer.into_parts().0.headers,
                };
                // Callers that nothing shows to speak gRPC may be told in HTTP.
                let told = answer
                    .get("grpc-status")
                    .map(|status| status.to_str().unwrap());
                let refused = told == Some("7") || status == StatusCode::FORBIDDEN;
                assert!(refused, "{case} {name}: {status} {answer:?}");
            }
            assert_eq!((shop.calls(), shop.received()), (0, 0), "{case}");
        }

        // A page beside the methods has nothing to do with it.
        for (content_type, body) in [
            ("application/json", &br#"{"a": 1}"#[..]),
            ("text/plain", b"60 messages"),
            ("text/plain", b""),
        ] {
            let headers = [("content-type", content_type)];
            let answer = send(format!("{uri}/echo"), Method::PUT, &headers, body.into()).await;
            assert_eq!(answer.status(), 200, "{named} {content_type}");
            let echoed = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(echoed, body);
        }
    }
}

#[tokio::test]
async fn no_method_runs_for_a_caller_that_a_policy_without_a_path_refuses() {
    let by_key = || {
        Policy::new("messages", Quota::per_hour(ALLOWED as u64))
            .key(Header::new("x-api-key"))
            .per_message(Messages::received())
    };
    let forbidden = KeyList::from_iter(["evil"]);
    let none = Tiers::by_key([("evil", "none")]).tier("none", Quotas::none());
    for (way, policy) in [
        (
            "block list",
            by_key().block_keys(forbidden, Block::Forbidden),
        ),
        ("tier", by_key().tiers(none)),
    ] {
        let (shop, uri) = served(MessageLimitLayer::new(policy)).await;
        for (method, content_type) in requests() {
            for name in ["Place", "Upload", "Watch", "Chat"] {
                let mut headers = vec![("x-api-key", "evil")];
                headers.extend(content_type.map(|value| ("content-type", value)));
                for body in [vec![], messages()] {
                    let uri = format!("{uri}/shop.v1.Orders/{name}");
                    let answer = send(uri, method.clone(), &headers, body).await;
                    drop(answer.into_body().collect().await);
                }
            }
        }
        assert_eq!((shop.calls(), shop.received()), (0, 0), "{way}");
    }
}

#[tokio::test]
async fn requests_that_are_no_calls_pass_as_they_are_under_a_policy_that_names_no_path() {
    let policy = policy(Messages::both().by_bytes());
    let (_, uri) = served(MessageLimitLayer::new(policy)).await;
    for body in [
        &br#"{"a": 1}"#[..],
        b"a=1&b=2",
        b"",
        b"\x1f\x8b\x08\0\0\0\0\0",
    ] {
        for _ in 0..ALLOWED {
            let headers = [("content-type", "application/json")];
            let answer = send(format!("{uri}/echo"), Method::POST, &headers, body.into()).await;
            assert_eq!(answer.status(), 200);
            let echoed = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(echoed, body);
        }
    }
}

#[tokio::test]
async fn calls_whose_messages_cannot_be_seen_are_refused() {
    let limited = || MessageLimitLayer::new(policy(Messages::received()));
    let (shop, uri) = served(limited()).await;
    for headers in [
        ("content-type", "application/grpc-web"),
        ("content-type", "application/gRPC-Web+json"),
        ("content-type", "application/grpc-web-text"),
        ("content-type", "application/grpc-web-textual"),
    ]
    .map(|header| [header, ("x", "y")])
    .into_iter()
    .chain([[
        ("content-type", "application/grpc"),
        ("content-encoding", "gzip"),
    ]]) {
        for method in [Method::POST, Method::PUT] {
            let uri = format!("{uri}/shop.v1.Orders/Upload");
            let answer = send(uri, method, &headers, messages()).await;
            assert_eq!(received(answer).await.1["grpc-status"], "13", "{headers:?}");
            assert_eq!(shop.received(), 0, "{headers:?}");
        }
    }
}

#[tokio::test]
async fn messages_in_base64_are_charged_within_the_layer_that_decodes_them() {
    let shop = Shop::default();
    let mut server = Server::builder()
        .layer(GrpcWebLayer::new())
        .layer(MessageLimitLayer::new(policy(Messages::received())));
    let (address, incoming) = incoming().await;
    let served = server.add_service(OrdersServer::new(shop.clone()));
    tokio::spawn(served.serve_with_incoming(incoming));

    let uri = format!("http://{address}/shop.v1.Orders/Upload");
    let headers = [("content-type", "application/grpc-web-text")];
    let zeros = vec![b'A'; 5 * SENT / 3 * 4];
    let answer = send(uri.clone(), Method::POST, &headers, zeros).await;
    assert_eq!(answer.headers()["grpc-status"], "8");
    assert_eq!(shop.received(), ALLOWED);

    // Tonic, too, does not take the content types that this layer leaves alone.
    let headers = [("content-type", "application/grpc-web-TEXT")];
    drop(send(uri, Method::POST, &headers, messages()).await);
    assert_eq!(shop.received(), ALLOWED);
}
