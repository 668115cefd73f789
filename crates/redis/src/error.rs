//! Errors of ours, out of what the library and the server say.

use std::error::Error;
use std::fmt;

use redis::{ErrorKind, RedisError};
use tollgate_core::{BackendError, FailureKind};

#[cfg(feature = "tls")]
use crate::trust;

/// Why a backend could not be set up.
///
/// What it says is one sentence that names what to change, and never holds a password.
pub struct ConnectError {
    message: String,
    failure: Option<BackendError>,
}

impl ConnectError {
    pub(crate) fn setting(name: &str, problem: &str) -> Self {
        Self {
            message: format!("the Redis backend's {name} {problem}"),
            failure: None,
        }
    }

    /// Nothing decides there.
    pub(crate) fn failed(failure: BackendError) -> Self {
        let place = failure.place().map(|place| format!(" at {place}"));
        let message = format!(
            "cannot connect to Redis{}: {failure}",
            place.unwrap_or_default()
        );
        Self {
            message,
            failure: Some(failure),
        }
    }

    /// What kind of failure it was that kept us from the server; `None` if it was a setting.
    #[must_use]
    pub fn kind(&self) -> Option<FailureKind> {
        self.failure.as_ref().map(BackendError::kind)
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The same sentence: it is what a `main` that returns the error shows.
impl fmt::Debug for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The failure itself is in the message already.
        self.failure.as_ref().and_then(Error::source)
    }
}

/// The words for a call of the script that failed on a connection that has worked. Never a text of the server's own: it may
/// name keys, and keys are identities.
pub(crate) fn failure(error: &RedisError) -> BackendError {
    if error.code().is_some() {
        return refusal("EVALSHA", error);
    }
    #[cfg(feature = "tls")]
    if let Some(failure) = trust::failure(error) {
        return failure;
    }
    BackendError::new(
        FailureKind::Unreachable,
        "the connection was closed while it was in use: the server has restarted or closed it (CLIENT KILL, `timeout`), or the network did",
    )
}

/// The words for a command that failed while a connection was made.
pub(crate) fn refusal(command: &str, error: &RedisError) -> BackendError {
    let Some(code) = code(error) else {
        return local(error);
    };
    let (kind, what) = match code {
        "READONLY" => (FailureKind::ReadOnly, "the server is a replica"),
        "OOM" => (
            FailureKind::OutOfMemory,
            "raise maxmemory, or let nothing else live there",
        ),
        "LOADING" => (FailureKind::Unready, "the server still loads its data"),
        "BUSY" => (FailureKind::Unready, "the server is busy with a script"),
        "MASTERDOWN" => (
            FailureKind::Unready,
            "the server is a replica that has lost its master",
        ),
        "MISCONF" => (
            FailureKind::Unready,
            "the server cannot persist and refuses writes",
        ),
        "NOREPLICAS" => (
            FailureKind::Unready,
            "the server has too few replicas to write",
        ),
        "CLUSTERDOWN" | "TRYAGAIN" => (
            FailureKind::Unready,
            "the cluster has nobody for this key now",
        ),
        "NOAUTH" => (
            FailureKind::Unauthenticated,
            "the server asks for a password: put it into the URL, or set it",
        ),
        "WRONGPASS" => (
            FailureKind::Unauthenticated,
            "look at user name and password",
        ),
        "NOPERM" => return forbidden(command, error.detail().unwrap_or_default()),
        "DENIED" => (
            FailureKind::Forbidden,
            "the server is in protected mode and serves its own host only: give it a password, or `bind` it",
        ),
        "NOSCRIPT" => (
            FailureKind::ScriptFailed,
            "the server forgets the script as soon as it is loaded",
        ),
        "MOVED" | "ASK" | "CROSSSLOT" => (
            FailureKind::WrongServer,
            "the server is part of a cluster: set it up with RedisBackend::cluster",
        ),
        _ => return general(command, code, error.detail().unwrap_or_default()),
    };
    BackendError::new(kind, format!("{what} ({code})"))
}

/// A right that our user lacks. The server names commands, which are no identities, and since Redis 7.2 the user.
fn forbidden(command: &str, said: &str) -> BackendError {
    let ours = right(command);
    // Before Redis 7.0 a subcommand is called by its command alone.
    let named = lacking(said).filter(|_| {
        let (of_all, _) = ours.split_once('|').unwrap_or_default();
        !said.contains(&format!("run the '{of_all}'"))
    });
    let detail =
        named.unwrap_or_else(|| format!("our user may not run {command}: add +{ours} (NOPERM)"));
    BackendError::new(FailureKind::Forbidden, detail)
}

/// What a server before 7.0 says of a command of a script that it refuses, without where that stands in the script.
fn within_script(said: &str) -> &str {
    let behind = said
        .starts_with("Error running script")
        .then(|| said.split_once(&format!("{SCRIPT_S_OWN} ")));
    let (_, line) = behind.flatten().unwrap_or(("", said));
    match line.split_once(": ") {
        Some((number, of_command)) if number.parse::<u32>().is_ok() => of_command,
        _ => said,
    }
}

/// What stands before the line of a script, and in a code's place where a script returns what a command of it was told.
const SCRIPT_S_OWN: &str = "@user_script:";

/// Which right it is, if the server says so.
fn lacking(said: &str) -> Option<String> {
    let named = said
        .split_once("run the '")
        .and_then(|(_, behind)| behind.split_once('\''))
        .map(|(named, _)| named)
        .filter(|named| {
            let is_name = |c: char| c.is_ascii_alphanumeric() || "|-".contains(c);
            !named.is_empty() && named.len() < 40 && named.chars().all(is_name)
        });
    match named {
        Some(named) => Some(format!(
            "our user may not run {}: add +{named} (NOPERM)",
            named.to_uppercase().replace('|', " ")
        )),
        None => is_about_keys(said).then(|| KEYS.to_owned()),
    }
}

const KEYS: &str =
    "our user may not use our keys: add `~tollgate:*`, or the prefix that was set (NOPERM)";

fn is_about_keys(said: &str) -> bool {
    // Before Redis 7.2, since then, and where the key is named.
    ["one of the keys", "access a key", "access the '"]
        .into_iter()
        .any(|words| said.contains(words))
}

/// What an access rule calls a command.
fn right(command: &str) -> String {
    command.to_lowercase().replace(' ', "|")
}

/// Errors that have no code of their own: their texts are known by how they begin, and are not repeated.
fn general(command: &str, code: &str, said: &str) -> BackendError {
    let said = within_script(said);
    let begins = |text: &str| said.starts_with(text);
    // The latter since Redis 7.2.
    let is_right = begins("The user executing the script") || begins("ACL failure in script");
    let (kind, what) = if is_right && let Some(lacking) = lacking(said) {
        return BackendError::new(FailureKind::Forbidden, lacking);
    } else if is_right {
        // A server before 7.2 does not say which. The next connection asks for each.
        (
            FailureKind::Forbidden,
            "our user may not run a command of the script: compare its rights with those that the documentation names",
        )
    } else if begins("Unknown Redis command called from") {
        (
            FailureKind::WrongServer,
            "a command of the script is renamed or disabled: give it back its name",
        )
    } else if begins("unknown command") || begins("unknown subcommand") {
        return missing(command);
    } else if begins("max number of clients") {
        (
            FailureKind::Unready,
            "the server has as many clients as its `maxclients` allows",
        )
    } else if begins("DB index is out of range") || begins("invalid DB index") {
        (
            FailureKind::WrongServer,
            "the server has no database of this number: look at the URL, and at `databases` on the server",
        )
    } else if begins("SELECT is not allowed in cluster mode") {
        (
            FailureKind::WrongServer,
            "the server is part of a cluster: set it up with RedisBackend::cluster",
        )
    } else if begins("This instance has cluster support disabled") {
        (
            FailureKind::WrongServer,
            "the server is part of no cluster: set it up with RedisBackend::connect",
        )
    } else if begins("AUTH <password> called without any password configured") {
        (
            FailureKind::Unauthenticated,
            "a password is set here, and the server has none for this user",
        )
    } else {
        let is_code =
            (1..=20).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_uppercase());
        let code = if is_code {
            code
        } else {
            "an error without a code"
        };
        return BackendError::new(
            FailureKind::ScriptFailed,
            format!("{command} failed on the server ({code}): its log says why"),
        );
    };
    BackendError::new(kind, what)
}

/// A command that the server does not have.
pub(crate) fn missing(command: &str) -> BackendError {
    BackendError::new(
        FailureKind::WrongServer,
        format!(
            "the server has no {command}: it is renamed or disabled there, or the server is older than Redis 6.2"
        ),
    )
}

/// The server's word for what went wrong. Before Redis 7 a script that a command fails says so in a text of its own, and the
/// word stands in there.
fn code(error: &RedisError) -> Option<&str> {
    let outer = error.code()?;
    if outer == SCRIPT_S_OWN {
        return Some("ERR");
    }
    let inner = error.detail().and_then(|detail| {
        let (_, command) = detail
            .starts_with("Error running script")
            .then(|| detail.split_once(": -"))??;
        command.split(' ').next()
    });
    Some(inner.unwrap_or(outer))
}

/// Errors of the library and of the network while a connection is made.
fn local(error: &RedisError) -> BackendError {
    #[cfg(feature = "tls")]
    if let Some(failure) = trust::failure(error) {
        return failure;
    }
    let (kind, what) = match error.kind() {
        ErrorKind::Parse => (
            FailureKind::WrongServer,
            "what answers does not speak Redis's protocol: look at host and port, and whether it asks for TLS (rediss://)",
        ),
        _ if error.is_connection_refusal() => (
            FailureKind::Unreachable,
            "nothing listens there: look at host and port, and whether the server runs",
        ),
        _ if error.is_connection_dropped() => (
            FailureKind::Unreachable,
            "the connection was closed before it was greeted: look at host and port, whether the server asks for TLS (rediss://), and whether it takes more clients",
        ),
        _ => (
            FailureKind::Unreachable,
            "the connection failed: look at host and port, and whether the host's name is known",
        ),
    };
    BackendError::new(kind, what)
}

/// The same error again, for somebody else.
pub(crate) fn again(error: &BackendError) -> BackendError {
    let same = BackendError::new(error.kind(), error.detail());
    match error.place() {
        Some(place) => same.at(place),
        None => same,
    }
}

/// Whether the server said so because of what it is at present, so that a new connection may find another one.
pub(crate) fn wants_reconnect(error: &RedisError) -> bool {
    match code(error) {
        // A new connection says which right it is that our user lacks.
        Some("ERR") => refusal("", error).kind() == FailureKind::Forbidden,
        Some(code) => matches!(
            code,
            "READONLY" | "MASTERDOWN" | "LOADING" | "NOAUTH" | "WRONGPASS" | "NOPERM"
        ),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Redis 6.2 and 7.0 say it, and as Redis 8.0 and Valkey 8.1 do.
    #[test]
    fn a_right_that_is_missing_is_named_whichever_words_the_server_has_for_it() {
        let time = "our user may not run TIME: add +time (NOPERM)";
        let behind = "script: 104ae65debf45156ded1e8e613705534c8e62c17, on @user_script:1.";
        for (said, told) in [
            (
                "this user has no permissions to run the 'time' command or its subcommand",
                time,
            ),
            (
                "This user has no permissions to run the 'time' command",
                time,
            ),
            (
                "User gate has no permissions to run the 'time' command",
                time,
            ),
            (
                "this user has no permissions to access one of the keys used as arguments",
                KEYS,
            ),
            ("No permissions to access a key", KEYS),
            (
                "something new",
                "our user may not run TIME: add +time (NOPERM)",
            ),
        ] {
            let error = forbidden("TIME", said);
            assert_eq!(error.detail(), told, "{said}");
            assert_eq!(error.kind(), FailureKind::Forbidden);
        }
        for script in ["script", "script|load"] {
            let said = format!("this user has no permissions to run the '{script}' command");
            assert_eq!(
                forbidden("SCRIPT LOAD", &said).detail(),
                "our user may not run SCRIPT LOAD: add +script|load (NOPERM)"
            );
        }
        let unnamed = "our user may not run a command of the script: compare its rights with those that the documentation names";
        for (said, told) in [
            (
                "ACL failure in script: User gate has no permissions to run the 'time' command",
                time,
            ),
            (
                "ACL failure in script: No permissions to access a key",
                KEYS,
            ),
            (
                "The user executing the script can't access at least one of the keys mentioned in the command arguments",
                KEYS,
            ),
            (
                "The user executing the script can't run this command or subcommand",
                unnamed,
            ),
            (
                "Error running script (call to f_104ae65): @user_script:1: @user_script: 1: The user executing the script can't run this command or subcommand",
                unnamed,
            ),
            (
                "1: The user executing the script can't run this command or subcommand",
                unnamed,
            ),
            (
                "Error running script (call to f_104ae65): @user_script:1: @user_script: 1: The user executing the script can't access at least one of the keys mentioned in the command arguments",
                KEYS,
            ),
        ] {
            let error = general("EVALSHA", "ERR", &format!("{said} {behind}"));
            assert_eq!(error.kind(), FailureKind::Forbidden, "{said}");
            assert_eq!(error.detail(), told, "{said}");
        }
    }
}
