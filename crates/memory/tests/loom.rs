//! The locking, in every order that two threads can take.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p tollgate-memory --release --test loom
//! ```
#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "everything here is a test")]

#[path = "it/common/mod.rs"]
mod common;

use std::sync::Arc;

use common::one;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use tollgate_core::{
    Algorithm, Backend, Call, Charge, Clock, Concurrent, Decision, ImmediateBackend, Key,
    ManualClock, Quota, Scope, Timestamp,
};
use tollgate_memory::{MemoryBackend, MemoryBackendBuilder};

/// Two shards, so that one thread can wait for another.
fn two_shards() -> MemoryBackendBuilder {
    MemoryBackend::builder().max_keys(512).fixed_hashing()
}

/// Two keys under different locks.
fn keys(backend: &MemoryBackend, scope: Scope) -> [Key; 2] {
    let first = Key::from(0_u32);
    let other = (1..100_u32)
        .map(Key::from)
        .find(|key| !backend.share_a_lock(scope, &first, key))
        .unwrap();
    [first, other]
}

fn admits(backend: &MemoryBackend, charges: &[Charge<'_>]) -> bool {
    backend
        .decide_now(Call::of(charges))
        .is_ok_and(|decision| decision.is_admitted())
}

fn remaining(backend: &MemoryBackend, charge: Charge<'_>) -> u64 {
    let peek = Charge { cost: 0, ..charge };
    backend.decide_now(Call::of(&[peek])).unwrap().verdicts()[0].remaining()
}

#[test]
fn calls_over_two_shards_in_opposing_order_neither_deadlock_nor_take_a_part() {
    loom::model(|| {
        // given room for one of the two calls
        let quota = Quota::per_hour(1);
        let scope = Scope::of("loom-opposing", 0, &quota);
        let backend = Arc::new(two_shards().clock(ManualClock::new()).build());
        let [a, b] = keys(&backend, scope);

        // when
        let other = thread::spawn({
            let (backend, a, b) = (backend.clone(), a.clone(), b.clone());
            move || admits(&backend, &[one(scope, &quota, &b), one(scope, &quota, &a)])
        });
        let here = admits(&backend, &[one(scope, &quota, &a), one(scope, &quota, &b)]);
        let there = other.join().unwrap();

        // then exactly one of them took both
        assert!(here != there);
        assert_eq!(remaining(&backend, one(scope, &quota, &a)), 0);
        assert_eq!(remaining(&backend, one(scope, &quota, &b)), 0);
    });
}

#[test]
fn a_call_over_two_shards_and_one_over_either_of_them_add_up() {
    loom::model(|| {
        // given
        let quota = Quota::per_hour(1);
        let scope = Scope::of("loom-either", 0, &quota);
        let backend = Arc::new(two_shards().clock(ManualClock::new()).build());
        let [a, b] = keys(&backend, scope);

        // when
        let other = thread::spawn({
            let (backend, b) = (backend.clone(), b.clone());
            move || admits(&backend, &[one(scope, &quota, &b)])
        });
        let here = admits(&backend, &[one(scope, &quota, &a), one(scope, &quota, &b)]);
        let there = other.join().unwrap();

        // then the first key was charged if the call of both passed, and only then
        assert!(here != there);
        let left = remaining(&backend, one(scope, &quota, &a));
        assert_eq!(left, u64::from(!here));
    });
}

#[test]
fn three_threads_on_one_key_admit_exactly_its_budget() {
    loom::model(|| {
        // given
        let quota = Quota::per_hour(2);
        let scope = Scope::of("loom-one-key", 0, &quota);
        let backend = Arc::new(two_shards().clock(ManualClock::new()).build());

        // when
        let spend = {
            let backend = backend.clone();
            move || usize::from(admits(&backend, &[one(scope, &quota, &Key::from("alice"))]))
        };
        let others = [thread::spawn(spend.clone()), thread::spawn(spend.clone())];
        let admitted = spend()
            + others
                .map(|other| other.join().unwrap())
                .iter()
                .sum::<usize>();

        // then
        assert_eq!(admitted, 2);
    });
}

#[test]
fn a_credit_while_another_call_is_decided_is_neither_lost_nor_doubled() {
    loom::model(|| {
        // given a budget that is spent
        let quota = Quota::per_hour(2);
        let scope = Scope::of("loom-credit", 0, &quota);
        let backend = Arc::new(two_shards().clock(ManualClock::new()).build());
        let key = Key::from("alice");
        let charges = [Charge {
            cost: 2,
            ..one(scope, &quota, &key)
        }];
        let decision: Decision = backend.decide_now(Call::of(&charges)).unwrap();
        let receipt = decision.receipts(&charges).next().unwrap();

        // when
        let other = thread::spawn({
            let backend = backend.clone();
            move || backend.refund(receipt, 1)
        });
        let admitted = admits(&backend, &[one(scope, &quota, &key)]);
        other.join().unwrap();

        // then it was given back once, before the call or after it
        let left = remaining(&backend, one(scope, &quota, &key));
        assert_eq!(left, u64::from(!admitted));
    });
}

#[test]
fn a_reset_while_another_call_is_decided_leaves_a_state_that_could_be() {
    loom::model(|| {
        // given
        let quota = Quota::per_hour(2);
        let scope = Scope::of("loom-reset", 0, &quota);
        let backend = Arc::new(two_shards().clock(ManualClock::new()).build());
        let key = Key::from("alice");
        assert!(admits(&backend, &[one(scope, &quota, &key)]));

        // when
        let other = thread::spawn({
            let (backend, key) = (backend.clone(), key.clone());
            move || backend.admin().reset(scope, &key).try_now().is_ok()
        });
        let admitted = admits(&backend, &[one(scope, &quota, &key)]);
        assert!(other.join().unwrap());

        // then the reset came before the call, or after it
        assert!(admitted);
        assert!([1, 2].contains(&remaining(&backend, one(scope, &quota, &key))));
    });
}

/// A clock that moves on by a microsecond at each reading. Loom may switch threads at any reading.
#[derive(Debug)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.fetch_add(1, Ordering::SeqCst))
    }
}

#[test]
fn time_is_read_in_the_order_in_which_calls_are_decided() {
    loom::model(|| {
        // given a limit of one in windows of two microseconds, and a clock at the last of one
        let quota =
            Quota::new(1, std::time::Duration::from_micros(2)).using(Algorithm::FixedWindow {
                offset: std::time::Duration::ZERO,
            });
        let scope = Scope::of("loom-clock", 0, &quota);
        let clock = Ticking(AtomicU64::new(1_000_001));
        let backend = Arc::new(two_shards().clock(clock).build());

        // when two threads call around the end of the window, and a third call follows
        let ask = move |backend: &MemoryBackend| {
            let key = Key::from("alice");
            backend
                .decide_now(Call::of(&[one(scope, &quota, &key)]))
                .unwrap()
        };
        let other = thread::spawn({
            let backend = backend.clone();
            move || ask(&backend)
        });
        let here = ask(&backend);
        let decisions = [here, other.join().unwrap(), ask(&backend)];

        // then each window with a call admitted one: had an earlier time been decided later, the second window would have
        // admitted two, or the first none
        let window = |decision: &Decision| decision.at().as_micros() / 2;
        for decision in &decisions {
            let same = |other: &&Decision| window(other) == window(decision);
            let came = decisions.iter().filter(same);
            assert_eq!(came.filter(|other| other.is_admitted()).count(), 1);
        }
    });
}

#[test]
fn two_threads_that_take_the_only_place_of_a_key_never_have_it_both_and_leave_it_free() {
    loom::model(|| {
        // given one place, and the number of its holders
        let quota = Quota::from(Concurrent::at_most(1));
        let scope = Scope::of("loom-held", 0, &quota);
        let backend = Arc::new(two_shards().clock(ManualClock::new()).build());
        let inside = Arc::new(AtomicU64::new(0));

        // when
        let turn = {
            let (backend, inside) = (backend.clone(), inside.clone());
            move || {
                let key = Key::from("alice");
                let charges = [one(scope, &quota, &key)];
                let decision: Decision = backend.decide_now(Call::of(&charges)).unwrap();
                let receipt = decision.receipts(&charges).next();
                if let Some(receipt) = receipt {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    backend.refund(receipt, 1);
                    return true;
                }
                false
            }
        };
        let other = thread::spawn(turn.clone());
        let (here, there) = (turn(), other.join().unwrap());

        // then at least one had it, and it is free
        assert!(here || there);
        let key = Key::from("alice");
        assert_eq!(remaining(&backend, one(scope, &quota, &key)), 1);
    });
}
