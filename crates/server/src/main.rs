//! The program `tollgate-server`: answers gateways by a configuration file.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
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

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_default_env();
    let filter = filter.unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .init();
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
    let gateway = Gateway::start(&arguments.config, finish).map_err(|error| error.to_string())?;
    if gateway.answers_forward_auth() != arguments.forward_auth.is_some() {
        return Err(
            "--forward-auth and the table [forward_auth] of the file belong together: one of them is missing"
                .to_owned(),
        );
    }
    let (envoy, address) = bound("--listen", arguments.listen).await?;
    tracing::info!(%address, "Envoy may ask");
    let envoy = async {
        let served = gateway.serve(envoy, stopped()).await;
        served.map_err(|error| format!("{address}: {error}"))
    };
    let forward_auth = async {
        let Some(address) = arguments.forward_auth else {
            return Ok(());
        };
        let (listener, address) = bound("--forward-auth", address).await?;
        tracing::info!(%address, "a gateway may ask over HTTP");
        let served = gateway.serve_forward_auth(listener, stopped()).await;
        served.map_err(|error| format!("{address}: {error}"))
    };
    tokio::try_join!(envoy, forward_auth)?;
    tracing::info!("stopped");
    Ok(())
}

async fn bound(argument: &str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), String> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| format!("{argument} {address}: {error}"))?;
    let address = listener.local_addr().unwrap_or(address);
    Ok((listener, address))
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
