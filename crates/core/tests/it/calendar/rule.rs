//! The rule of calendars' windows, against a list of charges: what counts is what was charged in the window of now.

use std::time::Duration;

use tollgate_core::{
    Call, Charge, Decision, Key, Mode, Quota, Receipt, Scope, Snapshot, State, Timestamp, decide,
};
use tollgate_testkit::seed;

const SECOND_US: u64 = 1_000_000;
const DAY_US: u64 = 86_400 * SECOND_US;

struct Random(fastrand::Rng);

impl Random {
    fn new() -> Self {
        Self(fastrand::Rng::with_seed(seed()))
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0.u64(..bound)
    }
}

struct Budget {
    quota: Quota,
    scope: Scope,
    key: Key,
    state: State,
}

impl Budget {
    fn new(quota: Quota) -> Self {
        Self {
            quota,
            scope: Scope::of("calendar", 0, &quota),
            key: Key::from("alice"),
            state: State::full(&quota),
        }
    }

    fn ask(&mut self, now: u64, cost: u64, mode: Mode) -> (Decision, Option<Receipt>) {
        let charge = Charge {
            scope: self.scope,
            quota: &self.quota,
            key: &self.key,
            cost,
            mode,
        };
        let states = std::slice::from_mut(&mut self.state);
        let decision = decide(Timestamp::from_micros(now), Call::of(&[charge]), states);
        let receipt = decision.receipts(&[charge]).next();
        (decision, receipt)
    }

    fn passes(&mut self, now: u64, cost: u64) -> bool {
        self.ask(now, cost, Mode::Enforce).0.is_admitted()
    }

    /// The answer at another time, which changes nothing.
    fn would_pass(&self, now: u64, cost: u64) -> bool {
        let mut copy = Self {
            state: self.state.clone(),
            key: self.key.clone(),
            ..*self
        };
        copy.passes(now, cost)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap()
}

const CALENDARS: [&str; 7] = [
    "day in Europe/Berlin",
    "day in America/Havana",
    "day in Pacific/Apia",
    "week in Asia/Beirut from sunday",
    "month in America/Sao_Paulo from 15",
    "month in UTC",
    "year in Australia/Lord_Howe from 07-01",
];

#[test]
fn a_window_admits_its_limit_keeps_its_promises_and_takes_back_what_still_counts() {
    let mut random = Random::new();
    for calendar in CALENDARS {
        let quota: Quota = format!("7/{calendar}").parse().unwrap();
        let bounds = |now| quota.unit().calendar().unwrap().bounds_around(now);
        let mut budget = Budget::new(quota);
        let mut now = 10_000 * DAY_US + random.below(5_000 * DAY_US);
        // Times and units of charges, with their receipts.
        let mut charges: Vec<(u64, u64, Receipt)> = Vec::new();
        for _ in 0..2_000 {
            // No time is later than 2112.
            if now > 47_000 * DAY_US {
                break;
            }
            let [.., start, end] = *bounds(now).first_chunk::<4>().unwrap();
            match random.below(10) {
                0 => now += random.below(60 * DAY_US),
                1 => now = end,
                2 => now = end - 1,
                3 | 4 => now += random.below(DAY_US / 4),
                _ => {}
            }
            let [.., start_now, end_now] = *bounds(now).first_chunk::<4>().unwrap();
            assert!(start_now <= now && now < end_now && start <= now);
            let sum = |charges: &[(u64, u64, Receipt)]| -> u64 {
                let counts = charges.iter().filter(|(at, ..)| *at >= start_now);
                counts.map(|(_, units, _)| units).sum()
            };

            if !charges.is_empty() && random.below(4) == 0 {
                // when a part of some charge is given back
                let newest = charges.len() - 1;
                let index = newest - usize::try_from(random.below(5)).unwrap().min(newest);
                let (_, units, receipt) = &mut charges[index];
                let n = random.below(*units + 1);
                receipt.credit_to(&mut budget.state, Timestamp::from_micros(now), n);
                let receipt = receipt.copy();
                let (at, units, _) = charges.remove(index);
                charges.push((at, units - n, receipt));
            }

            let counted = sum(&charges);
            let cost = random.below(9);
            let (decision, receipt) = budget.ask(now, cost, Mode::Enforce);

            let passes = cost == 0 || counted + cost <= 7;
            assert_eq!(decision.is_admitted(), passes, "{quota}: {cost} at {now}");
            let verdict = decision.verdicts()[0];
            let taken = if passes { cost } else { 0 };
            assert_eq!(verdict.remaining(), 7 - counted - taken, "{quota} at {now}");
            let reset = if counted + taken == 0 {
                0
            } else {
                end_now - now
            };
            assert_eq!(micros(verdict.reset_after()), reset, "{quota} at {now}");
            let wait = (!passes && cost <= 7).then(|| end_now - now);
            assert_eq!(verdict.retry_after().map(micros), wait, "{quota} at {now}");
            if let Some(wait) = wait {
                assert!(!budget.would_pass(now + wait - 1, cost));
                assert!(budget.would_pass(now + wait, cost));
            }
            if let Some(receipt) = receipt.filter(|_| taken > 0) {
                charges.push((now, taken, receipt));
            }
            // Each is given back once, and what no longer counts is of no interest.
            charges.retain(|(at, units, _)| *at >= start_now && *units > 0 || now - at < DAY_US);
        }
    }
}

#[test]
fn a_clock_that_steps_to_and_fro_over_the_end_of_a_window_admits_two_limits() {
    let mut random = Random::new();
    for calendar in CALENDARS {
        let quota: Quota = format!("7/{calendar}").parse().unwrap();
        let time = 10_000 * DAY_US + random.below(5_000 * DAY_US);
        let bounds = quota.unit().calendar().unwrap().bounds_around(time);
        let (end, next) = (bounds[3], bounds[4]);
        let shorter = (end - bounds[2]).min(next - end);

        let mut budget = Budget::new(quota);
        let mut admitted = 7;
        assert!(budget.passes(end - 1, 7));
        for _ in 0..500 {
            // Less than a window before the end or behind it.
            let now = end - shorter + 1 + random.below(2 * shorter - 2);
            admitted += u64::from(budget.passes(now, 1));
        }
        assert_eq!(admitted, 14, "{quota}");

        // A step of more than that takes the count along.
        let earlier = bounds[0];
        assert!(!budget.passes(earlier, 1), "{quota}");
        assert!(!budget.would_pass(bounds[1] - 1, 1), "{quota}");
        assert!(budget.would_pass(bounds[1], 7), "{quota}");
    }
}

#[test]
fn the_period_of_a_quota_is_the_length_of_its_longest_window() {
    for (text, days) in [
        ("7/day in UTC", 1),
        ("7/week in UTC", 7),
        ("7/month in UTC", 31),
        ("7/year in UTC", 366),
    ] {
        let quota: Quota = text.parse().unwrap();
        assert_eq!(micros(quota.period()), days * DAY_US, "{text}");
    }
}

#[test]
fn a_state_is_kept_for_as_long_as_its_window_was() {
    let quota: Quota = "7/day in Europe/Berlin".parse().unwrap();
    let mut budget = Budget::new(quota);
    // 30 March 2025 has 23 hours.
    let (midnight, hour_us) = (1_743_289_200 * SECOND_US, 3_600 * SECOND_US);
    let end = midnight + 23 * hour_us;
    assert_eq!(
        budget.state.meaningless_at(quota.unit()),
        Timestamp::default()
    );
    assert!(budget.passes(midnight, 0));
    let kept_until = budget.state.meaningless_at(quota.unit());
    assert_eq!(kept_until.as_micros(), end);
    assert!(budget.passes(midnight, 1));
    let kept_until = budget.state.meaningless_at(quota.unit());
    assert_eq!(kept_until.as_micros(), end + 23 * hour_us);
}

#[test]
fn a_debt_is_at_most_eight_budgets_and_over_with_the_window() {
    let quota: Quota = "7/month in UTC".parse().unwrap();
    let mut budget = Budget::new(quota);
    let now = 1_700_000_000 * SECOND_US;
    let (_, receipt) = budget.ask(now, 7, Mode::Enforce);
    let receipt = receipt.unwrap();
    receipt.debit_from(&mut budget.state, Timestamp::from_micros(now), 1_000);
    receipt.credit_to(&mut budget.state, Timestamp::from_micros(now), 7);
    assert!(!budget.passes(now, 1));
    let Snapshot::Calendar { end_us, count, .. } = budget.state.snapshot() else {
        panic!("{:?}", budget.state);
    };
    assert_eq!(count, 8 * 7 - 7);
    assert!(budget.passes(end_us, 7));
}

/// Another process knew other rules of the zone, by which the window is an hour longer. A charge in that hour belongs to it.
#[test]
fn a_charge_before_the_end_of_a_window_that_another_process_opened_is_not_given_back_to_the_next() {
    let quota: Quota = "5/day in UTC".parse().unwrap();
    let mut budget = Budget::new(quota);
    let (midnight, hour) = (20_000 * DAY_US, 3_600 * SECOND_US);
    budget.state = State::from(Snapshot::Calendar {
        start_us: midnight - DAY_US,
        end_us: midnight + hour,
        count: 3,
    });
    let (_, receipt) = budget.ask(midnight + hour / 2, 1, Mode::Enforce);
    let receipt = receipt.unwrap();
    assert!(!budget.would_pass(midnight + hour - 1, 2));

    // when the next window has begun, at the end of the longer one
    assert!(budget.passes(midnight + hour, 4));
    let then = Timestamp::from_micros(midnight + hour + 1);
    receipt.credit_to(&mut budget.state, then, 1);

    // then nothing comes back to it
    assert!(budget.would_pass(midnight + 2 * hour, 1));
    assert!(!budget.would_pass(midnight + 2 * hour, 2));
}
