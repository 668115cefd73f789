//! A router on a socket of its own, and a client.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;

/// A server that runs until the test ends.
#[derive(Clone, Copy, Debug)]
pub struct Served(pub SocketAddr);

/// A response, all of it.
pub type Whole = Response<String>;

impl Served {
    pub async fn new(app: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, service).await });
        Self(address)
    }

    pub async fn get(self, path: &str) -> Whole {
        self.send(Method::GET, path, "").await
    }

    pub async fn send(self, method: Method, path: &str, body: &str) -> Whole {
        let request = Request::builder().method(method);
        let request = request.uri(format!("http://{}{path}", self.0));
        self.request(request.body(Body::from(body.to_owned())).unwrap())
            .await
    }

    pub async fn request(self, request: Request<Body>) -> Whole {
        let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
        let (parts, body) = client.request(request).await.unwrap().into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Response::from_parts(parts, String::from_utf8(bytes.to_vec()).unwrap())
    }

    /// The statuses of these requests, one after the other: `"/path"` is a GET, and `"POST /path"` is not.
    pub async fn statuses<const N: usize>(self, requests: [&str; N]) -> [u16; N] {
        let mut statuses = [0; N];
        for (request, status) in requests.iter().zip(&mut statuses) {
            let (method, path) = request.split_once(' ').unwrap_or(("GET", request));
            let response = self.send(method.parse().unwrap(), path, "").await;
            *status = response.status().as_u16();
        }
        statuses
    }
}
