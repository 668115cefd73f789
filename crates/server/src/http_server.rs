//! HTTP/2 for Envoy's socket, and HTTP/1.1 for the others. A client that does not begin has a deadline, and holds little memory
//! until then.

use std::convert::Infallible;
use std::error::Error;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::response::IntoResponse;
use http::{Request, Response, StatusCode};
use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulConnection, GracefulShutdown};
use tokio::task::JoinSet;
use tower::{Service, ServiceExt};

use crate::listener::{Asker, Connection, Connections};

/// The time until a whole head has come, for the first request of a connection and for each that may follow. A connection that lies
/// idle is closed by it, too.
const HEAD_DEADLINE: Duration = Duration::from_secs(30);

/// The longest head: twice of what nginx passes on.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// The most fields of a head. Services take a hundred, and a gateway adds its own to those of its caller.
const MAX_FIELDS: usize = 256;

/// The time without a sign of life after which a connection of HTTP/2 is asked for one, and in which it has to answer.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// Answers each request of HTTP/1.1 by the router, which knows its asker.
pub(crate) async fn serve_http1(
    connections: Connections,
    router: Router,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_FIELDS);
    serve(connections, stop, |connection, peer| {
        let router = router.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(Asker(peer)));
            let router = router.clone();
            async move {
                if head_bytes(&request) > MAX_HEAD_BYTES {
                    return Ok(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE.into_response());
                }
                router.oneshot(request).await
            }
        });
        http.serve_connection(connection, service)
    })
    .await
}

/// The bytes of a head on the wire, without its first line's method and version. hyper bounds its buffer, into which a head may come
/// that is a little longer.
fn head_bytes<B>(request: &Request<B>) -> usize {
    let fields = request.headers().iter();
    let fields = fields.map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    let target = request.uri().path_and_query();
    fields.sum::<usize>() + target.map_or(0, |target| target.as_str().len())
}

/// Answers each request of HTTP/2 by a service of gRPC: tonic's own server asks a router first, which would choose among one, and
/// costs a twentieth of a question. A client resets the stream of a request that it no longer waits for.
pub(crate) async fn serve_http2<S, B>(
    connections: Connections,
    service: S,
    stop: impl Future<Output = ()>,
) -> io::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE);
    serve(connections, stop, |connection, _peer| {
        let service = service.clone();
        http.serve_connection(
            connection,
            service_fn(move |request| service.clone().oneshot(request)),
        )
    })
    .await
}

/// Serves connections until `stop` is ready, and then the requests that are under way. When it is dropped, the connections are
/// closed.
async fn serve<C>(
    mut connections: Connections,
    stop: impl Future<Output = ()>,
    begin: impl Fn(TokioIo<Connection>, SocketAddr) -> C,
) -> io::Result<()>
where
    C: GracefulConnection<Error: Display> + Send + 'static,
{
    let under_way = GracefulShutdown::new();
    let mut tasks = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let (connection, peer) = tokio::select! {
            () = &mut stop => break,
            accepted = connections.accept() => accepted,
        };
        let connection = under_way.watch(begin(TokioIo::new(connection), peer));
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%peer, %error, "a connection ends early");
            }
        });
    }
    drop(connections);
    under_way.shutdown().await;
    Ok(())
}
