//! Calls that bring states, and events of the process that change them: none is remembered as it was before an event.

use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread;

use super::sets::Sets;
use tollgate_testkit::models::{end, in_every_order};

const KEY: u64 = 7;

/// A process and the server's state of one key, which each event makes a new one.
#[derive(Clone)]
struct Process {
    sets: Arc<Sets<u32>>,
    server: Arc<Mutex<u32>>,
}

impl Process {
    fn new() -> Self {
        Self {
            sets: Arc::new(Sets::new(1)),
            server: Arc::default(),
        }
    }

    fn call(&self) {
        let departed = self.sets.departs();
        let state = *self.server.lock().unwrap();
        let mut set = self.sets.set(KEY).unwrap();
        if set.may_learn(departed) {
            set.entries = vec![state];
        }
    }

    fn event(&self) {
        self.sets.begins(&[KEY]);
        *self.server.lock().unwrap() += 1;
        assert_eq!(self.remembered(), None, "while the event is under way");
        self.sets.ends(&[KEY]);
    }

    fn remembered(&self) -> Option<u32> {
        self.sets.set(KEY).unwrap().entries.first().copied()
    }

    fn is_right(&self) {
        let state = *self.server.lock().unwrap();
        assert!(self.remembered().is_none_or(|known| known == state));
    }
}

#[test]
fn the_answer_to_a_call_that_left_before_the_end_of_an_event_is_not_remembered() {
    in_every_order(|| {
        let process = Process::new();
        let calls = [(); 2].map(|()| {
            let process = process.clone();
            thread::spawn(move || process.call())
        });
        process.event();
        // Nothing older is known once the event has ended, whatever else is under way.
        let known = process.remembered();
        assert!(known.is_none_or(|state| state == 1));
        end(calls);
        process.is_right();
    });
}

#[test]
fn of_two_events_at_once_the_last_to_end_counts() {
    in_every_order(|| {
        let process = Process::new();
        let (calling, changing) = (process.clone(), process.clone());
        let threads = [
            thread::spawn(move || calling.call()),
            thread::spawn(move || changing.event()),
        ];
        process.event();
        end(threads);
        process.is_right();
    });
}

#[test]
fn a_call_that_leaves_after_an_event_is_remembered() {
    in_every_order(|| {
        let process = Process::new();
        let calling = process.clone();
        let thread = thread::spawn(move || calling.call());
        process.event();
        end([thread]);
        process.call();
        assert_eq!(process.remembered(), Some(1));
    });
}
