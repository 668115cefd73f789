//! A gateway's counterpart: a configuration file that is followed, and the services that answer by it.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tollgate::config::{self, ReloadError, Watch};
use tollgate::{ConfigError, Limiter, LimiterBuilder, OnFailure, Policy};

use crate::admin::{self, Admin};
use crate::counts::{Counters, Counts};
use crate::envoy::EnvoyService;
use crate::forward;
use crate::http_server;
use crate::listener::Listener;
use crate::live::{Gateways, Live};
use crate::proto::rate_limit_service_server::RateLimitServiceServer;
use crate::status::{self, Draining};
use crate::tls::Protocol;

/// The longest request that is read. Envoy passes on at most 60 KiB of header fields unless configured otherwise, and callers choose them: 32
/// descriptors, as many as are decided together, may each have two entries of that length. A longer request would have no limit.
const MAX_REQUEST_BYTES: usize = 4 << 20;

/// The time that connections have to end when the server does. One that has sent nothing ends by its client or its deadline.
const GRACE: Duration = Duration::from_secs(5);

/// Answers gateways by a configuration file, and follows the file for as long as it lives.
///
/// ```no_run
/// use tokio::net::TcpListener;
/// use tollgate_server::Gateway;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // The builder takes a backend: without one, the budgets are in this process.
/// let gateway = Gateway::start("gateway.toml", None, |builder| builder)?;
/// let listener = TcpListener::bind("127.0.0.1:8081").await?;
/// gateway.serve(listener, std::future::pending()).await?;
/// # Ok(()) }
/// ```
#[must_use = "it answers when it serves"]
pub struct Gateway {
    live: Arc<Live>,
    watch: Watch,
    draining: Draining,
}

impl Gateway {
    /// Reads the file, builds its limiter with what `finish` adds to the builder, and follows the file from now on. While the backend
    /// fails, every policy does what `on_failure` says, if that is stated, and what the file says otherwise.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or makes no sense: with its path and, as far as it is known, the line.
    pub fn start(
        path: impl Into<PathBuf>,
        on_failure: Option<OnFailure>,
        finish: impl FnOnce(LimiterBuilder) -> LimiterBuilder,
    ) -> Result<Self, ReloadError> {
        let path = path.into();
        // What the text says that was read last, and what it is to replace once its policies have taken effect.
        let read: Arc<Mutex<Option<Gateways>>> = Arc::default();
        let live: Arc<Mutex<Option<Arc<Live>>>> = Arc::default();
        let (read_now, live_now) = (Arc::clone(&read), Arc::clone(&live));
        let live_read = Arc::clone(&live);
        let named = path.clone();
        let mut file = config::watch(path, move |text| {
            let (mut limiter, gateways) = crate::config::read_file(&named, text)?;
            for policy in &mut limiter.policies {
                policy.on_failure = on_failure.unwrap_or(policy.on_failure);
            }
            if let Some(live) = &*lock(&live_read) {
                check_change(&live.gateways.load(), &gateways)?;
            }
            *lock(&read_now) = Some(gateways);
            Ok::<_, String>(limiter)
        })
        .adopting(move |limiter| {
            let gateways = Arc::new(lock(&read).take().unwrap_or_default());
            let rules = gateways.rules.len();
            let mut live = lock(&live_now);
            let before = live
                .as_ref()
                .map_or(0, |live| live.gateways.load().rules.len());
            if rules > 0 || before > 0 {
                tracing::info!(rules, "rules for Envoy take effect");
            }
            match &mut *live {
                Some(live) => live.gateways.store(gateways),
                none => {
                    *none = Some(Arc::new(Live {
                        limiter: limiter.clone(),
                        gateways: ArcSwap::new(gateways),
                        counts: Arc::new(Counters::default()),
                    }));
                }
            }
        });
        let limiter = file.start(|builder| finish(builder.metrics()).refusing(unfit))?;
        let watch = file.follow(&limiter);
        let fresh = || {
            Arc::new(Live {
                limiter,
                gateways: ArcSwap::default(),
                counts: Arc::new(Counters::default()),
            })
        };
        let live = lock(&live).clone().unwrap_or_else(fresh);
        Ok(Self {
            live,
            watch,
            draining: Draining::default(),
        })
    }

    /// The limiter, for operators: it resets, bans and switches.
    ///
    /// ```
    /// use tollgate_server::Gateway;
    ///
    /// fn failures(gateway: &Gateway) -> u64 {
    ///     gateway.limiter().failures()
    /// }
    /// ```
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        &self.live.limiter
    }

    /// Looks at the file now, and says in words which policies it has changed.
    ///
    /// ```
    /// use tollgate_server::Gateway;
    ///
    /// fn look(gateway: &Gateway) {
    ///     match gateway.reload() {
    ///         Ok(changes) => println!("{}", changes.join("\n")),
    ///         Err(error) => println!("{error}; what was before holds"),
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or makes no sense. Then everything stays as it was.
    pub fn reload(&self) -> Result<Vec<String>, ReloadError> {
        self.watch.reload()
    }

    /// The reason why the file as it was found last does not hold, if there is one: what was before holds.
    ///
    /// ```
    /// use tollgate_server::Gateway;
    ///
    /// fn status(gateway: &Gateway) -> String {
    ///     gateway.fault().map_or_else(|| "well".to_owned(), |fault| fault.to_string())
    /// }
    /// ```
    #[must_use]
    pub fn fault(&self) -> Option<ReloadError> {
        self.watch.fault()
    }

    /// The counts since the start.
    ///
    /// ```
    /// use tollgate_server::{Counts, Gateway};
    ///
    /// fn counts(gateway: &Gateway) -> Counts {
    ///     gateway.counts()
    /// }
    /// ```
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.live.counts.read()
    }

    /// Answers Envoy on this socket until `stop` is ready. Then no connection is accepted any more, and the requests under way are
    /// answered, for at most five seconds. A `TcpListener` is served in the clear; [`Listener::tls`] is for one that is not.
    ///
    /// ```no_run
    /// use tokio::net::TcpListener;
    /// use tollgate_server::Gateway;
    ///
    /// # async fn serve(gateway: &Gateway) -> std::io::Result<()> {
    /// let listener = TcpListener::bind("[::]:8081").await?;
    /// gateway.serve(listener, async { tokio::signal::ctrl_c().await.unwrap_or_default() }).await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the socket fails.
    pub async fn serve(
        &self,
        listener: impl Into<Listener>,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let envoy = RateLimitServiceServer::new(EnvoyService::new(Arc::clone(&self.live)));
        let envoy = envoy.max_decoding_message_size(MAX_REQUEST_BYTES);
        let counts = Arc::clone(&self.live.counts);
        let connections = listener.into().connections(Protocol::Http2, counts);
        ending(self.draining(stop), |stopping| {
            http_server::serve_http2(connections, envoy, stopping)
        })
        .await
    }

    /// Answers nginx, Caddy or Traefik on this socket until `stop` is ready: each asks over HTTP about a request before it passes
    /// that on. It ends as [`serve`](Self::serve) does.
    ///
    /// ```no_run
    /// use tokio::net::TcpListener;
    /// use tollgate_server::Gateway;
    ///
    /// # async fn serve(gateway: &Gateway) -> std::io::Result<()> {
    /// // The gateway alone may ask: the question states the caller.
    /// let listener = TcpListener::bind("127.0.0.1:8082").await?;
    /// gateway.serve_forward_auth(listener, std::future::pending()).await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the socket fails.
    pub async fn serve_forward_auth(
        &self,
        listener: impl Into<Listener>,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let counts = Arc::clone(&self.live.counts);
        let connections = listener.into().connections(Protocol::Http1, counts);
        let router = forward::router(Arc::clone(&self.live));
        ending(self.draining(stop), |stopping| {
            http_server::serve_http1(connections, router, stopping)
        })
        .await
    }

    /// Answers monitors on this socket until `stop` is ready. `/metrics` has the page that `page` writes, once the recorder of the
    /// application has heard of the latest figures. `/livez` says 200, and so does `/readyz`, until one of the other sockets is to
    /// end: 503 from then on.
    ///
    /// ```no_run
    /// use metrics_exporter_prometheus::PrometheusBuilder;
    /// use tokio::net::TcpListener;
    /// use tollgate_server::Gateway;
    ///
    /// # async fn serve(gateway: &Gateway) -> Result<(), Box<dyn std::error::Error>> {
    /// let recorder = PrometheusBuilder::new().build_recorder();
    /// let page = recorder.handle();
    /// metrics::set_global_recorder(recorder)?;
    /// let listener = TcpListener::bind("127.0.0.1:9090").await?;
    /// gateway.serve_status(listener, move || page.render(), std::future::pending()).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If the socket fails.
    pub async fn serve_status(
        &self,
        listener: TcpListener,
        page: impl Fn() -> String + Clone + Send + Sync + 'static,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let counts = Arc::clone(&self.live.counts);
        let connections = Listener::from(listener).connections(Protocol::Http1, counts);
        let router = status::router(Arc::clone(&self.live), Arc::clone(&self.draining), page);
        ending(stop, |stopping| {
            http_server::serve_http1(connections, router, stopping)
        })
        .await
    }

    /// Lets operators look and steer on this socket until `stop` is ready: by the page at `/`, and by the calls of its API. Let it
    /// be one that operators alone reach. The limiter has to be [watched](Admin::watch) by the same admin. Over TLS no operator is
    /// asked for a certificate, whatever gateways have to show: the token is the proof.
    ///
    /// ```no_run
    /// use tokio::net::TcpListener;
    /// use tollgate_server::{Admin, Gateway};
    ///
    /// # async fn serve(gateway: &Gateway, admin: &Admin) -> std::io::Result<()> {
    /// let listener = TcpListener::bind("127.0.0.1:8083").await?;
    /// gateway.serve_admin(listener, admin, std::future::pending()).await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the socket fails.
    pub async fn serve_admin(
        &self,
        listener: impl Into<Listener>,
        admin: &Admin,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let router = admin::router(Arc::clone(&self.live), admin);
        let counts = Arc::clone(&self.live.counts);
        let connections = listener.into().connections(Protocol::Browsers, counts);
        ending(stop, |stopping| {
            http_server::serve_http1(connections, router, stopping)
        })
        .await
    }

    /// The end of a socket that gateways ask on.
    async fn draining(&self, stop: impl Future<Output = ()>) {
        stop.await;
        self.draining.store(true, Ordering::Relaxed);
    }

    /// True if the file has a table `[forward_auth]`, without which no such question has an answer.
    ///
    /// ```
    /// use tollgate_server::Gateway;
    ///
    /// fn is_ready(gateway: &Gateway) -> bool {
    ///     gateway.answers_forward_auth()
    /// }
    /// ```
    #[must_use]
    pub fn answers_forward_auth(&self) -> bool {
        self.live.gateways.load().forward_auth.is_some()
    }
}

/// Serves until `stop` is ready, and then for as long as connections take to end, and no longer than [`GRACE`].
async fn ending<S>(
    stop: impl Future<Output = ()>,
    serve: impl FnOnce(Stopping) -> S,
) -> io::Result<()>
where
    S: Future<Output = io::Result<()>>,
{
    let (stopped, stopping) = oneshot::channel::<()>();
    let late = async {
        stop.await;
        drop(stopped);
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        served = serve(Stopping(stopping)) => served,
        () = late => {
            tracing::warn!("closes connections whose clients do not end them");
            Ok(())
        }
    }
}

/// Is ready when a server is to end.
struct Stopping(oneshot::Receiver<()>);

impl Future for Stopping {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx).map(drop)
    }
}

/// Refuses a change that the gateway has to take part in: it asks as it asked before.
fn check_change(now: &Gateways, next: &Gateways) -> Result<(), String> {
    let form = |of: &Gateways| of.forward_auth.as_ref().map(|stated| stated.form);
    if form(now) == form(next) {
        return Ok(());
    }
    Err("[forward_auth]: the gateway that asks over HTTP changes with the next start of the server alone".to_owned())
}

/// The reason why a gateway cannot have a policy.
fn unfit(policy: &Policy) -> Option<ConfigError> {
    policy.holds().then(|| ConfigError::Field {
        policy: policy.name().to_owned(),
        field: "quotas",
        value: "at once".to_owned(),
        reason:
            "a gateway does not say when a request is over, so that nothing could be given back"
                .to_owned(),
    })
}

fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway")
            .field("live", &self.live)
            .finish_non_exhaustive()
    }
}
