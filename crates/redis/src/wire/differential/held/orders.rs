//! All orders of three calls by two processes, each over a connection of its own: acquires, releases and tellings, calls that come
//! late, and calls that only find what has expired. Before each of them the clock may step, forth or back.

use std::collections::HashSet;
use std::env;
use std::mem;

use redis::{Client, Connection};
use tollgate_core::{Concurrent, Mode};
use tollgate_testkit::Standalone;

use super::{Fleet, Stored, Wish};
use crate::holder::model::{self, From};

const KEY: &str = "one";
const PROCESSES: usize = 2;
/// The processes that hold beside them, where a state is long.
const OTHERS: usize = 30;
const LEASE_MS: u64 = 30_000;
const NOW_MS: u64 = 3_500_000_000_000;

/// The times between which the clock steps: now, within the leases, when they have run out, an hour ago, and shortly before they
/// began. `TOLLGATE_ALL` takes the last as well, and the last verbs: that takes some minutes.
const TIMES_MS: [u64; 5] = [
    NOW_MS,
    NOW_MS + LEASE_MS / 3,
    NOW_MS + 2 * LEASE_MS,
    NOW_MS - 3_600_000,
    NOW_MS - LEASE_MS / 3,
];
const USUAL_TIMES: usize = 4;

/// The generation of both processes, before which one has ended.
const GENERATION: u64 = 5;

#[derive(Clone, Copy, Debug)]
enum Verb {
    Acquire(u64),
    Release,
    Tell(u64),
    /// Takes nothing, and finds what has expired.
    Look,
}

const VERBS: [Verb; 6] = [
    Verb::Acquire(2),
    Verb::Release,
    Verb::Tell(1),
    Verb::Look,
    Verb::Acquire(1),
    Verb::Tell(0),
];
const USUAL_VERBS: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Operation {
    process: usize,
    verb: Verb,
    generation: u64,
    at_ms: u64,
}

/// The state on the server, and in the model, between two calls.
#[derive(Clone, Default)]
struct Moment {
    state: Option<Vec<u8>>,
    key: model::Key,
}

/// The processes, and a connection of each.
struct Orders {
    fleet: Fleet,
    connections: Vec<Connection>,
    limit: u64,
    /// The calls for which the script found an entry at the place that they named.
    met_places: usize,
}

impl Verb {
    fn wish(self, limit: u64) -> Wish {
        let ask = |cost, mode| {
            let quota = Concurrent::at_most(limit).into();
            Wish::Decide(vec![(true, KEY.to_owned(), quota, cost, mode)])
        };
        match self {
            Self::Acquire(units) => ask(units, Mode::Enforce),
            Self::Look => ask(1, Mode::Probe),
            Self::Release => Wish::Release(KEY.to_owned(), 1),
            Self::Tell(units) => Wish::Tell(KEY.to_owned(), units),
        }
    }
}

fn operations() -> Vec<Operation> {
    let (verbs, times) = if env::var_os("TOLLGATE_ALL").is_some() {
        (&VERBS[..], &TIMES_MS[..])
    } else {
        (&VERBS[..USUAL_VERBS], &TIMES_MS[..USUAL_TIMES])
    };
    let mut operations = Vec::new();
    for process in 0..PROCESSES {
        for &verb in verbs {
            for generation in [GENERATION - 1, GENERATION] {
                operations.extend(times.iter().map(|&at_ms| Operation {
                    process,
                    verb,
                    generation,
                    at_ms,
                }));
            }
        }
    }
    operations
}

impl Orders {
    fn new(server: &Standalone) -> Self {
        let url = format!("redis+unix://{}", server.socket().display());
        let connect = |_| Client::open(&*url).unwrap().get_connection().unwrap();
        Self {
            fleet: Fleet::new(server, 0),
            connections: (0..PROCESSES).map(connect).collect(),
            limit: 3,
            met_places: 0,
        }
    }

    /// A long state, of which the two hold nothing yet.
    fn beside_others(server: &Standalone) -> Self {
        let mut orders = Self::new(server);
        orders.limit += OTHERS as u64;
        orders.fleet.now = NOW_MS * 1_000;
        let acquire = [Verb::Acquire(1).wish(orders.limit)];
        for other in PROCESSES..PROCESSES + OTHERS {
            let from = From {
                holder: orders.fleet.processes[other].0,
                generation: 1,
                lease_ms: LEASE_MS,
            };
            orders.fleet.call(from, &acquire);
        }
        orders
    }

    /// One call of a process, which leaves the server as the model says, or the test fails.
    fn run(&mut self, operation: Operation) {
        let fleet = &mut self.fleet;
        fleet.now = operation.at_ms * 1_000;
        let from = From {
            holder: fleet.processes[operation.process].0,
            generation: operation.generation,
            lease_ms: LEASE_MS,
        };
        let connection = &mut self.connections[operation.process];
        mem::swap(&mut fleet.world.redis, connection);
        fleet.call(from, &[operation.verb.wish(self.limit)]);
        mem::swap(&mut fleet.world.redis, connection);
    }

    /// Lets the two hold all that may be held.
    fn is_full(&mut self) {
        self.run(call(0, Verb::Acquire(2), GENERATION - 1));
        self.run(call(1, Verb::Acquire(1), GENERATION - 1));
        self.run(call(0, Verb::Tell(2), GENERATION));
    }

    fn moment(&mut self) -> Moment {
        let redis = &mut self.fleet.world.redis;
        Moment {
            state: redis::cmd("GET").arg(KEY).query(redis).unwrap(),
            key: self.fleet.keys.get(KEY).cloned().unwrap_or_default(),
        }
    }

    fn go_to(&mut self, moment: &Moment) {
        let put = match &moment.state {
            Some(state) => {
                let ends = Stored::read(state).unwrap().latest_ms;
                let mut set = redis::cmd("SET");
                set.arg(KEY).arg(state).arg("PXAT").arg(ends).to_owned()
            }
            None => redis::cmd("DEL").arg(KEY).to_owned(),
        };
        put.exec(&mut self.fleet.world.redis).unwrap();
        let keys = &mut self.fleet.keys;
        keys.insert(KEY.to_owned(), moment.key.clone());
    }

    /// Tries all orders of so many calls from here. It goes on once from each state that is reached.
    fn all_from_here(&mut self, calls: usize) {
        let operations = operations();
        let (mut tried, mut moments) = (0, vec![self.moment()]);
        for left in (0..calls).rev() {
            let (mut seen, mut next) = (HashSet::new(), Vec::new());
            for moment in &moments {
                for operation in &operations {
                    self.go_to(moment);
                    self.run(*operation);
                    tried += 1;
                    if left > 0 {
                        let then = self.moment();
                        if seen.insert(then.state.clone()) {
                            next.push(then);
                        }
                    }
                }
            }
            println!("{} states, {tried} calls", moments.len());
            moments = next;
        }
    }

    /// Each of these has happened since it was asked last, or the test fails.
    fn has_seen(&mut self, all: &[&str]) {
        let happened = mem::take(&mut self.fleet.happened);
        self.met_places = happened.get("usual with a place").copied().unwrap_or(0);
        println!("{happened:?}");
        for what in all {
            assert!(happened.contains_key(what), "{what} never happened");
        }
    }
}

/// The outcomes that calls have in some order.
const ALL: [&str; 6] = [
    "admitted",
    "denied",
    "released",
    "told",
    "void",
    "reclaimed",
];

fn call(process: usize, verb: Verb, generation: u64) -> Operation {
    Operation {
        process,
        verb,
        generation,
        at_ms: NOW_MS,
    }
}

#[test]
#[ignore = "slow: tens of thousands of calls"]
fn in_every_order_of_three_calls_the_script_holds_what_the_model_holds() {
    let server = Standalone::start();
    let mut orders = Orders::new(&server);

    // The orders of a key of which nothing is held.
    orders.all_from_here(3);
    orders.has_seen(&ALL);

    // The orders of a key that is full. All calls before this generation were answered, and one process has told.
    orders.go_to(&Moment::default());
    orders.is_full();
    orders.all_from_here(3);
    orders.has_seen(&ALL);
}

#[test]
fn in_every_order_of_two_calls_the_script_holds_of_a_long_state_what_the_model_holds() {
    let server = Standalone::start();
    let mut orders = Orders::beside_others(&server);
    orders.is_full();
    // The answers say where the entries stand.
    for process in 0..PROCESSES {
        orders.run(call(process, Verb::Look, GENERATION));
    }

    orders.all_from_here(2);
    orders.has_seen(&ALL);
    assert!(orders.met_places > 100, "{}", orders.met_places);
}

/// Otherwise the others' entries would go with it.
#[test]
fn an_entry_that_holds_nothing_stays_in_a_long_state_of_which_only_a_part_is_read() {
    let server = Standalone::start();
    let mut orders = Orders::beside_others(&server);
    let from = From {
        holder: orders.fleet.processes[0].0,
        generation: GENERATION,
        lease_ms: LEASE_MS,
    };
    let limit = orders.limit;
    // Not every call names the right place.
    for _ in 0..30 {
        let wishes = [Verb::Acquire(1), Verb::Look, Verb::Release].map(|verb| verb.wish(limit));
        orders.fleet.call(from, &wishes);
    }
}
