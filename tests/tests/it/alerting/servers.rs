//! Servers with a limiter each, in threads of this process, and their load.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use axum::Router;
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};
use tokio::sync::Notify;
use tokio::time::sleep;
use tollgate::{Key, Limiter, RateLimitLayer, RedisBackend, config};
use tollgate_testkit::Network;

use crate::alerting::PACE;

/// A server in a thread of its own, with metrics of its own.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) limiter: Limiter,
    pub(crate) is_faulty: Arc<AtomicBool>,
    is_over: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

/// The recorder of an operator, with buckets as the page about metrics recommends them.
fn recorder() -> PrometheusRecorder {
    let full = |name: &str| Matcher::Full(name.to_owned());
    let used = full("rate_limiting_budget_used_ratio");
    let duration = full("rate_limiting_decision_duration_seconds");
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(used, &[0.25, 0.5, 0.75, 0.9, 1.0])
        .unwrap()
        .set_buckets_for_metric(duration, &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5])
        .unwrap();
    builder.build_recorder()
}

impl Server {
    /// Starts one with a limiter and its load, which knows when something is to be wrong.
    pub(crate) fn start<B, L>(
        build: impl FnOnce() -> B + Send + 'static,
        load: fn(Limiter, Arc<AtomicBool>) -> L,
    ) -> Self
    where
        B: Future<Output = (Limiter, Option<config::Watch>)>,
        L: Future<Output = ()> + Send + 'static,
    {
        let (is_faulty, is_over) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
        let (faulty, over) = (Arc::clone(&is_faulty), Arc::clone(&is_over));
        let (tell, told) = mpsc::channel();
        let thread = thread::spawn(move || {
            let recorder = recorder();
            let page = recorder.handle();
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().unwrap();
            // All that this server does, it does in this thread.
            metrics::with_local_recorder(&recorder, || {
                runtime.block_on(async move {
                    let (limiter, _watch) = build().await;
                    let operated = limiter.clone();
                    let metrics = async move || {
                        operated.publish_metrics();
                        page.render()
                    };
                    let app = Router::new()
                        .route("/", get(async || "hello"))
                        .layer(RateLimitLayer::new(&limiter))
                        .route("/metrics", get(metrics));
                    let app = app.into_make_service_with_connect_info::<SocketAddr>();
                    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
                    let listener = listener.await.unwrap();
                    let address = listener.local_addr().unwrap();
                    tell.send((address, limiter.clone())).unwrap();
                    let load = tokio::spawn(load(limiter, faulty));
                    tokio::select! {
                        served = async { axum::serve(listener, app).await } => served.unwrap(),
                        () = over.notified() => load.abort(),
                    }
                });
            });
        });
        let (address, limiter) = told.recv().unwrap();
        Self {
            address,
            limiter,
            is_faulty,
            is_over,
            thread: Some(thread),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.notify_one();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || ended.is_none_or(|ended| ended.is_ok()));
    }
}

pub(crate) fn on(network: &Network) -> tollgate::RedisBackendBuilder {
    let url = format!("redis://127.0.0.1:{}/", network.port());
    RedisBackend::builder(&url)
}

/// Asks all the time. What it holds is held until the end.
pub(crate) async fn ask(limiter: Limiter, _is_faulty: Arc<AtomicBool>) {
    let _held = limiter.check("places", Key::global()).await;
    loop {
        let _decided = limiter.check("api", Key::global()).await;
        sleep(PACE).await;
    }
}

/// While something is wrong, a caller comes three times rather than once, and another has a new name each time.
pub(crate) async fn ask_as_a_flood(limiter: Limiter, is_faulty: Arc<AtomicBool>) {
    for n in 0_u64.. {
        let wrong = is_faulty.load(Ordering::Relaxed);
        let asked = match wrong {
            true => vec![("busy", "one".to_owned()); 3],
            false => vec![("api", "one".to_owned())],
        };
        let flood = (0..200).map(|caller| ("many", format!("{n}-{caller}")));
        for (policy, caller) in asked.into_iter().chain(flood.filter(|_| wrong)) {
            let check = limiter.check(policy, Key::from(caller));
            check.class("normal").await.unwrap();
        }
        sleep(PACE).await;
    }
}
