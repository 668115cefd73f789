//! The work that any limiter has to do, without a limiter: the same two headers, an entry for handlers, one round trip to
//! Redis.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{HeaderName, HeaderValue, Request, Response};
use redis::aio::MultiplexedConnection;
use tokio::sync::oneshot;
use tower::util::{MapRequestLayer, MapResponseLayer};

use super::HELLO;
use crate::Result;

/// As long as Tollgate's values there.
const FIELDS: [(HeaderName, HeaderValue); 2] = [
    (
        HeaderName::from_static("ratelimit-policy"),
        HeaderValue::from_static("\"api\";q=1000000;w=1"),
    ),
    (
        HeaderName::from_static("ratelimit"),
        HeaderValue::from_static("\"api\";r=999999;t=1"),
    ),
];

pub(super) fn with_fields(app: Router) -> Router {
    app.layer(MapResponseLayer::new(write_fields::<Body>))
}

/// One layer for all: axum boxes each layer.
pub(super) fn with_fields_and_entry(app: Router) -> Router {
    app.layer((
        MapRequestLayer::new(enter::<Body>),
        MapResponseLayer::new(write_fields::<Body>),
    ))
}

fn write_fields<B>(mut response: Response<B>) -> Response<B> {
    response.headers_mut().extend(FIELDS);
    response
}

/// The entry that handlers of a limiter could read.
#[derive(Clone)]
struct Entry(#[expect(dead_code, reason = "no handler reads it")] Arc<()>);

fn enter<B>(mut request: Request<B>) -> Request<B> {
    request.extensions_mut().insert(Entry(Arc::new(())));
    request
}

/// Each request waits for a `PING`, and concurrent requests wait for the same one. The handler itself asks, so that no layer
/// adds to the cost.
pub(super) async fn with_round_trip(url: &str) -> Result<Router> {
    let client = redis::Client::open(url)?;
    let connection = client.get_multiplexed_async_connection().await?;
    let trips = Arc::new(Trips {
        connection,
        gathered: Mutex::default(),
    });
    Ok(Router::new().route(
        "/",
        get(move || async move {
            let came_back = trips.wait().await;
            came_back.map_or("nothing came back", |()| HELLO)
        }),
    ))
}

struct Trips {
    connection: MultiplexedConnection,
    gathered: Mutex<Gathered>,
}

#[derive(Default)]
struct Gathered {
    waiting: Vec<oneshot::Sender<()>>,
    is_under_way: bool,
}

impl Trips {
    async fn wait(self: Arc<Self>) -> Option<()> {
        let (sender, answer) = oneshot::channel();
        let is_under_way = {
            let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
            gathered.waiting.push(sender);
            mem::replace(&mut gathered.is_under_way, true)
        };
        if !is_under_way {
            tokio::spawn(self.go());
        }
        answer.await.ok()
    }

    async fn go(self: Arc<Self>) {
        let mut connection = self.connection.clone();
        let ping = redis::cmd("PING");
        loop {
            tokio::task::yield_now().await;
            let waiting = {
                let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
                gathered.is_under_way = !gathered.waiting.is_empty();
                mem::take(&mut gathered.waiting)
            };
            if waiting.is_empty() {
                return;
            }
            // Requests that are dropped without an answer report a failure.
            if connection.send_packed_command(&ping).await.is_ok() {
                for one in waiting {
                    let _gone = one.send(());
                }
            }
        }
    }
}
