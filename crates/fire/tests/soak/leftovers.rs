//! The leftovers that a soak must not have.

use tollgate_fire::Soak;

/// The number of turns that the slowest of a hundred may wait. If all were served in the order in which they came, each would
/// wait one.
const MOST_TURNS: u32 = 5;

pub(crate) async fn leaves_nothing_behind(soak: Soak) {
    let soaked = soak.run(|_| ()).await.unwrap();

    assert_eq!(soaked.failed, 0);
    // Measured by the time that this machine needs for all of them, in this very run.
    assert!(soaked.p99 < soaked.turn * MOST_TURNS, "{soaked:?}");
    assert!(soaked.late.tasks <= soaked.early.tasks + 2, "{soaked:?}");
    assert!(
        soaked.late.descriptors <= soaked.early.descriptors + 2,
        "{soaked:?}"
    );
    let grown = soaked
        .late
        .memory_kib
        .saturating_sub(soaked.early.memory_kib);
    // Ten thousand requests take a hundred megabytes while they are under way, of which the allocator keeps some.
    let most = (16 * 1_024).max(soaked.early.memory_kib / 4);
    assert!(grown < most, "{soaked:?}");
}
