//! What is in the backend's `link`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{Arg, Cmd, ConnectionInfo, IntoConnectionInfo, RedisError, Value};
use tollgate_core::{BackendError, FailureKind};

use super::clock::{Instant, timeout_at};
use super::error::failure;
use super::hello::Kind;
use super::script::Script;
use super::world::{WORLD, port};
use crate::server::{self, Address};

#[derive(Clone, Debug)]
pub(crate) enum Origin {
    Server(Arc<ConnectionInfo>),
    #[expect(dead_code, reason = "the model has no Sentinels")]
    Master,
}

#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) origin: Origin,
    pub(crate) kind: Kind,
    pub(crate) client_name: Arc<str>,
    pub(crate) script: Arc<Script>,
    pub(crate) deadline: Duration,
}

impl Link {
    pub(crate) fn to(server: usize) -> Self {
        Self {
            origin: Origin::Server(Arc::new(info(server))),
            kind: Kind,
            client_name: "model".into(),
            script: Arc::default(),
            deadline: Duration::from_millis(500),
        }
    }

    pub(crate) fn address(&self) -> Option<Address> {
        match &self.origin {
            Origin::Server(info) => server::address(info),
            Origin::Master => None,
        }
    }

    pub(crate) async fn open(&self) -> Result<Opened, BackendError> {
        let server = self.address().map_or(0, |(_, port)| number(port));
        let greeted = async {
            let greeted = WORLD.attention(server).await;
            greeted.map_err(|error| failure(&error))
        };
        within(self.deadline, greeted).await?;
        Ok(Opened::to(server))
    }
}

pub(crate) fn info(server: usize) -> ConnectionInfo {
    let url = format!("redis://127.0.0.1:{}/", port(server));
    url.into_connection_info().unwrap()
}

fn number(port: u16) -> usize {
    usize::from(port - 7000)
}

#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    pub(crate) round_trip: Duration,
    pub(crate) server: Option<Address>,
}

impl Opened {
    pub(crate) fn to(server: usize) -> Self {
        Self {
            connection: Connection::to(server),
            round_trip: Duration::ZERO,
            server: Some(("127.0.0.1".to_owned(), port(server))),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Connection {
    server: usize,
    is_busy: Arc<AtomicBool>,
}

impl Connection {
    pub(crate) fn to(server: usize) -> Self {
        Self {
            server,
            is_busy: Arc::default(),
        }
    }
}

/// A call on its way, until it is answered or nobody listens any more.
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
            let is_busy = connection.is_busy.swap(true, Ordering::SeqCst);
            assert!(!is_busy, "a connection carries one call at a time");
            let _busy = Busy(&connection.is_busy);
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
