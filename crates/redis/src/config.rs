//! How a backend is set up, and why each default is what it is.

use std::sync::Arc;
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionInfo, IntoConnectionInfo};

use crate::backend::RedisBackend;
use crate::dispatch::Limits;
use crate::error::ConnectError;
use crate::link::Link;
use crate::script::Script;

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
    url: String,
    prefix: String,
    connect_deadline: Duration,
    limits: Limits,
    connections: usize,
    script: Arc<Script>,
}

impl RedisBackendBuilder {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            prefix: "tollgate".to_owned(),
            connect_deadline: Duration::from_secs(2),
            limits: Limits::default(),
            connections: 2,
            script: Arc::new(Script::shipped()),
        }
    }

    /// What all names in Redis begin with: letters, digits, `-`, `.` and `_`. `tollgate` unless set, so that an access rule can name
    /// what is ours (`~tollgate:*`).
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
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

    /// How many connections. 2 unless set: while one waits for a lost packet the other goes on, and two keep a server busy
    /// that decides on one core.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
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
        backend.open_now().await?;
        Ok(backend)
    }

    /// Begins without waiting for the server: until it answers, decisions fail as unreachable and the failure rule acts.
    ///
    /// # Errors
    ///
    /// If a setting is none, naming it. Must be called within a Tokio runtime.
    pub fn start(self) -> Result<RedisBackend, ConnectError> {
        let backend = self.build()?;
        backend.open_from(0);
        Ok(backend)
    }

    fn build(self) -> Result<RedisBackend, ConnectError> {
        let setting = |name, problem: &str| Err(ConnectError::setting(name, problem));
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if self.prefix.is_empty() || !self.prefix.chars().all(allowed) {
            return setting(
                "prefix",
                "must be letters, digits, `-`, `.` and `_`, at least one",
            );
        }
        if self.limits.deadline.is_zero() {
            return setting("deadline", "of 0 leaves no time for an answer");
        }
        if self.connect_deadline.is_zero() {
            return setting("connect_deadline", "of 0 leaves no time for an answer");
        }
        if self.connections == 0 || self.limits.waiting == 0 {
            return setting("connections and max_waiting", "must be at least 1");
        }
        let Ok(info) = self.url.as_str().into_connection_info() else {
            // The error of the library may repeat the URL, and with it a password.
            return setting(
                "url",
                "is not of the form redis://[user:password@]host[:port][/database]",
            );
        };
        let info: ConnectionInfo = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let Ok(client) = Client::open(info) else {
            return setting("url", "names a connection that this build cannot make");
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return setting("runtime", "is missing: call this within a Tokio runtime");
        };
        Ok(RedisBackend::start(
            Link {
                client,
                script: self.script,
                deadline: self.connect_deadline,
            },
            runtime,
            self.prefix,
            self.limits,
            self.connections,
        ))
    }
}

impl std::fmt::Debug for RedisBackendBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the URL: it may hold a password.
        f.debug_struct("RedisBackendBuilder")
            .field("prefix", &self.prefix)
            .field("limits", &self.limits)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}
