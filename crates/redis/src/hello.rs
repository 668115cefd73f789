//! The server's own account of its kind.

use redis::{Cmd, RedisError, Value, from_redis_value};
use tollgate_core::{BackendError, FailureKind};

use crate::connection::Commands;
use crate::connection::send;
use crate::error::refusal;

/// The required kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A single server, with replicas or not.
    Single,
    /// A node of a cluster.
    Node,
}

/// Introduces us, and checks by the answer that the server is of the required kind.
pub(crate) async fn greet(
    connection: &mut Commands,
    name: &str,
    kind: Kind,
) -> Result<(), BackendError> {
    check(send(connection, &command(name)).await, kind)
}

pub(crate) fn command(name: &str) -> Cmd {
    let mut hello = redis::cmd("HELLO");
    hello.arg(2).arg("SETNAME").arg(name);
    hello
}

/// Checks the server's answer.
pub(crate) fn check(answer: Result<Value, RedisError>, kind: Kind) -> Result<(), BackendError> {
    let answer = answer.map_err(|error| refusal("HELLO", &error))?;
    // A server that does not name its mode has only one.
    match (field(&answer, "mode").as_deref(), kind) {
        (Some("sentinel"), _) => Err(wrong(
            "the server is a Sentinel: set it up with RedisBackend::sentinel",
        )),
        (Some("cluster"), Kind::Single) => Err(wrong(
            "the server is part of a cluster: set it up with RedisBackend::cluster",
        )),
        (Some("standalone"), Kind::Node) => Err(wrong(
            "the server is not part of a cluster: set it up with RedisBackend::connect",
        )),
        _ if field(&answer, "role").is_some_and(|role| role != "master") => Err(BackendError::new(
            FailureKind::ReadOnly,
            "the server is a replica",
        )),
        _ => Ok(()),
    }
}

fn wrong(what: &str) -> BackendError {
    BackendError::new(FailureKind::WrongServer, what)
}

/// A field of a list of names and values in turn.
fn field(answer: &Value, name: &str) -> Option<String> {
    let Value::Array(answer) = answer else {
        return None;
    };
    let mut pairs = answer.chunks_exact(2);
    pairs.find_map(|pair| {
        let key: String = from_redis_value(pair[0].clone()).ok()?;
        (key == name)
            .then(|| from_redis_value(pair[1].clone()).ok())
            .flatten()
    })
}
