//! The pace of the gateway beside that of a tonic server that answers the same service with a constant: requests a second, the time
//! within which 99 of 100 are answered, and the instructions of a question, with its client. The gateway has ten rules, and then a
//! thousand.
//!
//! The servers take turns, and a ratio is the median of those of all rounds: other load slows both sides. Instructions are counted
//! by callgrind.
//!
//! ```text
//! cargo run --release -p tollgate-server --example pace
//! ```

#![allow(
    clippy::cast_precision_loss,
    clippy::float_arithmetic,
    clippy::print_stdout,
    reason = "it prints measurements"
)]

use std::env;
use std::error::Error;
use std::fmt::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tollgate_server::Gateway;
use tollgate_server::proto::rate_limit_descriptor::Entry;
use tollgate_server::proto::rate_limit_response::Code;
use tollgate_server::proto::rate_limit_service_client::RateLimitServiceClient;
use tollgate_server::proto::rate_limit_service_server::{RateLimitService, RateLimitServiceServer};
use tollgate_server::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};

/// The servers: the constant, and the gateway with so many rules.
const SERVERS: [(&str, usize); 3] = [
    ("constant", 0),
    ("gateway, 10 rules", 10),
    ("gateway, 1,000 rules", 1_000),
];
const ROUNDS: usize = 25;
const ROUND: Duration = Duration::from_millis(800);
const CONNECTIONS: usize = 4;
/// The requests under way on each connection.
const AT_ONCE: usize = 16;
/// The questions of the shorter and of the longer count, whose difference has no start in it.
const QUESTIONS: [u32; 2] = [500, 2_500];

type Failure = Box<dyn Error + Send + Sync>;
type Client = RateLimitServiceClient<Channel>;

/// A service that answers without a decision.
struct Constant(RateLimitResponse);

#[tonic::async_trait]
impl RateLimitService for Constant {
    async fn should_rate_limit(
        &self,
        _request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        Ok(Response::new(self.0.clone()))
    }
}

/// The figures of a round.
#[derive(Clone, Copy, Debug)]
struct Pace {
    per_second: f64,
    p99: f64,
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = env::args().skip(1).collect();
    if let [server, questions] = &*words {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build()?;
        return runtime.block_on(ask(server.parse()?, questions.parse()?));
    }
    tokio::runtime::Runtime::new()?.block_on(paces())?;
    println!();
    let mut constant = None;
    for (server, (name, _)) in SERVERS.iter().enumerate() {
        let [shorter, longer] = QUESTIONS;
        let all = instructions(server, longer)? - instructions(server, shorter)?;
        let each = all / f64::from(longer - shorter);
        let by = constant.get_or_insert(each);
        println!(
            "{name:20} {each:9.0} instructions a question, {:.2} of the constant's",
            each / *by
        );
    }
    Ok(())
}

async fn paces() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let mut addresses = Vec::new();
    for (_, rules) in SERVERS {
        addresses.push(serve(rules, folder.path()).await?);
    }
    let mut rounds = Vec::new();
    for round in 0..=ROUNDS {
        let mut paces = Vec::new();
        for address in &addresses {
            // New ones each time: the threads on which connections happen to be make a difference of their own.
            paces.push(pace(&clients(*address).await?).await?);
        }
        // The first round warms up.
        if round > 0 {
            rounds.push(paces);
        }
    }
    for (server, (name, _)) in SERVERS.iter().enumerate() {
        let of = |figure: fn(Pace) -> f64| middle(rounds.iter().map(|round| figure(round[server])));
        let by = |figure: fn(Pace) -> f64| {
            let ratios = rounds.iter();
            middle(ratios.map(|round| figure(round[server]) / figure(round[0])))
        };
        println!(
            "{name:20} {:9.0} a second, {:.2} of the constant's; p99 {:.2} ms, {:.2} of the constant's",
            of(|pace| pace.per_second),
            by(|pace| pace.per_second),
            of(|pace| pace.p99) * 1e3,
            by(|pace| pace.p99),
        );
    }
    Ok(())
}

/// Asks one server so many times, for a count of the instructions of this whole process.
async fn ask(server: usize, questions: u32) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let (_, rules) = SERVERS[server];
    let address = serve(rules, folder.path()).await?;
    let mut client = clients(address).await?.remove(0);
    for _ in 0..questions {
        client.should_rate_limit(request()).await?;
    }
    Ok(())
}

fn instructions(server: usize, questions: u32) -> Result<f64, Failure> {
    let mut counted = Command::new("valgrind");
    counted.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    counted.arg(env::current_exe()?);
    counted.args([server.to_string(), questions.to_string()]);
    let counted = counted.output().map_err(|error| {
        format!("valgrind cannot be run ({error}); install it with: apt-get install valgrind")
    })?;
    let text = String::from_utf8_lossy(&counted.stderr);
    let count = text
        .lines()
        .find_map(|line| line.split_once("Collected : "));
    let (_, count) = count.ok_or_else(|| format!("callgrind failed:\n{text}"))?;
    Ok(count.trim().parse()?)
}

fn middle(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// A gateway with so many rules; without one, the constant server, whose answer is that of a gateway.
async fn serve(rules: usize, folder: &std::path::Path) -> Result<std::net::SocketAddr, Failure> {
    let file = folder.join(format!("{rules}.toml"));
    std::fs::write(&file, configuration(rules.max(10)))?;
    let gateway = Gateway::start(file, None, |builder| builder)?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { gateway.serve(listener, std::future::pending()).await });
    if rules > 0 {
        return Ok(address);
    }
    let answer = clients(address).await?[0]
        .should_rate_limit(request())
        .await?;
    let answer = answer.into_inner();
    assert_eq!(answer.overall_code(), Code::Ok);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let constant = RateLimitServiceServer::new(Constant(answer));
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = Server::builder().add_service(constant);
    tokio::spawn(server.serve_with_incoming(incoming));
    Ok(address)
}

fn configuration(rules: usize) -> String {
    let mut text =
        "[[policies]]\nname = 'api'\nquotas = '1000000000/s'\non_demand = true\n".to_owned();
    for rule in 0..rules {
        let descriptor =
            format!("{{ key = 'path', value = '/{rule}' }}, {{ key = 'remote_address' }}");
        let _ = writeln!(
            text,
            "[[envoy]]\ndomain = 'shop'\npolicy = 'api'\ndescriptor = [{descriptor}]"
        );
    }
    text
}

fn request() -> RateLimitRequest {
    let entry = |key: &str, value: &str| Entry {
        key: key.to_owned(),
        value: value.into(),
    };
    RateLimitRequest {
        domain: "shop".to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![entry("path", "/7"), entry("remote_address", "203.0.113.7")],
            ..RateLimitDescriptor::default()
        }],
        hits_addend: 0,
    }
}

async fn clients(address: std::net::SocketAddr) -> Result<Vec<Client>, Failure> {
    let mut clients = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        let channel = Channel::from_shared(format!("http://{address}"))?;
        clients.push(RateLimitServiceClient::new(channel.connect().await?));
    }
    Ok(clients)
}

async fn pace(clients: &[Client]) -> Result<Pace, Failure> {
    let mut asking = JoinSet::new();
    let begun = Instant::now();
    for client in clients {
        for _ in 0..AT_ONCE {
            let mut client = client.clone();
            asking.spawn(async move {
                let mut times = Vec::new();
                while begun.elapsed() < ROUND {
                    let sent = Instant::now();
                    client.should_rate_limit(request()).await?;
                    times.push(sent.elapsed());
                }
                Ok::<_, Status>(times)
            });
        }
    }
    let mut times = Vec::new();
    for answered in asking.join_all().await {
        times.extend(answered?);
    }
    let took = begun.elapsed();
    times.sort_unstable();
    let count = u32::try_from(times.len())?;
    Ok(Pace {
        per_second: f64::from(count) / took.as_secs_f64(),
        p99: times[times.len() * 99 / 100].as_secs_f64(),
    })
}
