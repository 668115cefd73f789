//! The blocks of one budget, step by step.

use super::*;
use crate::{
    Algorithm, Call, Charge, Key, Mode, RetryAfter, Scope, State, Timestamp, Verdict, decide,
};

const LEASE: Lease = Lease::up_to(50);
const NOON: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// A budget of a hundred.
struct Budget {
    quota: Quota,
    key: Key,
    state: State,
    blocks: Blocks,
}

impl Budget {
    /// A process has needed 40 of it at time zero.
    fn new() -> Self {
        Self::needed(40)
    }

    fn needed(requests: u64) -> Self {
        let quota = Quota::per_day(100);
        let key = Key::from("alice");
        let blocks = Blocks::new(&charge(&quota, &key, 1), &LEASE, 0, 0);
        let mut budget = Self {
            state: State::full(&quota),
            quota,
            key,
            blocks,
        };
        let (verdict, _) = budget.decided(1);
        budget.blocks.decided(&verdict);
        for _ in 0..requests {
            assert!(budget.spend(1, 0).is_none());
        }
        budget
    }

    /// The server's decision about as many.
    fn decided(&mut self, cost: u64) -> (Verdict, Timestamp) {
        let charges = [charge(&self.quota, &self.key, cost)];
        let states = std::slice::from_mut(&mut self.state);
        let decision = decide(NOON, Call::of(&charges).at_least(1), states);
        (decision.verdicts()[0], decision.at())
    }

    fn spend(&mut self, cost: u64, now_us: u64) -> Option<Part> {
        self.blocks
            .spend(&charge(&self.quota, &self.key, cost), now_us)
    }

    /// Asks for a block, which the server grants; the number of the question, and the units of it that are too many.
    fn leases(&mut self, asked_us: u64, heard_us: u64) -> (u64, Option<u64>) {
        let (number, amount) = self.blocks.to_ask(asked_us).unwrap();
        let (verdict, at) = self.decided(amount);
        let surplus = self.blocks.granted(number, heard_us, verdict, at);
        (number, surplus.map(|(_, units)| units))
    }
}

fn charge<'a>(quota: &'a Quota, key: &'a Key, cost: u64) -> Charge<'a> {
    Charge {
        scope: Scope::of("leased", 0, quota),
        quota,
        key,
        cost,
        mode: Mode::Enforce,
    }
}

#[test]
fn a_block_ends_a_time_of_the_lease_after_its_question_less_a_thousandth() {
    let mut budget = Budget::new();
    let (number, _) = budget.leases(1_000, 30_000);
    assert_eq!(budget.blocks.end_us_of(number), Some(100_900));
    assert!(budget.spend(1, 100_899).is_some());
    assert!(budget.spend(1, 100_900).is_none());
    assert_eq!(budget.blocks.take_ended(100_899).len(), 0);
    assert_eq!(budget.blocks.take_ended(100_900).len(), 1);
}

#[test]
fn more_than_half_of_what_was_left_goes_back_at_once() {
    let mut budget = Budget::new();
    // Others have taken most of it since the server told what is left.
    let (number, amount) = budget.blocks.to_ask(0).unwrap();
    let (_, _) = budget.decided(99 - amount);
    let (verdict, at) = budget.decided(amount);
    let (_, surplus) = budget.blocks.granted(number, 0, verdict, at).unwrap();
    assert_eq!((verdict.taken(), surplus), (amount, amount - amount / 2));
    assert!(budget.spend(amount / 2 + 1, 1).is_none());
    assert!(budget.spend(amount / 2, 1).is_some());
}

#[test]
fn after_a_refusal_half_as_much_is_asked_for_and_no_more_than_half_of_what_is_left() {
    for (left, next) in [(60, 25), (30, 15)] {
        let mut budget = Budget::new();
        let (number, amount) = budget.blocks.to_ask(0).unwrap();
        assert_eq!(amount, 35);
        let asked = charge(&budget.quota, &budget.key, amount);
        let verdict = Verdict::denied(&asked, RetryAfter::Micros(1_000), left);
        budget.blocks.refused(number, &verdict);
        assert_eq!(budget.blocks.to_ask(1), Some((number + 1, next)));
    }
}

#[test]
fn after_a_time_of_the_lease_without_a_refusal_twice_as_much_may_be_asked_for() {
    let mut budget = Budget::new();
    let (number, amount) = budget.blocks.to_ask(0).unwrap();
    let asked = charge(&budget.quota, &budget.key, amount);
    let verdict = Verdict::denied(&asked, RetryAfter::Micros(1_000), 60);
    budget.blocks.refused(number, &verdict);
    for now_us in [100_000, 200_000] {
        let needed = (0..40).filter(|_| budget.spend(1, now_us).is_none());
        assert_eq!(needed.count(), 40);
    }
    // Half of what is left, where it was 25.
    assert_eq!(budget.blocks.to_ask(200_000), Some((number + 1, 30)));
}

#[test]
fn a_process_holds_no_more_than_its_terms_allow() {
    let mut budget = Budget::new();
    budget.leases(0, 0);
    // That block ends while the next one is on its way.
    let (_, amount) = budget.blocks.to_ask(95_000).unwrap();
    let rests = budget.blocks.take_all();
    let held: u64 = rests.iter().map(|(_, units)| units).sum();
    assert_eq!((held, held + amount), (35, 50));
}

#[test]
fn a_part_goes_back_into_its_own_block_or_into_none() {
    let mut budget = Budget::new();
    budget.leases(0, 0);
    let part = budget.spend(1, 10).unwrap();
    assert!(budget.blocks.unspend(&part));
    let part = budget.spend(1, 20).unwrap();
    assert_eq!(budget.blocks.take_ended(99_900).len(), 1);
    let needed = (0..40).filter(|_| budget.spend(1, 99_900).is_none());
    assert_eq!(needed.count(), 40);
    budget.leases(99_900, 99_900);
    assert!(!budget.blocks.unspend(&part));
}

#[test]
fn blocks_are_of_one_quota_and_of_one_lease() {
    let budget = Budget::new();
    let windows = Algorithm::FixedWindow {
        offset: Duration::ZERO,
    };
    let is_for = |quota: &Quota, lease: &Lease| {
        let charge = Charge {
            scope: Scope::of("leased", 0, &budget.quota),
            ..charge(quota, &budget.key, 1)
        };
        budget.blocks.are_for(&charge, lease)
    };
    assert!(is_for(&budget.quota, &LEASE));
    assert!(!is_for(&Quota::per_day(101), &LEASE));
    assert!(!is_for(&budget.quota.using(windows), &LEASE));
    assert!(!is_for(&budget.quota, &Lease::up_to(51)));
}

#[test]
fn an_answer_to_another_question_is_none() {
    let mut budget = Budget::new();
    let (number, amount) = budget.blocks.to_ask(0).unwrap();
    assert_eq!(budget.blocks.to_ask(1), None);
    let (verdict, at) = budget.decided(amount);
    assert!(budget.blocks.granted(number + 1, 1, verdict, at).is_none());
    assert!(budget.spend(1, 1).is_none());
    budget.blocks.failed(number + 1, 1);
    assert_eq!(budget.blocks.to_ask(2), None);
    budget.blocks.granted(number, 2, verdict, at);
    assert!(budget.spend(1, 2).is_some());
}

#[test]
fn a_server_that_does_not_answer_is_left_alone_for_the_time_of_a_lease() {
    let mut budget = Budget::new();
    let (number, _) = budget.blocks.to_ask(0).unwrap();
    budget.blocks.failed(number, 10);
    assert_eq!(budget.blocks.to_ask(100_009), None);
    assert!(budget.blocks.to_ask(100_010).is_some());
}

#[test]
fn a_block_is_asked_for_before_the_last_one_runs_out() {
    let mut budget = Budget::new();
    budget.leases(0, 0);
    assert_eq!(budget.blocks.to_ask(1), None);
    // An eighth of the time before its end.
    assert_eq!(budget.blocks.to_ask(87_399), None);
    assert!(budget.blocks.to_ask(87_401).is_some());
}

#[test]
fn a_block_that_would_serve_one_request_is_not_asked_for() {
    // The demand is 100 and more, and the process may have 49.
    for (cost, requests, is_asked) in [(20, 3, true), (24, 4, true), (25, 4, false)] {
        let mut budget = Budget::new();
        for _ in 0..requests {
            assert!(budget.spend(cost, 0).is_none());
        }
        assert_eq!(budget.blocks.to_ask(0).is_some(), is_asked, "{cost}");
    }
}

#[test]
fn a_caller_with_fewer_than_five_requests_in_two_times_of_the_lease_is_decided_by_the_server() {
    let asks = |before: u64, costs: &[u64], now_us: u64| {
        let mut budget = Budget::needed(before);
        for cost in costs {
            assert!(budget.spend(*cost, now_us).is_none());
        }
        budget.blocks.to_ask(now_us)
    };
    assert_eq!(asks(0, &[1, 1, 1, 1], 0), None);
    assert_eq!(asks(2, &[1, 1], 100_000), None);
    assert_eq!(asks(4, &[1], 200_000), None);
    assert_eq!(asks(4, &[2], 100_000), None);

    assert_eq!(asks(0, &[1, 1, 1, 1, 1], 0), Some((1, 5)));
    // Three in a time of the lease, and so 2.6 in what is left of one after a question.
    assert_eq!(asks(2, &[1, 1, 1], 100_000), Some((1, 3)));
    assert_eq!(asks(2, &[2, 2, 2, 2], 100_000), Some((1, 7)));
}

#[test]
fn a_block_is_asked_for_while_units_are_left_that_are_too_few_until_the_next_one_comes() {
    let mut budget = Budget::new();
    let (number, amount) = budget.blocks.to_ask(50_000).unwrap();
    let (verdict, at) = budget.decided(amount);
    assert!(budget.blocks.granted(number, 50_000, verdict, at).is_none());
    // The process has needed 40 in 100 ms, so that it needs 5 in the eighth of that which a question may take.
    for _ in 0..amount - 6 {
        assert!(budget.spend(1, 101_000).is_some());
        assert_eq!(budget.blocks.to_ask(101_000), None);
    }
    assert!(budget.spend(1, 101_000).is_some());
    assert!(budget.blocks.to_ask(101_000).is_some());
    assert!(budget.spend(5, 101_000).is_some());
}
