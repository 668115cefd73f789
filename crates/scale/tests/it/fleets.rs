//! Fleets in virtual time keep the bounds, and a fleet that does not is noticed.

#![allow(
    clippy::unwrap_used,
    clippy::float_arithmetic,
    reason = "a test fails by panicking; shares of requests"
)]

use std::time::Duration;

use tollgate_core::Lease;
use tollgate_fire::{
    AskedCharge, Asker, Attempt, Budget, History, LeasedBound, Manner, Outcome as Said, Verb, check,
};
use tollgate_scale::{Load, Outcome, Pulses, Settings, Shape, excess, simulate};

/// A fleet under a load that comes in pulses: blocks are leased in one, and would be spent in the next one if they still lived.
fn pulsed(seed: u64) -> Settings {
    let load = Load::of_one(40_000.0).using(40.0);
    Settings {
        seed,
        processes: 10,
        warm_up_us: 0,
        run_us: 4_000_000,
        ..Settings::of(load.in_pulses(Pulses {
            short_us: 15_000,
            long_us: 75_000,
            gap_us: 1_300_000,
            cycle_us: 2_600_000,
        }))
    }
    .leased(Lease::up_to(1_000_000))
}

/// The greatest excess over the bound of a lease of 100 ms.
fn worst(outcome: &Outcome, slack_us: u64) -> f64 {
    let tracked = outcome.tracked.iter();
    let excesses = tracked.map(|it| excess(&it.quota, &it.passes, slack_us));
    excesses.fold(f64::MIN, f64::max)
}

#[test]
fn a_run_is_that_of_its_seed() {
    let figures = |seed| {
        let load = Load::zipf(20_000.0, 10_000, 1.05);
        let settings = Settings {
            seed,
            processes: 12,
            nodes: 3,
            crash_every_us: Some(200_000),
            run_us: 500_000,
            ..Settings::of(load)
        };
        format!("{:?}", simulate(&settings.leased(Lease::up_to(1_000))))
    };

    assert_eq!(figures(7), figures(7));
    assert_ne!(figures(7), figures(8));
}

#[test]
fn no_fleet_lets_more_pass_than_the_bound() {
    let mut by_block = 0;
    for seed in 0..24 {
        let lease = Lease::up_to(1_000_000).within(Duration::from_millis(20 + 10 * (seed % 9)));
        let shape = [Shape::Home, Shape::Nested { within_ms: 500 }][(seed / 2 % 2) as usize];
        let slack_us = u64::try_from(lease.time().as_micros()).unwrap()
            + match shape {
                Shape::Nested { within_ms } => 1_000 * within_ms,
                _ => 0,
            };
        let load = Load::of_one(10_000.0).using([0.5, 1.0, 4.0][(seed % 3) as usize]);
        let load = match seed % 4 {
            0 => load.in_pulses(Pulses {
                short_us: 3_000,
                long_us: 100_000,
                gap_us: 15_000 + 9_000 * (seed % 9),
                cycle_us: 700_000,
            }),
            _ => load,
        };
        let settings = Settings {
            seed,
            processes: [1, 4, 30][(seed % 3) as usize],
            regions: if shape == Shape::Home { 1 } else { 2 },
            crash_every_us: (seed % 2 == 0).then_some(300_000),
            warm_up_us: 0,
            run_us: 1_500_000,
            ..Settings::of(load)
        };

        let unleased = simulate(&settings);
        let leased = simulate(&settings.leased(lease));

        if shape == Shape::Home {
            assert!(worst(&unleased, 0) <= 0.0, "seed {seed}");
        }
        let most = worst(&leased, slack_us);
        assert!(most <= 0.0, "seed {seed}: {most} too many");
        by_block += leased.by_block;
    }
    assert!(by_block > 10_000, "{by_block}");
}

/// The units above the bound of a lease of 100 ms, as the campaigns count them.
fn worst_by_the_campaigns(outcome: &Outcome) -> u64 {
    let excesses = outcome.tracked.iter().map(|it| {
        let mut bound = LeasedBound::of(&it.quota, &Lease::up_to(1_000_000)).unwrap();
        let passes = it.passes.iter();
        let excesses = passes.map(|pass| bound.pass(pass.at_us, pass.cost));
        excesses.max().unwrap_or_default()
    });
    excesses.max().unwrap_or_default()
}

#[test]
fn blocks_that_end_late_are_noticed() {
    const SLACK_US: u64 = 100_000;
    let late = |seed| Settings {
        late_us: 2_000_000,
        ..pulsed(seed)
    };
    for seed in 0..4 {
        let outcomes = [pulsed(seed), late(seed)].map(|it| simulate(&it));
        let [right, wrong] = outcomes.each_ref().map(|it| worst(it, SLACK_US));
        let by_the_campaigns = outcomes.each_ref().map(worst_by_the_campaigns);

        assert!(right <= 0.0, "seed {seed}: {right} too many");
        assert!(wrong > 0.0, "seed {seed}: {wrong} are within the bound");
        let as_here = ["0".to_owned(), format!("{:.0}", wrong.ceil())];
        let by_the_campaigns = by_the_campaigns.map(|units| units.to_string());
        assert_eq!(by_the_campaigns, as_here, "seed {seed}");
    }
}

/// The checker of the campaigns has a say about each decision of a server: its rest, its wait, and the order of all.
#[test]
fn the_checker_of_the_campaigns_finds_nothing_wrong_with_servers_of_a_fleet() {
    let load = Load::zipf(4_000.0, 40, 1.05).using(4.0);
    let settings = Settings {
        processes: 8,
        nodes: 3,
        warm_up_us: 0,
        run_us: 600_000,
        tracked: 40,
        ..Settings::of(load)
    };
    let outcome = simulate(&settings);
    let mut history = History {
        quotas: outcome.tracked.iter().map(|it| it.quota).collect(),
        ..History::default()
    };
    for (policy, tracked) in outcome.tracked.iter().enumerate() {
        for moment in &tracked.moments {
            let asker = Asker {
                process: moment.process,
                ..Asker::default()
            };
            let asked = AskedCharge {
                budget: Budget { policy, caller: 1 },
                cost: 1,
                manner: Manner::Enforce,
            };
            let at_us = moment.decision.at().as_micros();
            history.attempts.push(Attempt::plain(
                asker,
                Verb::Decide(vec![asked]),
                moment.asked_us,
                at_us + settings.near_us,
                Said::of(&Ok(moment.decision.clone())),
            ));
        }
    }

    let findings = check(&history);

    let wrong: Vec<_> = findings.wrong.iter().map(ToString::to_string).collect();
    assert_eq!(wrong, [""; 0]);
    assert!(findings.decided > 1_000, "{}", findings.decided);
    assert!(findings.admitted < findings.decided);
    // One admission more than there was room for does not pass.
    let denied = history.attempts.iter_mut().find_map(|attempt| {
        let Said::Decided(decided) = &mut attempt.outcome else {
            return None;
        };
        (!decided.admitted).then_some(decided)
    });
    let denied = denied.unwrap();
    denied.admitted = true;
    denied.verdicts[0].passes = true;
    denied.verdicts[0].taken = 1;
    assert!(!check(&history).is_possible());
}

#[test]
fn a_hot_caller_within_its_limit_waits_for_no_server() {
    let fleet = |processes| Settings {
        processes,
        ..Settings::of(Load::of_one(20_000.0))
    };

    let [alone, many] = [1, 100].map(|it| simulate(&fleet(it).leased(Lease::up_to(100_000))));

    assert_eq!(alone.by_block, alone.requests);
    assert!(alone.calls <= 100, "{} calls in two seconds", alone.calls);
    assert!(many.waiting() < 0.05, "{} wait", many.waiting());
}

#[test]
fn a_server_that_has_too_much_to_do_answers_late_and_then_not_at_all() {
    let waits = |rate| {
        let settings = Settings {
            processes: 100,
            warm_up_us: 200_000,
            run_us: 400_000,
            ..Settings::of(Load::zipf(rate, 100_000, 1.05))
        };
        simulate(&settings)
    };

    let [idle, busy, over] = [20_000.0, 145_000.0, 1_000_000.0].map(waits);

    assert!(idle.hottest < 0.3 && idle.median_wait_us < 1_000);
    assert!(busy.hottest > 0.6, "{}", busy.hottest);
    assert!(busy.longest_wait_us > idle.longest_wait_us);
    assert!(over.hottest > 0.95, "{}", over.hottest);
    assert_eq!((idle.failed, busy.failed), (0, 0));
    assert!(over.failed > 0 || over.median_wait_us > 5_000);
}
