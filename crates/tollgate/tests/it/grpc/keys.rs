//! The keys of calls.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use http::Request;
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tollgate::key::{Extension, Metadata};
use tollgate::{OnMissing, PeerAddr, Policy, Quota, RateLimitLayer};
use tollgate_testkit::shop::{Order, OrdersClient, OrdersServer, Shop};
use tonic::metadata::MetadataValue;
use tonic::service::InterceptorLayer;
use tonic::transport::{Channel, Endpoint, Server, Uri};
use tonic::{Code, Status};
use tower::ServiceBuilder;

use crate::grpc::serving::{Served, client, incoming};

async fn place(client: &mut OrdersClient<Channel>, order: tonic::Request<Order>) -> Code {
    let receipt = client.place(order).await;
    receipt.map_or_else(|status| status.code(), |_| Code::Ok)
}

#[tokio::test]
async fn binary_metadata_tells_callers_apart_by_what_it_stands_for() {
    let policy = Policy::new("per-tenant", Quota::per_hour(1))
        .key(Metadata::new("tenant-bin"))
        .on_missing(OnMissing::Deny);
    let served = Served::behind(RateLimitLayer::new(policy)).await;
    let mut client = served.client().await;
    let order = |tenant: &[u8]| {
        let mut order = tonic::Request::new(Order::default());
        let value = MetadataValue::from_bytes(tenant);
        order.metadata_mut().insert_bin("tenant-bin", value);
        order
    };

    let unnamed = tonic::Request::new(Order::default());
    assert_eq!(place(&mut client, unnamed).await, Code::PermissionDenied);
    assert_eq!(place(&mut client, order(b"\xff\x00")).await, Code::Ok);
    assert_eq!(place(&mut client, order(b"\xff\x01")).await, Code::Ok);
    assert_eq!(
        place(&mut client, order(b"\xff\x00")).await,
        Code::ResourceExhausted
    );
}

#[tokio::test]
async fn metadata_is_one_budget_however_it_is_written() {
    /// The value that tonic reads in a call; ASCII metadata without the blanks that HTTP/2 keeps.
    fn read(order: &Request<tonic::body::Body>) -> Option<Vec<u8>> {
        let metadata = tonic::metadata::MetadataMap::from_headers(order.headers().clone());
        match metadata.get_bin("tenant-bin") {
            Some(tenant) => tenant.to_bytes().ok().map(|tenant| tenant.to_vec()),
            None => metadata
                .get("tenant")?
                .to_str()
                .ok()
                .map(|tenant| tenant.trim().into()),
        }
    }

    let cases: [(&'static str, &[&[&str]]); 2] = [
        (
            "tenant-bin",
            &[
                &["YWJj"],
                &["YWJjZA=="],
                &["YWJjZA"],
                &["YWJjZA==", "eno="],
                &["YWJj", "eno="],
                &["", "YWJj"],
                &["YWJj,eno="],
                &["?", "YWJj"],
            ],
        ),
        (
            "tenant",
            &[&["abc"], &[" abc"], &["abc "], &["abc", "zz"], &["ABC"]],
        ),
    ];
    for (name, values) in cases {
        let seen = Arc::new(std::sync::Mutex::new(std::collections::BTreeMap::new()));
        let noted = Arc::clone(&seen);
        let policy = Policy::new("per-tenant", Quota::per_hour(1))
            .key(Metadata::new(name))
            .on_missing(OnMissing::Deny);
        let layers = ServiceBuilder::new()
            .layer(RateLimitLayer::new(policy))
            .map_request(move |order: Request<tonic::body::Body>| {
                if let Some(tenant) = read(&order) {
                    *noted.lock().unwrap().entry(tenant).or_insert(0) += 1;
                }
                order
            });
        let server = Server::builder()
            .layer(layers)
            .add_service(OrdersServer::new(Shop::default()));
        let (address, incoming) = incoming().await;
        tokio::spawn(server.serve_with_incoming(incoming));
        let mut client = client(address).await;

        for lines in [values, values].concat() {
            let mut headers = http::HeaderMap::new();
            for line in lines {
                headers.append(name, line.parse().unwrap());
            }
            let mut order = tonic::Request::new(Order::default());
            *order.metadata_mut() = tonic::metadata::MetadataMap::from_headers(headers);
            place(&mut client, order).await;
        }

        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert!(seen.values().all(|count| *count == 1), "{seen:?}");
    }
}

/// The caller that the interceptor found.
#[derive(Clone)]
struct User(String);

fn authenticate(mut request: tonic::Request<()>) -> Result<tonic::Request<()>, Status> {
    let token = request.metadata().get("authorization");
    let token = token.and_then(|token| token.to_str().ok());
    let user = token.and_then(|token| token.strip_prefix("Bearer "));
    let user = User(user.ok_or_else(|| Status::unauthenticated(""))?.to_owned());
    request.extensions_mut().insert(user);
    Ok(request)
}

#[tokio::test]
async fn what_an_interceptor_further_out_found_can_be_the_identity() {
    let policy = Policy::new("per-user", Quota::per_hour(1))
        .key(Extension::new(|user: &User| user.0.clone()))
        .on_missing(OnMissing::Deny);
    let layers = ServiceBuilder::new()
        .layer(InterceptorLayer::new(authenticate))
        .layer(RateLimitLayer::new(policy));
    let server = Server::builder()
        .layer(layers)
        .add_service(OrdersServer::new(Shop::default()));
    let (address, incoming) = incoming().await;
    tokio::spawn(server.serve_with_incoming(incoming));
    let mut client = client(address).await;
    let order = |token: &'static str| {
        let mut order = tonic::Request::new(Order::default());
        let token = MetadataValue::from_static(token);
        order.metadata_mut().insert("authorization", token);
        order
    };

    assert_eq!(
        place(&mut client, order("nobody")).await,
        Code::Unauthenticated
    );
    assert_eq!(place(&mut client, order("Bearer alice")).await, Code::Ok);
    assert_eq!(place(&mut client, order("Bearer bob")).await, Code::Ok);
    assert_eq!(
        place(&mut client, order("Bearer alice")).await,
        Code::ResourceExhausted
    );
}

/// Serves over a Unix socket, and has each of two callers call once, on a connection of their own.
async fn two_callers_over_a_unix_socket<F>(layer: RateLimitLayer, outer: F) -> [Code; 2]
where
    F: Fn(Request<tonic::body::Body>) -> Request<tonic::body::Body> + Clone + Send + Sync + 'static,
{
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop");
    let listener = UnixListener::bind(&path).unwrap();
    let layers = ServiceBuilder::new().map_request(outer).layer(layer);
    let server = Server::builder()
        .layer(layers)
        .add_service(OrdersServer::new(Shop::default()));
    tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));

    let call = || {
        let path = path.clone();
        let connector = tower::service_fn(move |_: Uri| connect(path.clone()));
        async {
            let endpoint = Endpoint::from_static("http://shop");
            let channel = endpoint.connect_with_connector(connector).await.unwrap();
            let order = tonic::Request::new(Order::default());
            place(&mut OrdersClient::new(channel), order).await
        }
    };
    [call().await, call().await]
}

async fn connect(path: PathBuf) -> io::Result<TokioIo<UnixStream>> {
    UnixStream::connect(path).await.map(TokioIo::new)
}

#[tokio::test]
async fn pitfall_callers_without_address_share_a_budget_unless_the_policy_says_otherwise() {
    // A Unix socket's peer has no address.
    let policy = || Policy::new("orders", Quota::per_hour(1));
    let cases = [
        (policy(), [Code::Ok, Code::ResourceExhausted]),
        (policy().on_missing(OnMissing::Pass), [Code::Ok; 2]),
        (
            policy().on_missing(OnMissing::Deny),
            [Code::PermissionDenied; 2],
        ),
    ];
    for (policy, expected) in cases {
        let layer = RateLimitLayer::new(policy);
        let codes = two_callers_over_a_unix_socket(layer, |request| request).await;
        assert_eq!(codes, expected);
    }
}

#[tokio::test]
async fn who_knows_the_callers_over_a_unix_socket_says_so() {
    let layer = RateLimitLayer::new(Quota::per_hour(1));
    let next = Arc::new(AtomicU8::new(1));
    let named = move |mut request: Request<_>| {
        let host = next.fetch_add(1, Ordering::SeqCst);
        let peer = ([203, 0, 113, host], 4711).into();
        request.extensions_mut().insert(PeerAddr(peer));
        request
    };

    let codes = two_callers_over_a_unix_socket(layer, named).await;

    assert_eq!(codes, [Code::Ok; 2]);
}
