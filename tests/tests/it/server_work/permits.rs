//! The time for which a call holds the server, where as many processes hold as may.
//!
//! In instructions, as in `calls.rs`. The server's time stands still unless a test moves it.

use std::ops::Range;
use std::time::Duration;

use tollgate_core::{Backend, Call, Charge, Concurrent, Key, Mode, Quota, Scope, Settlement};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;

use super::common::held::{crowd, hold, put};
use super::common::line::{NOW_US, set_clock, until};
use super::common::{Budget, HOUR};

/// The most instructions that a call may take on the server, see `calls.rs`.
const MOST: u64 = 6_400_000;

/// The stated exceptions, for each key: the search for an entry, a state that is written whole, and one of which a lease has run
/// out.
const MOST_TO_SEARCH: u64 = 560_000;
const MOST_TO_WRITE: u64 = 1_400_000;
const MOST_TO_SWEEP: u64 = 3_500_000;

/// The processes that hold beside this one: together as many as may.
const OTHERS: u64 = 1_023;

/// Of a process that tells nothing by itself while a test runs.
const LEASE: Duration = HOUR;
const LEASE_MS: u64 = 3_600_000;

/// A deadline that a server under valgrind keeps.
const PATIENT: Duration = Duration::from_secs(60);

/// The tellings that one call takes along, and the acquires: alone, and each with a budget beside it.
const TELLINGS: usize = 25;
const ACQUIRES: usize = 42;
const WITH_BUDGETS: usize = 32;

/// The bytes of a state that tell when the first lease ends, and those of its first entry: see `lua/held.lua`.
const EARLIEST: Range<usize> = 9..15;
const FIRST_EXPIRES: Range<usize> = 47..53;

/// A server, and a process that holds beside many others.
struct Crowds {
    server: Standalone,
    backend: RedisBackend,
    /// The instructions of a call without charges.
    around: u64,
}

/// The figures of some requests that were made at once.
#[derive(Debug)]
struct Cost {
    calls: u64,
    instructions: u64,
}

fn budget(policy: &str, quota: Quota, caller: usize) -> Budget {
    Budget {
        scope: Scope::of(policy, 0, &quota),
        quota,
        key: Key::from(format!("caller-{caller}")),
    }
}

fn uploads(caller: usize) -> Budget {
    budget("uploads", Concurrent::at_most(1_000_000).into(), caller)
}

/// The end of leases that are taken now.
fn ends_ms() -> u64 {
    let now_ms = NOW_US / 1_000;
    now_ms - now_ms % (LEASE_MS / 4) + LEASE_MS
}

impl Crowds {
    /// Beside these others, under each key.
    async fn beside(others: &[u8]) -> Self {
        let server = Standalone::start_counted();
        set_clock(&server, NOW_US);
        for caller in 0..=ACQUIRES {
            let name = format!("tollgate:uploads:0/h:=caller-{caller}");
            put(&server, &name, others);
        }
        // One call after the other, so that each carries as much as it may.
        let builder = RedisBackend::builder(&server.url()).connections(1);
        let builder = builder.clock("clock").held_lease(LEASE).deadline(PATIENT);
        let backend = builder.connect_deadline(PATIENT).connect().await.unwrap();
        let mut crowds = Self {
            server,
            backend,
            around: 0,
        };
        // Twice, since the first sends the script.
        for _ in 0..2 {
            crowds.around = crowds.decide(&[vec![]]).await.instructions;
        }
        crowds
    }

    /// Beside others whose leases end when this one's do. The answer to a second call says where an entry stands.
    async fn at_known_places() -> Self {
        let crowds = Self::beside(&crowd(OTHERS, ends_ms())).await;
        for caller in 0..=ACQUIRES {
            for _ in 0..2 {
                hold(&crowds.backend, &uploads(caller), 1).await.unwrap();
            }
        }
        crowds
    }

    async fn decide(&self, requests: &[Vec<Charge<'_>>]) -> Cost {
        let (_so_far, before) = (self.server.instructions(), self.backend.stats());
        let asked: Vec<_> = { requests.iter() }
            .map(|charges| self.backend.decide(Call::of(charges)))
            .collect();
        for decision in asked {
            assert!(decision.await.unwrap().is_admitted());
        }
        self.cost_since(before.calls)
    }

    /// Tells what this process holds of so many keys, of each one more than the server knows.
    async fn tell(&self, keys: usize) -> Cost {
        let (_so_far, before) = (self.server.instructions(), self.backend.stats());
        for caller in 0..keys {
            let budget = uploads(caller);
            self.backend.settle(Settlement::Assume(&budget.charge(1)));
        }
        until(|| self.backend.stats().tells == before.tells + keys as u64).await;
        // Behind the tellings.
        self.backend.decide(Call::of(&[])).await.unwrap();
        let Cost {
            calls,
            instructions,
        } = self.cost_since(before.calls);
        Cost {
            calls: calls - 1,
            instructions: instructions - self.around,
        }
    }

    fn cost_since(&self, calls: u64) -> Cost {
        Cost {
            calls: self.backend.stats().calls - calls,
            instructions: self.server.instructions(),
        }
    }

    /// Holds one more of each of so many keys.
    async fn acquire(&self, keys: usize) -> Cost {
        let budgets: Vec<_> = (0..keys).map(uploads).collect();
        let charges: Vec<_> = { budgets.iter() }
            .map(|budget| vec![budget.charge(1)])
            .collect();
        self.decide(&charges).await
    }
}

#[tokio::test]
async fn tellings_that_share_a_call_hold_the_server_for_no_longer_than_decisions() {
    let crowds = Crowds::at_known_places().await;

    let full = crowds.tell(TELLINGS).await;
    let one_more = crowds.tell(TELLINGS + 1).await;

    println!("{full:?} {one_more:?}");
    assert_eq!((full.calls, one_more.calls), (1, 2));
    // The answers to the first said again where the entries stand.
    for cost in [full, one_more] {
        assert!(cost.instructions <= MOST, "{cost:?}");
    }
}

#[tokio::test]
async fn what_is_held_of_long_states_holds_the_server_for_no_longer_beside_other_requests() {
    let crowds = Crowds::at_known_places().await;
    let budgets: Vec<_> = (0..=ACQUIRES)
        .map(|caller| (uploads(caller), budget("rate", Quota::per_hour(60), caller)))
        .collect();
    let usual: Vec<_> = { budgets.iter() }
        .map(|(held, _)| vec![held.charge(1)])
        .collect();
    let with_budgets: Vec<_> = { budgets.iter() }
        .map(|(held, rate)| vec![held.charge(1), rate.charge(1)])
        .collect();
    // One that is asked in another mode, so that the whole call is not of the usual kind.
    let mut mixed = usual.clone();
    mixed[0][0].mode = Mode::Shadow;
    for (what, most, requests) in [
        ("usual", ACQUIRES, usual),
        ("with a budget", WITH_BUDGETS, with_budgets),
        // A shadow weighs as much as two acquires.
        ("beside a shadow", ACQUIRES - 1, mixed),
    ] {
        let full = crowds.decide(&requests[..most]).await;
        let one_more = crowds.decide(&requests[..=most]).await;

        println!("{what}: {full:?} {one_more:?}");
        assert_eq!((full.calls, one_more.calls), (1, 2), "{what}");
        assert!(full.instructions <= MOST, "{what}: {full:?}");
    }
}

/// The exceptions that `GUARANTEES.md` states, with their figures.
#[tokio::test]
async fn a_place_that_is_not_known_and_a_lease_that_has_run_out_cost_what_is_stated() {
    const FEW: usize = 4;
    const STEP_MS: u64 = 1_000;

    // given others of which one's lease ends in a second
    let soon = NOW_US / 1_000 + STEP_MS;
    let mut others = crowd(OTHERS, ends_ms());
    others[EARLIEST].copy_from_slice(&soon.to_le_bytes()[..6]);
    others[FIRST_EXPIRES].copy_from_slice(&soon.to_le_bytes()[..6]);
    let crowds = Crowds::beside(&others).await;

    // when a process comes, and learns where its entries stand
    let first = crowds.acquire(FEW).await;
    let second = crowds.acquire(FEW).await;
    let known = crowds.acquire(FEW).await;
    // and that lease has run out, and then a quarter of the others'
    set_clock(&crowds.server, NOW_US + STEP_MS * 1_000);
    let swept = crowds.acquire(FEW).await;
    set_clock(&crowds.server, NOW_US + LEASE_MS * 1_000 / 4);
    let moved = crowds.acquire(FEW).await;

    println!("{first:?} {second:?} {known:?} {swept:?} {moved:?}");
    assert_eq!(crowds.backend.stats().reclaimed, FEW as u64);
    let each = |cost: Cost| cost.instructions / FEW as u64;
    assert!(each(known) * 5 <= MOST_TO_SEARCH);
    assert!(each(second) <= MOST_TO_SEARCH);
    assert!(each(first).max(each(moved)) <= MOST_TO_WRITE);
    assert!(each(swept) <= MOST_TO_SWEEP);
}
