//! How long a call holds the server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::VecDeque;
use std::time::Duration;

use common::{Budget, HOUR, PATIENT};
use tollgate_core::{Algorithm, Backend, Decide, Key, Mode, Quota, Receipt};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;

/// Callers that ask at once: for several calls of as many as one takes.
const CALLERS: u64 = 200;

/// The same of logs, of which a call takes three.
const CALLERS_WITH_LOGS: u64 = 14;

/// How many entries a log has that is nearly full.
const ENTRIES: usize = 960;

/// How often they ask, and how often the machine may be the reason that it took longer.
const ROUNDS: usize = 40;
const EXCUSED: usize = 2;

/// What no call may cost the server.
const MOST: Duration = Duration::from_millis(1);

/// What a call is made of.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// Two enforced charges for each request, of budgets that nobody shares.
    Decide,
    /// The same, one of them in shadow and the other only asked for.
    Shadow,
    Credit,
    Debit,
    Reset,
}

/// What every caller has.
struct Caller {
    budget: Budget,
    other: Budget,
    /// The oldest first, which is the dearest to give back to a log.
    receipts: VecDeque<Receipt>,
}

struct Held {
    server: Standalone,
    backend: RedisBackend,
    callers: Vec<Caller>,
}

impl Held {
    async fn by(quota: Quota) -> Self {
        let server = Standalone::start();
        // One call after the other, so that each carries as much as it may.
        let builder = RedisBackend::builder(&server.url()).connections(1);
        let backend = builder.deadline(PATIENT).connect().await.unwrap();
        let is_log = quota.algorithm() == Algorithm::SlidingLog;
        let callers = if is_log { CALLERS_WITH_LOGS } else { CALLERS };
        let of = |policy, caller: u64| Budget {
            key: Key::from(caller),
            ..Budget::of(policy, quota)
        };
        let callers = (0..callers).map(|caller| Caller {
            budget: of("held", caller),
            other: of("other", caller),
            receipts: VecDeque::new(),
        });
        let mut held = Self {
            server,
            backend,
            callers: callers.collect(),
        };
        for _ in 0..if is_log { ENTRIES } else { 10 } {
            held.charge().await;
        }
        held
    }

    /// One more charge of every budget.
    async fn charge(&mut self) {
        let calls: Vec<_> = (self.callers.iter())
            .map(|Caller { budget, other, .. }| {
                let charges = [budget.charge(1), other.charge(1)];
                self.backend.decide(&charges)
            })
            .collect();
        for (caller, call) in self.callers.iter_mut().zip(calls) {
            let decision = call.await.unwrap();
            let charges = [caller.budget.charge(1), caller.other.charge(1)];
            caller.receipts.extend(decision.receipts(&charges));
        }
    }

    /// For how long one call of this held the server, or a little less: all calls, shared by those that were full.
    async fn round(&mut self, work: Work) -> Duration {
        if !matches!(work, Work::Decide | Work::Shadow) {
            self.charge().await;
        }
        let before = (on_core(&self.server), self.backend.stats().calls);
        match work {
            Work::Decide => self.decide([Mode::Enforce; 2]).await,
            Work::Shadow => self.decide([Mode::Shadow, Mode::Probe]).await,
            Work::Credit => {
                for caller in &mut self.callers {
                    for receipt in caller.receipts.drain(..2) {
                        self.backend.credit(receipt, 1);
                    }
                }
            }
            Work::Debit => {
                for caller in &mut self.callers {
                    self.backend.debit(&caller.receipts[0], 1);
                }
            }
            Work::Reset => {
                let resets: Vec<_> = (self.callers.iter())
                    .map(|Caller { budget, .. }| self.backend.reset(budget.scope, &budget.key))
                    .collect();
                for reset in resets {
                    reset.await.unwrap();
                }
            }
        }
        // Behind what nobody waits for.
        self.backend.decide(&[]).await.unwrap();
        let calls = self.backend.stats().calls - before.1;
        // The last takes along what is left.
        let full = u32::try_from(calls).unwrap() - 1;
        (on_core(&self.server) - before.0) / full
    }

    async fn decide(&self, modes: [Mode; 2]) {
        let calls: Vec<Decide> = (self.callers.iter())
            .map(|Caller { budget, other, .. }| {
                let mut charges = [budget.charge(1), other.charge(1)];
                for (charge, mode) in charges.iter_mut().zip(modes) {
                    charge.mode = mode;
                }
                self.backend.decide(&charges)
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
    }
}

/// In the server's own time on a core, since the server's own watch, SLOWLOG, runs on while somebody else has the core.
#[tokio::test]
async fn pitfall_no_call_holds_the_server_for_a_millisecond() {
    let day = Duration::from_secs(86_400);
    let by = |algorithm| Quota::new(1_000, day).using(algorithm);
    let offset = Duration::ZERO;
    let quotas = [
        Quota::per_hour(1_000_000),
        // Of rests, and of credits that are remembered for long.
        Quota::new(997, day).burst(1_000),
        Quota::new(1_000, HOUR).using(Algorithm::FixedWindow { offset }),
        by(Algorithm::SlidingWindow),
        by(Algorithm::RollingWindow { buckets: 10 }),
        by(Algorithm::RollingWindow { buckets: 128 }),
        Quota::new(1_024, day).using(Algorithm::SlidingLog),
    ];
    let mut too_long = Vec::new();
    for quota in quotas {
        let mut held = Held::by(quota).await;
        for work in [
            Work::Decide,
            Work::Shadow,
            Work::Debit,
            Work::Credit,
            // Of states that have been given back to.
            Work::Decide,
            Work::Debit,
            Work::Reset,
        ] {
            let mut each = Vec::with_capacity(ROUNDS);
            for _ in 0..ROUNDS {
                each.push(held.round(work).await);
            }
            each.sort();

            let (median, most) = (each[ROUNDS / 2], each[ROUNDS - 1 - EXCUSED]);
            println!("{quota}, {work:?}: {median:?} for each call, at most {most:?}");
            if most > MOST {
                too_long.push(format!("{quota}, {work:?}: {most:?}"));
            }
        }
    }
    assert!(too_long.is_empty(), "{too_long:#?}");
}

/// Otherwise a log that is debited again and again, each time in a microsecond of its own, would have eight times as many
/// entries as its limit, and hold the server for as much longer.
#[tokio::test]
async fn a_log_that_is_debited_grows_no_longer_than_one_that_is_charged() {
    let quota = Quota::new(1_024, HOUR * 24).using(Algorithm::SlidingLog);
    let server = Standalone::start();
    let builder = RedisBackend::builder(&server.url()).deadline(PATIENT);
    let backend = builder.connect().await.unwrap();
    let budget = Budget::of("debts", quota);
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    let (mut receipts, mut bytes) = (Vec::new(), Vec::new());

    // given a log that is full
    let charge = [budget.charge(1)];
    for _ in 0..1_024 {
        let decision = backend.decide(&charge).await.unwrap();
        assert!(decision.is_admitted());
        receipts.extend(decision.receipts(&charge));
    }

    // when it is debited
    for debits in [0, 1, 50] {
        for _ in 0..debits {
            backend.debit(&receipts[0], 1);
            // Behind what nobody waits for.
            backend.decide(&[]).await.unwrap();
        }
        let names: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
        let length = redis::cmd("STRLEN")
            .arg(&names)
            .query::<usize>(&mut connection);
        bytes.push(length.unwrap());
    }

    // then it has one entry more, and owes all of it
    assert_eq!(bytes, [1_024, 1_025, 1_025].map(|entries| 5 + 12 * entries));
    for receipt in receipts {
        backend.credit(receipt, 1);
    }
    // What nobody waits for may come after what somebody asks.
    let given_back = async {
        while budget.remaining(&backend).await != 1_024 - 51 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENT, given_back)
        .await
        .expect("all but the debt is given back");
}

/// For how long the server has had a core.
fn on_core(server: &Standalone) -> Duration {
    let path = format!("/proc/{}/schedstat", server.pid().unwrap());
    let said = std::fs::read_to_string(&path).unwrap();
    let nanoseconds = said.split(' ').next().unwrap().parse();
    Duration::from_nanos(nanoseconds.unwrap())
}
