//! HTTP/1.1 for every socket but Envoy's. A client that sends no head has a deadline, and holds little memory until then.

use std::io;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::listener::{Asker, Connections};

/// The time until a whole head has come, for the first request of a connection and for each that may follow. A connection that lies
/// idle is closed by it, too.
const HEAD_DEADLINE: Duration = Duration::from_secs(30);

/// The longest head: twice of what nginx passes on.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// The most fields of a head. Services take a hundred, and a gateway adds its own to those of its caller.
const MAX_FIELDS: usize = 256;

/// Answers each request by the router until `stop` is ready, and then those that are under way. When it is dropped, the connections
/// are closed.
pub(crate) async fn serve(
    mut connections: Connections,
    router: Router,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_FIELDS);
    let under_way = GracefulShutdown::new();
    let mut tasks = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let (connection, peer) = tokio::select! {
            () = &mut stop => break,
            accepted = connections.accept() => accepted,
        };
        let router = router.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(Asker(peer)));
            router.clone().oneshot(request)
        });
        let connection = http.serve_connection(TokioIo::new(connection), service);
        let connection = under_way.watch(connection);
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
