//! Processes whose clocks are wrong.

use std::process::Command;

/// Made of `clock.c`; empty where that could not be.
const LIBRARY: &str = env!("TOLLGATE_CLOCK_LIBRARY");

/// Makes a process believe that it is so many seconds later than it is, or earlier. How long things take stays as it is.
///
/// By a library of our own and not by libfaketime, under which a server that uses jemalloc hangs before it begins.
///
/// # Panics
///
/// Where there was no compiler for C, or processes cannot be given other clocks, with a sentence that says so.
pub fn shift_clock(command: &mut Command, seconds: i64) {
    assert!(
        !LIBRARY.is_empty(),
        "these tests give processes clocks that are wrong, which takes Linux and a compiler for C \
         (`apt-get install build-essential`)"
    );
    command
        .env("LD_PRELOAD", LIBRARY)
        .env("TOLLGATE_CLOCK_AHEAD", seconds.to_string());
}
