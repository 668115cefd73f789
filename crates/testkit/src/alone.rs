//! Tests that need a process of their own: what they look at belongs to the whole process.

use std::env;
use std::process::Command;

/// Set in a process that runs one test.
const ALONE: &str = "TOLLGATE_TEST_ALONE";

/// True in a process that runs this test alone. Otherwise runs the test again in such a process, and fails if that fails.
///
/// ```text
/// if !tollgate_testkit::alone!() {
///     return;
/// }
/// ```
#[macro_export]
macro_rules! alone {
    () => {{
        fn here() {}
        $crate::is_alone(::std::any::type_name_of_val(&here))
    }};
}

/// See [`alone!`]. Takes the name of a function within the test.
#[must_use]
pub fn is_alone(within: &str) -> bool {
    // nextest runs each test in a process of its own.
    if env::var_os("NEXTEST").is_some() || env::var_os(ALONE).is_some() {
        return true;
    }
    let test = within.trim_end_matches("::here");
    let test = test.trim_end_matches("::{{closure}}");
    let (_program, test) = test.split_once("::").expect("a test stands in a program");
    let status = Command::new(env::current_exe().expect("the program of the tests"))
        .args(["--exact", test, "--include-ignored", "--nocapture"])
        .env(ALONE, "1")
        .status()
        .expect("the program of the tests runs again");
    assert!(status.success(), "{test} failed in a process of its own");
    false
}
