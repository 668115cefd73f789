//! A server that says hello, behind one of the limiters, for wrk to drive.

mod controls;
mod nginx;

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::process;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::get;
use clap::{Args, ValueEnum};
use http::request::Parts;
use http::{Request, Response};
use tokio::net::TcpListener;
use tollgate::{Concurrent, Limiter, Policy, Quota, RateLimitLayer, RedisBackend, key};
use tollgate_bench::prometheus;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower_governor::GovernorLayer;
use tower_governor::errors::GovernorError;
use tower_governor::governor::GovernorConfigBuilder;

use crate::Result;
use crate::contender::{QUOTA, peer_layer};

const HELLO: &str = "hello, world";

/// More than wrk can spend.
const PLENTY: Quota = Quota::per_second(1_000_000);

/// More than a connection of wrk's has under way, and than all of them have: no request is refused, and none waits.
const AT_ONCE: u32 = 1_000;

/// The time from one page to the next. Prometheus asks for one every 15 seconds, which few turns would see.
const SCRAPED_EVERY: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(crate) struct Serve {
    /// The limiter before the handler
    who: Who,
    /// The Redis server that it decides on, if it needs one
    #[arg(long, default_value = "")]
    redis: String,
}

/// The limiter before the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Who {
    Bare,
    SameHeaders,
    SameHeadersAndEntry,
    TollgateMemory,
    TollgateExported,
    TowerGovernor,
    AxumGovernor,
    RoundTrip,
    TollgateRedis,
    TowerRateLimitRedis,
    TollgateAtOnce,
    ConcurrencyLimit,
    Nginx,
    NginxLimitConn,
}

impl Who {
    /// The rate limiters, after the server without one.
    pub(crate) const ALL: [Self; 10] = [
        Self::Bare,
        Self::SameHeaders,
        Self::SameHeadersAndEntry,
        Self::TollgateMemory,
        Self::TollgateExported,
        Self::TowerGovernor,
        Self::AxumGovernor,
        Self::RoundTrip,
        Self::TollgateRedis,
        Self::TowerRateLimitRedis,
    ];

    /// The limits on how many at once, after the servers without one.
    pub(crate) const AT_ONCE: [Self; 5] = [
        Self::Bare,
        Self::TollgateAtOnce,
        Self::ConcurrencyLimit,
        Self::Nginx,
        Self::NginxLimitConn,
    ];

    /// The server without a limiter that this one is compared with.
    pub(crate) fn bare(self) -> Self {
        if self.is_nginx() {
            Self::Nginx
        } else {
            Self::Bare
        }
    }

    pub(crate) fn is_nginx(self) -> bool {
        matches!(self, Self::Nginx | Self::NginxLimitConn)
    }

    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::SameHeaders => "bare, with the same headers",
            Self::SameHeadersAndEntry => "bare, with the same headers and an entry",
            Self::TollgateMemory => "Tollgate, memory",
            Self::TollgateExported => "Tollgate, memory, with metrics for Prometheus",
            Self::TowerGovernor => "tower_governor",
            Self::AxumGovernor => "axum-governor",
            Self::RoundTrip => "bare, after a `PING`",
            Self::TollgateRedis => "Tollgate, Redis",
            Self::TowerRateLimitRedis => "tower-rate-limit-redis",
            Self::TollgateAtOnce => "Tollgate, memory, `1000 at once`",
            Self::ConcurrencyLimit => "tower's `ConcurrencyLimit`",
            Self::Nginx => "nginx, bare",
            Self::NginxLimitConn => "nginx, `limit_conn`",
        }
    }
}

impl Serve {
    /// Prints the port and the process that serves, and serves until the input ends, so that it ends with its parent process.
    pub(crate) fn run(&self) -> Result<()> {
        if self.who.is_nginx() {
            return nginx::run(self.who == Who::NginxLimitConn);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let app = self.app().await?;
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            println!("{} {}", listener.local_addr()?.port(), process::id());
            let app = app.into_make_service_with_connect_info::<SocketAddr>();
            tokio::spawn(axum::serve(listener, app).into_future());
            let end = || std::io::stdin().read_to_end(&mut Vec::new());
            tokio::task::spawn_blocking(end).await??;
            Ok(())
        })
    }

    /// Takes each connection for a caller: all of wrk's have one address.
    async fn app(&self) -> Result<Router> {
        let app = Router::new().route("/", get(|| async { HELLO }));
        let by_port = key::from_fn(|request| {
            let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
            peer.map(|peer| u64::from(peer.0.port()))
        });
        Ok(match self.who {
            Who::Bare => app,
            Who::SameHeaders => controls::with_fields(app),
            Who::SameHeadersAndEntry => controls::with_fields_and_entry(app),
            Who::RoundTrip => controls::with_round_trip(&self.redis).await?,
            Who::TollgateMemory => {
                app.layer(RateLimitLayer::new(Policy::new("api", PLENTY).key(by_port)))
            }
            Who::TollgateExported => {
                let policy = Policy::new("api", PLENTY).key(by_port);
                app.layer(exported(policy)?)
            }
            Who::TollgateRedis => {
                let backend = RedisBackend::connect(&self.redis).await?;
                let limiter = Limiter::builder().policy(Policy::new("api", QUOTA).key(by_port));
                app.layer(RateLimitLayer::new(limiter.backend(backend).build()?))
            }
            Who::TowerGovernor => {
                let mut config = GovernorConfigBuilder::default();
                config.per_nanosecond(1_000).burst_size(1_000_000);
                let config = config.key_extractor(ByPort).use_headers().finish();
                let config = config.ok_or("tower_governor refuses its configuration")?;
                app.layer(GovernorLayer::new(Arc::new(config)))
            }
            Who::AxumGovernor => {
                let a_million = NonZeroU32::new(1_000_000).unwrap_or(NonZeroU32::MIN);
                let config = axum_governor::GovernorConfigBuilder::default()
                    .with_extractor(ByPort)
                    .expect_connect_info()
                    .quota_default(axum_governor::Quota::requests_per_second(a_million))
                    .finish()?;
                app.layer(axum_governor::GovernorLayer::new(config))
            }
            Who::TowerRateLimitRedis => app.layer(peer_layer(&self.redis, ByPort).await?),
            Who::TollgateAtOnce => {
                let at_once = Concurrent::at_most(AT_ONCE.into());
                app.layer(RateLimitLayer::new(
                    Policy::new("api", at_once).key(by_port),
                ))
            }
            Who::ConcurrencyLimit => app.layer(GlobalConcurrencyLimitLayer::new(AT_ONCE as usize)),
            Who::Nginx | Who::NginxLimitConn => return Err("nginx is not a router".into()),
        })
    }
}

/// A layer whose decisions are counted by a recorder that writes pages for Prometheus.
fn exported(policy: Policy) -> Result<RateLimitLayer> {
    let recorder = prometheus();
    let pages = recorder.handle();
    metrics::set_global_recorder(recorder)?;
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(SCRAPED_EVERY).await;
            pages.render();
        }
    });
    let limiter = Limiter::builder().policy(policy).metrics();
    Ok(RateLimitLayer::new(limiter.build()?))
}

/// The caller's port, for all limiters that want a type for it.
#[derive(Clone)]
struct ByPort;

fn port(extensions: &http::Extensions) -> u16 {
    let peer = extensions.get::<ConnectInfo<SocketAddr>>();
    peer.map_or(0, |peer| peer.0.port())
}

impl tower_governor::key_extractor::KeyExtractor for ByPort {
    type Key = u16;

    fn extract<T>(&self, request: &Request<T>) -> std::result::Result<u16, GovernorError> {
        Ok(port(request.extensions()))
    }
}

impl axum_governor::KeyExtractor for ByPort {
    type Key = u16;

    fn extract(
        &self,
        parts: &Parts,
    ) -> std::result::Result<axum_governor::KeyOutcome<u16>, axum_governor::ExtractionError> {
        Ok(axum_governor::KeyOutcome::new(port(&parts.extensions)))
    }
}

impl tower_rate_limit_redis::KeyResolver for ByPort {
    type Key = String;
    type ErrorBody = Body;

    fn key<T>(&self, request: &Request<T>) -> std::result::Result<String, Response<Body>> {
        Ok(format!("peer:{}", port(request.extensions())))
    }
}
