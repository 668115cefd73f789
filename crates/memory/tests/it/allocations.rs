//! A decision about known keys allocates nothing.

use std::time::Duration;

use crate::common::{every_algorithm, one};
use allocation_counter::measure;
use tollgate_core::{Backend, Call, Charge, Concurrent, ImmediateBackend, Key, Quota, Scope};
use tollgate_memory::MemoryBackend;

#[test]
fn quotas_are_decided_without_an_allocation() {
    // given two keys, one of them long, that were seen before
    let backend = MemoryBackend::new();
    let keys = [Key::from("alice"), Key::bytes(&[7; 100])];
    let [gcra, fixed, sliding, ..] = every_algorithm(1000, Duration::from_secs(3600));
    let scope = |quota: &Quota| Scope::of("allocations", 0, quota);
    for quota in [gcra, fixed, sliding] {
        let charges = [0, 1].map(|key| one(scope(&quota), &quota, &keys[key]));
        drop(backend.decide(Call::of(&charges)).try_now());

        // when they come again, alone and together
        let allocated = measure(|| {
            for _ in 0..100 {
                assert!(backend.decide(Call::of(&charges[..1])).try_now().is_ok());
                assert!(backend.decide(Call::of(&charges)).try_now().is_ok());
            }
        });

        // then
        assert_eq!(allocated.count_total, 0, "{quota}");
    }
}

#[test]
fn places_are_taken_and_given_back_without_an_allocation() {
    let backend = MemoryBackend::new();
    let quota = Quota::from(Concurrent::at_most(2));
    let scope = Scope::of("allocations-held", 0, &quota);
    let mut held = Vec::with_capacity(2);
    for key in [Key::from("alice"), Key::bytes(&[7; 20])] {
        let charges = [one(scope, &quota, &key)];
        let heavy = [Charge {
            cost: 2,
            ..charges[0]
        }];
        let mut turn = |charges: &[Charge<'_>]| {
            let decision = backend.decide_now(Call::of(charges)).unwrap();
            held.extend(decision.receipts(charges));
            assert!(
                backend
                    .decide_now(Call::of(&heavy))
                    .is_ok_and(|it| !it.is_admitted())
            );
            for receipt in held.drain(..) {
                backend.refund(receipt, 2);
            }
        };
        turn(&charges);
        let allocated = measure(|| {
            for _ in 0..100 {
                turn(&charges);
                turn(&heavy);
            }
        });
        assert_eq!(allocated.count_total, 0, "{key:?}");
    }
}
