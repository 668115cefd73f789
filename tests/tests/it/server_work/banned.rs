//! The cost to the server of a banned caller that knocks at one hot key, beside that of denials without a ban.

use std::collections::{BTreeMap, HashMap};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tollgate_core::{Backend, Ban, Call, Charge, Key, Mode, Quota, Scope};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;

use super::common::Patience;

const SECOND: Duration = Duration::from_secs(1);

/// A caller that knocks this often in a second.
const KNOCKS: u32 = 10_000;

/// A budget that is used up, and another whose caller is banned as well.
struct Caller {
    backend: RedisBackend,
    key: Key,
    quota: Quota,
    ban: Quota,
}

impl Caller {
    async fn at(server: &Standalone, connections: usize) -> Self {
        // Each knock is to be counted, so none may be known.
        let builder = RedisBackend::builder(&server.url()).ask_every_denial();
        let builder = builder.connections(connections);
        let caller = Self {
            backend: builder.patient().connect().await.unwrap(),
            key: Key::from("mallory"),
            quota: Quota::per_day(1),
            ban: Quota::from(Ban::after(1, 600 * SECOND)),
        };
        let connected = async {
            // Each connection runs the script once before it serves, the later ones in the background.
            while commands(server).get("evalsha") < Some(&(connections as u64)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(super::common::PATIENT, connected)
            .await
            .unwrap();
        for charges in [&caller.denied()[..], &caller.banned()] {
            let mut admitted = Vec::new();
            for _ in 0..3 {
                let decision = caller.backend.decide(Call::of(charges)).await.unwrap();
                admitted.push(decision.is_admitted());
            }
            assert_eq!(admitted, [true, false, false]);
        }
        caller
    }

    fn charge<'a>(&'a self, policy: &str, quota: &'a Quota, cost: u64) -> Charge<'a> {
        Charge {
            scope: Scope::of(policy, 0, quota),
            quota,
            key: &self.key,
            cost,
            mode: Mode::Enforce,
        }
    }

    fn denied(&self) -> [Charge<'_>; 1] {
        [self.charge("plain", &self.quota, 1)]
    }

    fn banned(&self) -> [Charge<'_>; 2] {
        [
            self.charge("guarded", &self.quota, 1),
            self.charge("guarded", &self.ban, 0),
        ]
    }

    /// Knocks so often at once. None passes.
    async fn knock(&self, charges: &[Charge<'_>], together: u32) {
        let knocks: Vec<_> = (0..together)
            .map(|_| self.backend.decide(Call::of(charges)))
            .collect();
        for knock in knocks {
            assert!(!knock.await.unwrap().is_admitted());
        }
    }
}

/// The number of calls of each command, scripts' and clients', but for those that ask for it.
fn commands(server: &Standalone) -> HashMap<String, u64> {
    let stats = server.command(&["INFO", "commandstats"]);
    let lines = stats
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_"));
    let calls = lines.filter_map(|line| line.split_once(":calls="));
    calls
        .filter(|(command, _)| *command != "info")
        .map(|(command, calls)| {
            let calls = calls.split(',').next().unwrap();
            (command.to_owned(), calls.parse().unwrap())
        })
        .collect()
}

/// The commands that a server has run meanwhile, by name.
async fn commands_of(server: &Standalone, knocks: impl Future) -> BTreeMap<String, u64> {
    let before = commands(server);
    knocks.await;
    let after = commands(server).into_iter();
    after
        .map(|(command, calls)| {
            let earlier = before.get(&command).copied().unwrap_or(0);
            (command, calls - earlier)
        })
        .filter(|(_, calls)| *calls > 0)
        .collect()
}

fn count(commands: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let named = commands.iter();
    named.map(|(name, n)| ((*name).to_owned(), *n)).collect()
}

#[tokio::test]
async fn knocks_on_one_hot_key_cost_redis_the_calls_of_denials_and_one_state_more() {
    let server = Standalone::start();
    let caller = Caller::at(&server, 1).await;

    // The server has the scripts then.
    caller.knock(&caller.denied(), 65).await;
    caller.knock(&caller.banned(), 65).await;

    // One more than a call takes along.
    let denials = commands_of(&server, caller.knock(&caller.denied(), 65)).await;
    let bans = commands_of(&server, caller.knock(&caller.banned(), 65)).await;

    assert_eq!(denials, count(&[("evalsha", 2), ("get", 2), ("time", 2)]));
    // Two by the first, which is alone, and two at once by the others.
    assert_eq!(
        bans,
        count(&[("evalsha", 2), ("get", 2), ("mget", 1), ("time", 2)])
    );
}

/// Knocks at an even pace, whether or not the server has answered those before. Returns the time that it took.
async fn knock_for_a_second(caller: &Caller, charges: &[Charge<'_>]) -> Duration {
    let began_at = Instant::now();
    let runtime = Handle::current();
    let asking: Vec<_> = (0..KNOCKS)
        .map(|knock| {
            let due_at = began_at + SECOND * knock / KNOCKS;
            // A timer of the runtime would ring once for ten.
            thread::sleep(due_at.saturating_duration_since(Instant::now()));
            runtime.spawn(caller.backend.decide(Call::of(charges)))
        })
        .collect();
    for asked in asking {
        assert!(!asked.await.unwrap().unwrap().is_admitted());
    }
    began_at.elapsed()
}

/// On a busy machine it takes longer, and more knocks share a call: what holds for each call holds all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_knocks_in_a_second_read_two_states_in_each_call_and_write_none() {
    let server = Standalone::start();
    let caller = Caller::at(&server, 2).await;
    for (charges, states) in [(&caller.denied()[..], 1), (&caller.banned(), 2)] {
        // The server has the scripts then, of one request and of several.
        caller.knock(charges, 1).await;
        caller.knock(charges, 65).await;
        let mut took = Duration::ZERO;
        let knocking = async { took = knock_for_a_second(&caller, charges).await };
        let before = caller.backend.stats();

        let commands = commands_of(&server, knocking).await;

        let stats = caller.backend.stats();
        let calls = stats.calls - before.calls;
        println!("{took:?}: {calls} calls");
        assert_eq!(stats.requests - before.requests, u64::from(KNOCKS));
        let of = |command: &str| commands.get(command).copied().unwrap_or(0);
        assert_eq!([of("evalsha"), of("time")], [calls; 2]);
        // A call of several requests reads both states at once.
        let read = of("get") + of("mget") * if states > 1 { states } else { 1 };
        assert_eq!(read, calls * states);
        let others = commands
            .keys()
            .filter(|it| !["evalsha", "time", "get", "mget"].contains(&&it[..]));
        assert_eq!(others.count(), 0, "{commands:?}");
    }
}

/// The server's instructions for each of so many knocks, of which so many share a call. They come in a few rounds, and the cheapest
/// counts: the server's timer rings once a second and is counted too, so that a busy machine makes a round dearer, never cheaper.
async fn instructions_of_each(
    server: &Standalone,
    caller: &Caller,
    charges: &[Charge<'_>],
    together: u32,
    knocks: u32,
) -> u64 {
    const ROUNDS: u32 = 3;

    let calls = knocks / ROUNDS / together;
    let mut least = u64::MAX;
    // The server has the script then.
    caller.knock(charges, together).await;
    for _ in 0..ROUNDS {
        let (_so_far, before) = (server.instructions(), caller.backend.stats());
        for _ in 0..calls {
            caller.knock(charges, together).await;
        }
        least = least.min(server.instructions());
        assert_eq!(
            caller.backend.stats().calls - before.calls,
            u64::from(calls)
        );
    }
    least / u64::from(calls * together)
}

/// A server under valgrind keeps no pace, so the number that shares a call is given. Of 10,000 knocks a second it is one if a call
/// takes 0.1 ms, ten if it takes a millisecond, and 64 if it takes 6.4 ms or longer.
#[tokio::test]
async fn a_knock_costs_redis_at_most_half_more_than_a_denial() {
    let server = Standalone::start_counted();
    let caller = Caller::at(&server, 1).await;
    for (together, knocks) in [
        // About 55,800 to 38,100.
        (1, KNOCKS / 5),
        (2, KNOCKS / 5),
        (10, KNOCKS),
        // This many calls hide a ring of the timer.
        (64, 5 * KNOCKS),
    ] {
        let (plain, banned) = (caller.denied(), caller.banned());

        let denial = instructions_of_each(&server, &caller, &plain, together, knocks).await;
        let knock = instructions_of_each(&server, &caller, &banned, together, knocks).await;

        println!("{together} in a call: a denial takes {denial} instructions, a knock {knock}");
        let ratio = knock as f64 / denial as f64;
        assert!(ratio <= 1.5, "{together} in a call: {ratio}");
    }
}

/// They leave with it as a call of their own.
#[tokio::test]
async fn knocks_beside_a_request_without_a_ban_cost_redis_less_than_lone_ones() {
    const ROUNDS: u32 = 50;
    const KNOCKS_EACH: u32 = 63;

    let server = Standalone::start_counted();
    let caller = Caller::at(&server, 1).await;
    let (plain, banned) = (caller.denied(), caller.banned());
    let lone = instructions_of_each(&server, &caller, &banned, 1, 500).await;

    let (_so_far, before) = (server.instructions(), caller.backend.stats());
    for _ in 0..ROUNDS {
        let other = caller.backend.decide(Call::of(&plain));
        caller.knock(&banned, KNOCKS_EACH).await;
        assert!(!other.await.unwrap().is_admitted());
    }

    let each = server.instructions() / u64::from(ROUNDS * KNOCKS_EACH);
    assert_eq!(
        caller.backend.stats().calls - before.calls,
        2 * u64::from(ROUNDS)
    );
    println!("a lone knock takes {lone} instructions, and one beside another request {each}");
    assert!(each < lone, "{each} of {lone}");
}
