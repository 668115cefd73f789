//! The pace of the gateway beside that of a tonic server that answers the same service with a constant, in one run: requests a
//! second, and the time within which 99 of 100 are answered. The gateway has ten rules, and then a thousand.
//!
//! ```text
//! cargo run --release -p tollgate-server --example pace
//! ```

#![allow(
    clippy::float_arithmetic,
    clippy::print_stdout,
    reason = "it prints measurements"
)]

use std::error::Error;
use std::fmt::Write;
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

const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_secs(2);
const CONNECTIONS: usize = 4;
/// The requests under way on each connection.
const AT_ONCE: usize = 16;

type Failure = Box<dyn Error + Send + Sync>;

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
    p99: Duration,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("tollgate-pace-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut asked = Vec::new();
    for rules in [10, 1_000] {
        let file = folder.join(format!("{rules}.toml"));
        std::fs::write(&file, configuration(rules))?;
        let gateway = Gateway::start(file, |builder| builder)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move { gateway.serve(listener, std::future::pending()).await });
        asked.push((format!("gateway, {rules} rules"), clients(address).await?));
    }
    let answer = asked[0].1[0].clone().should_rate_limit(request()).await?;
    let answer = answer.into_inner();
    assert_eq!(answer.overall_code(), Code::Ok);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let constant = RateLimitServiceServer::new(Constant(answer));
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = Server::builder().add_service(constant);
    tokio::spawn(server.serve_with_incoming(incoming));
    asked.insert(0, ("constant".to_owned(), clients(address).await?));

    let mut paces = vec![Vec::new(); asked.len()];
    for round in 0..=ROUNDS {
        for ((_, clients), paces) in asked.iter().zip(&mut paces) {
            let pace = pace(clients).await?;
            // The first round warms up.
            if round > 0 {
                paces.push(pace);
            }
        }
    }
    std::fs::remove_dir_all(folder)?;
    for ((name, _), paces) in asked.iter().zip(&mut paces) {
        paces.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
        let Pace { per_second, .. } = paces[ROUNDS / 2];
        paces.sort_by_key(|pace| pace.p99);
        let Pace { p99, .. } = paces[ROUNDS / 2];
        println!("{name:20} {per_second:8.0} a second, p99 {p99:?}");
    }
    Ok(())
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
        value: value.to_owned(),
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

async fn clients(
    address: std::net::SocketAddr,
) -> Result<Vec<RateLimitServiceClient<Channel>>, Failure> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let channel = Channel::from_shared(format!("http://{address}"))?;
        clients.push(RateLimitServiceClient::new(channel.connect().await?));
    }
    Ok(clients)
}

async fn pace(clients: &[RateLimitServiceClient<Channel>]) -> Result<Pace, Failure> {
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
        p99: times[times.len() * 99 / 100],
    })
}
