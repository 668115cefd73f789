//! Requests give back exactly once, however they end: over real sockets, by what other callers then get.

#![cfg(feature = "axum")]

mod beside;
mod ends;
mod holds;
mod rules;

use axum::Router;
use axum::extract::Request;
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

/// The address of a server.
async fn serve(app: Router) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(tokio::spawn(
        async move { axum::serve(listener, app).await },
    ));
    address
}

struct Client(http1::SendRequest<Empty<Bytes>>);

impl Client {
    async fn to(address: std::net::SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        drop(tokio::spawn(connection.with_upgrades()));
        Self(sender)
    }

    async fn get(&mut self, path: &str) -> Response<hyper::body::Incoming> {
        let request = Request::get(path).header("host", "x").body(Empty::new());
        self.0.send_request(request.unwrap()).await.unwrap()
    }
}

async fn status(address: std::net::SocketAddr, path: &str) -> StatusCode {
    Client::to(address).await.get(path).await.status()
}
