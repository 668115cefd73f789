//! Processes of the version from before limits on how many at once, waits and bans: a test's own program, run once more with the
//! script of then.
#![allow(clippy::print_stdout, reason = "a process tells its parent so")]

use std::env;
use std::process::{Command, Stdio};

use tollgate::{Limiter, Policy};
use tollgate_redis::RedisBackendBuilder;
use tollgate_testkit::Standalone;

const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/scripts/before_waiting.lua"
);

/// The variables that tell such a process the server's address, and its question.
const URL: &str = "TOLLGATE_TEST_OLDER";
const QUESTION: &str = "TOLLGATE_TEST_QUESTION";

/// The answer of a process that runs this test again, and [asks](ask) this question in it.
pub(crate) fn answer(server: &Standalone, test: &str, question: &str) -> String {
    let process = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(URL, server.url())
        .env(QUESTION, question)
        .env("TOLLGATE_SCRIPT", SCRIPT)
        .stdout(Stdio::piped())
        .spawn();
    let output = process.unwrap().wait_with_output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let said = output.lines().find_map(|line| line.strip_prefix("says="));
    said.unwrap_or_else(|| panic!("{output}")).to_owned()
}

/// The server's address and the question, in such a process.
pub(crate) fn question() -> Option<(String, String)> {
    Some((env::var(URL).ok()?, env::var(QUESTION).ok()?))
}

/// Asks about a caller under a policy, and tells the answer.
pub(crate) async fn ask(builder: RedisBackendBuilder, policy: Policy, caller: &str) {
    let name = policy.name().to_owned();
    let backend = builder.connect().await.unwrap();
    let limiter = Limiter::builder().policy(policy).backend(backend);
    let limiter = limiter.build().unwrap();
    let asked = limiter.check(&name, caller).await.unwrap();
    let how = match asked.undecided() {
        Some(error) => format!(", undecided: {:?}", error.kind()),
        None => String::new(),
    };
    println!("\nsays={}{how}", asked.is_allowed());
}
