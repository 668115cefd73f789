//! The model's part of the backend's `connection`.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::{Arg, Cmd, ConnectionInfo, IntoConnectionInfo, RedisError, Value};
use tollgate_core::{BackendError, FailureKind};

use super::clock::{Instant, timeout_at};
use super::wire::DECIDE;
use super::world::{WORLD, port};
use crate::server;

pub(crate) use super::clock::NEVER as KEEP_ALIVE;

pub(crate) fn info(server: usize) -> ConnectionInfo {
    let url = format!("redis://127.0.0.1:{}/", port(server));
    url.into_connection_info().unwrap()
}

pub(crate) fn number(port: u16) -> usize {
    usize::from(port - 7000)
}

/// A connection that nobody closes.
#[derive(Clone, Debug)]
pub(crate) struct Ended;

impl Ended {
    pub(crate) fn has_come(&self) -> bool {
        false
    }

    pub(crate) async fn come(self) {
        pending::<()>().await;
    }
}

pub(crate) use Connection as Commands;

#[derive(Clone, Debug)]
pub(crate) struct Connection {
    server: usize,
    /// With decisions, and with anything else.
    is_busy: Arc<[AtomicBool; 2]>,
}

impl Connection {
    /// Never what it was: each call may have reached the server.
    pub(crate) fn written(&self) -> u64 {
        static WRITTEN: AtomicU64 = AtomicU64::new(0);

        WRITTEN.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn to(server: usize) -> Self {
        Self {
            server,
            is_busy: Arc::default(),
        }
    }
}

/// A call on its way, until it is answered or its caller stops listening.
struct Busy<'a>(&'a AtomicBool);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

pub(crate) async fn connect(info: ConnectionInfo) -> Result<Connection, BackendError> {
    let (_host, port) = server::address(&info).unwrap();
    Ok(Connection::to(number(port)))
}

pub(crate) async fn send(connection: &mut Connection, command: &Cmd) -> Result<Value, RedisError> {
    let words: Vec<&[u8]> = command
        .args_iter()
        .filter_map(|word| match word {
            Arg::Simple(word) => Some(word),
            _ => None,
        })
        .collect();
    match words[..] {
        [b"EVALSHA", .., verbs] => {
            let is_busy = &connection.is_busy[usize::from(verbs.contains(&DECIDE))];
            let was_busy = is_busy.swap(true, Ordering::SeqCst);
            assert!(!was_busy, "a connection carries one batch at a time");
            let _busy = Busy(is_busy);
            WORLD.run(connection.server, verbs).await
        }
        [b"CLUSTER", ..] => WORLD.slots(connection.server).await,
        _ => Ok(Value::Nil),
    }
}

pub(crate) async fn send_all(
    connection: &mut Connection,
    commands: &[&Cmd],
) -> Result<Value, RedisError> {
    let mut last = Ok(Value::Nil);
    for command in commands {
        last = send(connection, command).await;
    }
    last
}

pub(crate) async fn within<T>(
    deadline: Duration,
    work: impl Future<Output = Result<T, BackendError>>,
) -> Result<T, BackendError> {
    let kind = FailureKind::TimedOut { deadline };
    let done = timeout_at(Instant::now() + deadline, work).await;
    done.unwrap_or_else(|_elapsed| Err(BackendError::new(kind, "")))
}

pub(crate) fn jittered(pause: Duration) -> Duration {
    pause
}
