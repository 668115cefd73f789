//! Credits by the clock of the moment at which they come.

use std::time::Duration;

use crate::common::one;
use tollgate_core::{Backend, Call, Charge, ImmediateBackend, Key, ManualClock, Quota, Scope};
use tollgate_memory::MemoryBackend;

#[test]
fn a_credit_returns_nothing_that_has_drained_since_the_last_call() {
    // given two charges, of three seconds and of two
    let clock = ManualClock::new();
    let backend = MemoryBackend::builder().clock(clock.clone()).build();
    let quota = Quota::per_second(1).burst(5);
    let key = Key::from("alice");
    let charge = one(Scope::of("page", 0, &quota), &quota, &key);
    let charges = [Charge { cost: 3, ..charge }];
    let first = backend.decide_now(Call::of(&charges)).unwrap();
    let receipt = first.receipts(&charges).next().unwrap();
    let second = backend
        .decide_now(Call::of(&[Charge { cost: 2, ..charge }]))
        .unwrap();
    assert!(second.is_admitted());

    // when the first comes back after two of its seconds
    clock.advance(Duration::from_secs(2));
    backend.refund(receipt, 3);

    // then one of the three comes back, and two drained
    let rest = backend
        .decide_now(Call::of(&[Charge { cost: 0, ..charge }]))
        .unwrap();
    assert_eq!(rest.verdicts()[0].remaining(), 3);
}
