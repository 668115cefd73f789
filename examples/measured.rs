//! Which limit fits my traffic?
//!
//! `cargo run -p examples --example measured`. The limit that it begins with is on trial (`shadow = true`): it refuses no request, and
//! `/metrics` says what it would have refused. Meanwhile each request becomes a line of `LOG`, with its microsecond, its key, its
//! cost and its status, so that a replay decides as the limiter did. A line is written when its request is over, so that the log is
//! read with a `--reorder` as long as the longest request. `tollgate suggest` finds quotas in it; put one into the file that
//! `LIMITS` names, without `shadow`, and two seconds later the service limits by it.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use examples::serve;
use metrics_exporter_prometheus::PrometheusBuilder;
use serde::Serialize;
use tollgate::{RateLimitLayer, config};

const LIMITS: &str = r#"[[policies]]
name = "api"
quotas = "1/h"
key = { header = "x-api-key" }
shadow = true
"#;

/// A request, in the form that `tollgate` reads without being told anything.
#[derive(Serialize)]
struct Line<'r> {
    time_us: u128,
    address: String,
    method: &'r str,
    target: &'r str,
    status: u16,
    cost: u64,
    duration_us: u128,
    http_x_api_key: Option<&'r str>,
}

/// The log: one line for each request, whatever its answer is.
#[derive(Clone)]
struct Log(Arc<Mutex<File>>);

impl Log {
    fn write(&self, line: &Line<'_>) -> io::Result<()> {
        let text = serde_json::to_string(line)? + "\n";
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(text.as_bytes())
    }
}

/// Writes the line of a request. Its time is that at which it came: a limit decides then, and not when the answer is ready.
async fn logged(
    State(log): State<Log>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let came = Instant::now();
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let key = request.headers().get("x-api-key").cloned();
    let response = next.run(request).await;
    let written = log.write(&Line {
        time_us: since.map_or(0, |since| since.as_micros()),
        address: peer.ip().to_string(),
        method: method.as_str(),
        target: &uri.to_string(),
        status: response.status().as_u16(),
        // What a policy by costs would charge. Here requests are alike.
        cost: 1,
        // Limits on how many at once are replayed by it.
        duration_us: came.elapsed().as_micros(),
        http_x_api_key: key.as_ref().and_then(|key| key.to_str().ok()),
    });
    if let Err(error) = written {
        tracing::error!(%error, "a line of the log is lost");
    }
    response
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let recorder = PrometheusBuilder::new().build_recorder();
    let page = recorder.handle();
    metrics::set_global_recorder(recorder)?;

    let named = |name| env::var_os(name).map(PathBuf::from);
    let path = match named("LIMITS") {
        Some(path) => path,
        None => {
            let path = env::temp_dir().join("tollgate-measured.toml");
            std::fs::write(&path, LIMITS)?;
            path
        }
    };
    let log = named("LOG").unwrap_or_else(|| env::temp_dir().join("tollgate-measured.log"));
    let file = OpenOptions::new().create(true).append(true).open(&log)?;

    let mut limits = config::watch(&path, |text| toml::from_str(text));
    let limiter = limits.load()?.metrics().build()?;
    let _watch = limits.follow(&limiter);

    let app = Router::new()
        .route("/things", get(|| async { "things\n" }))
        .layer(RateLimitLayer::new(limiter))
        // Outside of the limiter, so that refusals are in the log, too.
        .layer(middleware::from_fn_with_state(
            Log(Arc::new(Mutex::new(file))),
            logged,
        ))
        .route("/metrics", get(|| async move { page.render() }));

    let (log, path) = (log.display(), path.display());
    let tollgate = "cargo run -p tollgate-cli --";
    let tries = [
        "curl -H 'x-api-key: [a-t]' URL/things?[1-5]".to_owned(),
        format!("{tollgate} suggest {log} --key header:x-api-key --reorder 1min"),
        format!("{tollgate} check {path}"),
        "curl URL/metrics".to_owned(),
    ];
    let tries = tries.each_ref().map(String::as_str);
    serve(app, "one request an hour for each key, on trial", &tries).await
}
