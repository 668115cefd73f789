//! The reason why a configuration does not take effect.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::words::Fault;

/// The reason why a configuration file is refused, and the place in it.
///
/// ```
/// use tollgate::config;
///
/// let mut file = config::watch("no-such-file.toml", |text| toml::from_str(text));
/// let refused = file.load().unwrap_err();
/// assert!(refused.to_string().starts_with("no-such-file.toml: "));
/// assert_eq!((refused.line(), refused.policy(), refused.field()), (None, None, None));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadError {
    path: PathBuf,
    fault: Fault,
    message: String,
    is_unreadable: bool,
}

impl ReloadError {
    pub(super) fn of_text(path: &Path, text: &str, message: String) -> Self {
        let fault = Fault::find(text, &message);
        Self {
            path: path.to_owned(),
            message: fault.words(message),
            fault,
            is_unreadable: false,
        }
    }

    pub(super) fn unreadable(path: &Path, error: &io::Error) -> Self {
        Self {
            path: path.to_owned(),
            fault: Fault::default(),
            message: error.to_string(),
            is_unreadable: true,
        }
    }

    /// The reason alone.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// True if the file could not be read, as where the process has too many files open: its content may be right.
    ///
    /// ```
    /// use tollgate::config;
    ///
    /// let mut file = config::watch("no-such-file.toml", |text| toml::from_str(text));
    /// assert!(file.load().unwrap_err().is_unreadable());
    /// ```
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        self.is_unreadable
    }

    /// The file.
    ///
    /// ```
    /// use tollgate::config::ReloadError;
    ///
    /// fn title(error: &ReloadError) -> String {
    ///     format!("{} is refused", error.path().display())
    /// }
    /// ```
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The line, counted from 1, if it is known.
    ///
    /// ```
    /// use tollgate::config::ReloadError;
    ///
    /// fn line(error: &ReloadError) -> usize {
    ///     error.line().unwrap_or(1)
    /// }
    /// ```
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.fault.line
    }

    /// The name of the policy, if it is about one.
    ///
    /// ```
    /// use tollgate::config::ReloadError;
    ///
    /// fn is_about(error: &ReloadError, policy: &str) -> bool {
    ///     error.policy() == Some(policy)
    /// }
    /// ```
    #[must_use]
    pub fn policy(&self) -> Option<&str> {
        self.fault.policy.as_deref()
    }

    /// The field of the policy, if it is about one.
    ///
    /// ```
    /// use tollgate::config::ReloadError;
    ///
    /// fn is_about_quotas(error: &ReloadError) -> bool {
    ///     error.field() == Some("quotas")
    /// }
    /// ```
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        self.fault.field.as_deref()
    }
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.path.display())?;
        if let Some(line) = self.fault.line {
            write!(f, "{line}:")?;
        }
        write!(f, " {}", self.message.trim_end())
    }
}

impl Error for ReloadError {}
