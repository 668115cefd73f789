//! A gateway that serves on a socket, for tests that ask it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

pub(crate) mod asking;
pub(crate) mod guide;
pub(crate) mod http;
pub(crate) mod trust;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tollgate::{LimiterBuilder, OnFailure, RedisBackend};
use tollgate_server::{Gateway, Listener, Tls};

/// The configuration file of a gateway, in a folder that is removed after the test.
pub(crate) struct File {
    folder: TempDir,
    name: &'static str,
}

impl File {
    pub(crate) fn toml(text: &str) -> Self {
        Self::of("gateway.toml", text)
    }

    pub(crate) fn yaml(text: &str) -> Self {
        Self::of("ratelimit.yaml", text)
    }

    fn of(name: &'static str, text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = Self { folder, name };
        file.write(text);
        file
    }

    /// Replaces the text as a whole, as `Watch` asks for.
    pub(crate) fn write(&self, text: &str) {
        let next = self.folder.path().join("next");
        fs::write(&next, text).unwrap();
        fs::rename(next, self.path()).unwrap();
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join(self.name)
    }
}

/// A gateway that serves until it is stopped.
pub(crate) struct Served {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    end: JoinHandle<std::io::Result<()>>,
}

impl Served {
    pub(crate) async fn start(file: &File, address: SocketAddr) -> Self {
        Self::with(file, address, |builder| builder).await
    }

    pub(crate) async fn with(
        file: &File,
        address: SocketAddr,
        finish: impl FnOnce(LimiterBuilder) -> LimiterBuilder,
    ) -> Self {
        Self::failing(file, address, None, finish).await
    }

    /// One whose policies do this while the backend fails, whatever the file says.
    pub(crate) async fn failing(
        file: &File,
        address: SocketAddr,
        on_failure: Option<OnFailure>,
        finish: impl FnOnce(LimiterBuilder) -> LimiterBuilder,
    ) -> Self {
        let gateway = Arc::new(Gateway::start(file.path(), on_failure, finish).unwrap());
        let serving = Arc::clone(&gateway);
        let serve = |listener, stopped: oneshot::Receiver<()>| {
            tokio::spawn(async move { serving.serve(listener, ended(stopped)).await })
        };
        Self::on(address, gateway, serve).await
    }

    /// One that Envoy asks over TLS.
    pub(crate) async fn secure(file: &File, tls: &Tls) -> Self {
        let gateway = Arc::new(Gateway::start(file.path(), None, |builder| builder).unwrap());
        let (serving, tls) = (Arc::clone(&gateway), tls.clone());
        let serve = |listener, stopped: oneshot::Receiver<()>| {
            let listener = Listener::from(listener).tls(&tls);
            tokio::spawn(async move { serving.serve(listener, ended(stopped)).await })
        };
        Self::on(SocketAddr::from(([127, 0, 0, 1], 0)), gateway, serve).await
    }

    /// One that answers questions over HTTP.
    pub(crate) async fn forward_auth(file: &File) -> Self {
        Self::forward_auth_on(file, Listener::from).await
    }

    /// One that answers them over TLS.
    pub(crate) async fn secure_forward_auth(file: &File, tls: &Tls) -> Self {
        Self::forward_auth_on(file, |listener| Listener::from(listener).tls(tls)).await
    }

    /// One whose limiter has more.
    pub(crate) async fn forward_auth_with(
        file: &File,
        finish: impl FnOnce(LimiterBuilder) -> LimiterBuilder,
    ) -> Self {
        let gateway = Gateway::start(file.path(), None, finish).unwrap();
        Self::asked_over_http(gateway, Listener::from).await
    }

    async fn forward_auth_on(file: &File, secured: impl FnOnce(TcpListener) -> Listener) -> Self {
        let gateway = Gateway::start(file.path(), None, |builder| builder).unwrap();
        Self::asked_over_http(gateway, secured).await
    }

    async fn asked_over_http(
        gateway: Gateway,
        secured: impl FnOnce(TcpListener) -> Listener,
    ) -> Self {
        let gateway = Arc::new(gateway);
        let serving = Arc::clone(&gateway);
        let serve = |listener, stopped: oneshot::Receiver<()>| {
            let listener = secured(listener);
            tokio::spawn(async move {
                let stopped = ended(stopped);
                serving.serve_forward_auth(listener, stopped).await
            })
        };
        Self::on(SocketAddr::from(([127, 0, 0, 1], 0)), gateway, serve).await
    }

    async fn on(
        address: SocketAddr,
        gateway: Arc<Gateway>,
        serve: impl FnOnce(TcpListener, oneshot::Receiver<()>) -> JoinHandle<std::io::Result<()>>,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let end = serve(listener, stopped);
        Self {
            gateway,
            address,
            stop,
            end,
        }
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        self.end.await.unwrap().unwrap();
    }
}

async fn ended(stopped: oneshot::Receiver<()>) {
    drop(stopped.await);
}

/// An address that is free.
pub(crate) async fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// A backend that is never there.
pub(crate) fn without_redis(builder: LimiterBuilder) -> LimiterBuilder {
    let redis = RedisBackend::builder("redis://127.0.0.1:1").start();
    builder.backend(redis.unwrap())
}
