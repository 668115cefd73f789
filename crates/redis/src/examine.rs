//! A look at the servers as they are, for operators. A user that lacks rights sees less, and the answer says what it did not see.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{Cmd, ConnectionInfo, RedisError, Value, cmd, from_redis_value};
use tollgate_core::{BackendError, FailureKind};

use crate::connection::{Commands, connect, send, within};
use crate::error::{failure, missing_right, refusal};
use crate::hello;
use crate::link::{Link, Origin};
use crate::rights;
use crate::server;
use crate::slot::SLOTS;
use crate::slots;
use crate::sync::{Instant, timeout_at};

/// The settings that matter to a limiter.
const SETTINGS: [&str; 9] = [
    "maxmemory",
    "maxmemory-policy",
    "save",
    "appendonly",
    "appendfsync",
    "stop-writes-on-bgsave-error",
    "min-replicas-to-write",
    "cluster-require-full-coverage",
    "maxclients",
];

/// Decisions' round trips: enough for a tail to show, and a few milliseconds at most servers.
const ROUND_TRIPS: usize = 50;

/// Questions for the time. The quickest answer is the most exact.
const TIMES: usize = 5;

/// The most states whose memory is asked for, and the most pages of names until they are found.
const STATES: usize = 100;
const PAGES: usize = 20;

/// The servers as they are: [`RedisBackendBuilder::examine`](crate::RedisBackendBuilder::examine).
///
/// ```no_run
/// use tollgate::{Examination, RedisBackend};
///
/// # async fn example() -> Result<(), tollgate::ConnectError> {
/// let builder = RedisBackend::cluster(["redis://node-1:6379"]);
/// let examined: Examination = builder.examine().await?;
/// println!("{} masters, {:?} slots without one", examined.servers.len(), examined.slots_without_master);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Examination {
    /// The server, the master that the Sentinels name, or the masters of the cluster.
    pub servers: Vec<ExaminedServer>,
    /// The replicas that these name, which decide after a failover. The script, the round trips and the memory of states are not
    /// looked at there.
    pub replicas: Vec<ExaminedServer>,
    /// The Sentinels, if there are any.
    pub sentinels: Vec<ExaminedSentinel>,
    /// In a cluster, the slots that no master has.
    pub slots_without_master: Option<u16>,
}

/// One server that decides, or that may after a failover, as it is. Facts that its user may not see are absent.
///
/// ```
/// use tollgate::ExaminedServer;
///
/// fn is_ready(server: &ExaminedServer) -> bool {
///     server.refusal.is_none() && server.settings.get("maxmemory-policy").is_some_and(|policy| policy == "noeviction")
/// }
///
/// assert!(!is_ready(&ExaminedServer::default()));
/// ```
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ExaminedServer {
    /// Host and port.
    pub place: String,
    /// The reason why it would not decide now.
    pub refusal: Option<BackendError>,
    /// The rights that decisions need and the user lacks, as an access rule writes them: `+get`, `~tollgate:*`.
    pub missing_rights: Vec<String>,
    /// The commands of this examination that the user may not run. Decisions do not need them.
    pub unseen: BTreeSet<&'static str>,
    /// The fields of `INFO`.
    pub info: BTreeMap<String, String>,
    /// The settings of `CONFIG GET` that matter to a limiter.
    pub settings: BTreeMap<&'static str, String>,
    /// True if the script was loaded before this examination loaded it.
    pub had_script: Option<bool>,
    /// The microseconds by which the server's clock is ahead of this host's, and the most by which that may be wrong.
    pub clock_ahead_us: Option<(i64, i64)>,
    /// The round trips of some calls of the script, one after the other.
    pub round_trips: Vec<Duration>,
    /// The number of states that were looked at, and their memory in bytes.
    pub states: Option<(u64, u64)>,
}

/// One Sentinel and its opinion.
///
/// ```
/// use tollgate::ExaminedSentinel;
///
/// fn is_heard(sentinel: &ExaminedSentinel, master: &str) -> bool {
///     sentinel.master.as_ref().is_ok_and(|named| named == master)
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct ExaminedSentinel {
    /// Host and port.
    pub place: String,
    /// The master that it names, or the reason why it names none.
    pub master: Result<String, BackendError>,
}

/// One server, or the master that Sentinels name.
pub(crate) async fn one(link: Link) -> Result<Examination, BackendError> {
    let (server, sentinels) = match &link.origin {
        Origin::Server(server) => ((**server).clone(), Vec::new()),
        Origin::Master(sentinels) => {
            let asked = sentinels.each().await;
            let asked = asked.into_iter().map(|(sentinel, named)| ExaminedSentinel {
                place: place(&link, &sentinel),
                master: named.map(|(host, port)| format!("{host}:{port}")),
            });
            (sentinels.master().await?, asked.collect())
        }
    };
    let examined = examine(&link, server.clone()).await?;
    Ok(Examination {
        replicas: replicas(&link, &server, &examined).await,
        servers: vec![examined],
        sentinels,
        slots_without_master: None,
    })
}

/// The masters of a cluster, as the first node names them that answers.
pub(crate) async fn cluster(
    link: Link,
    seeds: Vec<ConnectionInfo>,
) -> Result<Examination, BackendError> {
    let mut why = BackendError::new(FailureKind::Unready, "no node was named");
    for seed in seeds {
        let learned = within(link.deadline, masters(&seed)).await;
        match learned {
            Ok((masters, covered)) => {
                let (mut servers, mut of_servers) = (Vec::new(), Vec::new());
                for master in masters {
                    let node = server::at(&seed, master);
                    let examined = examine(&link, node.clone()).await;
                    let examined = examined.unwrap_or_else(|error| away(&link, &node, error));
                    of_servers.extend(replicas(&link, &node, &examined).await);
                    servers.push(examined);
                }
                return Ok(Examination {
                    servers,
                    replicas: of_servers,
                    sentinels: Vec::new(),
                    slots_without_master: Some(SLOTS.saturating_sub(covered)),
                });
            }
            Err(error) => why = link.about(error, &seed),
        }
    }
    Err(why)
}

/// The masters, and the number of slots that they have.
async fn masters(seed: &ConnectionInfo) -> Result<(BTreeSet<server::Address>, u16), BackendError> {
    let mut connection = connect(seed.clone()).await?;
    let question = cmd("CLUSTER").arg("SLOTS").to_owned();
    let answer = send(&mut connection, &question).await;
    let answer = answer.map_err(|error| refusal("CLUSTER SLOTS", &error))?;
    let asked = server::address(seed).map_or_else(String::new, |(host, _port)| host);
    let ranges = slots::parse(answer, &asked).filter(|ranges| !ranges.is_empty());
    let ranges = ranges.ok_or_else(|| {
        BackendError::new(FailureKind::Unready, "the node knows no owner of any slot")
    })?;
    let covered = ranges.iter().map(slots::Range::len).sum();
    Ok((
        ranges.into_iter().map(slots::Range::into_master).collect(),
        covered,
    ))
}

fn place(link: &Link, server: &ConnectionInfo) -> String {
    match server::address(server) {
        Some((host, _)) if link.hidden.contains(&host) => "the server".to_owned(),
        Some((host, port)) => format!("{host}:{port}"),
        None => "a socket of this host".to_owned(),
    }
}

/// The replicas that a master names, one after the other.
async fn replicas(
    link: &Link,
    master: &ConnectionInfo,
    examined: &ExaminedServer,
) -> Vec<ExaminedServer> {
    let mut replicas = Vec::new();
    for address in named_replicas(&examined.info) {
        let replica = server::at(master, address);
        let seen = async {
            let mut look = Look::at(link, &replica).await?;
            look.standby().await?;
            Ok(look.seen)
        };
        let seen = seen.await.map_err(|error| link.about(error, &replica));
        replicas.push(seen.unwrap_or_else(|error| away(link, &replica, error)));
    }
    replicas
}

/// The addresses in lines such as `slave0:ip=10.0.0.8,port=6379,state=online,offset=14,lag=0`.
fn named_replicas(info: &BTreeMap<String, String>) -> impl Iterator<Item = server::Address> {
    info.iter().filter_map(|(name, fields)| {
        let number = name.strip_prefix("slave")?;
        let field = |name: &str| {
            let mut fields = fields.split(',').filter_map(|field| field.split_once('='));
            fields.find_map(|(known, value)| (known == name).then_some(value))
        };
        let is_replica = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
        let host = field("ip").filter(|_| is_replica)?;
        Some((host.to_owned(), field("port")?.parse().ok()?))
    })
}

/// A server that does not answer.
fn away(link: &Link, server: &ConnectionInfo, error: BackendError) -> ExaminedServer {
    ExaminedServer {
        place: place(link, server),
        refusal: Some(error),
        ..ExaminedServer::default()
    }
}

/// Looks at one server. It is an error if that does not answer at all.
async fn examine(link: &Link, server: ConnectionInfo) -> Result<ExaminedServer, BackendError> {
    let about = |error| link.about(error, &server);
    let mut look = Look::at(link, &server).await.map_err(about)?;
    look.all().await.map_err(about)?;
    Ok(look.seen)
}

/// A look at a server that is under way.
struct Look<'a> {
    link: &'a Link,
    connection: Commands,
    seen: ExaminedServer,
    /// True once the server has answered anything.
    is_answered: bool,
}

impl<'a> Look<'a> {
    async fn at(link: &'a Link, server: &ConnectionInfo) -> Result<Self, BackendError> {
        Ok(Self {
            link,
            connection: within(link.deadline, connect(server.clone())).await?,
            seen: ExaminedServer {
                place: place(link, server),
                ..ExaminedServer::default()
            },
            is_answered: false,
        })
    }

    /// The look at a replica, which only has to be ready.
    async fn standby(&mut self) -> Result<(), BackendError> {
        self.rights_of_script().await?;
        self.info().await?;
        self.settings().await?;
        self.clock().await
    }

    async fn all(&mut self) -> Result<(), BackendError> {
        // Before anything loads the script.
        let nothing = cmd("EVALSHA").arg(self.link.script.sha()).arg(0).to_owned();
        self.seen.had_script = match self.ask(&nothing).await? {
            Ok(_) => Some(true),
            Err(error) if error.code() == Some("NOSCRIPT") => Some(false),
            Err(error) => {
                self.lacks("EVALSHA", &error);
                None
            }
        };
        let link = self.link;
        let greeted = hello::greet(&mut self.connection, &link.client_name, link.kind);
        if let Err(refusal) = within(link.deadline, greeted).await {
            self.seen.refusal = Some(refusal);
        }
        let refusal = self.seen.refusal.as_ref().map(BackendError::kind);
        if refusal == Some(FailureKind::Unauthenticated) {
            // It closes the connection over anything as long as the script.
            return Ok(());
        }
        self.rights().await?;
        self.info().await?;
        self.settings().await?;
        self.clock().await?;
        self.latency(&nothing).await?;
        self.memory().await
    }

    /// Sends a command. The outer error is a server that does not answer.
    async fn ask(&mut self, command: &Cmd) -> Result<Result<Value, RedisError>, BackendError> {
        let deadline = self.link.deadline;
        match timeout_at(
            Instant::now() + deadline,
            send(&mut self.connection, command),
        )
        .await
        {
            Ok(Err(error)) if error.code().is_none() && self.is_answered => Err(failure(&error)),
            Ok(Err(error)) if error.code().is_none() => Err(refusal("HELLO", &error)),
            Ok(answer) => {
                self.is_answered = true;
                Ok(answer)
            }
            Err(_elapsed) => Err(BackendError::new(FailureKind::TimedOut { deadline }, "")),
        }
    }

    /// Sends a command that decisions do not need.
    async fn look(
        &mut self,
        name: &'static str,
        command: &Cmd,
    ) -> Result<Option<Value>, BackendError> {
        let answer = self.ask(command).await?.ok();
        if answer.is_none() {
            self.seen.unseen.insert(name);
        }
        Ok(answer)
    }

    /// Notes the right, if the error is about one, and that the server would not decide.
    fn lacks(&mut self, command: &str, error: &RedisError) {
        if let Some(right) = missing_right(command, error, &self.link.prefix)
            && !self.seen.missing_rights.contains(&right)
        {
            self.seen.missing_rights.push(right);
        }
        let why = refusal(command, error);
        self.seen.refusal.get_or_insert(why);
    }

    async fn rights(&mut self) -> Result<(), BackendError> {
        let load = cmd("SCRIPT")
            .arg("LOAD")
            .arg(self.link.script.source())
            .to_owned();
        if let Err(error) = self.ask(&load).await? {
            self.lacks("SCRIPT LOAD", &error);
        }
        self.rights_of_script().await?;
        if self.link.kind == hello::Kind::Node {
            let slots = cmd("CLUSTER").arg("SLOTS").to_owned();
            for (command, asked) in [("CLUSTER SLOTS", slots), ("ASKING", cmd("ASKING"))] {
                if let Err(error) = self.ask(&asked).await? {
                    self.lacks(command, &error);
                }
            }
        }
        Ok(())
    }

    async fn rights_of_script(&mut self) -> Result<(), BackendError> {
        let asked = rights::refused(&mut self.connection, &self.link.prefix);
        for (command, error) in within(self.link.deadline, asked).await? {
            self.lacks(command, &error);
        }
        Ok(())
    }

    async fn info(&mut self) -> Result<(), BackendError> {
        let told = self.look("INFO", &cmd("INFO")).await?;
        let told: Option<String> = told.and_then(|told| from_redis_value(told).ok());
        for line in told.unwrap_or_default().lines() {
            if let Some((name, value)) = line.split_once(':') {
                let _new = self.seen.info.insert(name.to_owned(), value.to_owned());
            }
        }
        Ok(())
    }

    async fn settings(&mut self) -> Result<(), BackendError> {
        for name in SETTINGS {
            // One by one: servers before 7.0 take one name at a time.
            let get = cmd("CONFIG").arg("GET").arg(name).to_owned();
            let Some(told) = self.look("CONFIG GET", &get).await? else {
                return Ok(());
            };
            let told: Option<Vec<String>> = from_redis_value(told).ok();
            if let Some([_name, value]) = told.as_deref() {
                let _new = self.seen.settings.insert(name, value.clone());
            }
        }
        Ok(())
    }

    async fn clock(&mut self) -> Result<(), BackendError> {
        for _ in 0..TIMES {
            let (before_us, sent_at) = (now_us(), Instant::now());
            let Ok(told) = self.ask(&cmd("TIME")).await? else {
                return Ok(());
            };
            let half_us = micros(sent_at.elapsed()) / 2;
            let told: Option<(i64, i64)> = from_redis_value(told).ok();
            let Some((seconds, us)) = told else {
                return Ok(());
            };
            let server_us = seconds.saturating_mul(1_000_000).saturating_add(us);
            let ahead_us = server_us.saturating_sub(before_us.saturating_add(half_us));
            if self
                .seen
                .clock_ahead_us
                .is_none_or(|(_, within)| half_us < within)
            {
                self.seen.clock_ahead_us = Some((ahead_us, half_us));
            }
        }
        Ok(())
    }

    /// Calls the script as decisions do, but for no state.
    async fn latency(&mut self, nothing: &Cmd) -> Result<(), BackendError> {
        for _ in 0..ROUND_TRIPS {
            let sent_at = Instant::now();
            match self.ask(nothing).await? {
                Ok(_) => self.seen.round_trips.push(sent_at.elapsed()),
                Err(error) => {
                    self.lacks("EVALSHA", &error);
                    break;
                }
            }
        }
        Ok(())
    }

    async fn memory(&mut self) -> Result<(), BackendError> {
        let (mut states, mut bytes) = (0, 0);
        let pattern = format!("{}:*", self.link.prefix);
        let mut cursor = b"0".to_vec();
        for _ in 0..PAGES {
            let scan = cmd("SCAN")
                .arg(&cursor)
                .arg("MATCH")
                .arg(&pattern)
                .arg("COUNT")
                .arg(500)
                .to_owned();
            let Some(page) = self.look("SCAN", &scan).await? else {
                return Ok(());
            };
            let page: Option<(Vec<u8>, Vec<Vec<u8>>)> = from_redis_value(page).ok();
            let Some((next, names)) = page else {
                return Ok(());
            };
            for name in names.into_iter().take(STATES.saturating_sub(states)) {
                let usage = cmd("MEMORY").arg("USAGE").arg(name).to_owned();
                let Some(usage) = self.look("MEMORY USAGE", &usage).await? else {
                    return Ok(());
                };
                // It may have ended meanwhile.
                if let Ok(Some(usage)) = from_redis_value::<Option<u64>>(usage) {
                    (states, bytes) = (states + 1, bytes + usage);
                }
            }
            if next == b"0" || states >= STATES {
                break;
            }
            cursor = next;
        }
        self.seen.states = Some((states as u64, bytes));
        Ok(())
    }
}

/// The time of this host.
fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, micros)
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
