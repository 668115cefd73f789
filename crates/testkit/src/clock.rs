//! Processes whose clocks are wrong.

use std::process::Command;

/// The library of `clock.c`; empty if it could not be compiled.
const LIBRARY: &str = env!("TOLLGATE_CLOCK_LIBRARY");

/// Makes a process believe that it is this many seconds later, or earlier, than it is. Durations stay as they are.
///
/// A library of our own: under libfaketime a server with jemalloc hangs before it starts.
///
/// # Panics
///
/// If there was no compiler for C, or processes cannot be given other clocks. The message says so.
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
