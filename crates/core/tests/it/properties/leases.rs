//! Leases: whatever several processes do with the blocks of one budget, no more passes than the bound of the lease says.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use tollgate_core::{
    Algorithm, Blocks, Call, Charge, Decision, Key, Lease, Mode, Part, Quota, Receipt, Scope,
    State, Timestamp, decide,
};

use crate::support::budget::micros;
use crate::support::quotas;
use crate::support::runner::check;

const PROCESSES: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Event {
    Wait(u64),
    /// A request comes to a process.
    Request(usize, u64),
    /// The question of a process reaches the server.
    Asked(usize),
    /// The answer reaches the process, or is lost.
    Answered(usize, bool),
    /// The blocks of a process that have ended are given back.
    Ended(usize),
    /// One of the requests that passed is refunded, or was not needed after all.
    Refunded(usize),
    /// The process dies, and another one begins in its place.
    Crashed(usize),
}

fn events(longest: u64) -> impl Strategy<Value = Vec<Event>> {
    let process = || 0..PROCESSES;
    let event = prop_oneof![
        4 => (0..longest).prop_map(Event::Wait),
        8 => (process(), prop_oneof![4 => Just(1_u64), 1 => 2_u64..4]).prop_map(|(p, cost)| Event::Request(p, cost)),
        4 => process().prop_map(Event::Asked),
        4 => (process(), prop::bool::weighted(0.1)).prop_map(|(p, is_lost)| Event::Answered(p, is_lost)),
        2 => process().prop_map(Event::Ended),
        1 => (0_usize..64).prop_map(Event::Refunded),
        1 => process().prop_map(Event::Crashed),
    ];
    prop::collection::vec(event, 1..120)
}

/// A question of a process to the server.
#[derive(Debug)]
struct Question {
    number: u64,
    amount: u64,
    answer: Option<Decision>,
}

/// A request that passed.
#[derive(Debug)]
struct Passed {
    at: u64,
    cost: u64,
    /// The process and the part of its block, or the receipt of the server.
    origin: Origin,
}

#[derive(Debug)]
enum Origin {
    Block(usize, Part),
    Server(Receipt),
}

/// Some processes that lease blocks of one budget, and the server of it.
struct Fleet {
    quota: Quota,
    lease: Lease,
    state: State,
    /// The time of the processes, and by how much the server's clock is ahead of it.
    now: u64,
    ahead: u64,
    processes: [Option<Blocks>; PROCESSES],
    questions: [Option<Question>; PROCESSES],
    passed: Vec<Passed>,
    local: u64,
}

impl Fleet {
    fn new(quota: Quota, lease: Lease, ahead: u64) -> Self {
        Self {
            quota,
            lease,
            state: State::full(&quota),
            now: 1_000,
            ahead,
            processes: [None, None, None],
            questions: [None, None, None],
            passed: Vec::new(),
            local: 0,
        }
    }

    fn server_time(&self) -> u64 {
        self.now + self.ahead
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_micros(self.server_time())
    }

    fn refund(&mut self, receipt: &Receipt, n: u64) {
        let at = self.at();
        receipt.credit_to(&mut self.state, at, n);
    }

    fn step(&mut self, event: Event) {
        let quota = self.quota;
        let key = Key::global();
        let charge = |cost| Charge {
            scope: Scope::of("leases", 0, &quota),
            quota: &quota,
            key: &key,
            cost,
            mode: Mode::Enforce,
        };
        let (now, at) = (self.now, self.at());
        match event {
            Event::Wait(us) => {
                self.now += us;
                // As fast as clocks may run ahead.
                self.ahead += us / 1_000;
            }
            Event::Request(process, cost) => {
                let charge = charge(cost);
                let blocks = self.processes[process]
                    .get_or_insert_with(|| Blocks::new(&charge, &self.lease, now, 0));
                let origin = match blocks.spend(&charge, now) {
                    Some(part) => {
                        self.local += 1;
                        Some(Origin::Block(process, part))
                    }
                    None => {
                        let states = std::slice::from_mut(&mut self.state);
                        let decision = decide(at, Call::of(&[charge]), states);
                        let verdict = &decision.verdicts()[0];
                        blocks.decided(verdict);
                        Receipt::of(&charge, verdict, decision.at()).map(Origin::Server)
                    }
                };
                if let Some((number, amount)) = blocks.to_ask(now) {
                    assert!(self.questions[process].is_none(), "one question at a time");
                    self.questions[process] = Some(Question {
                        number,
                        amount,
                        answer: None,
                    });
                }
                if let Some(origin) = origin {
                    self.passed.push(Passed {
                        at: self.server_time(),
                        cost,
                        origin,
                    });
                }
            }
            Event::Asked(process) => {
                if let Some(question) = &mut self.questions[process]
                    && question.answer.is_none()
                {
                    let states = std::slice::from_mut(&mut self.state);
                    let asked = [charge(question.amount)];
                    question.answer = Some(decide(at, Call::of(&asked).at_least(1), states));
                }
            }
            Event::Answered(process, is_lost) => {
                let Some(blocks) = &mut self.processes[process] else {
                    return;
                };
                let is_answered = |question: &mut Question| question.answer.is_some() || is_lost;
                let Some(question) = self.questions[process].take_if(is_answered) else {
                    return;
                };
                let Question { number, answer, .. } = question;
                match answer.filter(|_| !is_lost) {
                    None => blocks.failed(number, now),
                    Some(answer) => {
                        let verdict = answer.verdicts()[0];
                        if verdict.is_denied() {
                            blocks.refused(number, &verdict);
                        } else if let Some((receipt, n)) =
                            blocks.granted(number, now, verdict, answer.at())
                        {
                            self.refund(&receipt, n);
                        }
                    }
                }
            }
            Event::Ended(process) => {
                let Some(blocks) = &mut self.processes[process] else {
                    return;
                };
                for (receipt, n) in blocks.take_ended(now) {
                    self.refund(&receipt, n);
                }
            }
            Event::Refunded(nth) => {
                if self.passed.is_empty() {
                    return;
                }
                let passed = self.passed.remove(nth % self.passed.len());
                match passed.origin {
                    Origin::Server(receipt) => self.refund(&receipt, passed.cost),
                    Origin::Block(process, part) => {
                        let blocks = self.processes[process].as_mut();
                        if !blocks.is_some_and(|blocks| blocks.unspend(&part)) {
                            let receipt = Receipt::of(&charge(passed.cost), &part.verdict, part.at);
                            self.refund(&receipt.unwrap(), passed.cost);
                        }
                    }
                }
            }
            Event::Crashed(process) => {
                self.processes[process] = None;
                self.questions[process] = None;
                // Its requests ended with it, and nothing refunds them.
                for passed in &mut self.passed {
                    if let Origin::Block(of, part) = &passed.origin
                        && *of == process
                    {
                        let charge = charge(passed.cost);
                        let receipt = Receipt::of(&charge, &part.verdict, part.at).unwrap();
                        passed.origin = Origin::Server(receipt);
                    }
                }
            }
        }
    }

    /// The most that may pass in any interval of this length, its ends included.
    fn bound(&self, length: u64) -> u64 {
        let length = length + micros(self.lease.time());
        let (limit, period) = (self.quota.limit(), micros(self.quota.period()));
        let part = |units: u64| u128::from(units) * u128::from(length) / u128::from(period);
        let refilled = match self.quota.algorithm() {
            Algorithm::IntervalRefill { .. } => (part(1) + 1) * u128::from(limit),
            _ => part(limit),
        };
        self.quota.capacity() + u64::try_from(refilled).unwrap()
    }

    fn check(&self) -> TestCaseResult {
        if let Algorithm::FixedWindow { offset } = self.quota.algorithm() {
            let period = micros(self.quota.period());
            let window = |at: u64| (at + period - micros(offset)) / period;
            for passed in &self.passed {
                let of_window = self
                    .passed
                    .iter()
                    .filter(|other| window(other.at) == window(passed.at));
                let sum: u64 = of_window.map(|passed| passed.cost).sum();
                prop_assert!(
                    sum <= self.quota.limit(),
                    "{sum} in the window of {}",
                    passed.at
                );
            }
            return Ok(());
        }
        for (first, from) in self.passed.iter().enumerate() {
            let mut sum = 0;
            for to in &self.passed[first..] {
                sum += to.cost;
                let length = to.at - from.at;
                let bound = self.bound(length);
                prop_assert!(
                    sum <= bound,
                    "{sum} > {bound} from {} within {length}",
                    from.at
                );
            }
        }
        Ok(())
    }
}

fn leasable() -> impl Strategy<Value = Quota> {
    let tiny = prop_oneof![quotas::tiny(), quotas::tiny_gcra(), quotas::tiny_refills()];
    // With room for blocks.
    let roomy = (8_u64..40, 20_u64..400, 0_u64..60, 0_u64..3).prop_map(
        |(limit, period_us, burst, kind)| {
            let quota = Quota::new(limit, Duration::from_micros(period_us));
            let offset = Duration::from_micros(burst % period_us);
            match kind {
                0 => quota.burst(burst.max(8)),
                1 => quota.using(Algorithm::FixedWindow { offset }),
                _ => quota.using(Algorithm::IntervalRefill { offset }),
            }
        },
    );
    let lease = Lease::up_to(8);
    prop_oneof![1 => tiny, 3 => roomy]
        .prop_filter("can be leased", move |quota| lease.misfit(quota).is_none())
}

#[test]
fn no_interval_lets_more_pass_than_the_bound_of_the_lease() {
    let inputs = (leasable(), 2_u64..20, 2_u64..300, 0_u64..1_000, 0_u64..3);
    let inputs = inputs.prop_flat_map(|(quota, most, time_us, ahead, scale)| {
        let longest = [4, 40, 2_000][usize::try_from(scale).unwrap()];
        (Just((quota, most, time_us, ahead)), events(longest))
    });
    check(8_000, &inputs, |((quota, most, time_us, ahead), events)| {
        let lease = Lease::up_to(most).within(Duration::from_micros(time_us));
        let mut fleet = Fleet::new(quota, lease, ahead);
        for event in events {
            fleet.step(event);
        }
        fleet.check()
    });
}

/// A property of leases shows nothing unless blocks are spent.
#[test]
fn the_histories_spend_from_blocks() {
    let quota = Quota::new(40, Duration::from_micros(100));
    let lease = Lease::up_to(10).within(Duration::from_micros(60));
    let mut fleet = Fleet::new(quota, lease, 0);
    for turn in 0..200 {
        fleet.step(Event::Request(turn % PROCESSES, 1));
        fleet.step(Event::Asked(turn % PROCESSES));
        fleet.step(Event::Answered(turn % PROCESSES, false));
        fleet.step(Event::Wait(3));
    }
    assert!(fleet.local > 100, "{}", fleet.local);
}

/// A clock of a process, a server a millisecond away, and one caller.
struct HotKey {
    quota: Quota,
    blocks: Blocks,
    state: State,
    now: u64,
    question: Option<(u64, u64, Decision)>,
    calls: u64,
    passed: u64,
    by_server: u64,
}

impl HotKey {
    const LAG_US: u64 = 1_000;

    fn new(quota: Quota, lease: Lease) -> Self {
        let key = Key::global();
        let charge = Charge {
            scope: Scope::of("hot", 0, &quota),
            quota: &quota,
            key: &key,
            cost: 1,
            mode: Mode::Enforce,
        };
        Self {
            quota,
            blocks: Blocks::new(&charge, &lease, 0, 0),
            state: State::full(&quota),
            now: 0,
            question: None,
            calls: 0,
            passed: 0,
            by_server: 0,
        }
    }

    fn request(&mut self) {
        let (quota, key) = (self.quota, Key::global());
        let charge = |cost| Charge {
            scope: Scope::of("hot", 0, &quota),
            quota: &quota,
            key: &key,
            cost,
            mode: Mode::Enforce,
        };
        let at = Timestamp::from_micros(self.now);
        if let Some((_, number, answer)) = self.question.take_if(|(there, ..)| *there <= self.now) {
            let verdict = answer.verdicts()[0];
            if verdict.is_denied() {
                self.blocks.refused(number, &verdict);
            } else if let Some((receipt, n)) = self.blocks.granted(number, self.now, verdict, at) {
                self.calls += 1;
                receipt.credit_to(&mut self.state, at, n);
            }
        }
        for (receipt, n) in self.blocks.take_ended(self.now) {
            self.calls += 1;
            receipt.credit_to(&mut self.state, at, n);
        }
        if self.blocks.spend(&charge(1), self.now).is_some() {
            self.passed += 1;
        } else {
            self.calls += 1;
            self.by_server += 1;
            let states = std::slice::from_mut(&mut self.state);
            let decision = decide(at, Call::of(&[charge(1)]), states);
            self.blocks.decided(&decision.verdicts()[0]);
            self.passed += u64::from(decision.is_admitted());
        }
        if let Some((number, amount)) = self.blocks.to_ask(self.now) {
            self.calls += 1;
            let states = std::slice::from_mut(&mut self.state);
            let answer = decide(at, Call::of(&[charge(amount)]).at_least(1), states);
            self.question = Some((self.now + Self::LAG_US, number, answer));
        }
    }

    /// Requests at this rate for this many seconds.
    fn run(&mut self, rate: u64, seconds: u64) {
        let start = self.now;
        for nth in 0..rate * seconds {
            self.now = start + nth * 1_000_000 / rate;
            self.request();
        }
    }
}

#[test]
fn a_hot_key_costs_fifty_calls_a_second_whatever_its_rate() {
    for rate in [100, 1_000, 10_000, 100_000] {
        let quota = Quota::per_second(2 * rate);
        let mut hot = HotKey::new(quota, Lease::up_to(1_000_000));
        hot.run(rate, 2);
        let (calls, by_server) = (hot.calls, hot.by_server);
        hot.run(rate, 10);
        assert_eq!(hot.passed, 12 * rate);
        assert_eq!(
            hot.by_server, by_server,
            "no request of {rate}/s waits for the server"
        );
        assert!(
            hot.calls - calls <= 10 * 50,
            "{} calls for {rate}/s",
            hot.calls - calls
        );
    }
}

/// Terms that allow less than the demand of their time cost a call for each half of them.
#[test]
fn a_hot_key_with_small_terms_costs_a_call_for_each_half_of_them() {
    for rate in [1_000, 10_000, 100_000] {
        let most = 500;
        let mut hot = HotKey::new(Quota::per_second(2 * rate), Lease::up_to(most));
        hot.run(rate, 2);
        let calls = hot.calls;
        hot.run(rate, 10);
        assert_eq!(hot.passed, 12 * rate);
        let bound = 10 * (2 * rate / most).max(50);
        // A question is under way while some are spent.
        let calls = hot.calls - calls;
        assert!(calls <= bound + bound / 10, "{calls} calls for {rate}/s");
    }
}

/// Near the end of a budget nothing is leased, and all that refills is used.
#[test]
fn a_key_above_its_limit_gets_all_of_its_rate() {
    for rate in [500, 2_000, 20_000] {
        let mut hot = HotKey::new(Quota::per_second(1_000).burst(100), Lease::up_to(1_000));
        hot.run(rate, 10);
        let full = rate.min(1_000) * 10;
        assert!(
            (full - full / 50..=full + 100).contains(&hot.passed),
            "{} of {rate}/s",
            hot.passed
        );
    }
}

#[test]
fn quotas_and_terms_that_cannot_be_leased_say_why() {
    let second = Quota::per_second(10);
    let lease = Lease::up_to(5);
    assert_eq!(lease.misfit(&second), None);
    for (lease, quota, reason) in [
        (
            Lease::up_to(1),
            second,
            "up to 1: a lease of one unit saves no call; at least 2",
        ),
        (
            lease.within(Duration::ZERO),
            second,
            "within 0ns: 1 ms to 60 s, in whole microseconds",
        ),
        (
            lease.within(Duration::from_nanos(1_000_001)),
            second,
            "within 1.000001ms: 1 ms to 60 s, in whole microseconds",
        ),
        (
            lease.within(Duration::from_secs(61)),
            second,
            "within 61s: 1 ms to 60 s, in whole microseconds",
        ),
        (
            lease,
            second.using(Algorithm::SlidingLog),
            "the quota 10/s sliding-log cannot be leased: twice the limit could pass in a period, since a block is counted when it \
             is leased and not when it is spent; use the default algorithm, a fixed window or interval refill",
        ),
        (
            lease,
            second.wait_up_to(Duration::from_secs(1)),
            "the quota 10/s wait s cannot be leased: its requests wait in a line that is one for all processes",
        ),
    ] {
        assert_eq!(lease.misfit(&quota).as_deref(), Some(reason));
    }
}
