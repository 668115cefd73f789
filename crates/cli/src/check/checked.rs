//! The facts of a valid file, which both reports tell.

use crate::coverage::Covered;

/// A valid file, in words.
pub(super) struct Checked {
    pub(super) policies: Vec<Described>,
    pub(super) pressure: Option<Described>,
    pub(super) covered: Vec<Covered>,
    pub(super) never_pass: Vec<String>,
    pub(super) registered: Vec<String>,
    /// The changes for callers, if there is an old file.
    pub(super) changes: Option<Vec<String>>,
}

/// A policy, or what is refused under pressure.
pub(super) struct Described {
    pub(super) name: String,
    pub(super) is_trial: bool,
    /// The statements, each with its name.
    pub(super) facts: Vec<(&'static str, String)>,
}
