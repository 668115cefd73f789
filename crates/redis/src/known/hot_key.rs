//! A key far above its limit, asked by several processes in virtual time: the requests that reach the server.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::mem;

use tollgate_core::{Call, Quota, decide};

use super::tests::{charge, remembering};
use super::*;

const PROCESSES: usize = 4;
const SECONDS: u64 = 20;
const A_SECOND: u64 = 10_000;

/// A question of one process, and its answer.
struct Travelling {
    process: usize,
    sent: SentCall,
    turn: Option<Turn>,
    answer: Option<(Decision, State, Timestamp)>,
}

struct World {
    start: Instant,
    now_us: u64,
    quota: Quota,
    state: State,
    /// The longest way to the server, or back.
    way_us: u64,
    random: u64,
    /// None if each denial is asked for.
    processes: Option<[Arc<KnownDenials>; PROCESSES]>,
    /// The requests of each process that wait for another's answer: how often each may do so again.
    waiting: [Vec<u8>; PROCESSES],
    calls: Vec<Option<Travelling>>,
    /// The times at which calls reach the server, or come back.
    to_come: BinaryHeap<Reverse<(u64, usize)>>,
    reached: u64,
    admitted: u64,
}

impl World {
    fn of(quota: Quota, way_us: u64, is_known: bool) -> Self {
        Self {
            start: Instant::now(),
            now_us: 0,
            quota,
            state: State::full(&quota),
            way_us,
            random: 1,
            processes: is_known.then(|| [(); PROCESSES].map(|()| remembering())),
            waiting: Default::default(),
            calls: Vec::new(),
            to_come: BinaryHeap::new(),
            reached: 0,
            admitted: 0,
        }
    }

    /// The requests that reached the server, and those that were admitted.
    fn run(mut self) -> (u64, u64) {
        for request in 0..SECONDS * A_SECOND {
            let at_us = request * 1_000_000 / A_SECOND;
            self.run_until(at_us);
            self.asks(usize::try_from(request).unwrap() % PROCESSES);
        }
        self.run_until(SECONDS * 1_000_000 + 4 * self.way_us);
        assert!(self.waiting.iter().all(Vec::is_empty));
        (self.reached, self.admitted)
    }

    fn run_until(&mut self, at_us: u64) {
        while let Some(&Reverse((next_us, call))) = self.to_come.peek()
            && next_us <= at_us
        {
            self.to_come.pop();
            self.now_us = next_us;
            let call = self.calls[call].take().unwrap();
            match call.answer {
                None => self.executes(call),
                Some(_) => self.returns(call),
            }
        }
        self.now_us = at_us;
    }

    fn instant(&self) -> Instant {
        self.start + Duration::from_micros(self.now_us)
    }

    fn travels(&mut self, call: Travelling) {
        let product = self.random.wrapping_mul(6_364_136_223_846_793_005);
        self.random = product.wrapping_add(1_442_695_040_888_963_407);
        let way_us = self.way_us / 5 + (self.random >> 33) % (self.way_us * 4 / 5);
        self.to_come
            .push(Reverse((self.now_us + way_us, self.calls.len())));
        self.calls.push(Some(call));
    }

    /// A request comes, or comes again, and may wait so often.
    fn judges(&mut self, process: usize, may_wait: u8) {
        let Some(processes) = &self.processes else {
            let (event, sent_at) = (0, self.instant());
            let sent = SentCall { event, sent_at };
            return self.sends(process, sent, None);
        };
        let known = Arc::clone(&processes[process]);
        let key = Key::from(1_u64);
        let charges = [charge(&self.quota, &key, 1)];
        let turn = match known.judge_at(|| self.instant(), Call::of(&charges)) {
            Judged::Denied(_) => return,
            Judged::Waits(_) if may_wait > 0 => {
                self.waiting[process].push(may_wait - 1);
                return;
            }
            Judged::Waits(_) => None,
            Judged::Asks(turn) => turn,
        };
        let sent = SentCall {
            sent_at: self.instant(),
            ..known.departs()
        };
        self.sends(process, sent, turn);
    }

    fn asks(&mut self, process: usize) {
        self.judges(process, 2);
    }

    fn sends(&mut self, process: usize, sent: SentCall, turn: Option<Turn>) {
        self.reached += 1;
        self.travels(Travelling {
            process,
            sent,
            turn,
            answer: None,
        });
    }

    fn executes(&mut self, call: Travelling) {
        let now = Timestamp::from_micros(1_700_000_000_000_000 + self.now_us);
        let key = Key::from(1_u64);
        let charges = [charge(&self.quota, &key, 1)];
        let decision = decide(now, Call::of(&charges), slice::from_mut(&mut self.state));
        self.admitted += u64::from(decision.is_admitted());
        let answer = Some((decision, self.state.clone(), now));
        self.travels(Travelling { answer, ..call });
    }

    fn returns(&mut self, call: Travelling) {
        let (Some(processes), Some((decision, state, at))) = (&self.processes, call.answer) else {
            return;
        };
        let told = ToldStates {
            at,
            received_at: self.instant(),
            slot: 0,
        };
        let key = Key::from(1_u64);
        let charges = [charge(&self.quota, &key, 1)];
        let known = &processes[call.process];
        known.learn_from(call.sent, told, charges.iter().copied(), &decision, |_| {
            Some(&state)
        });
        if let Some(turn) = call.turn {
            drop(turn);
            for may_wait in mem::take(&mut self.waiting[call.process]) {
                self.judges(call.process, may_wait);
            }
        }
    }
}

#[test]
#[ignore = "slow: millions of requests in virtual time"]
fn of_ten_thousand_requests_a_second_for_ten_units_one_in_a_hundred_reaches_the_server() {
    let limits = [
        Quota::per_second(10),
        Quota::per_second(10).burst(1),
        Quota::per_second(10).using(tollgate_core::Algorithm::FixedWindow {
            offset: Duration::ZERO,
        }),
        Quota::per_second(10).using(tollgate_core::Algorithm::SlidingWindow),
    ];
    // A server in the same rack, one in the same region, and one far away. There a window lets in all that ask within a round trip
    // of its begin.
    for (way_us, limits) in [
        (100, &limits[..]),
        (500, &limits[..]),
        (15_000, &limits[..2]),
    ] {
        for &quota in limits {
            let (all, without) = World::of(quota, way_us, false).run();
            let (reached, admitted) = World::of(quota, way_us, true).run();

            assert!(
                reached * 100 <= all,
                "{way_us} µs, {quota}: {reached} of {all}"
            );
            let apart = admitted.abs_diff(without);
            assert!(apart <= PROCESSES as u64 * SECONDS, "{quota}: {apart}");
        }
    }
}
