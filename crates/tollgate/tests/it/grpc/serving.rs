//! A shop that is served, and its callers.

use std::net::SocketAddr;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tollgate::RateLimitLayer;
use tollgate_testkit::shop::{Order, OrdersClient, OrdersServer, Receipt, Shop};
use tonic::Status;
use tonic::transport::{Channel, Endpoint, Server};

/// A limited server.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) shop: Shop,
}

impl Served {
    pub(crate) async fn behind(layer: RateLimitLayer) -> Self {
        let shop = Shop::default();
        let server = Server::builder()
            .layer(layer)
            .add_service(OrdersServer::new(shop.clone()));
        let (address, incoming) = incoming().await;
        tokio::spawn(server.serve_with_incoming(incoming));
        Self { address, shop }
    }

    pub(crate) async fn client(&self) -> OrdersClient<Channel> {
        client(self.address).await
    }

    pub(crate) async fn place(&self) -> Result<Receipt, Status> {
        place(&mut self.client().await).await
    }
}

pub(crate) async fn incoming() -> (SocketAddr, TcpListenerStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (address, TcpListenerStream::new(listener))
}

pub(crate) async fn client(address: SocketAddr) -> OrdersClient<Channel> {
    let endpoint = Endpoint::new(format!("http://{address}")).unwrap();
    OrdersClient::new(endpoint.connect().await.unwrap())
}

pub(crate) async fn place(client: &mut OrdersClient<Channel>) -> Result<Receipt, Status> {
    let receipt = client.place(Order::default()).await;
    receipt.map(tonic::Response::into_inner)
}

/// The status and message that the server answers to a call with these headers and this body, with no client of gRPC's around it.
pub(crate) async fn raw(
    address: SocketAddr,
    method: &str,
    headers: &[(&'static str, &'static str)],
    body: &'static [u8],
) -> (String, String) {
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http();
    let mut request = Request::post(format!("http://{address}/shop.v1.Orders/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from_static(body))).unwrap();
    let (head, body) = client.request(request).await.unwrap().into_parts();
    let trailers = body.collect().await.unwrap().trailers().cloned();
    let headers = [head.headers, trailers.unwrap_or_default()];
    let value = |name: &str| {
        let found = headers.iter().find_map(|headers| headers.get(name));
        found.map_or("", |value| value.to_str().unwrap()).to_owned()
    };
    (value("grpc-status"), value("grpc-message"))
}
