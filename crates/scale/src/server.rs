//! A server: its queue, its states, and the time that a call takes it.

use std::collections::HashMap;

use tollgate_core::{
    Call, Charge, Decision, Key, Mode, Quota, Receipt, Scope, State, Timestamp, decide,
};

/// Instructions of redis-server for a call, for each key in it, and for each further request of a key in it. `BENCHMARKS.md` has
/// 39,678 for a lone decision, 15,133 for each of 64 keys in a call, and 1,464 for each of 64 requests for one key.
const OF_A_CALL: u64 = 25_000;
const OF_A_KEY: u64 = 15_000;
const OF_ANOTHER: u64 = 900;

/// Instructions in a nanosecond, thousand-fold: two in each cycle of 3.2 GHz, as `docs/redis.md` counts them.
const IN_A_MICROSECOND: u64 = 6_400;

/// The busy time of a server for a call of these keys, in nanoseconds. They get sorted.
pub(crate) fn service_ns(keys: &mut [u32]) -> u64 {
    keys.sort_unstable();
    let further = keys.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
    let distinct = keys.len() as u64 - further;
    let instructions = OF_A_CALL + OF_A_KEY * distinct + OF_ANOTHER * further;
    instructions * 1_000 / IN_A_MICROSECOND
}

/// The charge of a key.
pub(crate) fn charge<'a>(quota: &'a Quota, key: &'a Key, cost: u64) -> Charge<'a> {
    Charge {
        scope: Scope::of("fleet", 0, quota),
        quota,
        key,
        cost,
        mode: Mode::Enforce,
    }
}

/// One server. Its clock is that of the fleet.
#[derive(Debug)]
pub(crate) struct Server {
    /// The region in which it stands.
    pub(crate) region: u32,
    /// The agent that leases from home for it, if it is a region's store and has no states.
    pub(crate) store: Option<usize>,
    free_ns: u64,
    busy_ns: u64,
    pub(crate) calls: u64,
    states: HashMap<u32, State>,
}

impl Server {
    pub(crate) fn new(region: u32, store: Option<usize>) -> Self {
        Self {
            region,
            store,
            free_ns: 0,
            busy_ns: 0,
            calls: 0,
            states: HashMap::new(),
        }
    }

    /// Takes in a call that comes now: the times at which it is decided and done.
    pub(crate) fn serve(&mut self, now_ns: u64, service_ns: u64, is_counted: bool) -> [u64; 2] {
        let start = now_ns.max(self.free_ns);
        self.free_ns = start + service_ns;
        if is_counted {
            self.busy_ns += service_ns;
            self.calls += 1;
        }
        [start, self.free_ns]
    }

    pub(crate) fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    fn state(&mut self, key: u32, quota: &Quota) -> &mut State {
        self.states.entry(key).or_insert_with(|| State::full(quota))
    }

    pub(crate) fn decide(&mut self, at_us: u64, key: u32, quota: &Quota) -> Decision {
        let states = std::slice::from_mut(self.state(key, quota));
        let name = Key::global();
        decide(
            Timestamp::from_micros(at_us),
            Call::of(&[charge(quota, &name, 1)]),
            states,
        )
    }

    pub(crate) fn grant(&mut self, at_us: u64, key: u32, quota: &Quota, most: u64) -> Decision {
        let states = std::slice::from_mut(self.state(key, quota));
        let name = Key::global();
        decide(
            Timestamp::from_micros(at_us),
            Call::of(&[charge(quota, &name, most)]).at_least(1),
            states,
        )
    }

    pub(crate) fn refund(&mut self, at_us: u64, key: u32, receipt: &Receipt, n: u64) {
        let state = self.state(key, receipt.quota());
        receipt.credit_to(state, Timestamp::from_micros(at_us), n);
    }
}
