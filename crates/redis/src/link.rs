//! How a connection is made, and made again.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, Value};
use tokio::time::{sleep, timeout};
use tollgate_core::{BackendError, FailureKind};

use crate::dispatch::Dispatch;
use crate::error::failure;
use crate::script::Script;

/// The first and the longest pause between attempts. The first is short, since most servers that go come back at once;
/// the longest is what a recovered server waits for its callers.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Connects a lane in the background, for as long as it takes and the backend exists.
pub(crate) fn spawn(dispatch: &Arc<Dispatch>, lane: usize) {
    dispatch.spawn(reconnect(Arc::downgrade(dispatch), lane));
}

async fn reconnect(dispatch: Weak<Dispatch>, lane: usize) {
    let mut pause = FIRST_PAUSE;
    loop {
        let Some(link) = dispatch.upgrade().map(|dispatch| dispatch.link.clone()) else {
            return;
        };
        let opened = link.open().await;
        let Some(dispatch) = dispatch.upgrade() else {
            return;
        };
        if let Ok(connection) = opened {
            dispatch.connected(lane, connection);
            return;
        }
        drop(dispatch);
        sleep(jittered(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// What it takes to connect.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) client: Client,
    pub(crate) script: Arc<Script>,
    pub(crate) deadline: Duration,
}

impl Link {
    /// Connects, and shows that the server answers and has our script.
    pub(crate) async fn open(&self) -> Result<MultiplexedConnection, BackendError> {
        let deadline = self.deadline;
        match timeout(deadline, self.handshake()).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(failure(&error)),
            Err(_elapsed) => Err(BackendError::new(
                FailureKind::TimedOut { deadline },
                "while connecting",
            )),
        }
    }

    async fn handshake(&self) -> Result<MultiplexedConnection, RedisError> {
        // Deadlines are ours: the library's would be a timer for each call, and the call would run on.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let mut connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        let source = self.script.source();
        let load = redis::cmd("SCRIPT").arg("LOAD").arg(source).to_owned();
        send(&mut connection, &load).await?;
        Ok(connection)
    }
}

/// Sends a command. What the library gives as a value, an error of the server's, is one here.
pub(crate) async fn send(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
) -> Result<Value, RedisError> {
    connection
        .send_packed_command(command)
        .await?
        .extract_error()
}

/// Between half of it and all of it, so that a fleet does not come back in step.
fn jittered(pause: Duration) -> Duration {
    // Seeded at random by the standard library.
    let random = RandomState::new().hash_one(0);
    pause / 2 + pause / 2 * u32::from(random.to_le_bytes()[0]) / 256
}
