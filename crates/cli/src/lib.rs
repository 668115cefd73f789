//! The program `tollgate`: it checks a configuration of limits, and replays access logs through it.
//!
//! | verb | what it does |
//! | --- | --- |
//! | `tollgate check limits.toml` | says whether the file is valid, what it covers, and what a change of it means for callers |
//! | `tollgate simulate access.log limits.toml` | replays a log on its own time: which requests, callers and routes would be refused |
//! | `tollgate suggest access.log` | finds limits that refuse no more than a stated share of the callers of a log |
//!
//! It reads files by the library's own configuration and decides by the library's own limiter, so that nothing is decided twice.
//! [docs/program.md] is the page for its users. Its functions are not an interface for other programs: they may change with any
//! version.
//!
//! [docs/program.md]: https://github.com/tollgate-rs/tollgate/blob/main/docs/program.md

mod arguments;
mod check;
mod coverage;
mod failure;
mod figures;
mod limits;
mod log;
mod policy_words;
mod replay;
mod simulate;
mod suggest;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use self::arguments::{Arguments, Verb};
use self::failure::Failure;

/// Runs the program with these arguments, the first of which is its name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let outcome = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => run_verb(arguments.verb),
        Err(help)
            if matches!(
                help.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            ) =>
        {
            // A reader that has seen enough, such as `head`, is no failure.
            drop(help.print());
            return ExitCode::SUCCESS;
        }
        Err(usage) => {
            drop(usage.print());
            return ExitCode::from(failure::USAGE);
        }
    };
    match outcome {
        Ok(report) => match io::stdout().write_all(report.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
            _ => ExitCode::SUCCESS,
        },
        Err(failure) => {
            drop(writeln!(io::stderr(), "error: {failure}"));
            ExitCode::from(failure.code())
        }
    }
}

fn run_verb(verb: Verb) -> Result<String, Failure> {
    match verb {
        Verb::Check(asked) => check::run(&asked),
        Verb::Simulate(asked) => simulate::run(&asked),
        Verb::Suggest(asked) => suggest::run(&asked),
    }
}
