//! The program, run as a user does.

use std::path::Path;
use std::process::{Command, Output};

/// The outcome of one run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs the program in a folder.
pub(crate) fn tollgate(folder: &Path, arguments: &[&str]) -> Ran {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let output: Output = program
        .args(arguments)
        .current_dir(folder)
        .env_remove("TOLLGATE_REDIS_PASSWORD")
        .output()
        .unwrap();
    Ran {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Ran {
    /// The words of a run that has to succeed.
    pub(crate) fn words(&self) -> &str {
        assert_eq!(self.code, Some(0), "{self:?}");
        &self.out
    }
}
