//! The result of a run.

/// The result of something that a run does. Its error is no finding: the run itself has failed.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
