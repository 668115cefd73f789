//! Held units: never forgotten, never above their limit, given back once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::one;
use tollgate_core::{
    Backend, Call, Charge, Concurrent, Decision, FailureKind, ImmediateBackend, Key, ManualClock,
    Mode, Quota, Receipt, Scope, Timestamp,
};
use tollgate_memory::MemoryBackend;

fn at_most(limit: u64) -> (Quota, Scope) {
    let quota = Quota::from(Concurrent::at_most(limit));
    (quota, Scope::of("held", 0, &quota))
}

fn backend(max_keys: usize) -> (MemoryBackend, ManualClock) {
    let clock = ManualClock::new();
    let builder = MemoryBackend::builder().max_keys(max_keys);
    (builder.clock(clock.clone()).build(), clock)
}

fn taken(charges: &[Charge<'_>], decision: &Decision) -> Vec<Receipt> {
    decision.receipts(charges).collect()
}

fn remaining(backend: &MemoryBackend, charge: Charge<'_>) -> u64 {
    let peek = Charge { cost: 0, ..charge };
    backend.decide_now(Call::of(&[peek])).unwrap().verdicts()[0].remaining()
}

#[test]
fn a_flood_of_keys_forgets_nothing_that_is_held() {
    // given a few keys of which something is held, among so many that each shard is full
    let (backend, clock) = backend(1_000);
    let ((held, held_scope), quota) = (at_most(2), Quota::per_hour(10));
    let scope = Scope::of("flood", 0, &quota);
    let keys: Vec<Key> = (0..100_u32)
        .map(|n| Key::from(format!("held-{n}")))
        .collect();
    for key in &keys {
        assert!(
            backend
                .decide_now(Call::of(&[one(held_scope, &held, key)]))
                .is_ok()
        );
    }

    // when keys come for years, that are seen once and twice
    for number in 0..50_000_u64 {
        let key = Key::from(number);
        for _ in 0..=number % 2 {
            assert!(
                backend
                    .decide_now(Call::of(&[one(scope, &quota, &key)]))
                    .is_ok()
            );
        }
        clock.advance(Duration::from_secs(3_600));
    }
    spend_once(&backend, scope, &quota, 100_000..150_000);

    // then all is held, and quotas were evicted for one another
    for key in &keys {
        assert_eq!(remaining(&backend, one(held_scope, &held, key)), 1);
    }
    let stats = backend.stats();
    assert!(
        stats.evicted > 40_000 && stats.longest_scan <= 16,
        "{stats:?}"
    );
    assert!(stats.keys <= 1_000, "{stats:?}");
}

fn spend_once(backend: &MemoryBackend, scope: Scope, quota: &Quota, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let key = Key::from(number);
        assert!(
            backend
                .decide_now(Call::of(&[one(scope, quota, &key)]))
                .is_ok()
        );
    }
}

/// Holds new keys until no shard has room for one, and returns the receipts.
fn fill(backend: &MemoryBackend, held: &Quota, scope: Scope) -> Vec<Receipt> {
    let (mut receipts, mut in_vain) = (Vec::new(), 0);
    for number in 0_u64.. {
        let key = Key::from(format!("fill-{number}"));
        let charges = [one(scope, held, &key)];
        match backend.decide_now(Call::of(&charges)) {
            Ok(decision) => receipts.extend(taken(&charges, &decision)),
            Err(error) => {
                assert_eq!(error.kind(), FailureKind::Full);
                in_vain += 1;
            }
        }
        if in_vain == 20_000 {
            break;
        }
    }
    let most = backend.stats().max_keys;
    assert!((most / 2..=most * 2 / 3).contains(&receipts.len()));
    receipts
}

#[test]
fn half_of_the_keys_may_be_held_and_the_other_half_are_for_budgets() {
    // given budgets, half of which make room for what is held
    let (backend, _) = backend(600);
    let ((held, held_scope), quota) = (at_most(2), Quota::per_hour(10));
    let scope = Scope::of("rest", 0, &quota);
    spend_once(&backend, scope, &quota, 0..600);
    let receipts = fill(&backend, &held, held_scope);
    // Budgets come and go in their half.
    spend_once(&backend, scope, &quota, 600..10_000);
    let new = Key::from("another");
    assert!(
        backend
            .decide_now(Call::of(&[one(scope, &quota, &new)]))
            .is_ok()
    );
    assert_eq!(remaining(&backend, one(scope, &quota, &new)), 9);

    // when a call names a held key and a new one, in either order
    let known = Key::from("fill-0");
    let known = receipts.iter().find(|receipt| *receipt.key() == known);
    let known = known.unwrap().key().clone();
    let new = Key::from("new");
    let second = one(held_scope, &held, &new);
    let another = Key::from("another");
    let budget = one(scope, &quota, &another);
    for first in [one(held_scope, &held, &known), budget] {
        let before = remaining(&backend, first);
        let shadow = Charge {
            mode: Mode::Shadow,
            ..first
        };
        for charges in [[first, second], [second, first], [shadow, second]] {
            let error = backend.decide_now(Call::of(&charges)).unwrap_err();
            assert_eq!(error.kind(), FailureKind::Full);
            // then nothing of it is taken
            assert_eq!(remaining(&backend, first), before);
        }
        let error = backend.decide_now(Call::of(&[second])).unwrap_err();
        assert_eq!(error.kind(), FailureKind::Full);
        assert!(
            error.to_string().contains("of which something is held"),
            "{error}"
        );
    }
    // A known key has room.
    assert!(
        backend
            .decide_now(Call::of(&[one(held_scope, &held, &known)]))
            .is_ok()
    );

    // when everything is given back
    let mut rest: Vec<_> = receipts
        .into_iter()
        .filter(|it| *it.key() != known)
        .collect();
    let last = rest.pop().unwrap();
    let freed = last.key().clone();
    for receipt in rest {
        backend.refund(receipt, u64::MAX);
    }
    assert_eq!(remaining(&backend, one(held_scope, &held, &freed)), 1);
    backend.refund(last, u64::MAX);

    // then there is room again, and the quotas can stay
    spend_once(&backend, scope, &quota, 1_000..2_000);
    assert_eq!(remaining(&backend, one(held_scope, &held, &known)), 0);
    assert_eq!(remaining(&backend, one(held_scope, &held, &freed)), 2);
}

#[test]
fn what_is_given_back_makes_room_at_once_and_nobody_searches_for_it_long() {
    // given one shard full of keys that are held, and a caller that comes in vain
    let (backend, _) = backend(20_000);
    let (held, scope) = at_most(1);
    let mut receipts = fill(&backend, &held, scope);
    let started = Instant::now();
    let mut refused = 0;
    for number in 0..20_000_u64 {
        let key = Key::from(format!("vain-{number}"));
        refused += usize::from(
            backend
                .decide_now(Call::of(&[one(scope, &held, &key)]))
                .is_err(),
        );
    }
    assert_eq!(refused, 20_000);

    // when places come free, each is taken by the next new key of its shard, with no long search in between
    let mut number = 0_u64;
    for _ in 0..1_000 {
        backend.refund(receipts.remove(0), 1);
        loop {
            number += 1;
            let key = Key::from(format!("next-{number}"));
            let charges = [one(scope, &held, &key)];
            if let Ok(decision) = backend.decide_now(Call::of(&charges)) {
                receipts.extend(taken(&charges, &decision));
                break;
            }
        }
    }
    // A walk over all of a shard's slots for each of them would take minutes.
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(backend.stats().keys, receipts.len());
    assert_eq!(backend.stats().evicted, 0);
}

#[test]
fn quotas_find_room_again_among_keys_that_are_held() {
    // given a shard that was full of held keys, one of which is a quota's now
    let (backend, _) = backend(300);
    let ((held, held_scope), quota) = (at_most(1), Quota::per_hour(10));
    let scope = Scope::of("again", 0, &quota);
    let mut receipts = fill(&backend, &held, held_scope);
    let count = receipts.len();
    for receipt in receipts.drain(..count / 2) {
        backend.refund(receipt, 1);
    }
    spend_once(&backend, scope, &quota, 0..5_000);

    // then quotas evict each other and what is held is not touched
    for receipt in &receipts {
        let key = receipt.key().clone();
        assert_eq!(remaining(&backend, one(held_scope, &held, &key)), 0);
    }
    assert!(backend.stats().evicted > 4_000, "{:?}", backend.stats());
}

#[test]
fn a_receipt_from_before_a_reset_gives_nothing_back_of_what_is_held_since() {
    let (backend, clock) = backend(100);
    let (held, scope) = at_most(2);
    let key = Key::from("alice");
    let charges = [one(scope, &held, &key)];
    let take = || {
        clock.advance(Duration::from_micros(1));
        let decision = backend.decide_now(Call::of(&charges)).unwrap();
        taken(&charges, &decision).pop().unwrap()
    };
    let before = take();
    assert!(backend.admin().reset(scope, &key).try_now().is_ok());
    let (one_of, other) = (take(), take());
    backend.refund(before, 1);
    assert_eq!(remaining(&backend, charges[0]), 0);
    // A clock that steps back changes nothing about that.
    clock.set(Timestamp::from_micros(1));
    backend.refund(one_of, 1);
    assert_eq!(remaining(&backend, charges[0]), 1);
    backend.refund(other, 1);
    assert_eq!(remaining(&backend, charges[0]), 2);
}

#[test]
fn many_threads_never_hold_more_than_the_limit_and_leave_nothing_held() {
    let backend = MemoryBackend::new();
    let (held, scope) = at_most(3);
    let keys: Vec<Key> = ["alice", "bob"].map(Key::from).into();
    let inside: Vec<AtomicU64> = keys.iter().map(|_| AtomicU64::new(0)).collect();
    thread::scope(|threads| {
        for thread in 0..8 {
            let (backend, keys, inside, held) = (&backend, &keys, &inside, &held);
            threads.spawn(move || {
                for turn in 0..3_000 {
                    let charges = [0, 1].map(|at| one(scope, held, &keys[(at + thread) % 2]));
                    let charges = &charges[..1 + turn % 2];
                    let decision = backend.decide_now(Call::of(charges)).unwrap();
                    let receipts = taken(charges, &decision);
                    assert_eq!(
                        receipts.len(),
                        charges.len() * usize::from(decision.is_admitted())
                    );
                    for receipt in &receipts {
                        let at = usize::from(*receipt.key() == keys[1]);
                        assert!(inside[at].fetch_add(1, Ordering::SeqCst) < 3);
                    }
                    for receipt in receipts {
                        let at = usize::from(*receipt.key() == keys[1]);
                        inside[at].fetch_sub(1, Ordering::SeqCst);
                        backend.refund(receipt, 1);
                    }
                }
            });
        }
    });
    for key in &keys {
        assert_eq!(remaining(&backend, one(scope, &held, key)), 3);
    }
}
