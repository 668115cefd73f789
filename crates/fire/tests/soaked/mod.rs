//! What a soak must not leave behind.

use tollgate_fire::Soak;

/// How many turns the slowest of a hundred may wait. Were all served in the order in which they came, each would wait one.
const MOST_TURNS: u32 = 5;

pub(crate) async fn leaves_nothing_behind(soak: Soak) {
    let soaked = soak.run(|_| ()).await.unwrap();

    assert_eq!(soaked.failed, 0);
    // By what the same machine needs for all of them, in the same run.
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
    // Of the hundred megabytes that ten thousand requests take while they are under way, the allocator keeps some.
    let most = (16 * 1_024).max(soaked.early.memory_kib / 4);
    assert!(grown < most, "{soaked:?}");
}
