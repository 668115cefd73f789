//! Warm-up: cold units cost more, nothing passes that would not pass without it, and Guava's formulas give the same times.

#![allow(
    clippy::float_arithmetic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "Guava counts in floating point"
)]

use std::time::Duration;

use proptest::prelude::*;
use tollgate_core::Quota;

use crate::support::budget::{Budget, micros, warms_up, without_warm_up};
use crate::support::history::History;
use crate::support::quotas;
use crate::support::runner::check;
use crate::support::steps::{Step, starts, steps};

const SECOND: u64 = 1_000_000;

/// Guava's `SmoothRateLimiter.SmoothWarmingUp`, by the formulas in its comments, in floating point as there: what is stored, and
/// when the next request may pass. Guava reads a clock of µs, and so does this.
struct Guava {
    interval: f64,
    threshold: f64,
    most: f64,
    slope: f64,
    cool_down: f64,
    stored: f64,
    next: f64,
}

impl Guava {
    fn new(per_second: f64, warm_up_us: f64, cold_factor: f64) -> Self {
        let interval = 1e6 / per_second;
        let cold = interval * cold_factor;
        let threshold = 0.5 * warm_up_us / interval;
        let most = threshold + 2.0 * warm_up_us / (interval + cold);
        Self {
            interval,
            threshold,
            most,
            slope: (cold - interval) / (most - threshold),
            cool_down: warm_up_us / most,
            stored: most,
            next: 0.0,
        }
    }

    /// The time at which a request for a permit that comes at `now` passes.
    fn acquire(&mut self, now: f64) -> f64 {
        if now > self.next {
            self.stored = self
                .most
                .min(self.stored + (now - self.next) / self.cool_down);
            self.next = now;
        }
        let passes = self.next;
        let spent = self.stored.min(1.0);
        let above = (self.stored - self.threshold).max(0.0);
        let dear = above.min(spent);
        let heights = 2.0 * self.interval + (above + above - dear) * self.slope;
        let wait = dear * heights / 2.0 + (spent - dear) * self.interval;
        self.next += wait + (1.0 - spent) * self.interval;
        self.stored -= spent;
        passes
    }
}

/// The time at which a request that comes at `now`, and again when it was told, passes.
fn passes(budget: &mut Budget, now: u64) -> u64 {
    let (verdict, _) = budget.charge(now, 1);
    let Some(retry_after) = verdict.retry_after().map(micros) else {
        return now;
    };
    let then = now + retry_after;
    assert!(budget.charge(then, 1).0.is_allowed(), "{verdict:?}");
    then
}

/// The pauses between the arrivals of requests, in parts of an interval of the warm quota. A request of 0 comes at once.
fn arrivals() -> Vec<(&'static str, Vec<f64>)> {
    let steady = |pause: f64, count| vec![pause; count];
    vec![
        ("one after the other", steady(0.0, 1_200)),
        ("at half of the rate", steady(2.0, 1_500)),
        ("at a quarter of the rate", steady(4.0, 600)),
        ("at nine tenths of the rate", steady(1.1, 1_500)),
        ("at four tenths of the rate", steady(2.5, 1_000)),
        (
            "a rush, a pause of a fifth of the warm-up, and a rush",
            [steady(0.0, 900), vec![200.0], steady(0.0, 700)].concat(),
        ),
        (
            "a rush, a pause that cools half, and a rush",
            [steady(0.0, 900), vec![730.5], steady(0.0, 700)].concat(),
        ),
        (
            "a rush, a pause of a day, and a rush",
            [steady(0.0, 900), vec![8_640_000.0], steady(0.0, 700)].concat(),
        ),
        (
            "pairs with pauses of odd lengths",
            (0..300)
                .map(|n| {
                    if n % 2 == 0 {
                        0.0
                    } else {
                        3.3 + f64::from(n % 7)
                    }
                })
                .collect(),
        ),
    ]
}

#[test]
fn requests_pass_when_guavas_formulas_let_them() {
    let rates = [
        (100, 10),
        (7, 60),
        (1_000, 1),
        (3, 600),
        (2_500, 10),
        (300, 3_600),
    ];
    for (rate, warm_up) in rates {
        for factor in [3, 2, 5, 10] {
            let warm_up = Duration::from_secs(warm_up);
            let quota = Quota::per_second(rate)
                .burst(1)
                .warm_up(warm_up)
                .cold_factor(factor);
            for (name, pauses) in arrivals() {
                let mut budget = Budget::full(quota);
                let warm_up_us = warm_up.as_secs_f64() * 1e6;
                let mut guava = Guava::new(rate as f64, warm_up_us, factor as f64);
                let interval = 1e6 / rate as f64;
                let (mut ours, mut theirs) = (1_000 * SECOND, 1_000 * SECOND);
                for (number, pause) in pauses.into_iter().enumerate() {
                    let pause = (pause * interval) as u64;

                    ours = passes(&mut budget, ours + pause);
                    // A caller comes at whole microseconds.
                    theirs = guava.acquire((theirs + pause) as f64).ceil() as u64;

                    // A few µs for each request, and less than one permit in any case.
                    let close = 8.0 + 4.0 * number as f64;
                    let apart = ours.abs_diff(theirs) as f64;
                    assert!(
                        apart <= close.min(interval),
                        "{quota}, {name}: request {number} passes at {ours}, and by Guava at {theirs}"
                    );
                }
            }
        }
    }
}

/// `RateLimiter.create(2, 4, SECONDS)`: Guava stores eight permits, of which those above four cost more: from 1.5 s down to 0.5 s.
/// Its javadoc's own figures, by the areas of the trapezoid: the last permits cost 1.375, 1.125, 0.875 and 0.625 s.
#[test]
fn the_prices_are_the_areas_under_guavas_curve() {
    let quota = Quota::per_second(2)
        .burst(1)
        .warm_up(Duration::from_secs(4));
    let mut budget = Budget::full(quota);
    let mut now = 1_000 * SECOND;
    let mut prices = Vec::new();
    for _ in 0..10 {
        let (verdict, _) = budget.charge(now, 1);
        prices.push(micros(verdict.reset_after()));
        now += micros(verdict.reset_after());
    }
    let ms = |ms: u64| ms * 1_000;
    assert_eq!(
        prices,
        [1_375, 1_125, 875, 625, 500, 500, 500, 500, 500, 500].map(ms)
    );
    // From cold to warm it took the period of the warm-up, and the cold part is again in store after a half of it more.
    assert_eq!(prices.iter().take(4).sum::<u64>(), 4 * SECOND);
    for (idle, price) in [
        (0, 500),
        (2_000, 500),
        (3_000, 875),
        (4_000, 1_375),
        (9_999, 1_375),
    ] {
        let (verdict, _) = budget.clone().charge(now + ms(idle), 1);
        let said = micros(verdict.reset_after());
        let expected = ms(price);
        assert_eq!(said, expected, "after {idle} ms");
        assert!((ms(500)..=ms(1_375)).contains(&said));
    }
}

#[test]
fn a_price_does_not_depend_on_the_parts_in_which_it_is_taken() {
    let histories = (
        quotas::tiny_warming(),
        starts(),
        steps(0..16),
        1_u64..=9,
        1_u64..=9,
    );
    check(2_000, &histories, |(quota, start, steps, first, then)| {
        let history = History::after(quota, start, &steps);
        let now = history.now;
        let (mut whole, mut parts) = (history.budget.clone(), history.budget);
        if parts.charge(now, first).0.is_denied() || parts.charge(now, then).0.is_denied() {
            return Ok(());
        }

        prop_assert!(whole.charge(now, first + then).0.is_allowed());

        prop_assert_eq!(whole.state.snapshot(), parts.state.snapshot());
        Ok(())
    });
}

/// The plain quota takes what the other admits, and all debits. Credits are held to the plain quota's net history: see `credit.rs`.
#[test]
fn nothing_passes_that_would_not_pass_without_a_warm_up() {
    let histories = (quotas::tiny_warming(), starts(), steps(1..40));
    check(3_000, &histories, |(quota, start, steps)| {
        prop_assert!(warms_up(&quota));
        let mut plain = History::of(without_warm_up(quota), start);
        let mut warming = History::of(quota, start);
        for step in steps {
            let now = warming.now;
            let taken = warming.taken.len();
            // Amounts that the budget itself names are worked out once.
            let step = match step {
                Step::Credit(..) => continue,
                Step::Charge(amount) => Step::charge(amount.units(&warming.budget, now)),
                Step::Debit(amount) => Step::debit(amount.units(&warming.budget, now)),
                wait @ Step::Wait(_) => wait,
            };
            warming.step(step);
            let is_refused = matches!(step, Step::Charge(_)) && warming.taken.len() == taken;
            if !is_refused {
                plain.step(step);
            }
            prop_assert_eq!(plain.taken.len(), warming.taken.len());
            for at in warming.later() {
                let (ours, theirs) = (warming.budget.peek(at), plain.budget.peek(at));
                prop_assert!(ours.remaining() <= theirs.remaining(), "at {}", at);
                prop_assert!(ours.reset_after() >= theirs.reset_after(), "at {}", at);
            }
        }
        Ok(())
    });
}

/// Full load warms a budget up in the stated time; then it passes what its rate says, and a pause makes it as new.
#[test]
fn a_budget_warms_up_in_its_period_and_grows_cold_in_it() {
    // A caller comes at whole microseconds, and would miss a part of the rate of others.
    let whole = |quota: &Quota| micros(quota.period()).is_multiple_of(quota.limit());
    let quotas = quotas::tiny_warming().prop_filter("whole intervals", whole);
    check(2_000, &(quotas, starts()), |(quota, start)| {
        let quota = quota.burst(1);
        let warm_up = micros(quota.warm_up_period());
        let interval = micros(quota.period()) / quota.limit();
        let mut budget = Budget::full(quota);
        let mut now = start;
        // Three units more than it takes: they lie across the ends of the cold part.
        let until = start + warm_up + 3 * interval * quota.price_when_cold();
        while now < until {
            now = passes(&mut budget, now);
        }
        now = passes(&mut budget, now);

        let warm = micros(budget.peek(now).reset_after());
        prop_assert_eq!(warm, interval, "a warm unit takes {} µs", warm);

        let then = now + warm + warm_up + 1;
        let mut new = Budget::full(quota);
        prop_assert_eq!(budget.charge(then, 1).0, new.charge(then, 1).0);
        Ok(())
    });
}

#[test]
fn a_key_that_was_never_seen_is_cold_and_one_that_uses_half_of_its_rate_stays_warm() {
    let quota = Quota::per_second(100)
        .burst(1)
        .warm_up(Duration::from_secs(10));
    let mut budget = Budget::full(quota);
    let mut now = 1_000 * SECOND;
    let price = |budget: &Budget, now| micros(budget.if_charged(now, 1).reset_after());
    assert_eq!(price(&budget, now), 29_980);

    // A caller that waits for its turn and comes at half of the rate becomes warm.
    let mut passed = now;
    for _ in 0..2_000 {
        now += 20_000;
        passed = passes(&mut budget, now.max(passed));
    }
    assert_eq!((passed, price(&budget, now + 20_000)), (now, 10_000));
    // At four tenths it grows cold again, little by little.
    for _ in 0..20_000 {
        now += 25_000;
        passed = passes(&mut budget, now.max(passed));
    }
    let lukewarm = price(&budget, now + 25_000);
    assert!((14_000..16_000).contains(&lukewarm), "{lukewarm}");
}

/// Under load all passes at the rate of the quota and at no other, however long it goes on.
#[test]
fn a_warm_budget_never_drifts() {
    // With a burst of 2 a caller that comes at whole microseconds loses nothing of the rate.
    let quota = Quota::per_second(7).burst(2);
    let mut budget = Budget::full(quota.warm_up(Duration::from_secs(30)));
    let mut now = 1_000 * SECOND;
    for _ in 0..7 * 40 {
        now = passes(&mut budget, now);
    }
    let warm = now;
    for _ in 0..7 * 3_600 {
        now = passes(&mut budget, now);
    }
    assert_eq!(now - warm, 3_600 * SECOND);
}

#[test]
fn a_burst_is_kept_and_its_cold_units_take_longer_to_come_back() {
    let quota = Quota::per_second(100).warm_up(Duration::from_secs(10));
    let plain = Quota::per_second(100);
    let now = 1_000 * SECOND;
    let admitted = |quota| {
        let mut budget = Budget::full(quota);
        (0..200)
            .filter(|_| budget.charge(now, 1).0.is_allowed())
            .count()
    };
    assert_eq!((admitted(plain), admitted(quota)), (100, 34));
    // A single request for all of it passes, as with any burst, and is paid for afterwards.
    let (verdict, _) = Budget::full(quota).charge(now, 100);
    assert!(verdict.is_allowed());
    assert_eq!(micros(verdict.reset_after()), 2_800_000);
}
