//! A gateway's counterpart: a configuration file that is followed, and the services that answer by it.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tollgate::config::{self, ReloadError, Watch};
use tollgate::{ConfigError, Limiter, LimiterBuilder, Policy};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::counts::{Counters, Counts};
use crate::envoy::EnvoyService;
use crate::live::Live;
use crate::proto::rate_limit_service_server::RateLimitServiceServer;
use crate::rules::Rules;

/// The longest request that is read. Envoy passes on at most 60 KiB of header fields unless told otherwise, and several descriptors
/// may have the same value.
const MAX_REQUEST_BYTES: usize = 256 << 10;

/// The time that connections have to end when the server does. A connection that has sent nothing ends only by its client.
const GRACE: Duration = Duration::from_secs(5);

/// The time without a sign of life after which a connection is asked for one, and in which it has to answer.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// Answers gateways by a configuration file, and follows the file for as long as it lives.
///
/// ```no_run
/// use tokio::net::TcpListener;
/// use tollgate_server::Gateway;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // The builder takes a backend: without one, the budgets are in this process.
/// let gateway = Gateway::start("gateway.toml", |builder| builder)?;
/// let listener = TcpListener::bind("127.0.0.1:8081").await?;
/// gateway.serve(listener, std::future::pending()).await?;
/// # Ok(()) }
/// ```
#[must_use = "it answers when it serves"]
pub struct Gateway {
    live: Arc<Live>,
    watch: Watch,
}

impl Gateway {
    /// Reads the file, builds its limiter with what `finish` adds to the builder, and follows the file from now on.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or makes no sense: with its path and, as far as it is known, the line.
    pub fn start(
        path: impl Into<PathBuf>,
        finish: impl FnOnce(LimiterBuilder) -> LimiterBuilder,
    ) -> Result<Self, ReloadError> {
        let path = path.into();
        // The rules of the text that was read last, and what they are to replace once its policies have taken effect.
        let read: Arc<Mutex<Option<Rules>>> = Arc::default();
        let live: Arc<Mutex<Option<Arc<Live>>>> = Arc::default();
        let (read_now, live_now) = (Arc::clone(&read), Arc::clone(&live));
        let named = path.clone();
        let mut file = config::watch(path, move |text| {
            let (limiter, rules) = crate::config::read_file(&named, text)?;
            *lock(&read_now) = Some(rules);
            Ok::<_, String>(limiter)
        })
        .adopting(move |limiter| {
            let rules = Arc::new(lock(&read).take().unwrap_or_default());
            tracing::info!(rules = rules.len(), "rules for Envoy take effect");
            match &mut *lock(&live_now) {
                Some(live) => live.rules.store(rules),
                none => {
                    *none = Some(Arc::new(Live {
                        limiter: limiter.clone(),
                        rules: ArcSwap::new(rules),
                        counts: Counters::default(),
                    }));
                }
            }
        });
        let limiter = file.start(|builder| finish(builder).refusing(unfit))?;
        let watch = file.follow(&limiter);
        let fresh = || {
            Arc::new(Live {
                limiter,
                rules: ArcSwap::default(),
                counts: Counters::default(),
            })
        };
        let live = lock(&live).clone().unwrap_or_else(fresh);
        Ok(Self { live, watch })
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

    /// Answers on this socket until `stop` is ready. Then no connection is accepted any more, and the requests under way are
    /// answered, for at most five seconds.
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
        listener: TcpListener,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let envoy = RateLimitServiceServer::new(EnvoyService::new(Arc::clone(&self.live)));
        let envoy = envoy.max_decoding_message_size(MAX_REQUEST_BYTES);
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let server = Server::builder()
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(KEEPALIVE));
        let mut server = server;
        let stopping = Notify::new();
        let stop = async {
            stop.await;
            stopping.notify_one();
        };
        let late = async {
            stopping.notified().await;
            tokio::time::sleep(GRACE).await;
        };
        let served = server
            .add_service(envoy)
            .serve_with_incoming_shutdown(incoming, stop);
        tokio::select! {
            served = served => served.map_err(io::Error::other),
            () = late => {
                tracing::warn!("closes connections whose clients do not end them");
                Ok(())
            }
        }
    }
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
