//! Limits on how many at once in memory: never more than the limit, for any threads, and never forgotten.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::common::one;
use tollgate_core::{
    Backend, Call, Concurrent, FailureKind, ImmediateBackend, Key, Quota, Receipt, Scope,
};
use tollgate_memory::MemoryBackend;

fn two() -> (Scope, Quota) {
    let quota = Concurrent::at_most(2).into();
    (Scope::of("held", 0, &quota), quota)
}

/// The receipt for one more of a key, if there is room.
fn take(backend: &MemoryBackend, key: &Key) -> Option<Receipt> {
    let (scope, quota) = two();
    let charges = [one(scope, &quota, key)];
    let decision = backend.decide_now(Call::of(&charges)).unwrap();
    decision.receipts(&charges).next()
}

fn spend(backend: &MemoryBackend, keys: std::ops::Range<u32>) {
    let quota = Quota::per_hour(5);
    let scope = Scope::of("spent", 0, &quota);
    for key in keys.map(Key::from) {
        let _failed = backend.decide_now(Call::of(&[one(scope, &quota, &key)]));
    }
}

#[test]
fn threads_never_hold_more_than_the_limit_together() {
    let backend = MemoryBackend::new();
    let key = Key::from("alice");
    let (held, most, taken) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    if let Some(receipt) = take(&backend, &key) {
                        // Counted after it was taken, and no more before it is given back: at no time too many.
                        let now = held.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        taken.fetch_add(1, Ordering::SeqCst);
                        held.fetch_sub(1, Ordering::SeqCst);
                        backend.refund(receipt, 1);
                    }
                }
            });
        }
    });
    assert!(most.into_inner() <= 2);
    assert!(taken.into_inner() > 20_000);
    // All of it came back.
    let receipts = [take(&backend, &key), take(&backend, &key)];
    assert!(receipts.iter().all(Option::is_some) && take(&backend, &key).is_none());
}

#[test]
fn a_flood_of_identities_evicts_no_key_of_which_something_is_held() {
    let backend = MemoryBackend::builder().max_keys(1_000).build();
    let keys: Vec<Key> = (0..300_u32).map(Key::from).collect();
    let receipts: Vec<_> = keys
        .iter()
        .map(|key| take(&backend, key).unwrap())
        .collect();

    spend(&backend, 10_000..110_000);

    assert!(backend.stats().evicted > 90_000);
    for key in &keys {
        let second = take(&backend, key);
        assert!(second.is_some() && take(&backend, key).is_none(), "{key:?}");
        backend.refund(second.unwrap(), 1);
    }
    // A place that is given back makes room like any other key.
    for receipt in receipts {
        backend.refund(receipt, 1);
    }
    let (scope, quota) = two();
    for key in &keys {
        let free = backend
            .decide_now(Call::of(&[one(scope, &quota, key)]))
            .unwrap();
        assert_eq!(free.verdicts()[0].remaining(), 1);
    }
}

#[test]
fn if_something_is_held_of_half_of_the_keys_a_further_one_fails_and_takes_nothing() {
    let backend = MemoryBackend::builder().max_keys(1_000).build();
    let (scope, quota) = two();
    let mut receipts = Vec::new();
    let mut failed = Vec::new();
    for key in (0..5_000_u32).map(Key::from) {
        let charges = [one(scope, &quota, &key)];
        match backend.decide_now(Call::of(&charges)) {
            Ok(decision) => receipts.extend(decision.receipts(&charges)),
            Err(error) => {
                assert_eq!(error.kind(), FailureKind::Full);
                failed.push(key);
            }
        }
    }
    assert!(receipts.len() <= 600 && failed.len() >= 4_400);

    // Known keys are decided as ever, and a call that fails for one of its keys takes nothing of the other.
    let known = receipts[0].key().clone();
    for failing in &failed[..100] {
        let charges = [one(scope, &quota, &known), one(scope, &quota, failing)];
        assert!(backend.decide_now(Call::of(&charges)).is_err());
    }
    let second = take(&backend, &known);
    assert!(second.is_some() && take(&backend, &known).is_none());

    // As soon as something is given back there is room.
    for receipt in receipts {
        backend.refund(receipt, 1);
    }
    assert!(
        failed[..100]
            .iter()
            .all(|key| take(&backend, key).is_some())
    );
}
