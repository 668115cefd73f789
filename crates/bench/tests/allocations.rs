//! Allocations per request, above the same request without a limiter. A budget that is met exactly: more is a regression,
//! less is a reason to lower it.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tollgate_bench::Scenario;

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CALLERS: u32 = 1000;

/// The requests of one round, after one that does not count.
fn allocations(scenario: Scenario) -> usize {
    let mut serve = scenario.prepare();
    serve(CALLERS);
    let region = Region::new(GLOBAL);
    serve(CALLERS);
    region.change().allocations / CALLERS as usize
}

/// One test, because allocations of a parallel test would be counted as well.
#[test]
fn a_limiter_allocates_only_for_what_it_shows() {
    let bare = allocations(Scenario::Bare);
    let cases = [
        // The decision itself is free.
        (Scenario::TollgatePlain, 0),
        // The status is one, and its place in the request's extensions another.
        (Scenario::TollgateStatus, 2),
        // The map of the response's first headers takes two, the value with the remaining units one, and the source of that
        // value one.
        (Scenario::TollgateFields, 4),
        (Scenario::TollgateHeaders, 5),
    ];
    for (scenario, budget) in cases {
        assert_eq!(allocations(scenario) - bare, budget, "{}", scenario.about());
    }
    assert_eq!(allocations(Scenario::CheckAddress), 0);
}
