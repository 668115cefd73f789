//! The script by itself: the tests count what it admits and leaves behind, from its own replies and from the bytes on the
//! server. Core's rules have no part in it, so that a mistake in both is found.

mod calendars;
mod calls;
mod credits;
mod debts;
mod decide_form;
mod refills;
mod rests;
mod warm_ups;
mod windows;

use redis::{Client, Connection, RedisResult, Value};
use smallvec::smallvec;
use tollgate_core::{Call, Charge, Key, Mode, Quota, Receipt, Scope, State, Timestamp, decide};
use tollgate_testkit::Standalone;

use super::calendars::Calendars;
use super::numbers::Reader;
use super::plan::ScriptCall;
use super::{Plan, Request, Work};
use crate::script::{Composed, Script, Shape};

const SECOND: u64 = 1_000_000;

/// Far ahead of the server's clock, so that no key expires meanwhile.
const START: u64 = 3_500_000_000 * SECOND;

const KEY: &[u8] = b"key";

struct Server {
    _server: Standalone,
    redis: Connection,
    script: String,
    composed: Composed,
    now: u64,
}

impl Server {
    fn start() -> Self {
        let server = Standalone::start();
        let url = format!("redis+unix://{}", server.socket().display());
        let mut redis = Client::open(url).unwrap().get_connection().unwrap();
        let script = redis::cmd("SCRIPT")
            .arg("LOAD")
            .arg(Script::with_clock("clock").source())
            .query(&mut redis)
            .unwrap();
        Self {
            _server: server,
            redis,
            script,
            composed: Composed::with_clock("clock"),
            now: START,
        }
    }

    fn send(&mut self, request: &Request) -> Value {
        let (_, call) = Plan::with(Calendars::at(self.now), [request]);
        self.call(&call)
    }

    /// The reply of the script of the call's shape, or of the general one if that leaves the call to it.
    fn call(&mut self, call: &ScriptCall<'_>) -> Value {
        if let Some(script) =
            Shape::of(&call.runs, call.keys.len()).and_then(|shape| self.composed.script(shape))
        {
            let mut load = redis::cmd("SCRIPT");
            let load = load.arg("LOAD").arg(script.source());
            load.exec(&mut self.redis).unwrap();
            let reply = self.call_of(script.sha(), call);
            if reply != Value::BulkString(Vec::new()) {
                return reply;
            }
        }
        let script = self.script.clone();
        self.call_of(&script, call)
    }

    fn call_of(&mut self, script: &str, call: &ScriptCall<'_>) -> Value {
        let mut command = redis::pipe();
        command.cmd("SET").arg("clock").arg(self.now).ignore();
        command.cmd("EVALSHA").arg(script).arg(call.keys.len());
        for part in &call.keys {
            command.arg(&part[..]);
        }
        for run in &call.runs {
            command.arg(&run[..]);
        }
        let [reply] = command.query::<[Value; 1]>(&mut self.redis).unwrap();
        reply
    }

    /// Says whether a charge is admitted.
    fn admits(&mut self, quota: &Quota, cost: u64) -> bool {
        let reply = self.send(&request(quota, Mode::Enforce, &[cost]));
        admitted(&reply) == 1
    }

    /// Says whether a charge is admitted together with one on a budget of which there is always enough.
    fn admits_beside_another(&mut self, quota: &Quota, cost: u64) -> bool {
        let (key, plenty) = (
            Key::from("anybody"),
            Quota::per_second(1_000).burst(1_000_000),
        );
        let charge = |quota, cost| Charge {
            scope: Scope::of("by-itself", 0, quota),
            quota,
            key: &key,
            cost,
            mode: Mode::Enforce,
        };
        let request = Request {
            work: Work::decide(Call::of(&[charge(quota, cost), charge(&plenty, 1)])),
            names: smallvec![KEY.into(), b"plenty"[..].into()],
            owed: None,
            known: None,
        };
        admitted(&self.send(&request)) == 1
    }

    /// Debits without an earlier charge: a debit takes only the quota from its receipt. Piece by piece, because a cost above
    /// the capacity is sent as the capacity plus one.
    fn debit(&mut self, quota: &Quota, mut n: u64) {
        while n > 0 {
            let piece = n.min(quota.capacity());
            let mut run = vec![1, 2, 1];
            run.extend_from_slice(&charge_words(quota, piece)[..]);
            run.push(1);
            self.run(&run);
            n -= piece;
        }
    }

    /// Gives back a charge made at `at`, after which the budget was to be full at `full_at`.
    fn refund(&mut self, quota: &Quota, n: u64, at: u64, full_at: u64) {
        let mut run = vec![1, 1, 1];
        run.extend_from_slice(&charge_words(quota, n)[..]);
        run.push(1);
        run.extend_from_slice(&(at as f64).to_le_bytes());
        run.extend_from_slice(&(full_at as f64).to_le_bytes());
        run.extend_from_slice(&[0; 4]);
        self.run(&run);
    }

    fn run(&mut self, run: &[u8]) {
        self.try_run(run).unwrap();
    }

    fn try_run(&mut self, run: &[u8]) -> RedisResult<()> {
        let mut command = redis::pipe();
        command.cmd("SET").arg("clock").arg(self.now).ignore();
        command
            .cmd("EVALSHA")
            .arg(&self.script)
            .arg(1)
            .arg(KEY)
            .arg(run)
            .ignore();
        command.exec(&mut self.redis)
    }

    fn state(&mut self) -> Vec<u8> {
        self.state_if_any().unwrap()
    }

    fn put_state(&mut self, value: &[u8]) {
        let mut set = redis::cmd("SET");
        set.arg(KEY).arg(value).exec(&mut self.redis).unwrap();
    }

    /// Says that calls of one charge and of two find no state in this value, show it as an empty text, and leave it as it is.
    #[track_caller]
    fn takes_for_foreign(&mut self, quota: &Quota, value: &[u8]) {
        self.put_state(value);
        for costs in [&[1][..], &[1, 1]] {
            let reply = self.send(&request(quota, Mode::Enforce, costs));
            let Value::BulkString(text) = reply else {
                panic!("{reply:?}");
            };
            let end = &text[text.len() - 3..];
            assert_eq!(end, [0, 0x91, 0xa0], "{quota}: {text:?}, {value:?}");
        }
        assert_eq!(self.state(), value, "{quota}");
    }

    fn state_if_any(&mut self) -> Option<Vec<u8>> {
        redis::cmd("GET").arg(KEY).query(&mut self.redis).unwrap()
    }

    /// Makes the server refuse writes without this many replicas.
    fn needs_replicas(&mut self, count: u32) {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("min-replicas-to-write").arg(count);
        set.exec(&mut self.redis).unwrap();
    }

    fn forget(&mut self) {
        redis::cmd("DEL").arg(KEY).exec(&mut self.redis).unwrap();
    }

    /// The time for which a bucket's state says that something is owed; a rest counts as a microsecond.
    fn owed_us(&mut self) -> u64 {
        let state = self.state();
        let mut reader = Reader(&state[1..]);
        let at = reader.whole().unwrap();
        let rest = reader.u32().unwrap_or(0);
        (at + u64::from(rest > 0)).saturating_sub(self.now)
    }
}

/// The number of admitted requests in a reply, up to 127.
fn admitted(reply: &Value) -> u8 {
    let Value::BulkString(text) = reply else {
        panic!("{reply:?}");
    };
    text.split(|byte| *byte == b' ').nth(2).unwrap()[0]
}

fn request(quota: &Quota, mode: Mode, costs: &[u64]) -> Request {
    let key = Key::from("anybody");
    let charges: Vec<_> = costs
        .iter()
        .map(|cost| Charge {
            scope: Scope::of("by-itself", 0, quota),
            quota,
            key: &key,
            cost: *cost,
            mode,
        })
        .collect();
    Request {
        work: Work::decide(Call::of(&charges)),
        names: smallvec![KEY.into(); costs.len()],
        owed: None,
        known: None,
    }
}

/// The words of a probe's charge.
fn charge_words(quota: &Quota, cost: u64) -> Vec<u8> {
    let (_, call) = {
        let request = request(quota, Mode::Probe, &[cost]);
        let (plan, call) = Plan::with(Calendars::at(START), [&request]);
        (plan, call.runs)
    };
    // Without times, verb and number of charges, and without the number of the key.
    let words = &call[0];
    words[3..words.len() - 1].to_vec()
}

fn drain_us(quota: &Quota, units: u64) -> u64 {
    let drain = u128::from(units) * quota.period().as_micros();
    u64::try_from(drain / u128::from(quota.limit())).unwrap()
}

/// The receipt of one unit, taken at this time.
fn receipt(quota: &Quota, now: u64) -> Receipt {
    let key = Key::from("anybody");
    let charge = Charge {
        scope: Scope::of("by-itself", 0, quota),
        quota,
        key: &key,
        cost: 1,
        mode: Mode::Enforce,
    };
    let mut states = [State::full(quota)];
    let decision = decide(
        Timestamp::from_micros(now),
        Call::of(&[charge]),
        &mut states[..],
    );
    decision.receipts(&[charge]).next().unwrap()
}
