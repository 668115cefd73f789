//! Defects that were found in other rate limiters, each with the test that would have caught it.

use std::time::Duration;

use tollgate_core::{
    Algorithm, Call, Charge, Key, Mode, Quota, QuotaError, Scope, State, Timestamp, decide,
};

use crate::support::budget::{Budget, micros};

const SECOND: u64 = 1_000_000;

/// One of each kind: ten per second.
fn one_of_each() -> [Quota; 6] {
    let ten = Quota::per_second(10);
    [
        ten,
        ten.using(Algorithm::FixedWindow {
            offset: Duration::ZERO,
        }),
        ten.using(Algorithm::SlidingWindow),
        ten.using(Algorithm::RollingWindow { buckets: 10 }),
        ten.using(Algorithm::SlidingLog),
        ten.using(Algorithm::IntervalRefill {
            offset: Duration::ZERO,
        }),
    ]
}

#[test]
fn pitfall_a_caller_who_keeps_knocking_still_gets_in() {
    for quota in one_of_each() {
        let mut budget = Budget::full(quota);
        budget.charge(0, 10);

        // Ten seconds of a hundred times the allowed rate.
        let passed = (0..10_000)
            .filter(|knock| budget.charge(knock * 1000, 1).0.is_allowed())
            .count();

        assert!((80..=100).contains(&passed), "{quota}: {passed}");
    }
}

#[test]
fn pitfall_the_first_of_several_limits_is_not_charged_when_the_second_denies() {
    let key = Key::from("alice");
    let (wide, narrow) = (Quota::per_second(10), Quota::per_second(1));
    for quotas in [[&wide, &narrow], [&narrow, &wide]] {
        let mut slot = 0;
        let charges = quotas.map(|quota| {
            slot += 1;
            Charge {
                scope: Scope::of("pitfall-several", slot, quota),
                quota,
                key: &key,
                cost: 2,
                mode: Mode::Enforce,
            }
        });
        let mut states = quotas.map(State::full);

        let decision = decide(
            Timestamp::from_micros(SECOND),
            Call::of(&charges),
            &mut states[..],
        );

        assert!(!decision.is_admitted());
        assert_eq!(decision.receipts(&charges).count(), 0);
        for (verdict, quota) in decision.verdicts().iter().zip(quotas) {
            assert_eq!(verdict.remaining(), quota.capacity());
            assert_eq!(verdict.reset_after(), Duration::ZERO);
        }
    }
}

#[test]
fn pitfall_a_cost_above_what_is_left_drives_nothing_negative_and_delays_nobody() {
    for quota in one_of_each() {
        let mut budget = Budget::full(quota);
        budget.charge(0, 8);
        let before = (budget.peek(0), budget.meaningless_at());

        for _ in 0..3 {
            assert!(budget.charge(0, 5).0.is_denied());
        }

        assert_eq!((budget.peek(0), budget.meaningless_at()), before, "{quota}");
        assert_eq!(budget.peek(0).remaining(), 2);
    }
}

#[test]
fn pitfall_a_refund_after_the_window_rolled_or_the_tokens_drained_hands_out_nothing() {
    for quota in one_of_each() {
        let mut budget = Budget::full(quota);
        let (_, receipt) = budget.charge(0, 10);
        let now = 2 * SECOND;
        assert!(budget.charge(now, 10).0.is_allowed());

        budget.refund(now, &receipt.unwrap(), 10);

        assert!(budget.charge(now, 1).0.is_denied(), "{quota}");
    }
}

#[test]
fn pitfall_no_retry_after_is_zero() {
    for quota in one_of_each() {
        let mut budget = Budget::full(quota);
        budget.charge(0, 10);
        let first = micros(budget.if_charged(0, 1).retry_after().unwrap());

        for early in 1..=first {
            if early > 100 && early < first - 100 {
                continue;
            }
            let denied = budget.if_charged(first - early, 1);
            assert_eq!(denied.retry_after().map(micros), Some(early), "{quota}");
        }
    }
}

#[test]
fn pitfall_sixty_per_second_is_not_one_per_sixty_seconds() {
    let mut budget = Budget::full(Quota::per_second(60).burst(1));
    assert!(budget.charge(0, 1).0.is_allowed());

    assert!(budget.charge(16_666, 1).0.is_denied());
    assert!(budget.charge(16_667, 1).0.is_allowed());
}

#[test]
fn pitfall_a_cost_above_the_burst_is_never_told_to_come_back() {
    for quota in one_of_each() {
        let verdict = Budget::full(quota).if_charged(0, 11);
        assert!(verdict.never_passes(), "{quota}");
        assert_eq!(verdict.retry_after(), None);
    }
}

#[test]
fn pitfall_what_is_charged_and_refunded_is_what_is_reported() {
    for quota in one_of_each() {
        let mut budget = Budget::full(quota);

        let (verdict, receipt) = budget.charge(0, 7);
        assert_eq!((verdict.taken(), verdict.remaining()), (7, 3), "{quota}");
        assert_eq!(budget.peek(0).remaining(), 3);
        let (denied, none) = budget.charge(0, 4);
        assert_eq!((denied.taken(), none.is_none()), (0, true));

        budget.refund(0, &receipt.unwrap(), 5);
        assert_eq!(budget.peek(0).remaining(), 8, "{quota}");
    }
}

#[test]
fn pitfall_what_remains_counts_down() {
    for quota in one_of_each() {
        let mut budget = Budget::full(quota);
        for left in (0..10).rev() {
            assert_eq!(budget.charge(0, 1).0.remaining(), left, "{quota}");
        }
    }
}

#[test]
fn pitfall_rates_below_one_per_second_and_daily_limits_are_exact() {
    // Seven a year, one at a time: never the eighth, however often the caller asks.
    let year = Duration::from_secs(365 * 86_400);
    let mut budget = Budget::full(Quota::new(7, year).burst(1));
    let step = micros(year) / 700;
    let passed = (0..7_000_u64)
        .filter(|turn| budget.charge(turn * step, 1).0.is_allowed())
        .count();
    assert_eq!(passed, 70);

    // A million bytes a day is an ordinary quota, and so is a gibibyte.
    for limit in [1_000_000, 1 << 30] {
        let daily = Quota::per_day(limit).using(Algorithm::SlidingWindow);
        let mut budget = Budget::full(daily);
        let noon = 86_400 * SECOND + 43_200 * SECOND;
        assert!(budget.charge(noon - 43_201 * SECOND, limit).0.is_allowed());
        assert_eq!(budget.peek(noon).remaining(), limit / 2);
    }
}

#[test]
fn pitfall_a_limit_of_zero_is_refused_while_it_is_built() {
    let second = Duration::from_secs(1);
    let ten = Quota::per_second(10);
    assert_eq!(Quota::try_new(0, second), Err(QuotaError::ZeroLimit));
    assert_eq!(ten.try_burst(0), Err(QuotaError::ZeroBurst));
}

#[test]
fn pitfall_no_state_is_forgotten_early_or_kept_for_ever() {
    for quota in one_of_each() {
        let mut budget = Budget::full(quota);
        budget.charge(0, 1);

        let full_after = micros(budget.peek(0).reset_after());

        // Not a microsecond early: no rounding down to seconds, no expiry of 0. A window is kept a period longer, for a clock
        // that is behind.
        let kept = match quota.algorithm() {
            Algorithm::Gcra => full_after,
            _ => full_after + micros(quota.period()),
        };
        assert_eq!(budget.meaningless_at(), kept, "{quota}");
        assert!((1..=2 * SECOND).contains(&full_after));
    }
}

#[test]
fn pitfall_reset_times_do_not_wobble() {
    for quota in one_of_each() {
        let mut budget = Budget::full(quota);
        let (verdict, _) = budget.charge(0, 10);
        let reset_at = micros(verdict.reset_after());

        for now in (0..reset_at).step_by(7_919) {
            let (verdict, _) = budget.charge(now, 11);
            assert_eq!(now + micros(verdict.reset_after()), reset_at, "{quota}");
        }
    }
}

#[test]
fn pitfall_two_charges_in_one_microsecond_are_two() {
    for quota in one_of_each() {
        let mut budget = Budget::full(quota);

        let receipts = [(); 2].map(|()| budget.charge(5, 3).1.unwrap());

        assert_eq!(budget.peek(5).remaining(), 4, "{quota}");
        for receipt in &receipts {
            budget.refund(5, receipt, 3);
        }
        assert_eq!(budget.peek(5).remaining(), 10, "{quota}");
    }
}

#[test]
fn pitfall_parts_of_a_key_do_not_run_into_each_other() {
    let key = |a: &str, b: &str| Key::tuple([&Key::from(a), &Key::from(b)]);
    assert_ne!(key("a_b", "c"), key("a", "b_c"));
    assert_ne!(key("ab", ""), key("a", "b"));
    assert_ne!(key("", "ab"), key("ab", ""));
}

#[test]
fn pitfall_one_host_has_one_budget_whatever_its_last_64_bits() {
    let address = |text: &str| Key::from(text.parse::<std::net::IpAddr>().unwrap());
    assert_eq!(address("2001:db8::1"), address("2001:db8::dead:beef:0:1"));
    assert_ne!(address("2001:db8::1"), address("2001:db8:0:1::1"));
    assert_eq!(address("::ffff:10.0.0.1"), address("10.0.0.1"));
}
