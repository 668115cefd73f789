//! Ten million identities, each made up for one request.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::ALLOCATOR;
use crate::common::one;
use stats_alloc::Region;
use tollgate_core::{Call, ImmediateBackend, Key, Quota, Scope};
use tollgate_memory::MemoryBackend;

#[test]
#[ignore = "slow: ten million decisions"]
fn pitfall_a_flood_of_ten_million_keys_takes_bounded_memory_and_bounded_work() {
    if !tollgate_testkit::alone!() {
        return;
    }
    // given the defaults
    let quota = Quota::per_hour(10);
    let scope = Scope::of("flood", 0, &quota);
    let region = Region::new(ALLOCATOR);
    let backend = MemoryBackend::new();

    // when
    let mut longest = Duration::ZERO;
    let started_at = Instant::now();
    let mut before = started_at;
    for address in 0..10_000_000_u32 {
        let key = Key::from(Ipv4Addr::from(address.wrapping_mul(0x9e37_79b1)));
        let decision = backend.decide_now(Call::of(&[one(scope, &quota, &key)]));
        assert!(decision.is_ok_and(|decision| decision.is_admitted()));
        let now = Instant::now();
        longest = longest.max(now - before);
        before = now;
    }

    // then
    let stats = backend.stats();
    let change = region.change();
    let bytes = change.bytes_allocated - change.bytes_deallocated;
    println!(
        "10,000,000 keys in {:?}, the longest call {longest:?}, {bytes} bytes, {stats:?}",
        before - started_at
    );
    assert!(stats.keys <= 1_000_000);
    assert_eq!(
        stats.keys as u64 + stats.evicted + stats.expired,
        10_000_000
    );
    assert!(bytes <= 64_000_000, "{bytes} bytes");
    assert!(stats.longest_scan <= 16);
}
