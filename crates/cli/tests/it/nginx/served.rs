//! The servers: nginx with a file of limits, services with the same file, and what reached them.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::to_bytes;
use axum::extract::Request;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tollgate::config::{LimiterConfig, Registry};
use tollgate::{BufferBodyLayer, Limiter, RateLimitLayer, RedisBackend};
use tollgate_testkit::{Nginx, Standalone};

use crate::nginx::client::status;
use crate::nginx::page::configuration;

/// A machine that builds beside the test takes its time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The words of the page about the deadline, and those of a test, for such a machine.
pub(crate) const PATIENT: (&str, &str) = ("deadline_ms = 250", "deadline_ms = 10000");

/// The longest body in which keys are looked for, in all of them.
pub(crate) const BODY_LIMIT: usize = 16 * 1024;

/// Requests that reached a service, as their lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reached(Arc<Mutex<Vec<String>>>);

impl Reached {
    /// Those since the last question.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    pub(crate) fn count(&self) -> usize {
        self.take().len()
    }

    /// A service of all paths.
    fn app(&self) -> Router {
        let reached = self.clone();
        Router::new().fallback(move |request: Request| {
            let reached = reached.clone();
            async move {
                let line = format!("{} {}", request.method(), request.uri());
                // A service that leaves a part of a body closes the connection, and nginx may see that before the answer.
                let _whole = to_bytes(request.into_body(), 1 << 20).await;
                reached.0.lock().unwrap().push(line);
                "served"
            }
        })
    }
}

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// A service with Tollgate's layer: over Redis, or by itself.
pub(crate) async fn service(limits: &str, redis: Option<&Standalone>) -> (SocketAddr, Reached) {
    let config: LimiterConfig = toml::from_str(limits).unwrap();
    let mut limiter = config.build(&Registry::new()).unwrap();
    if let Some(redis) = redis {
        // A request that passes undecided, on a machine that does something else, would have no fields.
        // A denial that is known says nothing of what nginx has charged a moment ago to the other budgets of the request.
        let backend = RedisBackend::builder(&redis.url()).deadline(PATIENCE);
        let backend = backend.ask_every_denial();
        limiter = limiter.backend(backend.connect().await.unwrap());
    }
    let limiter: Limiter = limiter.build().unwrap();
    let reached = Reached::default();
    let app = reached.app().layer(RateLimitLayer::new(limiter));
    let app = app.layer(BufferBodyLayer::new(BODY_LIMIT));
    (serve(app).await, reached)
}

/// The status of `tollgate nginx`, and what it says.
pub(crate) fn convert(arguments: &[&str]) -> (Option<i32>, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let program = program.arg("nginx").args(arguments).env("NO_COLOR", "1");
    let output = program.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

/// An nginx with the configuration of the page, before a service that counts.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) nginx: Nginx,
    pub(crate) reached: Reached,
    written: Written,
}

/// The file of limits, and the one that nginx reads.
#[derive(Debug)]
pub(crate) struct Written(TempDir);

impl Written {
    pub(crate) fn new(limits: &str) -> Self {
        let written = Self(tempfile::tempdir().unwrap());
        written.write(limits);
        written
    }

    /// Writes both anew.
    fn write(&self, limits: &str) {
        let (toml, json) = (self.0.path().join("limits.toml"), self.json());
        fs::write(&toml, limits).unwrap();
        let (toml, json) = (toml.to_str().unwrap(), json.to_str().unwrap());
        let (code, said) = convert(&[toml, "--output", json]);
        assert_eq!(code, Some(0), "{said}");
        // Of lists that a caller may avoid, and of nothing else.
        assert!(
            said.lines()
                .all(|line| line.starts_with("warning: policy ")),
            "{said}"
        );
    }

    pub(crate) fn json(&self) -> PathBuf {
        self.0.path().join("nginx.json")
    }
}

impl Gate {
    /// nginx by these limits and this Redis. In the configuration of the page these words are others.
    pub(crate) async fn start_with(
        limits: &str,
        redis: &Standalone,
        words: &[(&str, &str)],
    ) -> Self {
        let written = Written::new(limits);
        let reached = Reached::default();
        let behind = serve(reached.app()).await.to_string();
        // These words may have the address, too.
        let words = [words, &[("127.0.0.1:8080", &behind)]].concat();
        let text = configuration(&written.json(), redis.port(), &words);
        let start = move || Nginx::start_with_lua(&text);
        Self {
            nginx: tokio::task::spawn_blocking(start).await.unwrap(),
            reached,
            written,
        }
    }

    pub(crate) async fn start(limits: &str, redis: &Standalone) -> Self {
        Self::start_with(limits, redis, &[PATIENT]).await
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.nginx.address()
    }

    /// The file that nginx reads.
    pub(crate) fn json(&self) -> PathBuf {
        self.written.json()
    }

    /// Writes that file anew, by these limits.
    pub(crate) fn write(&self, limits: &str) {
        self.written.write(limits);
    }

    /// Has nginx read it again.
    pub(crate) fn reload(&self) {
        let id = self.nginx.process_id().to_string();
        assert!(
            Command::new("kill")
                .args(["-HUP", &id])
                .status()
                .unwrap()
                .success()
        );
    }

    /// The numbers of its workers.
    fn workers(&self) -> Vec<String> {
        let id = self.nginx.process_id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        children.split_whitespace().map(str::to_owned).collect()
    }

    /// Its two workers by the page's configuration, none of which is one of these. nginx listens before it has any, and may have
    /// only one for a time.
    async fn both_workers(&self, without: &[String]) -> Vec<String> {
        let start = Instant::now();
        loop {
            let workers = self.workers();
            if workers.len() == 2 && !workers.iter().any(|worker| without.contains(worker)) {
                return workers;
            }
            assert!(start.elapsed() < PATIENCE, "{}", self.nginx.log());
            tokio::task::yield_now().await;
        }
    }

    /// Has nginx read it again, and waits until the workers of before are gone.
    pub(crate) async fn reload_fully(&self) {
        let before = self.both_workers(&[]).await;
        self.reload();
        self.both_workers(&before).await;
    }

    /// Waits until the log says this.
    pub(crate) async fn until_log(&self, words: &str) {
        self.until_log_from(0, words).await;
    }

    /// Waits until the log says this behind so many bytes.
    pub(crate) async fn until_log_from(&self, before: usize, words: &str) {
        let start = Instant::now();
        while !self.nginx.log()[before..].contains(words) {
            assert!(start.elapsed() < PATIENCE, "{words}: {}", self.nginx.log());
            tokio::task::yield_now().await;
        }
    }

    /// Asks until the status is this one.
    pub(crate) async fn until(&self, line: &str, wanted: u16) {
        let start = Instant::now();
        while status(self.address(), line).await != wanted {
            assert!(
                start.elapsed() < PATIENCE,
                "{line} never gets {wanted}: {}",
                self.nginx.log()
            );
            tokio::task::yield_now().await;
        }
    }
}
