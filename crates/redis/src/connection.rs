//! Connections, and the commands that are sent over them.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

pub(crate) use redis::aio::MultiplexedConnection as Connection;
use redis::aio::SendError;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ProtocolVersion, RedisConnectionInfo,
    RedisError, Value,
};
use tokio::sync::watch;
use tokio::time::timeout;
use tollgate_core::{BackendError, FailureKind};

use crate::error::refusal;

/// Bounds an attempt to connect.
pub(crate) async fn within<T>(
    deadline: Duration,
    work: impl Future<Output = Result<T, BackendError>>,
) -> Result<T, BackendError> {
    timeout(deadline, work).await.unwrap_or_else(|_elapsed| {
        // A time-out would say that a decision was late, and the caller that hears of this has not waited.
        Err(BackendError::new(
            FailureKind::Unreachable,
            format!(
                "no answer to a new connection within {deadline:?}: look at host and port, at firewalls, and whether redis:// or rediss:// is right"
            ),
        ))
    })
}

/// The time after which something is sent over a connection that nobody uses, by us and by the kernel: well below the idle time-outs of
/// load balancers and firewalls.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The end of a connection, whoever closes it.
#[derive(Clone, Debug)]
pub(crate) struct Ended(watch::Receiver<()>);

impl Ended {
    /// Comes when the first value is dropped.
    pub(crate) fn of_drop() -> (watch::Sender<()>, Self) {
        let (open_still, ended) = watch::channel(());
        (open_still, Self(ended))
    }

    /// Says whether it has come, as soon as that is known: nothing can be sent over the connection any more.
    pub(crate) fn has_come(&self) -> bool {
        self.0.has_changed().is_err()
    }

    /// Waits for it.
    pub(crate) async fn come(mut self) {
        // Nothing is ever sent.
        let _dropped = self.0.changed().await;
    }
}

/// Connects and authenticates.
pub(crate) async fn connect(server: ConnectionInfo) -> Result<Connection, BackendError> {
    // The first commands are ours: the library takes any error in answer to a password for a wrong password.
    let settings = server.redis_settings().clone();
    let nobody = RedisConnectionInfo::default();
    let mut connection = open(server, nobody, config(), "HELLO").await?;
    if let Some(password) = settings.password() {
        let mut auth = redis::cmd("AUTH");
        if let Some(username) = settings.username() {
            auth.arg(username);
        }
        let answer = send(&mut connection, auth.arg(password)).await;
        answer.map_err(|error| refusal("AUTH", &error))?;
    }
    select(&mut connection, settings.db()).await?;
    Ok(connection)
}

/// Connects and authenticates, to learn of the connection's end when it comes.
pub(crate) async fn connect_for_long(
    server: ConnectionInfo,
) -> Result<(Connection, Ended), BackendError> {
    // The library drops this with the task that reads the connection, which is the only sign of its end. It wants RESP3 for that, and so
    // says HELLO itself.
    let (open_still, ended) = Ended::of_drop();
    let config = config().set_push_sender(move |_push| {
        let _while_open = &open_still;
        Ok::<(), SendError>(())
    });
    let settings = server.redis_settings().clone();
    let ours = settings.clone().set_db(0);
    let ours = ours.set_protocol(ProtocolVersion::RESP3);
    let first = match settings.password() {
        Some(_) => "AUTH",
        None => "HELLO",
    };
    let mut connection = open(server, ours, config, first).await?;
    select(&mut connection, settings.db()).await?;
    Ok((connection, ended))
}

fn config() -> AsyncConnectionConfig {
    // The deadlines are ours: the library's would cost a timer for each call, and its call would run on.
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
}

async fn open(
    server: ConnectionInfo,
    settings: RedisConnectionInfo,
    config: AsyncConnectionConfig,
    first: &str,
) -> Result<Connection, BackendError> {
    let keepalive = TcpKeepalive::new().with_time(KEEP_ALIVE);
    let tcp = server.tcp_settings().clone().set_keepalive(keepalive);
    let server = server.set_tcp_settings(tcp);
    let server = server.set_redis_settings(settings.set_skip_set_lib_name());
    let client = Client::open(server).map_err(|error| refusal(first, &error))?;
    let connected = client.get_multiplexed_async_connection_with_config(&config);
    connected.await.map_err(|error| refusal(first, &error))
}

async fn select(connection: &mut Connection, database: i64) -> Result<(), BackendError> {
    if database != 0 {
        let select = redis::cmd("SELECT").arg(database).to_owned();
        let answer = send(connection, &select).await;
        answer.map_err(|error| refusal("SELECT", &error))?;
    }
    Ok(())
}

/// Sends a command. The library returns an error of the server as a value; here it is an error.
pub(crate) async fn send(connection: &mut Connection, command: &Cmd) -> Result<Value, RedisError> {
    connection
        .send_packed_command(command)
        .await?
        .extract_error()
}

/// Sends commands in one go, so that nothing else on this connection comes between them. Returns the answer to the last; if
/// that is an error, the first error.
pub(crate) async fn send_all(
    connection: &mut Connection,
    commands: &[&Cmd],
) -> Result<Value, RedisError> {
    let mut pipeline = redis::Pipeline::with_capacity(commands.len());
    for command in commands {
        pipeline.add_command((*command).clone());
    }
    let answers = connection
        .send_packed_commands(&pipeline, 0, commands.len())
        .await?;
    let mut failed = None;
    let mut last = Ok(Value::Nil);
    for answer in answers {
        last = answer.extract_error();
        if let Err(error) = &last {
            failed.get_or_insert_with(|| error.clone());
        }
    }
    match (last, failed) {
        (Err(_last), Some(first)) => Err(first),
        (last, _) => last,
    }
}

/// A pause between half of this one and all of it, so that a fleet does not come back in step.
pub(crate) fn jittered(pause: Duration) -> Duration {
    // The standard library seeds it at random.
    let random = RandomState::new().hash_one(0);
    pause / 2 + pause / 2 * u32::from(random.to_le_bytes()[0]) / 256
}
