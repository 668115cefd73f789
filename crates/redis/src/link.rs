//! How a connection is made.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use redis::aio::MultiplexedConnection as Connection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionInfo, RedisError, Value};
use tokio::time::timeout;
use tollgate_core::{BackendError, FailureKind};

use crate::error::failure;
use crate::hello::{self, Kind};
use crate::script::Script;
use crate::sentinel::Sentinels;
use crate::server;

/// Who is to be connected to.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// This server.
    Server(Arc<ConnectionInfo>),
    /// Whom the Sentinels name at the time.
    Master(Arc<Sentinels>),
}

/// What it takes to connect.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) origin: Origin,
    /// What the server has to be.
    pub(crate) kind: Kind,
    /// Hosts that may be passwords: see [`server::only_word`].
    pub(crate) hidden: Arc<[String]>,
    pub(crate) client_name: Arc<str>,
    pub(crate) script: Arc<Script>,
    pub(crate) deadline: Duration,
}

impl Link {
    /// Connects, and shows that the server is what it is taken for, has our script and runs it.
    pub(crate) async fn open(&self) -> Result<Connection, BackendError> {
        let opened = within(self.deadline, self.handshake()).await;
        match (opened, &self.origin) {
            (Err(error), Origin::Server(server)) => Err(self.about(error, server)),
            (opened, _) => opened,
        }
    }

    async fn handshake(&self) -> Result<Connection, BackendError> {
        let server = match &self.origin {
            Origin::Server(server) => (**server).clone(),
            Origin::Master(sentinels) => sentinels.master().await?,
        };
        let introduced = self.introduce(server.clone()).await;
        introduced.map_err(|error| self.about(error, &server))
    }

    /// The error with the server that it is about.
    fn about(&self, error: BackendError, server: &ConnectionInfo) -> BackendError {
        match server::address(server) {
            Some((host, _)) if self.hidden.contains(&host) => error,
            Some((host, port)) => error.at(format!("{host}:{port}")),
            None => error,
        }
    }

    async fn introduce(&self, server: ConnectionInfo) -> Result<Connection, BackendError> {
        let mut connection = connect(server).await?;
        hello::greet(&mut connection, &self.client_name, self.kind).await?;
        let source = self.script.source();
        let load = redis::cmd("SCRIPT").arg("LOAD").arg(source).to_owned();
        let tried = redis::cmd("EVALSHA")
            .arg(self.script.sha())
            .arg(0)
            .to_owned();
        for command in [load, tried] {
            let result = send(&mut connection, &command).await;
            result.map_err(|error| without_scripts(&error))?;
        }
        Ok(connection)
    }
}

/// A server that knows no scripts says so in no code of its own.
fn without_scripts(error: &RedisError) -> BackendError {
    match error.detail() {
        Some(detail) if detail.starts_with("unknown command") => BackendError::new(
            FailureKind::WrongServer,
            "the server has no SCRIPT LOAD or EVALSHA: do not rename or disable them, decisions are Lua scripts",
        ),
        _ => failure(error),
    }
}

/// Bounds what is done to connect.
pub(crate) async fn within<T>(
    deadline: Duration,
    work: impl Future<Output = Result<T, BackendError>>,
) -> Result<T, BackendError> {
    timeout(deadline, work).await.unwrap_or_else(|_elapsed| {
        let kind = FailureKind::TimedOut { deadline };
        Err(BackendError::new(
            kind,
            "look at host and port, at firewalls, and whether redis:// or rediss:// is right",
        ))
    })
}

/// Connects and says who we are.
pub(crate) async fn connect(server: ConnectionInfo) -> Result<Connection, BackendError> {
    // Deadlines are ours: the library's would be a timer for each call, and the call would run on.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let client = Client::open(server).map_err(|error| failure(&error))?;
    let connected = client.get_multiplexed_async_connection_with_config(&config);
    connected.await.map_err(|error| failure(&error))
}

/// Sends a command. What the library gives as a value, an error of the server's, is one here.
pub(crate) async fn send(connection: &mut Connection, command: &Cmd) -> Result<Value, RedisError> {
    connection
        .send_packed_command(command)
        .await?
        .extract_error()
}

/// Between half of it and all of it, so that a fleet does not come back in step.
pub(crate) fn jittered(pause: Duration) -> Duration {
    // Seeded at random by the standard library.
    let random = RandomState::new().hash_one(0);
    pause / 2 + pause / 2 * u32::from(random.to_le_bytes()[0]) / 256
}
