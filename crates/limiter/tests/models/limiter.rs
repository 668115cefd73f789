//! The health of the backend, and the clock that runs while it does not decide.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use loom::thread;
use tollgate::{BackendError, Clock, FailureKind, ManualClock, Timestamp};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::health::Health;
use super::outages::{LINGERS, OutageClock};
use tollgate_testkit::models::{end, in_every_order};

/// The levels of what was told.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<Level>>>);

impl Subscriber for Heard {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // loom tells what it does, too.
        !metadata.target().starts_with("loom")
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.0.lock().unwrap().push(*event.metadata().level());
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

fn place() -> Option<String> {
    None
}

fn unreachable() -> BackendError {
    BackendError::new(FailureKind::Unreachable, "")
}

#[test]
fn the_last_that_the_log_says_of_the_backend_is_true() {
    in_every_order(|| {
        let heard = Heard::default();
        // All threads of a model are one of the system's.
        let _told = tracing::subscriber::set_default(heard.clone());
        let health = Arc::new(Health::default());

        let failing = thread::spawn({
            let health = Arc::clone(&health);
            move || health.failed(Instant::now(), &unreachable(), place)
        });
        let recovering = thread::spawn({
            let health = Arc::clone(&health);
            move || health.recovered(Instant::now(), place)
        });
        health.failed(Instant::now(), &unreachable(), place);
        failing.join().unwrap();
        recovering.join().unwrap();

        assert_eq!(health.failures(), 2);
        let told = heard.0.lock().unwrap().clone();
        match told[..] {
            // An outage that begins so soon after another is not told.
            [Level::WARN, Level::INFO] => {}
            [Level::WARN] => assert!(health.is_failing(), "the end was not told"),
            _ => panic!("{told:?}"),
        }
    });
}

#[test]
fn a_line_that_is_due_is_written_once_whoever_is_first() {
    in_every_order(|| {
        // given an outage of which the log heard a minute ago
        let heard = Heard::default();
        let _told = tracing::subscriber::set_default(heard.clone());
        let health = Arc::new(Health::default());
        let start = Instant::now();
        health.failed(start, &unreachable(), place);

        // when two requests fail at once
        let due = start + Duration::from_secs(60);
        let failing = [(); 2].map(|()| {
            let health = Arc::clone(&health);
            thread::spawn(move || health.failed(due, &unreachable(), place))
        });
        end(failing);

        let told = heard.0.lock().unwrap().clone();
        assert_eq!(told, [Level::WARN; 2]);
    });
}

/// The seconds that a clock has gone since it showed `start`.
fn gone(clock: &OutageClock, start: Timestamp) -> u64 {
    (clock.now().as_micros() - start.as_micros()) / 1_000_000
}

#[test]
fn the_clock_of_outages_counts_each_of_them_once() {
    in_every_order(|| {
        let wall = ManualClock::new();
        let clock = OutageClock::new(wall.clone());
        let start = clock.now();
        clock.failed();
        wall.advance(Duration::from_secs(3));

        let failing = [(); 2].map(|()| {
            let clock = clock.clone();
            thread::spawn(move || clock.failed())
        });
        let shown = [clock.now(), clock.now()];
        end(failing);

        assert!(shown.is_sorted(), "{shown:?}");
        assert_eq!(gone(&clock, start), 3);
    });
}

/// One thread hears of a decision, and another of a failure at the same time.
#[test]
fn the_clock_of_outages_soon_stands_still_after_a_decision() {
    in_every_order(|| {
        let wall = ManualClock::new();
        let clock = OutageClock::new(wall.clone());
        let start = clock.now();
        clock.failed();
        let hearing = [0, 1].map(|which| {
            let clock = clock.clone();
            thread::spawn(move || {
                if which == 0 {
                    clock.failed();
                } else {
                    clock.decided();
                }
            })
        });
        end(hearing);
        clock.decided();
        wall.advance(Duration::from_secs(60));
        clock.failed();
        assert_eq!(gone(&clock, start), LINGERS.as_secs());
    });
}
