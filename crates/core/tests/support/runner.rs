//! Runs a property on random inputs, shrinks a failing input, and prints the seed.

use std::cell::Cell;
use std::env;
use std::hash::{BuildHasher, RandomState};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use proptest::strategy::Strategy;
use proptest::test_runner::{
    Config, RngAlgorithm, TestCaseError, TestCaseResult, TestError, TestRng, TestRunner,
};

/// Tries `property` on `cases` inputs.
///
/// `PROOF_EFFORT=20` tries twenty times as many. Each run takes a new seed, so that it tries new inputs. A failure prints the
/// seed, and `PROOF_SEED=…` repeats the run.
pub(crate) fn check<S: Strategy>(
    cases: u32,
    inputs: &S,
    property: impl Fn(S::Value) -> TestCaseResult,
) {
    let seed = seed();
    let config = Config {
        cases: cases.saturating_mul(effort()),
        failure_persistence: None,
        max_shrink_iters: 4_000,
        max_local_rejects: u32::MAX,
        max_global_rejects: u32::MAX,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, rng(seed));
    // Shrinking a panic would print it a thousand times; the smallest one is reported below.
    let property = |input| {
        panic::catch_unwind(AssertUnwindSafe(|| quietly(|| property(input)))).unwrap_or_else(
            |panic| {
                let what = panic.downcast_ref::<String>().map(String::as_str);
                let what = what.or(panic.downcast_ref::<&str>().copied());
                Err(TestCaseError::fail(format!(
                    "panicked {}: {}",
                    WHERE.take(),
                    what.unwrap_or("with something that is no text")
                )))
            },
        )
    };
    match runner.run(inputs, property) {
        Ok(()) => {}
        Err(TestError::Fail(reason, input)) => {
            panic!("{reason}\nfor {input:?}\nrepeat with PROOF_SEED={seed}")
        }
        Err(TestError::Abort(reason)) => panic!("gave up: {reason}\nPROOF_SEED={seed}"),
    }
}

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
    /// The place where this thread panicked last while it was quiet.
    static WHERE: Cell<String> = const { Cell::new(String::new()) };
}

fn quietly<T>(run: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if IS_QUIET.get() {
                WHERE.set(
                    info.location()
                        .map_or_else(String::new, |at| format!("at {at}")),
                );
            } else {
                loud(info);
            }
        }));
    });
    struct Loud;
    impl Drop for Loud {
        fn drop(&mut self) {
            IS_QUIET.set(false);
        }
    }
    let _loud = Loud;
    IS_QUIET.set(true);
    run()
}

/// The factor for the usual number of cases.
pub(crate) fn effort() -> u32 {
    number("PROOF_EFFORT").map_or(1, |effort| u32::try_from(effort).unwrap_or(u32::MAX))
}

/// The requested seed, or a new one.
pub(crate) fn seed() -> u64 {
    number("PROOF_SEED").unwrap_or_else(|| RandomState::new().hash_one(0))
}

/// Random numbers that depend on the seed alone.
pub(crate) fn rng(seed: u64) -> TestRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
    )
}
