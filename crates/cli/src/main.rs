//! The program `tollgate`. All of it stands in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    tollgate_cli::run(std::env::args_os())
}
