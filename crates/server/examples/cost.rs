//! The cost of a limit by each gateway, in one run: a service alone, with the layer of the library, behind nginx and behind Envoy,
//! each gateway without a question and with one, decided in memory and in Redis. It starts everything itself, with the
//! configurations of the guide, and prints the table of `docs/gateways.md`.
//!
//! ```text
//! tests/install.sh && cargo run --release -p tollgate-server --example cost
//! ```

#![allow(
    clippy::cast_precision_loss,
    clippy::float_arithmetic,
    clippy::print_stdout,
    reason = "it prints measurements"
)]

use std::error::Error;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tollgate::{
    HeaderForm, Limiter, Policy, Quota, RateLimitHeaders, RateLimitLayer, RedisBackend, key,
};
use tollgate_server::Gateway;
use tollgate_testkit::{Envoy, Nginx, Standalone};

const GUIDE: &str = include_str!("../../../docs/gateways.md");

const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_secs(1);

/// The connections, each with one request under way, and each a caller of its own.
const CONNECTIONS: usize = 16;

/// More than all callers can spend.
const PLENTY: Quota = Quota::per_second(1_000_000);

/// A machine that does something else may take longer than the guide allows, and then a request passes without a decision.
const PATIENT: [(&str, &str); 3] = [
    ("timeout: 0.25s", "timeout: 10s"),
    ("proxy_connect_timeout 1s", "proxy_connect_timeout 10s"),
    ("proxy_read_timeout 1s", "proxy_read_timeout 10s"),
];

type Failure = Box<dyn Error + Send + Sync>;

/// A way to the service.
struct Way {
    name: &'static str,
    address: SocketAddr,
    /// The name of the way that it is compared with.
    beside: &'static str,
    has_redis: bool,
    figures: Vec<Figures>,
}

/// The figures of a round.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    per_second: f64,
    median: Duration,
    p99: Duration,
    /// The calls of scripts for a request, and the time of them at the server, if it has decided.
    calls: f64,
    busy_us: f64,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let redis = Standalone::start();
    let service = serve(Router::new().route("/things", get(|| async { "served" }))).await?;
    let mut ways = vec![way("the service alone", service, "", false)];
    for has_redis in [false, true] {
        let name = match has_redis {
            false => "the layer in it",
            true => "the layer in it, Redis",
        };
        let layered = serve(layered(has_redis.then_some(&redis)).await?).await?;
        ways.push(way(name, layered, "the service alone", has_redis));
    }
    let nginx = Nginx::start("", &nginx_alone(service));
    ways.push(way("nginx", nginx.address(), "", false));
    let envoy = envoy(&envoy_alone(service)).await?;
    ways.push(way("Envoy", envoy.address(), "", false));
    let (mut gateways, mut servers) = (Vec::new(), Vec::new());
    for has_redis in [false, true] {
        let asked = Asked::start(&folder, has_redis.then_some(&redis)).await?;
        let nginx = Nginx::start("", &nginx_asking(service, asked.forward_auth));
        let envoy = self::envoy(&envoy_asking(service, asked.envoy)).await?;
        let [by_nginx, by_envoy] = match has_redis {
            false => ["nginx, `auth_request`", "Envoy, rate limit service"],
            true => [
                "nginx, `auth_request`, Redis",
                "Envoy, rate limit service, Redis",
            ],
        };
        ways.push(way(by_nginx, nginx.address(), "nginx", has_redis));
        ways.push(way(by_envoy, envoy.address(), "Envoy", has_redis));
        servers.push((nginx, envoy));
        gateways.push(asked);
    }
    for round in 0..=ROUNDS {
        for way in &mut ways {
            let before = Work::of(&redis);
            let mut figures = asked(way.address).await?;
            let work = Work::of(&redis).since(before);
            let requests = figures.per_second * ROUND.as_secs_f64();
            (figures.calls, figures.busy_us) = (work.calls / requests, work.busy_us / requests);
            // The first round warms up.
            if round > 0 {
                way.figures.push(figures);
            }
        }
    }
    for gateway in &gateways {
        let counts = gateway.gateway.counts();
        assert!(
            counts.passed > 0 && (counts.refused, counts.undecided, counts.invalid) == (0, 0, 0),
            "each request has a decision: {counts:?}"
        );
    }
    print(&ways);
    Ok(())
}

fn way(name: &'static str, address: SocketAddr, beside: &'static str, has_redis: bool) -> Way {
    Way {
        name,
        address,
        beside,
        has_redis,
        figures: Vec::new(),
    }
}

fn print(ways: &[Way]) {
    println!(
        "| a request to | requests a second | median | p99 | by the median without a limit | script calls for a request | Redis, µs for a request |"
    );
    println!("| --- | --: | --: | --: | --: | --: | --: |");
    for way in ways {
        let figures = middle(&way.figures);
        let beside = ways.iter().find(|other| other.name == way.beside);
        let by = beside.map_or("–".to_owned(), |beside| {
            let beside = middle(&beside.figures).median.as_secs_f64();
            format!("{:.2}", figures.median.as_secs_f64() / beside)
        });
        let of_redis = |figure: f64| match way.has_redis {
            true => format!("{figure:.2}"),
            false => "–".to_owned(),
        };
        println!(
            "| {} | {:.0} | {:.2} ms | {:.2} ms | {by} | {} | {} |",
            way.name,
            figures.per_second,
            figures.median.as_secs_f64() * 1e3,
            figures.p99.as_secs_f64() * 1e3,
            of_redis(figures.calls),
            of_redis(figures.busy_us),
        );
    }
}

/// The middle of each figure by itself.
fn middle(rounds: &[Figures]) -> Figures {
    let of = |figure: &dyn Fn(&Figures) -> f64| {
        let mut all: Vec<_> = rounds.iter().map(figure).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let time = |figure: &dyn Fn(&Figures) -> Duration| {
        Duration::from_secs_f64(of(&|round| figure(round).as_secs_f64()))
    };
    Figures {
        per_second: of(&|round| round.per_second),
        median: time(&|round| round.median),
        p99: time(&|round| round.p99),
        calls: of(&|round| round.calls),
        busy_us: of(&|round| round.busy_us),
    }
}

async fn serve(app: Router) -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}

/// The service with the layer around it, and the fields that a gateway writes.
async fn layered(redis: Option<&Standalone>) -> Result<Router, Failure> {
    let policy = Policy::new("api", PLENTY).key(key::Header::new("x-api-key"));
    let limiter = Limiter::builder().policy(policy);
    let limiter = match redis {
        Some(redis) => limiter.backend(RedisBackend::connect(&redis.url()).await?),
        None => limiter,
    };
    let headers = RateLimitHeaders::from(HeaderForm::Draft11);
    let layer = RateLimitLayer::new(limiter.build()?).headers(headers);
    let app = Router::new().route("/things", get(|| async { "served" }));
    Ok(app.layer(layer))
}

/// The server that gateways ask.
struct Asked {
    gateway: std::sync::Arc<Gateway>,
    envoy: SocketAddr,
    forward_auth: SocketAddr,
}

impl Asked {
    async fn start(folder: &TempDir, redis: Option<&Standalone>) -> Result<Self, Failure> {
        let name = match redis {
            Some(_) => "redis.toml",
            None => "memory.toml",
        };
        let file = folder.path().join(name);
        write(&file)?;
        let backend = match redis {
            Some(redis) => Some(RedisBackend::connect(&redis.url()).await?),
            None => None,
        };
        let gateway = Gateway::start(file, None, |builder| match backend {
            Some(backend) => builder.backend(backend),
            None => builder,
        })?;
        let gateway = std::sync::Arc::new(gateway);
        let listeners = [
            TcpListener::bind("127.0.0.1:0").await?,
            TcpListener::bind("127.0.0.1:0").await?,
        ];
        let [envoy, forward_auth] = [listeners[0].local_addr()?, listeners[1].local_addr()?];
        let [of_envoy, of_nginx] = listeners;
        let serving = std::sync::Arc::clone(&gateway);
        tokio::spawn(async move { serving.serve(of_envoy, std::future::pending()).await });
        let serving = std::sync::Arc::clone(&gateway);
        tokio::spawn(async move {
            let never = std::future::pending();
            serving.serve_forward_auth(of_nginx, never).await
        });
        Ok(Self {
            gateway,
            envoy,
            forward_auth,
        })
    }
}

fn write(file: &Path) -> Result<(), Failure> {
    let text = format!(
        "client_address = {{ x-forwarded-for = {{ networks = [\"127.0.0.1\"] }} }}
[forward_auth]
gateway = \"nginx\"
[[policies]]
name = \"things\"
quotas = \"{PLENTY}\"
key = {{ header = \"x-api-key\" }}
[[policies]]
name = \"api\"
quotas = \"{PLENTY}\"
on_demand = true
[[envoy]]
domain = \"shop\"
descriptor = [{{ key = \"api_key\" }}]
policy = \"api\"
"
    );
    Ok(fs::write(file, text)?)
}

/// The first example of this language in the guide, behind this heading, with these words replaced.
fn example(heading: &str, language: &str, words: &[(&str, &str)]) -> String {
    let section = GUIDE.split_once(&format!("\n## {heading}\n"));
    let section = section.map_or("", |(_, section)| section);
    let behind = section.split_once(&format!("```{language}\n"));
    let example = behind.and_then(|(_, behind)| behind.split_once("```"));
    let mut example = example.map_or("", |(example, _)| example).to_owned();
    for (guide, word) in PATIENT.iter().chain(words) {
        example = example.replace(guide, word);
    }
    example
}

fn nginx_asking(service: SocketAddr, server: SocketAddr) -> String {
    let words = [
        ("127.0.0.1:8080", &*service.to_string()),
        ("127.0.0.1:8082", &*server.to_string()),
    ];
    example("nginx", "nginx", &words)
}

fn nginx_alone(service: SocketAddr) -> String {
    format!("location / {{ proxy_pass http://{service}; }}")
}

fn envoy_asking(service: SocketAddr, server: SocketAddr) -> String {
    let port = |of: SocketAddr| format!("port_value: {}", of.port());
    let words = [
        ("port_value: 8080", &*port(service)),
        ("port_value: 8081", &*port(server)),
    ];
    example("Envoy", "yaml", &words)
}

/// That configuration without the filter that asks, and without a cluster to ask.
fn envoy_alone(service: SocketAddr) -> String {
    let asking = envoy_asking(service, service);
    let filter = asking.find("          - name: envoy.filters.http.ratelimit\n");
    let router = asking.find("          - name: envoy.filters.http.router\n");
    match (filter, router) {
        (Some(filter), Some(router)) => {
            let alone = format!("{}{}", &asking[..filter], &asking[router..]);
            let of_filter = "envoy.filters.http.ratelimit:\n";
            let is_whole = !alone.contains("domain: shop") && alone.contains(of_filter);
            assert!(is_whole, "the guide has another configuration");
            alone
        }
        _ => asking,
    }
}

async fn envoy(configuration: &str) -> Result<Envoy, Failure> {
    let configuration = configuration.to_owned();
    let start = move || Envoy::start(|port| configuration.replace("10000", &port.to_string()));
    Ok(tokio::task::spawn_blocking(start).await?)
}

/// The work of a server so far, by its own accounts.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    calls: f64,
    busy_us: f64,
}

impl Work {
    fn of(redis: &Standalone) -> Self {
        let info = redis.command(&["INFO", "commandstats"]);
        let line = |command: &str| {
            let name = format!("cmdstat_{command}:");
            let line = info.lines().find_map(|line| line.strip_prefix(&name));
            let fields = line.unwrap_or_default().split(',');
            let figure = |name: &str| {
                let mut figures = fields.clone().filter_map(|it| it.strip_prefix(name));
                figures.next().and_then(|it| it.parse().ok()).unwrap_or(0.0)
            };
            (figure("calls="), figure("usec="))
        };
        let (calls, busy_us) = line("evalsha");
        Self { calls, busy_us }
    }

    fn since(self, before: Self) -> Self {
        Self {
            calls: self.calls - before.calls,
            busy_us: self.busy_us - before.busy_us,
        }
    }
}

/// Asks on all connections for the time of a round.
async fn asked(address: SocketAddr) -> Result<Figures, Failure> {
    let mut asking = JoinSet::new();
    let begun = Instant::now();
    for caller in 0..CONNECTIONS {
        asking.spawn(async move {
            let mut connection = TcpStream::connect(address).await?;
            connection.set_nodelay(true)?;
            let request =
                format!("GET /things HTTP/1.1\r\nhost: shop\r\nx-api-key: caller-{caller}\r\n\r\n");
            let mut times = Vec::new();
            while begun.elapsed() < ROUND {
                let sent = Instant::now();
                connection.write_all(request.as_bytes()).await?;
                heard(&mut connection).await?;
                times.push(sent.elapsed());
            }
            Ok::<_, Failure>(times)
        });
    }
    let mut times = Vec::new();
    for answered in asking.join_all().await {
        times.extend(answered?);
    }
    times.sort_unstable();
    Ok(Figures {
        per_second: times.len() as f64 / ROUND.as_secs_f64(),
        median: times[times.len() / 2],
        p99: times[times.len() * 99 / 100],
        ..Figures::default()
    })
}

/// Reads one answer, of which the body is the service's.
async fn heard(connection: &mut TcpStream) -> Result<(), Failure> {
    let mut answer = Vec::with_capacity(1_024);
    while !answer.ends_with(b"\r\n\r\nserved") {
        if connection.read_buf(&mut answer).await? == 0 || answer.starts_with(b"HTTP/1.1 4") {
            return Err(format!("it answers {}", String::from_utf8_lossy(&answer)).into());
        }
    }
    Ok(())
}
