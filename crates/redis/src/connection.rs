//! Connections, and the commands that are sent over them.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

pub(crate) use redis::aio::MultiplexedConnection as Connection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, RedisConnectionInfo, RedisError, Value,
};
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

/// Connects and authenticates.
pub(crate) async fn connect(server: ConnectionInfo) -> Result<Connection, BackendError> {
    // The deadlines are ours: the library's would cost a timer for each call, and its call would run on.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    // The first commands are ours too: the library takes any error in answer to a password for a wrong password.
    let settings = server.redis_settings().clone();
    let nobody = RedisConnectionInfo::default().set_skip_set_lib_name();
    let server = server.set_redis_settings(nobody);
    let client = Client::open(server).map_err(|error| refusal("HELLO", &error))?;
    let connected = client.get_multiplexed_async_connection_with_config(&config);
    let mut connection = connected.await.map_err(|error| refusal("HELLO", &error))?;
    if let Some(password) = settings.password() {
        let mut auth = redis::cmd("AUTH");
        if let Some(username) = settings.username() {
            auth.arg(username);
        }
        let answer = send(&mut connection, auth.arg(password)).await;
        answer.map_err(|error| refusal("AUTH", &error))?;
    }
    if settings.db() != 0 {
        let select = redis::cmd("SELECT").arg(settings.db()).to_owned();
        let answer = send(&mut connection, &select).await;
        answer.map_err(|error| refusal("SELECT", &error))?;
    }
    Ok(connection)
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
