//! The processor's counter as a clock, read and compared by several threads in every order that they can take.
//!
//! The module is the clock's own, with loom's atomics in place of std's.

#![cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "it is not calibrated here")]
#[path = "../src/clock/counter.rs"]
mod counter;

use std::sync::Arc;

use loom::model::Builder;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use counter::{Counter, Reading, UNITS_PER_MICRO};

mod sync {
    pub(crate) use loom::sync::atomic::AtomicU64;
}

/// One tick is a quarter of a nanosecond.
const NANOS: u64 = 1 << 30;
const MICRO: u64 = 4_000;

struct Machine {
    counter: Counter,
    ticks: AtomicU64,
    /// The latest time that any thread has told the others.
    told: AtomicU64,
}

impl Machine {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            counter: Counter::new(0, NANOS).expect("time can be told by it"),
            ticks: AtomicU64::new(0),
            told: AtomicU64::new(0),
        })
    }

    /// A reading takes a microsecond, so that no two readings are alike.
    fn tick(&self) -> u64 {
        self.ticks.fetch_add(MICRO, Ordering::AcqRel) + MICRO
    }

    fn micros(&self) -> u64 {
        self.ticks.load(Ordering::Acquire) / MICRO
    }

    fn now(&self) -> u64 {
        let tick = self.tick();
        self.counter.read(tick).unwrap_or_else(|| {
            let before = self.tick();
            let units = self.micros() * UNITS_PER_MICRO;
            let after = self.tick();
            self.counter.compare(Reading {
                before,
                units,
                after,
            })
        })
    }

    /// A thread never reads a time before one that it could have heard of, one that is yet to come, or one that is long over.
    fn look(&self) {
        let told = self.told.load(Ordering::Acquire);
        let earliest = self.micros();
        let now = self.now();
        let latest = self.micros();
        assert!(told <= now, "{now} after {told}");
        assert!(now <= latest, "{now} at {latest}");
        assert!(now + 10 >= earliest, "{now} at {earliest}");
        self.told.fetch_max(now, Ordering::AcqRel);
    }
}

#[test]
fn nobody_sees_time_step_back_however_readings_and_comparisons_interleave() {
    let mut model = Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        // given a counter that was compared, and then not used until it must be compared again
        let machine = Machine::new();
        machine.look();
        machine.ticks.fetch_add(50_000 * MICRO, Ordering::AcqRel);

        // when two look at it at once, each twice
        let other = thread::spawn({
            let machine = Arc::clone(&machine);
            move || {
                machine.look();
                machine.look();
            }
        });
        machine.look();
        machine.look();

        // then
        other.join().expect("nobody saw time step back");
        machine.look();
    });
}
