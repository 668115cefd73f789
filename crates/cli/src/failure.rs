//! The reason why the program ends without a result, and its exit code.

use std::fmt;

use tollgate::ConnectError;

/// The exit code for a file that is invalid or cannot be read, and for a server that cannot be asked.
const INVALID: u8 = 1;
/// The exit code for arguments that make no sense. It is clap's own.
pub(crate) const USAGE: u8 = 2;

/// The reason why the program ends without a result.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// A file that is invalid, or that cannot be read.
    pub(crate) fn invalid(message: impl fmt::Display) -> Self {
        Self {
            code: INVALID,
            message: message.to_string(),
        }
    }

    /// A server that cannot be asked. The causes say more than the error itself.
    pub(crate) fn unreachable(error: impl std::error::Error) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message += &format!(": {error}");
            cause = error.source();
        }
        Self::invalid(message)
    }

    /// A backend that does not come: its server cannot be asked, or a setting makes no sense. Those of certificates are files.
    pub(crate) fn unconnected(error: ConnectError) -> Self {
        match error.setting_name() {
            Some(name) if !name.contains("certificate") => Self::usage(error),
            _ => Self::unreachable(error),
        }
    }

    /// Arguments that make no sense.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self {
            code: USAGE,
            message: message.to_string(),
        }
    }

    /// This failure, with words before it.
    pub(crate) fn behind(self, words: &str) -> Self {
        let message = format!("{words}: {}", self.message);
        Self { message, ..self }
    }

    /// This failure, with words behind it.
    pub(crate) fn followed_by(self, words: &str) -> Self {
        let message = format!("{}; {words}", self.message);
        Self { message, ..self }
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
