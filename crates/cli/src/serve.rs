//! `tollgate serve`: answers gateways by a configuration file, for as long as it is not told to end.

mod admin;
mod log;
mod open_files;
mod service_manager;
mod signals;
mod tls;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tollgate::{ConnectError, FailureKind, LimiterBuilder, OnFailure, RedisBackend, Share};
use tollgate_server::{Gateway, Listener, Tls};

use self::admin::AdminArguments;
use self::log::LogForm;
use self::service_manager::ServiceManager;
use self::tls::TlsArguments;
use crate::failure::Failure;
use crate::figures::read_period;
use crate::redis::RedisArguments;

/// Answers Envoy's rate limit service, and the questions of nginx, Caddy and Traefik, with the budgets of a file.
///
/// The file is read again when it changes; if it is wrong then, what was before holds. Without --redis the budgets are in this
/// process alone. With --tls-cert gateways are answered over TLS alone; the status stays in the clear. RUST_LOG chooses what is
/// logged, as in RUST_LOG=debug. Exit codes: 0 it was told to end; 1 the file is invalid, the fleet's Redis cannot be reached, or a
/// socket fails; 2 the arguments make no sense.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate serve gateway.toml --listen 0.0.0.0:8081 --redis redis://10.0.0.7:6379 --status 0.0.0.0:9090
  tollgate serve gateway.toml --forward-auth 127.0.0.1:8082
  tollgate serve gateway.toml --listen 0.0.0.0:8081 --tls-cert server.pem --tls-key server.key --tls-client-ca gateways.pem
  tollgate serve gateway.toml --admin 127.0.0.1:8083 --admin-token-file /etc/tollgate/admin-token
  tollgate serve gateway.toml --check")]
pub(crate) struct ServeArguments {
    /// The file with policies and rules: TOML, or one of envoy/ratelimit if its name ends in .yaml or .yml.
    file: PathBuf,
    /// Only says whether the file is valid, and those for TLS and the token of the admin are.
    #[arg(long)]
    check: bool,
    /// The address on which Envoy asks.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    listen: SocketAddr,
    /// The address on which nginx, Caddy or Traefik ask. The file needs a table [forward_auth].
    #[arg(long, value_name = "ADDRESS")]
    forward_auth: Option<SocketAddr>,
    /// What every policy does while Redis does not decide, in place of what the file says: lets requests pass, answers Envoy
    /// UNAVAILABLE, or counts in this process.
    #[arg(long, value_enum, value_name = "RULE")]
    on_failure: Option<FailureRule>,
    /// The time in which Redis must decide, as in 50ms or 1s.
    #[arg(long, value_name = "TIME", value_parser = read_period, requires = "urls")]
    deadline: Option<Duration>,
    /// The address of /metrics, /livez and /readyz.
    #[arg(long, value_name = "ADDRESS")]
    status: Option<SocketAddr>,
    #[command(flatten)]
    admin: AdminArguments,
    /// The form of the log, on the standard error.
    #[arg(long, value_enum, value_name = "FORM", default_value_t)]
    log: LogForm,
    #[command(flatten)]
    tls: TlsArguments,
    #[command(flatten)]
    redis: RedisArguments,
}

/// The rules for the time in which Redis does not decide.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum FailureRule {
    Allow,
    Deny,
    Local,
}

impl From<FailureRule> for OnFailure {
    fn from(rule: FailureRule) -> Self {
        match rule {
            FailureRule::Allow => Self::Allow,
            FailureRule::Deny => Self::Deny,
            FailureRule::Local => Self::Local(Share::WHOLE),
        }
    }
}

impl ServeArguments {
    fn on_failure(&self) -> Option<OnFailure> {
        self.on_failure.map(OnFailure::from)
    }
}

pub(crate) fn run(asked: &ServeArguments) -> Result<String, Failure> {
    if asked.check {
        asked.admin.read()?;
        let started = Gateway::start(&asked.file, asked.on_failure(), |builder| builder);
        started.map(drop).map_err(Failure::invalid)?;
        asked.tls.load()?;
        return Ok(format!("{}: valid\n", asked.file.display()));
    }
    log::begin(asked.log);
    open_files::allow_all();
    let runtime = Runtime::new().map_err(Failure::invalid)?;
    runtime.block_on(serve(asked))?;
    Ok(String::new())
}

async fn serve(asked: &ServeArguments) -> Result<(), Failure> {
    let admin = asked.admin.read()?;
    let redis = match asked.redis.are_given() {
        false => None,
        true => Some(connected(asked).await?),
    };
    let finish = |builder: LimiterBuilder| {
        let builder = match &admin {
            Some((_, admin)) => admin.watch(builder),
            None => builder,
        };
        match redis {
            Some(backend) => builder.backend(backend),
            None => builder,
        }
    };
    let page = recorder().map_err(Failure::invalid)?;
    let gateway =
        Gateway::start(&asked.file, asked.on_failure(), finish).map_err(Failure::invalid)?;
    if gateway.answers_forward_auth() != asked.forward_auth.is_some() {
        return Err(Failure::usage(
            "--forward-auth and the table [forward_auth] of the file belong together: one of them is missing",
        ));
    }
    let tls = asked.tls.load()?;
    let envoy = Socket::bound("--listen", asked.listen, "Envoy may ask").await?;
    let over_http = "a gateway may ask over HTTP";
    let forward_auth = Socket::if_stated("--forward-auth", asked.forward_auth, over_http);
    let forward_auth = forward_auth.await?;
    let status = Socket::if_stated("--status", asked.status, "the status is told").await?;
    let end = || signals::end().map_err(Failure::invalid);
    let (ends, ended) = ((end()?, end()?), end()?);
    let manager = ServiceManager::of_environment();
    let admin_address = admin.as_ref().map(|(address, _)| *address);
    let admin_socket = Socket::if_stated("--admin", admin_address, "operators may steer").await?;
    let envoy = async {
        let served = gateway
            .serve(secured(envoy.listener, tls.as_ref()), ends.0)
            .await;
        served.map_err(|error| Failure::invalid(format_args!("{}: {error}", envoy.address)))
    };
    let forward_auth = async {
        let Some(socket) = forward_auth else {
            return Ok(());
        };
        let listener = secured(socket.listener, tls.as_ref());
        let served = gateway.serve_forward_auth(listener, ends.1).await;
        served.map_err(|error| Failure::invalid(format_args!("{}: {error}", socket.address)))
    };
    let status = async {
        let Some(socket) = status else {
            return std::future::pending().await;
        };
        let page = move || page.render();
        let never = std::future::pending();
        let served = gateway.serve_status(socket.listener, page, never).await;
        served.map_err(|error| Failure::invalid(format_args!("{}: {error}", socket.address)))
    };
    let farewell = async {
        ended.await;
        manager.tell("STOPPING=1", "gives connections their time to end");
        Ok(())
    };
    let gateways = async { tokio::try_join!(envoy, forward_auth, farewell).map(drop) };
    let admin = async {
        let (Some((_, admin)), Some(socket)) = (&admin, admin_socket) else {
            return std::future::pending().await;
        };
        let never = std::future::pending();
        let listener = secured(socket.listener, tls.as_ref());
        let served = gateway.serve_admin(listener, admin, never).await;
        served.map_err(|error| Failure::invalid(format_args!("{}: {error}", socket.address)))
    };
    // The status is told for as long as a gateway is answered, and operators may steer.
    tokio::select! {
        ended = gateways => ended?,
        failed = status => failed?,
        failed = admin => failed?,
        never = signals::tell_reloads(&manager, &gateway, tls.as_ref()) => match never {},
    }
    tracing::info!("stopped");
    Ok(())
}

/// Returns the backend of a server, with the connections of the library, and its deadline unless another is stated. An operator who
/// states what decides without Redis may start the program without it, though not over a mistake that no server would mend.
async fn connected(asked: &ServeArguments) -> Result<RedisBackend, Failure> {
    let mut builder = asked.redis.servers()?.client_name("tollgate-serve");
    if let Some(deadline) = asked.deadline {
        builder = builder.deadline(deadline);
    }
    let error = match builder.clone().connect().await {
        Ok(backend) => return Ok(backend),
        Err(error) => error,
    };
    if !may_pass(&error) {
        return Err(Failure::unconnected(error));
    }
    let file = asked.file.display();
    let is_stated = || fs::read_to_string(&asked.file).is_ok_and(|text| states_every_rule(&text));
    if asked.on_failure.is_none() && !is_stated() {
        let is_of_envoy = (asked.file.extension()).is_some_and(|it| it == "yaml" || it == "yml");
        let in_file = match is_of_envoy {
            // Such a file has no word for it.
            true => String::new(),
            false => format!(", or on_failure in every policy of {file} that is not in shadow"),
        };
        return Err(Failure::unconnected(error).followed_by(&format!(
            "to start without Redis, set --on-failure{in_file}"
        )));
    }
    tracing::warn!("Redis is away, and until it is back the stated rule decides: {error}");
    builder.start().map_err(Failure::unconnected)
}

/// True if each policy of a file in TOML that is enforced states its rule. The text is looked at, since a rule that is left out has a
/// default, which nobody has chosen.
fn states_every_rule(text: &str) -> bool {
    let document: toml::Table = text.parse().unwrap_or_default();
    let policies: Vec<_> = match document.get("policies") {
        Some(toml::Value::Array(policies)) => policies.iter().collect(),
        Some(toml::Value::Table(by_name)) => by_name.values().collect(),
        _ => return false,
    };
    let is_in_shadow =
        |policy: &toml::Value| policy.get("shadow").and_then(toml::Value::as_bool) == Some(true);
    (policies.iter()).all(|policy| policy.get("on_failure").is_some() || is_in_shadow(policy))
}

fn may_pass(error: &ConnectError) -> bool {
    matches!(
        error.kind(),
        Some(FailureKind::Unreachable | FailureKind::Unready)
    )
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

/// A socket whose clients are answered over TLS, if there are files for it.
fn secured(listener: TcpListener, tls: Option<&Tls>) -> Listener {
    let listener = Listener::from(listener);
    match tls {
        Some(tls) => listener.tls(tls),
        None => listener,
    }
}

/// A socket that listens.
struct Socket {
    listener: TcpListener,
    address: SocketAddr,
}

impl Socket {
    async fn bound(argument: &str, address: SocketAddr, told: &str) -> Result<Self, Failure> {
        let listener = TcpListener::bind(address).await;
        let listener = listener
            .map_err(|error| Failure::invalid(format_args!("{argument} {address}: {error}")))?;
        let address = listener.local_addr().unwrap_or(address);
        tracing::info!(%address, "{told}");
        Ok(Self { listener, address })
    }

    async fn if_stated(
        argument: &str,
        address: Option<SocketAddr>,
        told: &str,
    ) -> Result<Option<Self>, Failure> {
        match address {
            Some(address) => Self::bound(argument, address, told).await.map(Some),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::states_every_rule;

    #[test]
    fn every_policy_states_its_rule_but_those_in_shadow() {
        let stated = "[[policies]]\nname = 'a'\non_failure = 'deny'\n";
        let shadow = "[[policies]]\nname = 'b'\nshadow = true\n";
        let enforced = "[[policies]]\nname = 'c'\nshadow = false\n";
        for (text, expected) in [
            (stated.to_owned(), true),
            (format!("{stated}{shadow}"), true),
            (format!("{stated}{enforced}"), false),
            (
                "[policies.a]\non_failure = { local-one-in = 4 }".to_owned(),
                true,
            ),
            ("[policies.a]\nquotas = '1/s'".to_owned(), false),
            // A file of envoy/ratelimit, and one without policies.
            ("domain: shop\ndescriptors: []\n".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(states_every_rule(&text), expected, "{text}");
        }
    }
}
