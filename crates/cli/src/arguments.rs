//! The arguments of the program, and its help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Chooses and checks the limits of a service that Tollgate protects.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Check(CheckArguments),
}

/// Says whether a file of limits is valid, what it covers, and what a change means for callers.
///
/// Exit codes: 0 the file is valid, changed or not; 1 a file is invalid or cannot be read; 2 the arguments make no sense.
#[derive(Debug, Args)]
#[command(after_help = "\
Example, for a pipeline that deploys limits.toml:
  git show main:limits.toml > old.toml
  tollgate check limits.toml --against old.toml")]
pub(crate) struct CheckArguments {
    /// The file of limits: TOML, or JSON if its name ends in .json.
    pub(crate) limits: PathBuf,
    /// The file that is in use: says what changes for callers if LIMITS replaces it.
    #[arg(long, value_name = "OLD")]
    pub(crate) against: Option<PathBuf>,
}
