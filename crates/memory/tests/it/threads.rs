//! Many threads at once.

use std::collections::HashMap;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use crate::common::{every_algorithm, one};
use tollgate_core::{
    Backend, Call, Clock, Decision, ImmediateBackend, Key, ManualClock, Quota, Scope,
};
use tollgate_memory::MemoryBackend;

const THREADS: usize = 8;

#[test]
fn many_threads_on_few_keys_admit_exactly_the_budget() {
    for quota in every_algorithm(1000, Duration::from_secs(3600)) {
        // given a clock that stands still
        let backend = MemoryBackend::builder().clock(ManualClock::new()).build();
        let scope = Scope::of("exactly", 0, &quota);
        let keys = ["alice", "bob", "carol"].map(Key::from);

        // when every thread asks each key for half of its budget
        let admitted = in_threads(|_| {
            let mut admitted = [0; 3];
            for _ in 0..500 {
                for (key, admitted) in keys.iter().zip(&mut admitted) {
                    let decision = backend
                        .decide_now(Call::of(&[one(scope, &quota, key)]))
                        .unwrap();
                    *admitted += u64::from(decision.is_admitted());
                }
            }
            admitted
        });

        // then
        for key in 0..keys.len() {
            let sum: u64 = admitted.iter().map(|admitted| admitted[key]).sum();
            assert_eq!(sum, 1000, "{quota}");
        }
    }
}

#[test]
fn calls_in_opposing_order_neither_deadlock_nor_take_a_part() {
    for quota in every_algorithm(500, Duration::from_secs(3600)) {
        // given twelve keys, the last of which has a much smaller budget than the others
        let backend = MemoryBackend::builder().clock(ManualClock::new()).build();
        let narrow = Quota::per_hour(100);
        let scope = Scope::of("opposing", 0, &quota);
        let narrow_scope = Scope::of("opposing-narrow", 0, &narrow);
        let keys: Vec<Key> = (0..12_u32).map(Key::from).collect();
        let charges: Vec<_> = keys
            .iter()
            .map(|key| match key {
                last if *last == keys[11] => one(narrow_scope, &narrow, last),
                key => one(scope, &quota, key),
            })
            .collect();

        // when half of the threads ask in one order and half in the other, each from another start
        let admitted: u64 = in_threads(|thread| {
            let mut charges = charges.clone();
            charges.rotate_left(thread);
            if thread % 2 == 0 {
                charges.reverse();
            }
            let calls = (0..50).map(|_| backend.decide_now(Call::of(&charges)).unwrap());
            calls.filter(Decision::is_admitted).count() as u64
        })
        .into_iter()
        .sum();

        // then each was charged for the admitted calls, and for nothing else
        assert_eq!(admitted, 100, "{quota}");
        for charge in charges {
            let peek = tollgate_core::Charge { cost: 0, ..charge };
            let verdict = backend.decide_now(Call::of(&[peek])).unwrap().verdicts()[0];
            assert_eq!(verdict.limit() - verdict.remaining(), 100, "{quota}");
        }
    }
}

#[test]
fn pitfall_budgets_that_multiply_with_whoever_holds_a_copy() {
    // given
    let quota = Quota::per_hour(5);
    let scope = Scope::of("copies", 0, &quota);
    let backend = std::sync::Arc::new(MemoryBackend::new());

    // when as many copies as threads spend one budget
    let admitted: usize = in_threads(|_| {
        let copy = backend.clone();
        let key = Key::from("alice");
        let calls = (0..10).map(|_| {
            copy.decide_now(Call::of(&[one(scope, &quota, &key)]))
                .unwrap()
        });
        calls.filter(Decision::is_admitted).count()
    })
    .into_iter()
    .sum();

    // then
    assert_eq!(admitted, 5);
}

#[test]
fn no_window_admits_more_than_its_limit_while_time_goes_by() {
    // given windows of a millisecond
    let period = Duration::from_millis(1);
    let [_, quota, ..] = every_algorithm(20, period);
    let scope = Scope::of("windows-pass", 0, &quota);
    let key = Key::from("alice");
    let clock = ManualClock::new();
    let backend = MemoryBackend::builder().clock(clock.clone()).build();

    // when the first thread moves the clock on and the others spend
    let spent = in_threads(|thread| {
        let mut windows: HashMap<u64, u64> = HashMap::new();
        for _ in 0..20_000 {
            if thread == 0 {
                clock.advance(Duration::from_micros(10));
                continue;
            }
            let decision = backend
                .decide_now(Call::of(&[one(scope, &quota, &key)]))
                .unwrap();
            if decision.is_admitted() {
                *windows.entry(decision.at().as_micros() / 1000).or_default() += 1;
            }
        }
        windows
    });

    // then
    let mut sums: HashMap<u64, u64> = HashMap::new();
    for (window, count) in spent.into_iter().flatten() {
        *sums.entry(window).or_default() += count;
    }
    assert!(sums.values().all(|count| *count <= 20), "{sums:?}");
    assert!(!sums.is_empty() && clock.now() > ManualClock::new().now());
}

#[test]
fn a_panic_of_one_caller_s_clock_stops_nobody_else() {
    #[derive(Debug)]
    struct BreaksOnce(std::sync::atomic::AtomicBool);

    impl Clock for BreaksOnce {
        fn now(&self) -> tollgate_core::Timestamp {
            let broken = self.0.swap(false, std::sync::atomic::Ordering::SeqCst);
            assert!(!broken, "this clock breaks once, on purpose");
            tollgate_core::Timestamp::from_micros(1)
        }
    }

    // given a lock that was poisoned
    let quota = Quota::per_hour(5);
    let scope = Scope::of("poison", 0, &quota);
    let key = Key::from("alice");
    let clock = BreaksOnce(true.into());
    let backend = MemoryBackend::builder().max_keys(1).clock(clock).build();
    let broken = thread::scope(|threads| {
        threads
            .spawn(|| backend.decide_now(Call::of(&[one(scope, &quota, &key)])))
            .join()
            .is_err()
    });
    assert!(broken);

    // when
    let decision = backend
        .decide(Call::of(&[one(scope, &quota, &key)]))
        .try_now();

    // then
    assert!(decision.unwrap().unwrap().is_admitted());
}

/// The results of all threads, which start together.
fn in_threads<T: Send>(work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let start = Barrier::new(THREADS);
    let (work, start) = (&work, &start);
    thread::scope(|threads| {
        let spawned: Vec<_> = (0..THREADS)
            .map(|thread| {
                threads.spawn(move || {
                    start.wait();
                    work(thread)
                })
            })
            .collect();
        spawned
            .into_iter()
            .filter_map(|thread| thread.join().ok())
            .collect()
    })
}
