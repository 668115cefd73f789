//! How a backend is set up, and why each default is what it is.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::backend::RedisBackend;
use crate::cluster::Cluster;
use crate::dispatch::{Dispatch, Limits};
use crate::error::ConnectError;
use crate::fleet::Fleet;
use crate::hello::Kind;
use crate::link::{Link, Origin};
use crate::name::Names;
use crate::script::Script;
use crate::sentinel::Sentinels;
use crate::server::{self, Credentials, Papers};
use crate::slot::SLOTS;

/// Sets up a [`RedisBackend`].
///
/// ```no_run
/// # async fn example() -> Result<(), tollgate_redis::ConnectError> {
/// use std::time::Duration;
/// use tollgate_redis::RedisBackend;
///
/// let backend = RedisBackend::builder("redis://127.0.0.1/")
///     .prefix("shop")
///     .deadline(Duration::from_millis(50))
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct RedisBackendBuilder {
    topology: Topology,
    credentials: Credentials,
    papers: Papers,
    client_name: String,
    names: Names,
    partitions: u16,
    connect_deadline: Duration,
    limits: Limits,
    script: Arc<Script>,
}

/// Where the budgets are. URLs may hold passwords: never shown.
#[derive(Clone)]
pub(crate) enum Topology {
    Single(String),
    Sentinel(String, Vec<String>),
    Cluster(Vec<String>),
}

impl RedisBackendBuilder {
    pub(crate) fn new(topology: Topology) -> Self {
        Self {
            topology,
            credentials: Credentials::default(),
            papers: Papers::default(),
            client_name: "tollgate".to_owned(),
            names: Names::new("tollgate".to_owned()),
            partitions: 64,
            connect_deadline: Duration::from_secs(2),
            limits: Limits::default(),
            script: Arc::new(Script::shipped()),
        }
    }

    /// The user name, in place of the URL's. What stands in the URL of a Sentinel is for the Sentinel alone.
    pub fn username(mut self, username: impl Into<String>) -> Self {
        self.credentials.username = Some(username.into());
        self
    }

    /// The password, in place of the URL's. What stands in the URL of a Sentinel is for the Sentinel alone.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.credentials.password = Some(password.into());
        self
    }

    /// The number of the database, in place of the URL's. 0 unless set; a cluster has no other.
    pub fn database(mut self, number: u16) -> Self {
        self.credentials.database = Some(number.into());
        self
    }

    /// What `CLIENT LIST` shows on the server. `tollgate` unless set.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.client_name = name.into();
        self
    }

    /// Whose certificates to trust for `rediss://`, as PEM. Unless set: whom the operating system trusts.
    #[cfg(feature = "tls")]
    pub fn certificate_authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.papers.authority = Some(pem.into());
        self
    }

    /// Our own certificate and its private key, as PEM, for a server that asks its clients for one.
    #[cfg(feature = "tls")]
    pub fn client_certificate(
        mut self,
        certificate_pem: impl Into<Vec<u8>>,
        key_pem: impl Into<Vec<u8>>,
    ) -> Self {
        self.papers.client = Some((certificate_pem.into(), key_pem.into()));
        self
    }

    /// Names identities in Redis by their HMAC-SHA256 under this key, cut to 128 bits, so that no API key and no address
    /// stands there, and nobody without the key can try them out. All processes with one key share their budgets;
    /// another key is another set of budgets. Unless set, identities stand there as they are.
    pub fn hash_identities(mut self, key: impl AsRef<[u8]>) -> Self {
        self.names.hash_with(key.as_ref());
        self
    }

    /// In a cluster: over how many hash tags identities spread. A call carries requests of one of them, so that few
    /// coalesce well, and each lives on one node, so that many spread well. 64 unless set: about twenty for each of three
    /// nodes, still several for each of sixteen. Another number is another set of budgets.
    pub fn partitions(mut self, partitions: u16) -> Self {
        self.partitions = partitions;
        self
    }

    /// What all names in Redis begin with: letters, digits, `-`, `.` and `_`. `tollgate` unless set, so that an access rule can name
    /// what is ours (`~tollgate:*`).
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.names.prefix = prefix.into();
        self
    }

    /// How long a decision may take before the failure rule acts. 100 ms unless set: some fifty round trips in one data
    /// centre, and less than a caller notices.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.limits.deadline = deadline;
        self
    }

    /// How long one attempt to connect may take. 2 s unless set: a handshake over a slow link, with a lost packet.
    pub fn connect_deadline(mut self, deadline: Duration) -> Self {
        self.connect_deadline = deadline;
        self
    }

    /// How many connections to each server. 2 unless set: while one waits for a lost packet the other goes on, and two keep a server busy
    /// that decides on one core.
    pub fn connections(mut self, connections: usize) -> Self {
        self.limits.connections = connections;
        self
    }

    /// How many decisions may wait to be sent; beyond it they fail at once as overloaded. 16,384 unless set: what a server
    /// decides within the deadline, so that nobody waits who would be late anyway.
    pub fn max_waiting(mut self, waiting: usize) -> Self {
        self.limits.waiting = waiting;
        self
    }

    /// For Tollgate's own tests: the script reads the time, in µs, from this key.
    #[cfg(feature = "test-clock")]
    #[doc(hidden)]
    pub fn clock(mut self, key: &str) -> Self {
        self.script = Arc::new(Script::with_clock(key));
        self
    }

    /// Connects, and fails if the server cannot be reached or is none.
    ///
    /// # Errors
    ///
    /// If a setting is none, naming it; or if the server does not answer as Redis does.
    pub async fn connect(self) -> Result<RedisBackend, ConnectError> {
        let backend = self.build()?;
        backend.fleet.open_now().await?;
        Ok(backend)
    }

    /// Begins without waiting for the server: until it answers, decisions fail as unreachable and the failure rule acts.
    ///
    /// # Errors
    ///
    /// If a setting is none, naming it. Must be called within a Tokio runtime.
    pub fn start(self) -> Result<RedisBackend, ConnectError> {
        let backend = self.build()?;
        backend.fleet.open_later();
        Ok(backend)
    }

    fn build(self) -> Result<RedisBackend, ConnectError> {
        self.check()?;
        let Ok(runtime) = Handle::try_current() else {
            return Err(ConnectError::setting(
                "runtime",
                "is missing: call this within a Tokio runtime",
            ));
        };
        let mut names = self.names.clone();
        let fleet = match &self.topology {
            Topology::Single(url) => {
                let server = server::parse(url, &self.papers)?;
                let server = server::with_credentials(server, &self.credentials);
                self.one(Origin::Server(Arc::new(server)), runtime)
            }
            Topology::Sentinel(master_name, urls) => {
                let sentinels = self.parse_all(urls)?;
                let share = u32::try_from(sentinels.len() + 1).unwrap_or(u32::MAX);
                let sentinels = Sentinels {
                    master_name: master_name.clone(),
                    sentinels,
                    credentials: self.credentials.clone(),
                    patience: self.connect_deadline / share,
                };
                self.one(Origin::Master(Arc::new(sentinels)), runtime)
            }
            Topology::Cluster(urls) => {
                names.partitions = Some(self.partitions);
                let seeds = (self.parse_all(urls)?.into_iter())
                    .map(|seed| server::with_credentials(seed, &self.credentials))
                    .collect::<Vec<_>>();
                if seeds.iter().any(|seed| seed.redis_settings().db() != 0) {
                    return Err(ConnectError::setting("database", "must be 0 in a cluster"));
                }
                let template = seeds
                    .first()
                    .cloned()
                    .map(|seed| Origin::Server(Arc::new(seed)));
                let Some(template) = template else {
                    return Err(ConnectError::setting("urls", "must be at least one"));
                };
                let link = self.link(template, Kind::Node);
                Fleet::Cluster(Cluster::new(seeds, link, runtime, self.limits))
            }
        };
        Ok(RedisBackend::start(fleet, names))
    }

    fn check(&self) -> Result<(), ConnectError> {
        let setting = |name, problem: &str| Err(ConnectError::setting(name, problem));
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let prefix = &self.names.prefix;
        if prefix.is_empty() || !prefix.chars().all(allowed) {
            return setting(
                "prefix",
                "must be letters, digits, `-`, `.` and `_`, at least one",
            );
        }
        if !self.client_name.chars().all(|c| c.is_ascii_graphic()) {
            return setting("client_name", "must be ASCII without spaces");
        }
        if self.limits.deadline.is_zero() {
            return setting("deadline", "of 0 leaves no time for an answer");
        }
        if self.connect_deadline.is_zero() {
            return setting("connect_deadline", "of 0 leaves no time for an answer");
        }
        if self.limits.connections == 0 || self.limits.waiting == 0 {
            return setting("connections and max_waiting", "must be at least 1");
        }
        if !(1..=SLOTS).contains(&self.partitions) {
            return setting(
                "partitions",
                "must be 1 to 16384, as many as there are slots",
            );
        }
        Ok(())
    }

    fn parse_all(&self, urls: &[String]) -> Result<Vec<redis::ConnectionInfo>, ConnectError> {
        if urls.is_empty() {
            return Err(ConnectError::setting("urls", "must be at least one"));
        }
        urls.iter()
            .map(|url| server::parse(url, &self.papers))
            .collect()
    }

    fn one(&self, origin: Origin, runtime: Handle) -> Fleet {
        let link = self.link(origin, Kind::Single);
        Fleet::One(Arc::new(Dispatch::new(
            link,
            runtime,
            self.limits,
            Weak::new(),
            Arc::default(),
        )))
    }

    fn link(&self, origin: Origin, kind: Kind) -> Link {
        Link {
            origin,
            kind,
            client_name: self.client_name.as_str().into(),
            script: Arc::clone(&self.script),
            deadline: self.connect_deadline,
        }
    }
}

impl std::fmt::Debug for RedisBackendBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the URLs: they may hold a password.
        f.debug_struct("RedisBackendBuilder")
            .field("names", &self.names)
            .field("credentials", &self.credentials)
            .field("papers", &self.papers)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
