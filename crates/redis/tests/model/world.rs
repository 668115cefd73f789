//! Two servers, one of which is the master of everything.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};

use redis::{RedisError, Value, parse_redis_value};
use shuttle::future::yield_now;
use shuttle::sync::Mutex;

use super::wire::{CREDIT, DECIDE};

shuttle::lazy_static! {
    pub(crate) static ref WORLD: World = World::default();
}

#[derive(Default)]
pub(crate) struct World {
    servers: [Server; 2],
    master: AtomicUsize,
    /// The number of requests that took a unit, and of those that gave one back, on each.
    taken: AtomicUsize,
    given_back: AtomicUsize,
}

#[derive(Default)]
struct Server(Mutex<(Mood, Vec<Waker>)>);

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Answers,
    /// It is connected and silent.
    Silent,
    Gone,
}

/// The carrier of a call.
pub(crate) fn port(server: usize) -> u16 {
    u16::try_from(7000 + server).unwrap()
}

impl World {
    pub(crate) fn set(&self, server: usize, mood: Mood) {
        let waiting = {
            let server = &mut *self.servers[server].0.lock().unwrap();
            server.0 = mood;
            std::mem::take(&mut server.1)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn promote(&self, server: usize) {
        self.master.store(server, Ordering::SeqCst);
    }

    pub(crate) fn master(&self) -> usize {
        self.master.load(Ordering::SeqCst)
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }

    pub(crate) fn given_back(&self) -> usize {
        self.given_back.load(Ordering::SeqCst)
    }

    /// Waits until the server says something.
    pub(crate) async fn attention(&self, server: usize) -> Result<(), RedisError> {
        yield_now().await;
        poll_fn(|cx| {
            let server = &mut *self.servers[server].0.lock().unwrap();
            match server.0 {
                Mood::Answers => Poll::Ready(Ok(())),
                Mood::Gone => Poll::Ready(Err(std::io::Error::from(
                    std::io::ErrorKind::ConnectionReset,
                )
                .into())),
                Mood::Silent => {
                    server.1.push(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// One call of the script. It may have run although its caller gets no answer.
    pub(crate) async fn run(&self, server: usize, verbs: &[u8]) -> Result<Value, RedisError> {
        self.attention(server).await?;
        if self.master() != server {
            let moved = format!("-MOVED 0 127.0.0.1:{}\r\n", port(self.master()));
            return parse_redis_value(moved.as_bytes())?.extract_error();
        }
        let count = |verb| verbs.iter().filter(|said| **said == verb).count();
        self.taken.fetch_add(count(DECIDE), Ordering::SeqCst);
        self.given_back.fetch_add(count(CREDIT), Ordering::SeqCst);
        self.attention(server).await?;
        Ok(Value::Int(i64::try_from(verbs.len()).unwrap()))
    }

    /// The owners of the slots, as this server knows them.
    pub(crate) async fn slots(&self, server: usize) -> Result<Value, RedisError> {
        self.attention(server).await?;
        let host = Value::BulkString(b"127.0.0.1".to_vec());
        let master = Value::Array(vec![host, Value::Int(port(self.master()).into())]);
        let all = Value::Array(vec![Value::Int(0), Value::Int(16_383), master]);
        Ok(Value::Array(vec![all]))
    }
}
