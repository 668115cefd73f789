//! Allocations per request, above the same request without a limiter. A budget that is met exactly: more is a regression,
//! less is a reason to lower it.

use allocation_counter::measure;
use tollgate_bench::Scenario;

const CALLERS: u32 = 1000;

/// The allocations of a request, in a round after one that does not count.
fn allocations(scenario: Scenario) -> u64 {
    let mut serve = scenario.prepare();
    serve(CALLERS);
    measure(|| serve(CALLERS)).count_total / u64::from(CALLERS)
}

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
