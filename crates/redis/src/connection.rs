//! Connections, and the commands that are sent over them.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// Sends commands, and has no end of its own.
pub(crate) use redis::aio::MultiplexedConnection as Commands;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, RedisConnectionInfo,
    RedisError, Value,
};
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tollgate_core::{BackendError, FailureKind};

use crate::error::refusal;
pub(crate) use crate::stream::KEEP_ALIVE;
use crate::stream::{self, AnyStream, Stream, Written};
use crate::tls::Tls;

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

/// A connection for decisions.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    commands: Commands,
    written: Written,
}

impl Connection {
    pub(crate) fn new(commands: Commands, written: Written) -> Self {
        Self { commands, written }
    }

    /// The number of bytes that have left over it.
    pub(crate) fn written(&self) -> u64 {
        self.written.count()
    }
}

impl Deref for Connection {
    type Target = Commands;

    fn deref(&self) -> &Commands {
        &self.commands
    }
}

impl DerefMut for Connection {
    fn deref_mut(&mut self) -> &mut Commands {
        &mut self.commands
    }
}

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

/// Connects and authenticates, for a few questions.
pub(crate) async fn connect(server: ConnectionInfo) -> Result<Commands, BackendError> {
    let settings = server.redis_settings().clone();
    let keepalive = TcpKeepalive::new().with_time(KEEP_ALIVE);
    let tcp = server.tcp_settings().clone().set_keepalive(keepalive);
    let server = server.set_tcp_settings(tcp).set_redis_settings(nobody());
    let connected = async {
        let client = Client::open(server)?;
        let config = config();
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
    };
    let mut connection = connected.await.map_err(|error| refusal("HELLO", &error))?;
    authenticate(&mut connection, &settings).await?;
    Ok(connection)
}

/// Connects and authenticates, to send decisions and to learn of the connection's end when it comes.
pub(crate) async fn connect_for_long(
    server: ConnectionInfo,
    tls: &Tls,
) -> Result<(Connection, Ended), BackendError> {
    let failed = |error: RedisError| refusal("HELLO", &error);
    let opened = connect_socket(server.addr(), tls).await;
    let (stream, written) = opened.map_err(|error| failed(error.into()))?;
    let settings = nobody();
    let made = Commands::new_with_config(&settings, stream, config()).await;
    let (commands, driver) = made.map_err(failed)?;
    let (open_still, ended) = Ended::of_drop();
    tokio::spawn(async move {
        driver.await;
        drop(open_still);
    });
    let mut connection = Connection::new(commands, written);
    authenticate(&mut connection, server.redis_settings()).await?;
    Ok((connection, ended))
}

/// Connects to a server, over TLS if its address asks for that.
async fn connect_socket(
    address: &ConnectionAddr,
    tls: &Tls,
) -> io::Result<(Box<dyn AnyStream>, Written)> {
    match address {
        ConnectionAddr::Tcp(host, port) => {
            let (stream, written) = Stream::new(stream::over_tcp(host, *port).await?);
            Ok((Box::new(stream), written))
        }
        ConnectionAddr::TcpTls { host, port, .. } => {
            let (stream, written) = Stream::new(stream::over_tcp(host, *port).await?);
            Ok((tls.over(stream, host).await?, written))
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            let (stream, written) = Stream::new(UnixStream::connect(path).await?);
            Ok((Box::new(stream), written))
        }
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// The first commands are ours: the library takes any error in answer to a password for a wrong password.
fn nobody() -> RedisConnectionInfo {
    RedisConnectionInfo::default().set_skip_set_lib_name()
}

fn config() -> AsyncConnectionConfig {
    // The deadlines are ours: the library's would cost a timer for each call, and its call would run on.
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
}

async fn authenticate(
    connection: &mut Commands,
    settings: &RedisConnectionInfo,
) -> Result<(), BackendError> {
    if let Some(password) = settings.password() {
        let mut auth = redis::cmd("AUTH");
        if let Some(username) = settings.username() {
            auth.arg(username);
        }
        let answer = send(connection, auth.arg(password)).await;
        answer.map_err(|error| refusal("AUTH", &error))?;
    }
    let database = settings.db();
    if database != 0 {
        let select = redis::cmd("SELECT").arg(database).to_owned();
        let answer = send(connection, &select).await;
        answer.map_err(|error| refusal("SELECT", &error))?;
    }
    Ok(())
}

/// Sends a command. The library returns an error of the server as a value; here it is an error.
pub(crate) async fn send(connection: &mut Commands, command: &Cmd) -> Result<Value, RedisError> {
    connection
        .send_packed_command(command)
        .await?
        .extract_error()
}

/// Sends commands in one go, so that nothing else on this connection comes between them. Returns the answer to the last; if
/// that is an error, the first error.
pub(crate) async fn send_all(
    connection: &mut Commands,
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
