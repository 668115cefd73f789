//! The wrapper of the example `leased_budget` keeps to its stated error, and leaves to the backend what it cannot lease.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, unreachable_pub, reason = "a program of its own")]
#[path = "../../examples/leased_budget.rs"]
mod leased_budget;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use leased_budget::Leases;
use tollgate::{
    Algorithm, Backend, Charge, ImmediateBackend, Key, ManualClock, MemoryBackend, Mode, Quota,
    RedisBackend, Scope,
};
use tollgate_conformance::{Budget, Elapsed, FAR_AHEAD_US, Subject};
use tollgate_testkit::Standalone;

const SECOND: Duration = Duration::from_secs(1);
const TERM: Duration = Duration::from_secs(5);

/// Leases around a backend in memory, by one clock.
struct Leased {
    leases: Arc<Leases>,
    inner: Arc<MemoryBackend>,
    clock: ManualClock,
}

impl Leased {
    fn of(size: u64) -> Self {
        let clock = ManualClock::new();
        let inner = MemoryBackend::builder().clock(clock.clone()).build();
        Self::around(&Arc::new(inner), &clock, size)
    }

    fn around(inner: &Arc<MemoryBackend>, clock: &ManualClock, size: u64) -> Self {
        let leases = Leases::around(inner.clone(), clock.clone(), size, TERM);
        Self {
            leases: Arc::new(leases),
            inner: Arc::clone(inner),
            clock: clock.clone(),
        }
    }

    /// The units that other processes see.
    fn left(&self, budget: &Budget) -> u64 {
        let peek = self.inner.decide_now(&[budget.charge(0)]).unwrap();
        peek.verdicts()[0].remaining()
    }
}

impl Subject for Leased {
    fn backend(&self) -> Arc<dyn Backend> {
        self.leases.clone()
    }

    fn advance(&self, by: Duration) -> Elapsed<'_> {
        self.clock.advance(by);
        Box::pin(std::future::ready(()))
    }
}

/// Numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = (self.0)
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[tokio::test]
async fn no_unit_is_spent_that_was_not_taken_and_each_process_is_late_by_one_lease_at_most() {
    const LIMIT: u64 = 40;
    const SIZE: u64 = 6;
    const PERIOD_US: u64 = 10_000_000;
    for _ in 0..50 {
        let seed = RandomState::new().hash_one(0);
        let mut dice = Dice(seed);
        let offset = Duration::ZERO;
        let quota = Quota::new(LIMIT, Duration::from_micros(PERIOD_US));
        let budget = Budget::of("late", quota.using(Algorithm::FixedWindow { offset }));
        let one = Leased::of(SIZE);
        let processes = [Leased::around(&one.inner, &one.clock, SIZE), one];
        let (mut window, mut spent, mut net) = (0, 0, 0);
        let mut receipts = Vec::new();

        for step in 0..400 {
            let process = &processes[usize::try_from(dice.below(2)).unwrap()];
            process
                .advance(Duration::from_millis(dice.below(400)))
                .await;
            let charge = budget.charge(1 + dice.below(3));
            let said = process.backend().decide(&[charge]).await.unwrap();
            let at = said.at().as_micros() / PERIOD_US;
            if at != window {
                (window, spent, net) = (at, 0, 0);
                receipts.clear();
            }
            if said.is_admitted() {
                spent += charge.cost;
                receipts.extend(said.receipts(&[charge]));
            }
            if dice.below(4) == 0
                && let Some(receipt) = receipts.pop()
            {
                net += receipt.cost();
                process.backend().credit(receipt, u64::MAX);
            }

            // Both may have held a lease when the window began.
            let context = format!("seed {seed}, step {step}: {spent} spent, {net} credited");
            assert!(spent - net <= LIMIT + 2 * SIZE, "{context}");
        }
    }
}

#[tokio::test]
async fn what_is_left_of_a_lease_comes_back_when_it_ends() {
    let budget = Budget::of("ends", Quota::per_day(100));
    let leased = Leased::of(10);
    for _ in 0..4 {
        assert!(budget.take(&leased, 1).await.is_admitted());
    }
    assert_eq!((leased.left(&budget), leased.leases.asked()), (90, 1));

    // With its term, at the next call of any caller.
    leased.advance(TERM).await;
    assert!(budget.for_key("bob").take(&leased, 1).await.is_admitted());
    assert_eq!(leased.left(&budget), 96);

    // With a request that it cannot pay.
    assert!(budget.take(&leased, 8).await.is_admitted());
    assert!(budget.take(&leased, 3).await.is_admitted());
    assert_eq!(leased.left(&budget), 96 - 8 - 10);

    // With the process.
    let (inner, clock) = (Arc::clone(&leased.inner), leased.clock.clone());
    drop(leased);
    let others = Leased::around(&inner, &clock, 1);
    assert_eq!(others.left(&budget), 96 - 8 - 3);
}

#[tokio::test]
async fn a_lease_is_as_large_as_what_is_left_and_a_refusal_is_that_of_the_backend() {
    let budget = Budget::of("rest", Quota::per_second(10));
    let leased = Leased::of(8);
    for remaining in (0..10).rev() {
        let said = budget.take(&leased, 1).await;
        assert_eq!(said.verdicts()[0].remaining(), remaining);
    }

    let denied = budget.take(&leased, 1).await;

    assert_eq!(denied.retry_after(), Some(SECOND / 10));
    assert_eq!(leased.leases.asked(), 3);
    leased.advance(SECOND / 10).await;
    assert!(budget.take(&leased, 1).await.is_admitted());
    assert!(budget.take(&leased, 11).await.verdicts()[0].never_passes());
}

#[tokio::test]
async fn what_a_lease_has_paid_goes_back_into_it_and_a_reset_forgets_it() {
    let budget = Budget::of("credits", Quota::per_day(100));
    let leased = Leased::of(4);
    let said = budget.take(&leased, 3).await;
    let receipt = said.receipts(&[budget.charge(3)]).next().unwrap();

    leased.leases.credit(receipt, 1_000);
    assert!(budget.take(&leased, 4).await.is_admitted());
    assert_eq!((leased.left(&budget), leased.leases.asked()), (96, 1));

    leased
        .leases
        .reset(budget.scope, &budget.key)
        .await
        .unwrap();
    assert_eq!(leased.left(&budget), 100);
    assert!(budget.take(&leased, 1).await.is_admitted());
    assert_eq!((leased.left(&budget), leased.leases.asked()), (96, 2));
}

/// A call of several charges, places, turns, bans and ids are the backend's own, and a lease of one unit is exact.
#[tokio::test]
async fn the_suite_passes_where_nothing_is_leased() {
    macro_rules! pass {
        ($size:literal: $($module:ident: $($behaviour:ident)+;)+) => {
            $($(tollgate_conformance::$module::$behaviour(&Leased::of($size)).await;)+)+
        };
    }
    pass! { 7:
        held: a_limit_at_once_admits_what_it_holds_and_not_one_more
            a_release_gives_back_what_was_taken_and_no_more
            what_is_held_stays_held_as_time_passes;
        waiting: turns_follow_one_another_in_the_order_of_the_decisions
            a_charge_that_leaves_gives_its_turn_to_the_next;
        bans: the_last_strike_bans_until_it_was_said
            a_ban_in_force_charges_nothing_and_does_not_feed_itself
            a_debit_of_a_ban_is_a_strike
            a_ban_is_imposed_at_once_and_ended_by_a_reset;
        once: every_third_request_with_one_id_is_charged an_id_is_forgotten_after_its_life;
    }
    pass! { 1:
        calls: the_largest_call_is_all_or_nothing verdicts_stand_in_the_order_of_their_charges
            a_call_of_too_many_charges_is_an_error_and_not_a_denial;
        amounts: a_budget_admits_what_it_holds_and_not_one_more what_remains_counts_down
            a_cost_above_the_capacity_never_passes;
        promises: retry_after_is_kept_to_the_microsecond pitfall_a_denied_request_still_counted;
        grants: a_grant_is_what_is_left_and_no_more;
    }
}

/// Answers of Redis come later, so that both requests ask for a lease.
#[tokio::test]
async fn of_two_leases_that_were_asked_for_at_once_one_goes_back() {
    let server = Standalone::start();
    let answer = server.command(&["SET", "clock", &FAR_AHEAD_US.to_string()]);
    assert_eq!(answer, "+OK\r\n");
    let redis = RedisBackend::builder(&server.url())
        .clock("clock")
        // In order: a credit is done when the next decision is.
        .connections(1)
        .deadline(Duration::from_secs(20));
    let redis: Arc<dyn Backend> = Arc::new(redis.connect().await.unwrap());
    let leases = Leases::around(Arc::clone(&redis), ManualClock::new(), 10, TERM);
    let quota = Quota::per_day(100);
    let charge = Charge {
        scope: Scope::of("at-once", 0, &quota),
        quota: &quota,
        key: &Key::from("alice"),
        cost: 1,
        mode: Mode::Enforce,
    };
    let left = async || {
        let peek = redis.decide(&[Charge { cost: 0, ..charge }]).await.unwrap();
        peek.verdicts()[0].remaining()
    };

    let (one, other) = tokio::join!(leases.decide(&[charge]), leases.decide(&[charge]));

    assert!(one.unwrap().is_admitted() && other.unwrap().is_admitted());
    assert_eq!((left().await, leases.asked()), (100 - 1 - 10, 2));
    for _ in 0..9 {
        assert!(leases.decide(&[charge]).await.unwrap().is_admitted());
    }
    assert_eq!(leases.asked(), 2);
    drop(leases);
    assert_eq!(left().await, 89);
}
