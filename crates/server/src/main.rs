//! The program `tollgate-server`: answers gateways by a configuration file.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tollgate::{LimiterBuilder, RedisBackend};
use tollgate_server::Gateway;
use tracing_subscriber::EnvFilter;

/// Answers Envoy's rate limit service, and the questions of nginx, Caddy and Traefik, with the budgets of a configuration file.
///
/// The file is read again when it changes; if it is wrong then, what was before holds. RUST_LOG chooses what is logged, as in
/// RUST_LOG=debug.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The file with policies and rules, in TOML.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Only says whether the file is valid, by the status: 0, or 1 with the reason.
    #[arg(long)]
    check: bool,
    /// The address on which Envoy asks.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    listen: SocketAddr,
    /// The address on which nginx, Caddy or Traefik ask. The file needs a table [forward_auth].
    #[arg(long, value_name = "ADDRESS")]
    forward_auth: Option<SocketAddr>,
    /// The address of /metrics, /livez and /readyz.
    #[arg(long, value_name = "ADDRESS")]
    status: Option<SocketAddr>,
    /// The form of the log.
    #[arg(long, value_enum, value_name = "FORM", default_value_t)]
    log: LogForm,
    /// The Redis that has the budgets: redis://[user:password@]host[:port][/database], or rediss:// for TLS. Without one, the
    /// budgets are in this process alone.
    #[arg(
        long,
        value_name = "URL",
        env = "TOLLGATE_REDIS_URL",
        hide_env_values = true
    )]
    redis: Option<String>,
    /// The beginning of the names of keys in Redis, as the services have it.
    #[arg(long, value_name = "PREFIX", default_value = "tollgate")]
    prefix: String,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum LogForm {
    /// A line for people.
    #[default]
    Text,
    /// An object of JSON in each line.
    Json,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_default_env();
    let filter = filter.unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    match arguments.log {
        LogForm::Text => log.init(),
        LogForm::Json => log.json().init(),
    }
    match run(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            tracing::error!("{reason}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<(), String> {
    if arguments.check {
        let started = Gateway::start(&arguments.config, |builder| builder);
        return started.map(drop).map_err(|error| error.to_string());
    }
    let redis = match &arguments.redis {
        None => None,
        Some(url) => {
            let backend = RedisBackend::builder(url).prefix(&arguments.prefix);
            let backend = backend.client_name("tollgate-server").connect().await;
            Some(backend.map_err(|error| format!("redis: {error}"))?)
        }
    };
    let finish = |builder: LimiterBuilder| match redis {
        Some(backend) => builder.backend(backend),
        None => builder,
    };
    let page = recorder()?;
    let gateway = Gateway::start(&arguments.config, finish).map_err(|error| error.to_string())?;
    if gateway.answers_forward_auth() != arguments.forward_auth.is_some() {
        return Err(
            "--forward-auth and the table [forward_auth] of the file belong together: one of them is missing"
                .to_owned(),
        );
    }
    let envoy = Socket::bound("--listen", arguments.listen, "Envoy may ask").await?;
    let over_http = "a gateway may ask over HTTP";
    let forward_auth = Socket::if_stated("--forward-auth", arguments.forward_auth, over_http);
    let forward_auth = forward_auth.await?;
    let status = Socket::if_stated("--status", arguments.status, "the status is told").await?;
    let envoy = async {
        let served = gateway.serve(envoy.listener, stopped()).await;
        served.map_err(|error| format!("{}: {error}", envoy.address))
    };
    let forward_auth = async {
        let Some(socket) = forward_auth else {
            return Ok(());
        };
        let served = gateway.serve_forward_auth(socket.listener, stopped()).await;
        served.map_err(|error| format!("{}: {error}", socket.address))
    };
    let status = async {
        let Some(socket) = status else {
            return std::future::pending().await;
        };
        let page = move || page.render();
        let never = std::future::pending();
        let served = gateway.serve_status(socket.listener, page, never).await;
        served.map_err(|error| format!("{}: {error}", socket.address))
    };
    let gateways = async { tokio::try_join!(envoy, forward_auth).map(drop) };
    // The status is told for as long as a gateway is answered.
    tokio::select! {
        ended = gateways => ended?,
        failed = status => failed?,
    }
    tracing::info!("stopped");
    Ok(())
}

/// Installs the recorder of metrics, whose page this writes.
fn recorder() -> Result<PrometheusHandle, String> {
    let buckets = [
        (
            "rate_limiting_budget_used_ratio",
            &[0.25, 0.5, 0.75, 0.9, 1.0][..],
        ),
        (
            "rate_limiting_decision_duration_seconds",
            &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5],
        ),
    ];
    let mut builder = PrometheusBuilder::new();
    for (name, limits) in buckets {
        let name = Matcher::Full(name.to_owned());
        builder = builder
            .set_buckets_for_metric(name, limits)
            .map_err(|error| error.to_string())?;
    }
    let recorder = builder.build_recorder();
    let page = recorder.handle();
    metrics::set_global_recorder(recorder).map_err(|error| error.to_string())?;
    Ok(page)
}

/// A socket that listens.
struct Socket {
    listener: TcpListener,
    address: SocketAddr,
}

impl Socket {
    async fn bound(argument: &str, address: SocketAddr, told: &str) -> Result<Self, String> {
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|error| format!("{argument} {address}: {error}"))?;
        let address = listener.local_addr().unwrap_or(address);
        tracing::info!(%address, "{told}");
        Ok(Self { listener, address })
    }

    async fn if_stated(
        argument: &str,
        address: Option<SocketAddr>,
        told: &str,
    ) -> Result<Option<Self>, String> {
        match address {
            Some(address) => Self::bound(argument, address, told).await.map(Some),
            None => Ok(None),
        }
    }
}

/// Waits for the signal that ends the program.
async fn stopped() {
    let interrupted = tokio::signal::ctrl_c();
    #[cfg(unix)]
    if let Ok(mut terminated) =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
    {
        tokio::select! {
            _ = interrupted => {}
            _ = terminated.recv() => {}
        }
        return;
    }
    drop(interrupted.await);
}
