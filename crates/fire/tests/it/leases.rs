//! Leased budgets in a history: what no lease allows is named, and the worst legal case is not.

#![allow(clippy::panic, reason = "a test says what it expects by panicking")]

use tollgate_fire::{Disturbance, Effect, History, LeasedPolicy, Spend, check};

const MS: u64 = 1_000;

/// This many requests for a leased policy pass one after the other between two times, in milliseconds.
fn spent(policy: usize, from_ms: u64, to_ms: u64, passed: u64) -> Spend {
    Spend {
        process: 0,
        policy,
        caller: 0,
        from_us: from_ms * MS,
        to_us: to_ms * MS,
        passed,
        leased: passed,
        denied: 0,
        undecided: 0,
    }
}

fn wrongs(spends: &[Spend], disturbances: &[Disturbance]) -> Vec<String> {
    let history = History {
        spends: spends.to_vec(),
        disturbances: disturbances.to_vec(),
        ..History::default()
    };
    check(&history).wrongs().collect()
}

/// The most of a leased bucket, its refill in intervals and its window, at once: a burst of 60 and 20 for the lease of 100 ms; 40
/// and 40 for a refill and 10 for the lease of 50 ms; and 150 on both sides of a window's end.
const AT_ONCE: [u64; 3] = [80, 90, 300];

#[test]
fn one_unit_more_than_a_lease_allows_is_named() {
    for (policy, most) in AT_ONCE.into_iter().enumerate() {
        let name = LeasedPolicy::all()[policy].name;
        let at_once = |units| [spent(policy, 10_000, 10_000, units)];
        assert_eq!(wrongs(&at_once(most), &[]), [""; 0], "{name}");
        let more = wrongs(&at_once(most + 1), &[]);
        assert!(more.len() == 1 && more[0].starts_with(name), "{more:?}");
    }
}

#[test]
fn the_interval_may_have_many_requests_and_processes() {
    // Two hundred a second, for two seconds.
    let steady = (0..20).map(|tenth| spent(0, 10_000 + tenth * 100, 10_100 + tenth * 100, 20));
    let steady: Vec<_> = steady.chain([spent(0, 12_000, 12_000, 60)]).collect();
    assert_eq!(wrongs(&steady, &[]), [""; 0]);
    let other = Spend {
        process: 1,
        ..spent(0, 11_000, 11_001, 21)
    };
    let all: Vec<_> = steady.iter().copied().chain([other]).collect();
    assert_eq!(wrongs(&all, &[]).len(), 1);
    // Of another caller it is another budget.
    let other = Spend { caller: 1, ..other };
    let all: Vec<_> = steady.into_iter().chain([other]).collect();
    assert_eq!(wrongs(&all, &[]), [""; 0]);
}

#[test]
fn requests_that_took_long_are_not_held_to_less() {
    // A second may have passed between the first and the last of them.
    assert_eq!(wrongs(&[spent(0, 10_000, 11_000, 280)], &[]), [""; 0]);
    assert_eq!(wrongs(&[spent(0, 10_000, 11_000, 281)], &[]).len(), 1);
}

#[test]
fn a_loss_hands_out_one_budget_anew_and_trouble_none() {
    let twice = [spent(0, 10_000, 10_000, 80), spent(0, 10_001, 10_001, 80)];
    assert_eq!(wrongs(&twice, &[]).len(), 1);
    for effect in [Effect::Loss, Effect::MaybeLoss, Effect::Clock(5_000_000)] {
        let loss = Disturbance::of_all(effect, 10_000 * MS, 10_001 * MS);
        assert_eq!(wrongs(&twice, &[loss]), [""; 0], "{effect:?}");
        let earlier = Disturbance::of_all(effect, 1_000 * MS, 1_001 * MS);
        assert_eq!(wrongs(&twice, &[earlier]).len(), 1, "{effect:?}");
    }
    let trouble = Disturbance::trouble(10_000 * MS, 10_001 * MS);
    assert_eq!(wrongs(&twice, &[trouble]).len(), 1);
}
