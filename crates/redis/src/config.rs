//! The configuration of a backend, with the reason for each default.

mod build;

use std::sync::Arc;
use std::time::Duration;

use crate::backend::RedisBackend;
use crate::dispatch::Limits;
use crate::error::ConnectError;
use crate::examine::Examination;
use crate::holder::LEASE;
use crate::name::Names;
use crate::script::{Composed, Script};
use crate::server::{Credentials, TlsFiles};

/// Configures a [`RedisBackend`].
///
/// ```no_run
/// # async fn example() -> Result<(), tollgate::ConnectError> {
/// use std::time::Duration;
/// use tollgate::RedisBackend;
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
    papers: TlsFiles,
    client_name: String,
    names: Names,
    partitions: u16,
    connect_deadline: Duration,
    limits: Limits,
    held_lease: Duration,
    knows_denials: bool,
    script: Arc<Script>,
    composed: Arc<Composed>,
}

/// The place of the budgets. URLs may hold passwords: never shown.
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
            papers: TlsFiles::default(),
            client_name: "tollgate".to_owned(),
            names: Names::new("tollgate".to_owned()),
            partitions: 64,
            connect_deadline: Duration::from_secs(2),
            limits: Limits::default(),
            held_lease: LEASE,
            knows_denials: true,
            script: Arc::new(Script::shipped()),
            composed: Arc::default(),
        }
    }

    /// The user name, in place of the URL's. The name in the URL of a Sentinel is for the Sentinel alone.
    ///
    /// ```no_run
    /// use tollgate::RedisBackend;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let backend = RedisBackend::builder("redis://127.0.0.1/")
    ///     .username("gate")
    ///     .password(std::env::var("REDIS_PASSWORD")?)
    ///     .database(3)
    ///     .client_name("checkout")
    ///     .connect()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn username(mut self, username: impl Into<String>) -> Self {
        self.credentials.username = Some(username.into());
        self
    }

    /// The password, in place of the URL's. The password in the URL of a Sentinel is for the Sentinel alone.
    ///
    /// ```no_run
    /// use tollgate::RedisBackend;
    ///
    /// # fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let password = std::env::var("REDIS_PASSWORD")?;
    /// let backend = RedisBackend::builder("redis://127.0.0.1/").password(password).start()?;
    /// # Ok(()) }
    /// ```
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.credentials.password = Some(password.into());
        self
    }

    /// The number of the database, in place of the URL's. 0 unless set; a cluster has no other.
    ///
    /// ```
    /// use tollgate::RedisBackend;
    ///
    /// let builder = RedisBackend::builder("redis://127.0.0.1/").database(3);
    /// ```
    pub fn database(mut self, number: u16) -> Self {
        self.credentials.database = Some(number.into());
        self
    }

    /// The name that `CLIENT LIST` shows on the server. `tollgate` unless set.
    ///
    /// ```
    /// use tollgate::RedisBackend;
    ///
    /// // `redis-cli client list` shows which service holds a connection.
    /// let builder = RedisBackend::builder("redis://127.0.0.1/").client_name("checkout");
    /// ```
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.client_name = name.into();
        self
    }

    /// The certificates to trust for `rediss://`, as PEM. Unless set: those that the operating system trusts.
    ///
    /// ```no_run
    /// use tollgate::RedisBackend;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let backend = RedisBackend::builder("rediss://redis.internal/")
    ///     .certificate_authority(std::fs::read("ca.pem")?)
    ///     .connect()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "tls")]
    pub fn certificate_authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.papers.authority = Some(pem.into());
        self
    }

    /// Our own certificate and its private key, as PEM, for a server that asks its clients for one.
    ///
    /// ```no_run
    /// use tollgate::RedisBackend;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let backend = RedisBackend::builder("rediss://redis.internal/")
    ///     .client_certificate(std::fs::read("gate.pem")?, std::fs::read("gate.key")?)
    ///     .connect()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "tls")]
    pub fn client_certificate(
        mut self,
        certificate_pem: impl Into<Vec<u8>>,
        key_pem: impl Into<Vec<u8>>,
    ) -> Self {
        self.papers.client = Some((certificate_pem.into(), key_pem.into()));
        self
    }

    /// Names identities in Redis by their HMAC-SHA256 under this key, cut to 128 bits, so that no API key and no address stands
    /// there, and that guesses cannot be tested without the key. All processes with one key share their budgets; another key
    /// gives another set of budgets. Unless set, identities stand there in the clear.
    ///
    /// ```no_run
    /// use tollgate::RedisBackend;
    ///
    /// # fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let key = std::env::var("IDENTITY_KEY")?;
    /// let builder = RedisBackend::builder("redis://127.0.0.1/").hash_identities(key);
    /// # Ok(()) }
    /// ```
    pub fn hash_identities(mut self, key: impl AsRef<[u8]>) -> Self {
        self.names.hash_with(key.as_ref());
        self
    }

    /// In a cluster: the number of hash tags over which identities spread. A call carries requests of one tag, so few tags
    /// coalesce well; each tag lives on one node, so many tags spread well. 64 unless set: about twenty for each of three
    /// nodes, still several for each of sixteen. Another number gives another set of budgets.
    ///
    /// ```
    /// use tollgate::RedisBackend;
    ///
    /// // Forty nodes: several tags for each.
    /// let builder = RedisBackend::cluster(["redis://node-1:6379"]).partitions(256);
    /// ```
    pub fn partitions(mut self, partitions: u16) -> Self {
        self.partitions = partitions;
        self
    }

    /// The beginning of all names in Redis: letters, digits, `-`, `.` and `_`. `tollgate` unless set, so that an access rule
    /// can name our keys (`~tollgate:*`).
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.names.prefix = prefix.into();
        self
    }

    /// The time after which what a process held under a [`Concurrent`](tollgate_core::Concurrent) limit comes back when the
    /// process died or was cut off. 30 s unless set; 100 ms to an hour. A process says what it holds three times in each, so a
    /// shorter one is more work for the server, and is lost more easily by a process that is stopped for a while.
    ///
    /// Nothing is told while it is unknown whether a call ran, and a connection that falls silent is given up two seconds after the
    /// [`deadline`](Self::deadline). So a lease of less than ten seconds may be lost by that alone.
    ///
    /// The processes of a fleet should have one lease. While a deploy changes it, they may differ by four times.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::RedisBackend;
    ///
    /// let builder = RedisBackend::builder("redis://127.0.0.1/").held_lease(Duration::from_secs(10));
    /// ```
    pub fn held_lease(mut self, lease: Duration) -> Self {
        self.held_lease = lease;
        self
    }

    /// The time that a decision may take before the failure rule acts. 100 ms unless set: some fifty round trips in one data
    /// centre, and less than a caller notices.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.limits.deadline = deadline;
        self
    }

    /// Asks the server about each decision, also about those that can only be denied.
    ///
    /// Unless this is called, a denial brings the budget's state along, and while that state denies, by the same rule and at the
    /// latest time that the server's clock may show, the process answers by itself. Cost and quota are judged anew: a denial of a
    /// cost of 10 does not stop a cost of 1. The time until a retry is the server's, counted down.
    ///
    /// * Once a known denial has run out, one request of its key asks, and the others of the process wait for its answer.
    /// * Credits, debits and resets by this process are felt at once. So is a new quota, since it is judged by its own rule.
    /// * A credit or reset by another process, a failover, or a clock that steps is felt within 100 ms. The end of a ban that an
    ///   operator lifts elsewhere is felt within a second.
    /// * Redis is asked as ever about charges on trial, questions, ids, places under a limit on how many at once, and denials that
    ///   a ban counts; not about a caller that is banned, unless its knocks extend the ban.
    /// * Up to 8,192 states are remembered, in 1.5 MB with keys of up to 45 bytes; none takes more than 4 kB.
    ///
    /// [`Stats::known_denials`](crate::Stats::known_denials) counts them, and [`Decision::is_known`](tollgate_core::Decision::is_known)
    /// tells one.
    ///
    /// ```
    /// use tollgate::RedisBackend;
    ///
    /// // Callers of one process are credited by another, and must not wait for 100 ms to feel it.
    /// let builder = RedisBackend::builder("redis://127.0.0.1/").ask_every_denial();
    /// ```
    pub fn ask_every_denial(mut self) -> Self {
        self.knows_denials = false;
        self
    }

    /// The time that one attempt to connect may take. 2 s unless set: a handshake over a slow link, with a lost packet.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::RedisBackend;
    ///
    /// // A start that fails soon, where the orchestrator tries again.
    /// let builder = RedisBackend::builder("redis://127.0.0.1/").connect_deadline(Duration::from_millis(500));
    /// ```
    pub fn connect_deadline(mut self, deadline: Duration) -> Self {
        self.connect_deadline = deadline;
        self
    }

    /// The number of connections to each server. 2 unless set: while one waits for a lost packet the other goes on, and two
    /// keep a server busy that decides on one core. Each carries one call at a time. To a server that is far away it carries
    /// one for each millisecond of the round trip, 16 at most.
    ///
    /// ```
    /// use tollgate::RedisBackend;
    ///
    /// // A thousand processes, and a server with a `maxclients` of 1500.
    /// let builder = RedisBackend::builder("redis://127.0.0.1/").connections(1);
    /// ```
    pub fn connections(mut self, connections: usize) -> Self {
        self.limits.connections = connections;
        self
    }

    /// The number of decisions that may wait to be sent. Beyond it decisions fail at once as overloaded. 16,384 unless set:
    /// about as many as a server decides within the deadline; more would be late anyway.
    ///
    /// ```
    /// use tollgate::RedisBackend;
    ///
    /// // A slow server: what waits behind a thousand others would be late anyway.
    /// let builder = RedisBackend::builder("redis://127.0.0.1/").max_waiting(1_000);
    /// ```
    pub fn max_waiting(mut self, waiting: usize) -> Self {
        self.limits.waiting = waiting;
        self
    }

    /// The key from which the script reads the time, in µs. For Tollgate's own tests.
    #[cfg(feature = "test-clock")]
    #[doc(hidden)]
    pub fn clock(mut self, key: &str) -> Self {
        self.script = Arc::new(Script::with_clock(key));
        self.composed = Arc::new(Composed::with_clock(key));
        // Such a clock need not run as ours does.
        self.knows_denials = false;
        self
    }

    /// Connects, and fails if the server cannot be reached or is not Redis.
    ///
    /// # Errors
    ///
    /// If a setting is invalid, with its name; or if the server does not answer as Redis does.
    pub async fn connect(self) -> Result<RedisBackend, ConnectError> {
        let backend = self.build()?;
        backend.fleet.open_now().await?;
        Ok(backend)
    }

    /// Looks at the servers as they are, for operators: settings, rights, clocks and latency. Nothing is decided, and no state
    /// changes; the script is loaded, as by each connection.
    ///
    /// ```no_run
    /// use tollgate::RedisBackend;
    ///
    /// # async fn example() -> Result<(), tollgate::ConnectError> {
    /// for server in RedisBackend::builder("redis://127.0.0.1/").examine().await?.servers {
    ///     println!("{}: {:?}", server.place, server.settings.get("maxmemory-policy"));
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If a setting is invalid, with its name; or if no server answers. A node of a cluster that does not is named in the answer.
    pub async fn examine(self) -> Result<Examination, ConnectError> {
        self.look().await
    }

    /// Begins without waiting for the server: until it answers, decisions fail as unreachable and the failure rule acts.
    ///
    /// ```no_run
    /// use tollgate::RedisBackend;
    ///
    /// # fn example() -> Result<(), tollgate::ConnectError> {
    /// // The service starts before its Redis does.
    /// let backend = RedisBackend::builder("redis://127.0.0.1/").start()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If a setting is invalid, with its name. Must be called within a Tokio runtime.
    pub fn start(self) -> Result<RedisBackend, ConnectError> {
        let backend = self.build()?;
        backend.fleet.open_later();
        Ok(backend)
    }
}

impl std::fmt::Debug for RedisBackendBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the URLs, which may hold a password.
        f.debug_struct("RedisBackendBuilder")
            .field("names", &self.names)
            .field("credentials", &self.credentials)
            .field("papers", &self.papers)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
