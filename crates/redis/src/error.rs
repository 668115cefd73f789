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

/// What a failed call says. Never a text of the server's own: it may name keys, and keys are identities.
pub(crate) fn failure(error: &RedisError) -> BackendError {
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
        "WRONGPASS" => return wrong_password(),
        "NOPERM" => (
            FailureKind::Forbidden,
            "allow our user the commands and keys that the documentation names",
        ),
        "NOSCRIPT" => (
            FailureKind::ScriptFailed,
            "the server forgets the script as soon as it is loaded",
        ),
        "MOVED" | "ASK" | "CROSSSLOT" => (
            FailureKind::WrongServer,
            "the server is part of a cluster: set it up with RedisBackend::cluster",
        ),
        _ => (FailureKind::ScriptFailed, "the server gave an error"),
    };
    BackendError::new(kind, format!("{what} ({code})"))
}

/// The server's word for what went wrong. Before Redis 7 a script that a command fails says so in a text of its own, and the
/// word stands in there.
fn code(error: &RedisError) -> Option<&str> {
    let outer = error.code()?;
    let inner = error.detail().and_then(|detail| {
        let (_, command) = detail
            .starts_with("Error running script")
            .then(|| detail.split_once(": -"))??;
        command.split(' ').next()
    });
    Some(inner.unwrap_or(outer))
}

/// What the library says by itself.
fn local(error: &RedisError) -> BackendError {
    #[cfg(feature = "tls")]
    if let Some(failure) = trust::failure(error) {
        return failure;
    }
    match error.kind() {
        ErrorKind::AuthenticationFailed => wrong_password(),
        ErrorKind::Parse => BackendError::new(
            FailureKind::WrongServer,
            "what answers does not speak Redis's protocol: look at host and port, and whether it asks for TLS (rediss://)",
        ),
        _ if error.is_connection_refusal() => BackendError::new(
            FailureKind::Unreachable,
            "nothing listens there: look at host and port, and whether the server runs",
        ),
        _ if error.is_connection_dropped() => BackendError::new(
            FailureKind::Unreachable,
            "the connection was closed: look at host and port, and whether the server asks for TLS (rediss://)",
        ),
        _ => BackendError::new(
            FailureKind::Unreachable,
            "the connection failed: look at host and port, and whether the host's name is known",
        ),
    }
}

fn wrong_password() -> BackendError {
    BackendError::new(
        FailureKind::Unauthenticated,
        "look at user name and password",
    )
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
        Some(code) => matches!(
            code,
            "READONLY" | "MASTERDOWN" | "LOADING" | "NOAUTH" | "WRONGPASS"
        ),
        None => true,
    }
}
