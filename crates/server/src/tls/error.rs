//! The reason why files make no TLS.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

/// A file of which a server's TLS cannot be made, and why. It holds nothing of the file's content.
///
/// ```
/// use tollgate_server::TlsFiles;
///
/// let error = TlsFiles::new("/none/server.pem", "/none/server.key").load().unwrap_err();
/// assert!(error.to_string().starts_with("/none/server.pem: "));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError {
    path: PathBuf,
    reason: String,
}

impl TlsError {
    pub(super) fn of(path: &Path, reason: impl fmt::Display) -> Self {
        Self {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }

    /// The file.
    ///
    /// ```
    /// use tollgate_server::TlsError;
    ///
    /// fn title(error: &TlsError) -> String {
    ///     format!("{} is refused", error.path().display())
    /// }
    /// ```
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.reason)
    }
}

impl Error for TlsError {}
