//! A million callers are cheap, whatever their keys are and wherever the table stands in its growth.

use std::time::Duration;

use crate::ALLOCATOR;
use crate::common::{every_algorithm, one};
use stats_alloc::Region;
use tollgate_core::{Call, Concurrent, ImmediateBackend, Key, ManualClock, Quota, Scope};
use tollgate_memory::MemoryBackend;

/// The most bytes that a live key may take beside its own.
const MOST: usize = 64;

#[test]
#[ignore = "slow: sixteen million decisions"]
fn a_live_key_takes_at_most_64_bytes_beside_its_own() {
    if !tollgate_testkit::alone!() {
        return;
    }
    let [gcra, fixed, sliding, ..] = every_algorithm(10, Duration::from_secs(3600));
    let held = Quota::from(Concurrent::at_most(10));
    for quota in [gcra, fixed, sliding, held] {
        for length in [5, 10, 31, 100] {
            let worst = worst_bytes_per_key(quota, length);
            println!("{quota}, keys of {length} bytes: {worst:.1} bytes beside the key");
        }
    }
}

/// The most bytes that were ever allocated per key between a hundred thousand keys and a million, measured at every allocation.
#[allow(clippy::float_arithmetic, reason = "a figure to be printed")]
fn worst_bytes_per_key(quota: Quota, length: usize) -> f64 {
    let scope = Scope::of("bytes-per-key", 0, &quota);
    let mut name = vec![0; length - 1];
    let region = Region::new(ALLOCATOR);
    // A fifth more than come: keys fall into the 512 shards at random, and with a tenth more one in a hundred runs finds a full
    // shard.
    let backend = MemoryBackend::builder()
        .max_keys(1_200_000)
        .clock(ManualClock::new())
        .build();
    let mut worst = 0.0_f64;
    let mut keys = 0;
    for number in 0..1_000_000_u32 {
        name[..4].copy_from_slice(&number.to_le_bytes());
        let key = Key::bytes(&name);
        assert!(
            backend
                .decide_now(Call::of(&[one(scope, &quota, &key)]))
                .is_ok()
        );
        keys += 1;
        if number >= 100_000 {
            let change = region.change();
            let bytes = change.bytes_allocated - change.bytes_deallocated;
            let beside = bytes - keys * length;
            assert!(
                beside <= keys * MOST,
                "{quota}, {length}: {beside} of {keys}"
            );
            worst = worst.max(beside as f64 / keys as f64);
        }
    }
    assert_eq!(backend.stats().keys, keys);
    worst
}
