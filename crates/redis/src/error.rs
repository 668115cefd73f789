//! Errors of ours, out of what the library and the server say.

use std::error::Error;
use std::fmt;

use redis::{ErrorKind, RedisError};
use tollgate_core::{BackendError, FailureKind};

/// Why a backend could not be set up.
#[derive(Debug)]
pub struct ConnectError {
    message: String,
    source: Option<BackendError>,
}

impl ConnectError {
    pub(crate) fn setting(name: &str, problem: &str) -> Self {
        Self {
            message: format!("the Redis backend's {name} {problem}"),
            source: None,
        }
    }

    pub(crate) fn failed(source: BackendError) -> Self {
        Self {
            message: "cannot connect to Redis".to_owned(),
            source: Some(source),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

/// What a failed call says. Never a text of the server's own: it may name keys, and keys are identities.
pub(crate) fn failure(error: &RedisError) -> BackendError {
    let Some(code) = error.code() else {
        let kind = if error.is_io_error() || error.is_connection_dropped() {
            FailureKind::Unreachable
        } else {
            FailureKind::Refused
        };
        if error.kind() == ErrorKind::AuthenticationFailed {
            return BackendError::new(kind, "the server does not accept our name or password");
        }
        return BackendError::new(kind, format!("Redis: {}", error.category()));
    };
    let what = match code {
        "READONLY" => "is a replica, which cannot be written to",
        "OOM" => "is out of memory",
        "LOADING" => "is still loading its data",
        "BUSY" => "is busy with a script",
        "MASTERDOWN" => "is a replica that has lost its master",
        "MISCONF" => "cannot persist and refuses writes",
        "NOREPLICAS" => "has too few replicas to write",
        "NOAUTH" | "WRONGPASS" => "does not accept our name or password",
        "NOPERM" => "does not permit us a command or key that we need",
        "NOSCRIPT" => "forgets the script as soon as it is loaded",
        "MOVED" | "ASK" | "CROSSSLOT" | "CLUSTERDOWN" | "TRYAGAIN" => {
            "is part of a cluster, and was connected to as a single server"
        }
        _ => "failed to run the script",
    };
    BackendError::new(FailureKind::Refused, format!("the server {what} ({code})"))
}

/// Whether the server said so because of what it is at present, so that a new connection may find another one.
pub(crate) fn wants_reconnect(error: &RedisError) -> bool {
    match error.code() {
        Some(code) => matches!(
            code,
            "READONLY" | "MASTERDOWN" | "LOADING" | "NOAUTH" | "WRONGPASS"
        ),
        None => true,
    }
}
