//! The counter on a simulated machine that can leap, drift and interrupt its threads, and this machine's clock against its
//! kernel's.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::counter::{Counter, Reading, UNITS_PER_MICRO};
use super::{Clock, SystemClock};

const HOUR: u64 = 3_600_000_000;

/// A processor of three ticks a nanosecond, which was up for an hour before its kernel was.
struct Machine {
    counter: Counter,
    micros: u64,
    ticks: u64,
}

impl Machine {
    /// A counter calibrated to `percent` of the true pace.
    fn calibrated_to(percent: u64) -> Self {
        let ticks = HOUR * 3_000;
        let nanos = (1_u64 << 32) / 3 * percent / 100;
        Self {
            counter: Counter::new(ticks, nanos).unwrap(),
            micros: 0,
            ticks,
        }
    }

    fn wait(&mut self, micros: u64) {
        self.micros += micros;
        self.ticks += micros * 3_000;
    }

    /// The time, and true if the system was asked.
    fn now(&mut self) -> (u64, bool) {
        match self.counter.read(self.ticks) {
            Some(micros) => (micros, false),
            None => (self.compared(0), true),
        }
    }

    /// Compares, with this many ticks between the readings.
    fn compared(&mut self, apart: u64) -> u64 {
        let (before, units) = (self.ticks, self.micros * UNITS_PER_MICRO);
        self.ticks += apart;
        self.micros += apart / 3_000;
        let after = self.ticks;
        self.counter.compare(Reading {
            before,
            units,
            after,
        })
    }
}

#[test]
fn it_never_steps_back_is_never_ahead_and_hardly_behind() {
    // given
    let mut machine = Machine::calibrated_to(100);
    let (mut last, mut asked) = (0, 0);
    for n in 0..100_000 {
        // when time passes, now and then a lot of it
        machine.wait(if n % 1_000 == 0 { HOUR } else { n % 41 });
        let (now, was_asked) = machine.now();
        asked += u32::from(was_asked);

        // then
        assert!(last <= now && now <= machine.micros);
        assert!(machine.micros - now <= 3, "{} behind", machine.micros - now);
        last = now;
    }
    // about once a millisecond of the two seconds, and after each of the long times
    assert!((1_000..3_000).contains(&asked), "{asked}");
}

#[test]
fn a_calibration_that_is_a_little_slow_makes_it_late_by_as_much_of_a_millisecond() {
    let mut machine = Machine::calibrated_to(95);
    let mut last = 0;
    for _ in 0..10_000 {
        machine.wait(97);
        let (now, _) = machine.now();
        assert!(last <= now && now <= machine.micros && machine.micros - now <= 60);
        last = now;
    }
}

#[test]
fn a_counter_that_is_ahead_is_found_out_within_a_millisecond_and_not_used_again() {
    // given a counter that leaps because the thread has moved to another processor, and one that is faster than calibrated
    for (percent, leap) in [(100, 50 * 3_000_000), (101, 0)] {
        let mut machine = Machine::calibrated_to(percent);
        machine.now();
        machine.ticks += leap;

        // when
        machine.wait(1_100);
        machine.now();

        // then the time is the system's, whatever the counter says
        for _ in 0..10_000 {
            machine.wait(1);
            assert_eq!(machine.now(), (machine.micros, true));
        }
    }
}

#[test]
fn a_counter_that_is_set_back_costs_no_time() {
    let mut machine = Machine::calibrated_to(100);
    machine.wait(HOUR);
    let (before, _) = machine.now();
    machine.ticks -= HOUR * 1_500;
    machine.wait(100);
    let (after, was_asked) = machine.now();
    assert!(was_asked && (before + 97..=before + 100).contains(&after));
}

#[test]
fn whoever_is_interrupted_between_two_readings_leaves_it_to_the_next_to_ask() {
    // given an idle time, and ten milliseconds between a reading of the system and one of the counter
    let mut machine = Machine::calibrated_to(100);
    machine.now();
    machine.wait(HOUR);
    let late = machine.compared(30_000_000);
    assert!(late < machine.micros);

    // when
    let (now, was_asked) = machine.now();

    // then
    assert!(was_asked && machine.micros - now <= 3);
}

/// Readings of a processor of three ticks a nanosecond. Each takes thirty on either side of the system's reading. `interrupted`
/// gives the nanoseconds of an interruption before and after it.
fn readings(mut interrupted: impl FnMut(u32) -> [u64; 2]) -> impl FnMut() -> Reading {
    let (mut n, mut nanos) = (0, HOUR * 1_000);
    move || {
        let [earlier, later] = interrupted(n);
        n += 1;
        let before = nanos * 3;
        nanos += 30 + earlier;
        let units = nanos * UNITS_PER_MICRO / 1_000;
        nanos += 30 + later;
        let after = nanos * 3;
        Reading {
            before,
            units,
            after,
        }
    }
}

#[test]
fn a_calibration_is_never_fast_and_hardly_slow_whenever_it_is_interrupted() {
    const LONG: u64 = 5_000_000;

    // given a machine that interrupts one reading, or all but every tenth, before or after the system's reading
    for sides in [[LONG, 0], [0, LONG], [LONG, LONG / 2]] {
        for period in [1, 2, 3, 9, 10] {
            for n in [0, 1, 7, 8, 9, 100] {
                let interrupted = |at: u32| {
                    let is_hit = if period == 1 {
                        at == n
                    } else {
                        !at.is_multiple_of(period)
                    };
                    if is_hit { sides } else { [0; 2] }
                };
                let mut read = readings(interrupted);

                // when
                let counter = Counter::calibrated(&mut read).unwrap();

                // then a second later it is slow by the intended thousandth, and by no more than a quarter of that beside
                let start = read();
                let micros = counter.compare(start);
                let passed =
                    counter.units(start.after + 3_000_000_000) - counter.units(start.after);
                assert!(micros * UNITS_PER_MICRO <= start.units + UNITS_PER_MICRO);
                let second = 1_000_000 * UNITS_PER_MICRO;
                assert!(
                    (second / 10_000 * 9_987..=second / 10_000 * 9_990).contains(&passed),
                    "{passed} of {second}"
                );
            }
        }
    }
}

#[test]
fn a_machine_that_interrupts_every_reading_has_no_counter() {
    assert!(Counter::calibrated(readings(|_| [100_000, 100_000])).is_none());
}

#[test]
fn a_counter_that_stands_still_or_runs_back_is_none() {
    let (mut nanos, mut ticks) = (0, 1 << 40);
    for pace in [0, 3] {
        let read = || {
            nanos += 1_000;
            ticks -= pace;
            Reading {
                before: ticks,
                units: nanos,
                after: ticks,
            }
        };
        assert!(Counter::calibrated(read).is_none());
    }
}

#[test]
fn a_counter_by_which_no_time_can_be_told_is_none() {
    assert!(Counter::new(0, 0).is_none());
    assert!(Counter::new(0, u64::MAX).is_none());
    assert!(Counter::new(0, 1 << 62).is_none());
}

#[test]
fn this_machine_s_clock_moves_with_its_kernel_s_and_never_back_whoever_looks() {
    // given
    let clock = SystemClock::new();
    let (start, started) = (clock.now().as_micros(), Instant::now());
    let (told, looks, late) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let elapsed = || u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);

    // when several threads read it for as long as it takes to compare it a few hundred times
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while started.elapsed() < Duration::from_millis(400) {
                    let (heard, from) = (told.load(Ordering::Acquire), elapsed());
                    let now = clock.now().as_micros();
                    let until = elapsed();

                    // then no thread is told a time before one that another was told, or one that is yet to come
                    assert!(heard <= now, "{now} after {heard}");
                    assert!(now - start <= until + 3, "{} at {until}", now - start);
                    told.fetch_max(now, Ordering::AcqRel);
                    looks.fetch_add(1, Ordering::Relaxed);
                    late.fetch_add(u64::from(now - start + 5 < from), Ordering::Relaxed);
                }
            });
        }
    });

    // and almost none is told a time that is over: only a thread that was interrupted while it asked the kernel
    let (looks, late) = (looks.into_inner(), late.into_inner());
    assert!(looks > 1_000 && late * 20 < looks, "{late} late of {looks}");
}
