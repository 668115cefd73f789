//! The rights that decisions need, tried on each new connection.
//!
//! A script that lacks a right fails at its first use, and before Redis 7.2 the server does not name the right. So a new
//! connection asks for each of the script's commands once, in a form that changes nothing. All of them go in one round trip.

use redis::{Pipeline, RedisError, Value};
use tollgate_core::{BackendError, FailureKind};

use crate::connection::Commands;
use crate::error::refusal;

/// A key that is never the name of a state: those have more parts.
const NO_STATE: &str = "no-state";

/// The script's commands. A server checks rights before it parses arguments, so `SET` may stand here in a form that always
/// fails.
const COMMANDS: [(&str, &[&str]); 7] = [
    ("TIME", &[]),
    ("GET", &["KEY"]),
    ("MGET", &["KEY"]),
    ("EXISTS", &["KEY"]),
    ("SET", &["KEY", "", "NX", "XX"]),
    ("SETRANGE", &["KEY", "0", ""]),
    ("DEL", &["KEY"]),
];

/// Adds each of the script's commands.
pub(crate) fn try_each(asked: &mut Pipeline, prefix: &str) {
    let key = format!("{prefix}:{NO_STATE}");
    for (command, words) in COMMANDS {
        asked.cmd(command);
        for word in words {
            asked.arg(if *word == "KEY" { &key } else { *word });
        }
    }
}

/// Fails with the first right that is missing, or the first command that the server does not have.
pub(crate) fn check(answers: impl IntoIterator<Item = Value>) -> Result<(), BackendError> {
    let first = errors(answers).find(|(command, error)| is_grave(command, error));
    first.map_or(Ok(()), |(command, error)| Err(refusal(command, &error)))
}

/// Each of the script's commands that cannot be run, and the server's answer. That may be about all writes, too.
pub(crate) async fn refused(
    connection: &mut Commands,
    prefix: &str,
) -> Result<Vec<(&'static str, RedisError)>, BackendError> {
    let mut asked = Pipeline::new();
    try_each(&mut asked, prefix);
    let answers = connection.send_packed_commands(&asked, 0, COMMANDS.len());
    let answers = answers.await.map_err(|error| refusal("TIME", &error))?;
    let writes =
        |error: &RedisError| matches!(error.code(), Some("OOM" | "MISCONF" | "NOREPLICAS"));
    let refused = errors(answers).filter(|(name, error)| is_grave(name, error) || writes(error));
    Ok(refused.collect())
}

fn errors(
    answers: impl IntoIterator<Item = Value>,
) -> impl Iterator<Item = (&'static str, RedisError)> {
    let commands = COMMANDS.into_iter().zip(answers);
    commands.filter_map(|((command, _), answer)| Some((command, answer.extract_error().err()?)))
}

/// Errors other than a missing right (no memory, no replicas, another node's slot) are left to the decisions.
fn is_grave(command: &str, error: &RedisError) -> bool {
    let kind = refusal(command, error).kind();
    kind == FailureKind::Forbidden
        || (kind == FailureKind::WrongServer && error.code() == Some("ERR"))
}
