//! The result of a run.

/// The result of an action of a run. Its error is not a finding: the run itself has failed.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
