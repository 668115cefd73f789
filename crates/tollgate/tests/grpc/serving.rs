//! A shop that is served, and its callers.

use std::net::SocketAddr;

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
