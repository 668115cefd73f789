//! Blocks of one budget: each unit is spent once, or given back once, in whatever order requests, answers and the end come.

use std::sync::Arc;
use std::time::Duration;

use loom::thread;
use tollgate_core::{
    Backend, Call, Charge, Decision, ImmediateBackend, Key, KeyHashing, Lease, ManualClock, Mode,
    Quota, Scope, Timestamp,
};
use tollgate_memory::MemoryBackend;

use super::asking::Asking;
use super::pool::{Pool, Told};
use super::reservation::Reservation;
use super::shelves::{Place, Shelves};
use tollgate_testkit::models::{end, in_every_order};

/// The units of the budget. None comes back within a model.
const ALL: u64 = 40;

/// A process of one caller, whose requests have needed five units so far, of which the server granted one.
#[derive(Clone)]
struct Process {
    server: Arc<MemoryBackend>,
    pool: Arc<Pool>,
    quota: Quota,
    key: Key,
    lease: Lease,
}

impl Process {
    fn new(lease: Lease) -> Self {
        let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
        let server = Arc::new(MemoryBackend::builder().clock(clock).build());
        let shelves = Shelves::with(KeyHashing::fixed(), 1);
        let process = Self {
            pool: Pool::of(Arc::clone(&server) as Arc<dyn Backend>, shelves),
            server,
            quota: Quota::per_day(ALL),
            key: Key::from("alice"),
            lease,
        };
        // Without an answer so far nothing is asked for.
        let shorts = [(); 5].map(|()| process.pool.spend(&process.charge(1), &process.lease));
        let decision = process.decided(1, 1);
        let told = shorts.iter().flatten().map(|short| Told {
            place: short.place,
            position: 0,
        });
        process.pool.tell(&told.collect::<Vec<_>>(), &decision);
        process
    }

    fn charge(&self, cost: u64) -> Charge<'_> {
        Charge {
            scope: Scope::of("leased", 0, &self.quota),
            quota: &self.quota,
            key: &self.key,
            cost,
            mode: Mode::Enforce,
        }
    }

    fn decided(&self, cost: u64, at_least: u64) -> Decision {
        let charge = self.charge(cost);
        self.server
            .decide_now(Call::of(&[charge]).at_least(at_least))
            .unwrap()
    }

    /// A question that has been answered by the server, and not yet heard of.
    fn asks(&self) -> (Place, Asking, Decision) {
        // Mostly at once; after a pause of two times of the lease the need is counted anew.
        let (place, number, amount) = loop {
            let found = self.pool.spend(&self.charge(1), &self.lease).unwrap();
            if let Some((number, amount)) = found.to_ask {
                break (found.place, number, amount);
            }
        };
        let asking = Asking::new(&self.pool, &self.charge(1), place, number);
        (place, asking, self.decided(amount, 1))
    }

    /// Spends a unit from a block; the number of units that it got.
    fn spends(&self) -> u64 {
        let found = self.pool.spend(&self.charge(1), &self.lease);
        found.map_or(0, |found| u64::from(found.part.is_some()))
    }

    /// The units that the server has left.
    fn left(&self) -> u64 {
        let probe = Charge {
            mode: Mode::Probe,
            ..self.charge(1)
        };
        let decision = self
            .server
            .decide_now(Call::of(&[probe]).at_least(0))
            .unwrap();
        decision.verdicts()[0].remaining()
    }
}

fn long() -> Lease {
    Lease::up_to(20).within(Duration::from_secs(60))
}

#[test]
fn a_block_that_comes_at_the_end_is_given_back_whole() {
    in_every_order(|| {
        let process = Process::new(long());
        let (_, asking, decision) = process.asks();
        let threads = [thread::spawn(move || {
            asking.answered(Some(decision));
        })];
        process.pool.end();
        end(threads);
        assert_eq!(process.left(), ALL - 1);
    });
}

#[test]
fn a_block_from_before_a_reset_is_not_given_back() {
    in_every_order(|| {
        let process = Process::new(long());
        let (_, asking, decision) = process.asks();
        let threads = [thread::spawn(move || {
            asking.answered(Some(decision));
        })];
        let charge = process.charge(10);
        process.pool.shelves.forget(charge.scope, charge.key);
        drop(process.server.admin().reset(charge.scope, charge.key));
        assert!(process.decided(10, 10).is_admitted());
        end(threads);
        assert_eq!(process.left(), ALL - 10);
    });
}

#[test]
fn two_requests_and_a_third_that_goes_away_take_no_unit_twice() {
    in_every_order(|| {
        let process = Process::new(long());
        let (place, asking, decision) = process.asks();
        asking.answered(Some(decision));
        // It lasts for a minute.
        process.pool.give_back_ended(place);

        let other = process.clone();
        let spending = thread::spawn(move || other.spends());
        let leaving = process.clone();
        let gone = thread::spawn(move || {
            let charge = leaving.charge(1);
            let found = leaving.pool.spend(&charge, &leaving.lease).unwrap();
            let mut reservation = Reservation::new(&leaving.pool);
            reservation.keep(&charge, found.place, found.part.unwrap());
        });
        let spent = process.spends();
        let spent = spent + spending.join().unwrap();
        gone.join().unwrap();

        process.pool.end();
        assert_eq!((spent, process.left()), (2, ALL - 3));
    });
}

#[test]
fn what_a_request_puts_back_after_the_end_is_credited() {
    in_every_order(|| {
        let process = Process::new(long());
        let (_, asking, decision) = process.asks();
        asking.answered(Some(decision));
        let charge = process.charge(1);
        let found = process.pool.spend(&charge, &process.lease).unwrap();
        let mut reservation = Reservation::new(&process.pool);
        reservation.keep(&charge, found.place, found.part.unwrap());

        let threads = [thread::spawn(move || drop(reservation))];
        process.pool.end();
        end(threads);
        assert_eq!(process.left(), ALL - 1);
    });
}

#[test]
fn a_block_that_has_ended_is_given_back_once() {
    in_every_order(|| {
        let process = Process::new(Lease::up_to(20).within(Duration::from_millis(10)));
        let (place, asking, decision) = process.asks();
        asking.answered(Some(decision));
        std::thread::sleep(Duration::from_millis(10));

        let threads = [(); 2].map(|()| {
            let pool = Arc::clone(&process.pool);
            thread::spawn(move || pool.give_back_ended(place))
        });
        assert_eq!(process.spends(), 0);
        end(threads);
        assert_eq!(process.left(), ALL - 1);
    });
}
