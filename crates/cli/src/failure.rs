//! The reason why the program ends without a result, and its exit code.

use std::fmt;

/// The exit code for a file that is invalid or cannot be read.
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

    /// Arguments that make no sense.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self {
            code: USAGE,
            message: message.to_string(),
        }
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
