//! Runs a property on random inputs, shrinks a failing input, and prints the seed.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use proptest::strategy::Strategy;
use proptest::test_runner::{
    Config, RngAlgorithm, TestCaseError, TestCaseResult, TestError, TestRng, TestRunner,
};
use tollgate_testkit::{cases, seed};

/// Tries `property` on the [cases](tollgate_testkit::cases) of this run, of so many in a full one.
///
/// Each run takes a new seed, so that it tries new inputs. A failure prints the seed, and `TOLLGATE_SEED=…` repeats the run.
pub(crate) fn check<S: Strategy>(
    full: u32,
    inputs: &S,
    property: impl Fn(S::Value) -> TestCaseResult,
) {
    let seed = seed();
    let config = Config {
        cases: u32::try_from(cases(u64::from(full))).unwrap_or(u32::MAX),
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
            panic!("{reason}\nfor {input:?}\nrepeat with TOLLGATE_SEED={seed}")
        }
        Err(TestError::Abort(reason)) => panic!("gave up: {reason}\nTOLLGATE_SEED={seed}"),
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

/// Random numbers that depend on the seed alone.
pub(crate) fn rng(seed: u64) -> TestRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}
