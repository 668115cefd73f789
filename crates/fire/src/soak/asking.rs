//! The two ways in which many callers ask at once.

use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::routing::get;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tollgate::{Limiter, Policy, RateLimitLayer, key};
use tollgate_core::{Backend, Call, Charge, Key, Mode, Quota, Scope};
use tollgate_redis::RedisBackend;

use crate::Result;

/// The number of requests that share a connection: half of the usual bound of servers.
const STREAMS: u64 = 100;

const CALLER: &str = "x-fire-caller";

/// The way in which decisions are asked for.
#[derive(Clone, Debug)]
pub(super) enum Asking {
    /// The backend itself.
    Directly(RedisBackend, Quota, Scope),
    /// Over HTTP/2: with a connection for each request, ten thousand would need more descriptors than a process may have,
    /// twice.
    OverHttp(Vec<SendRequest<Body>>, SocketAddr),
}

impl Asking {
    pub(super) fn directly(backend: RedisBackend) -> Self {
        let quota = Quota::per_second(5);
        Self::Directly(backend, quota, Scope::of("soak", 0, &quota))
    }

    /// A server of its own, until the runtime ends, and enough clients for this many requests at once.
    pub(super) async fn over_http(backend: RedisBackend, in_flight: u64) -> Result<Self> {
        let policy = Policy::new("soak", Quota::per_second(5)).key(key::Header::new(CALLER));
        let limiter = Limiter::builder().policy(policy).backend(backend).build()?;
        let app: Router = Router::new()
            .route("/", get(async || "passed"))
            .layer(RateLimitLayer::new(&limiter));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move { axum::serve(listener, app).await });
        let mut clients = Vec::new();
        for _ in 0..in_flight.div_ceil(STREAMS) {
            let stream = TokioIo::new(TcpStream::connect(address).await?);
            let (client, connection) = handshake(TokioExecutor::new(), stream).await?;
            tokio::spawn(connection);
            clients.push(client);
        }
        Ok(Self::OverHttp(clients, address))
    }

    /// The way for one of the concurrent callers.
    pub(super) fn of_worker(&self, worker: u64) -> Self {
        match self {
            Self::Directly(..) => self.clone(),
            Self::OverHttp(clients, address) => {
                let number = usize::try_from(worker / STREAMS).unwrap_or_default();
                let own = clients.get(number).cloned();
                Self::OverHttp(own.into_iter().collect(), *address)
            }
        }
    }

    /// Says whether it was decided, one way or the other.
    pub(super) async fn is_decided(&self, caller: &str) -> bool {
        match self {
            Self::Directly(backend, quota, scope) => {
                let key = Key::from(caller);
                let charge = Charge {
                    scope: *scope,
                    quota,
                    key: &key,
                    cost: 1,
                    mode: Mode::Enforce,
                };
                backend.decide(Call::of(&[charge])).await.is_ok()
            }
            Self::OverHttp(clients, address) => {
                let request = Request::get(format!("http://{address}/")).header(CALLER, caller);
                let (Some(mut client), Ok(request)) =
                    (clients.first().cloned(), request.body(Body::empty()))
                else {
                    return false;
                };
                let response = client.send_request(request).await;
                response.is_ok_and(|response| {
                    let is_told = response.headers().contains_key("ratelimit");
                    let status = response.status();
                    // Without the field it passed undecided.
                    is_told && [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS].contains(&status)
                })
            }
        }
    }
}
