//! Counts, with valgrind's callgrind, the cost of a decision to redis-server.
//!
//! The server runs under callgrind, and the backend itself drives it, so that the counted calls are the real ones. For calls of
//! 64, a call without charges goes ahead: while it is on its way they gather.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;
use tollgate_core::{
    Answer, Backend, Ban, Call, Charge, Concurrent, Decision, Key, MAX_REPLAYS, Mode, Once, Quota,
    Scope, Timestamp,
};
use tollgate_redis::{RedisBackend, gateway};

use self::cases::{CASES, Case, PLENTY, Rule};
pub(crate) use self::cases::{bounds, plain};
use crate::{Result, callgrind};

mod cases;

/// The calls before the count, in which states are made and tables grow, and the counted calls.
const WARM_UP: u32 = 30;
const CALLS: u32 = 100;
/// The counted calls of a case in which a request is cheap because it shares its key: the rest of the call weighs more there.
const CALLS_FOR_ONE_KEY: u32 = 400;
/// The time for which the server's timer is counted, which runs meanwhile.
const IDLE: Duration = Duration::from_secs(4);

/// Cases of what is held: an acquire and its release together, by one of so many processes that hold. They have the names of cases
/// of a decision, by whose cost they are bounded.
const HELD: &[(&str, u32, bool)] = &[
    ("64 keys in a call", 64, false),
    ("64 for one hot key", 64, true),
    ("alone", 1, false),
];

/// The numbers of processes that hold, and the most that an acquire and its release may cost then, by an allowed decision.
const HOLDERS: [(usize, f64); 3] = [(1, 2.2), (10, 2.2), (1_024, 4.0)];

/// The cost of an acquire and its release together, in the case of a decision of this name.
pub(crate) struct HeldCost {
    pub(crate) case: &'static str,
    pub(crate) holders: usize,
    pub(crate) instructions: u64,
}

/// The costs in all cases: of decisions, allowed and denied, and of what is held.
pub(crate) struct Costs {
    pub(crate) decisions: Vec<(&'static str, [u64; 2])>,
    pub(crate) held: Vec<HeldCost>,
}

/// Prints a line for each case, or for each whose name has these words and each that stands beside such a one.
pub(crate) fn run(words: Option<&str>) -> Result<()> {
    let words = words.unwrap_or_default();
    let is_wanted = |case: &Case| {
        let beside = |other: &Case| {
            other
                .beside
                .as_ref()
                .is_some_and(|beside| beside.plain == case.name)
        };
        let stands_beside = |other: &Case| other.name.contains(words) && beside(other);
        case.name.contains(words) || CASES.iter().any(stands_beside)
    };
    runtime()?.block_on(async {
        let bench = Bench::start().await?;
        let empty = bench.empty_call().await?;
        println!("{empty:>8}  an empty EVALSHA with a key and an argument");
        println!("{:>8}  a call without charges", bench.ahead);
        println!("{:>8}  the timer, in a second\n", bench.server.idle);
        println!(" allowed (bound)       denied (bound)      case (calls)");
        let mut counted: Vec<(&str, [u64; 2])> = Vec::new();
        for (number, case) in { CASES.iter().enumerate() }.filter(|(_, case)| is_wanted(case)) {
            let (costs, calls) = bench.costs(number, case).await?;
            let plain = { case.beside.as_ref() }.and_then(|beside| of_case(&counted, beside.plain));
            let mut line = String::new();
            for (side, cost) in costs.iter().enumerate() {
                let times = plain.map(|plain| *cost as f64 / plain[side] as f64);
                let times = times.map(|times| format!("{times:.2} times"));
                let bound = case.bounds[side].map(|bound| format!("({bound})"));
                line.push_str(&format!(
                    "{cost:>8} {:<11} ",
                    times.or(bound).unwrap_or_default()
                ));
            }
            println!("{line} {} ({calls})", case.name);
            counted.push((case.name, costs));
        }
        if !words.is_empty() {
            return Ok(());
        }
        println!("\nan acquire and its release, by one decision (bound)");
        for cost in bench.all_held().await? {
            let decision = of_case(&counted, cost.case);
            let ratio = decision.map_or(f64::NAN, |[one, _]| cost.instructions as f64 / one as f64);
            let bound =
                held_bound(cost.holders).map_or_else(String::new, |most| format!("({most})"));
            let (instructions, case, holders) = (cost.instructions, cost.case, cost.holders);
            println!("{instructions:>8} {ratio:>5.1} {bound:<5} {case}, {holders} holders");
        }
        Ok(())
    })
}

pub(crate) fn costs() -> Result<Costs> {
    runtime()?.block_on(async {
        let bench = Bench::start().await?;
        let mut decisions = Vec::new();
        for (number, case) in CASES.iter().enumerate() {
            decisions.push((case.name, bench.costs(number, case).await?.0));
        }
        let held = bench.all_held().await?;
        Ok(Costs { decisions, held })
    })
}

/// The most that an acquire and its release may cost with so many processes that hold, by an allowed decision.
pub(crate) fn held_bound(holders: usize) -> Option<f64> {
    let bound = HOLDERS.iter().find(|(of, _)| *of == holders);
    bound.map(|(_, most)| *most)
}

fn of_case(counted: &[(&str, [u64; 2])], name: &str) -> Option<[u64; 2]> {
    let found = counted.iter().find(|(case, _)| *case == name);
    found.map(|(_, costs)| *costs)
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// A server, and its backend.
struct Bench {
    server: Server,
    backend: RedisBackend,
    /// The cost of a call without charges.
    ahead: u64,
}

impl Bench {
    async fn start() -> Result<Self> {
        let server = Server::start().await?;
        let backend = RedisBackend::builder(&server.url())
            .deadline(Duration::from_secs(60))
            .connect_deadline(Duration::from_secs(60))
            .connections(1)
            .ask_every_denial()
            .connect()
            .await?;
        // Behind another one, as it is counted with the others.
        let two = [vec![Vec::new(), Vec::new()]];
        let ahead = per_round(&server, &backend, &two, CALLS_FOR_ONE_KEY, None)
            .await?
            .0
            / 2;
        Ok(Self {
            server,
            backend,
            ahead,
        })
    }

    async fn empty_call(&self) -> Result<u64> {
        let mut connection = self.server.connection().await?;
        let mut load = redis::cmd("SCRIPT");
        let load = load.arg("LOAD").arg("return 1");
        let sha: String = load.query_async(&mut connection).await?;
        let mut empty = redis::cmd("EVALSHA");
        empty.arg(sha).arg(1).arg(&[b'k'; 31]).arg(&[b'a'; 46]);
        let mut before = 0;
        for counted in [false, true] {
            if counted {
                before = self.server.instructions()?;
            }
            for _ in 0..CALLS {
                let _one: i64 = empty.query_async(&mut connection).await?;
            }
        }
        Ok((self.server.instructions()? - before) / u64::from(CALLS))
    }

    /// The instructions per request, allowed and denied, and the number of calls.
    async fn costs(&self, number: usize, case: &Case) -> Result<([u64; 2], u64)> {
        let mut costs = [0; 2];
        let mut calls = 0;
        for (side, cost) in costs.iter_mut().enumerate() {
            // A budget of its own, which the other side has not used.
            let policy = format!("bench{number:x}{side}");
            (*cost, calls) = self.cost(case, &policy, &case.quotas[side]).await?;
        }
        Ok((costs, calls))
    }

    async fn cost(&self, case: &Case, policy: &str, quota: &Quota) -> Result<(u64, u64)> {
        if let Some(beside) = &case.beside
            && beside.rule == Rule::DecideForm
        {
            return Ok((self.decide_form(policy, quota).await?, 1));
        }
        let (own, other) = (Scope::of(policy, 0, quota), Scope::of(policy, 1, quota));
        let callers = if case.one_key { 1 } else { case.requests };
        // With prefix, policy and separators a name of 31 bytes.
        let keys: Vec<_> = (0..callers)
            .map(|caller| Key::from(format!("caller-{caller:02}")))
            .collect();
        let shared = Key::from("everybody");
        let rule = case.beside.as_ref().map(|beside| beside.rule);
        let ban = Ban::after(1, Duration::from_secs(86_400));
        let ban: Option<Quota> = match rule {
            Some(Rule::Ban) => Some(ban.into()),
            Some(Rule::Extending) => Some(ban.extending().into()),
            _ => None,
        };
        let of_others = match rule {
            Some(Rule::Share(percent)) => quota.keeping(quota.capacity() * percent / 100),
            _ => *quota,
        };
        let once: Option<Quota> = match rule {
            Some(Rule::NewId) => Some(Once::default().into()),
            Some(Rule::Replay) => Some(remembered()?.into()),
            _ => None,
        };
        // As many ids as requests, anew for each round if they are to be new.
        let calls = if case.one_key {
            CALLS_FOR_ONE_KEY
        } else {
            CALLS
        };
        let sets = match rule {
            Some(Rule::NewId) => WARM_UP + calls,
            Some(Rule::Replay) => 1,
            _ => 0,
        };
        let ids: Vec<Vec<Key>> = (0..sets)
            .map(|set| {
                let ids = (0..case.requests).zip(keys.iter().cycle());
                let ids = ids.map(|(request, caller)| {
                    let id = Key::from(u64::from(set * case.requests + request));
                    Key::tuple([caller, &id])
                });
                ids.collect()
            })
            .collect();
        let (amount, at_least) = match rule {
            Some(Rule::UpTo(most)) => (most, Some(1)),
            _ => (1, None),
        };
        let rounds = (0..sets.max(2) as usize).map(|round| {
            let quota = [quota, &of_others][round % 2];
            let charge = |scope, key| Charge {
                scope,
                quota,
                key,
                cost: amount,
                mode: Mode::Enforce,
            };
            let requests = keys.iter().cycle().take(case.requests as usize);
            let requests = requests.enumerate().map(|(request, key)| {
                let own = charge(own, key);
                // A denial by the budget of all would be no strike of a caller.
                let of_all = if ban.is_some() { &PLENTY } else { quota };
                let global = case.shared.then(|| Charge {
                    quota: of_all,
                    ..charge(other, &shared)
                });
                let second = case.second.then(|| charge(other, key));
                let ban = ban.as_ref().map(|ban| Charge {
                    quota: ban,
                    cost: 0,
                    ..charge(Scope::of(policy, 0, ban), key)
                });
                let id = once.as_ref().map(|once| Charge {
                    quota: once,
                    ..charge(Scope::of(policy, 0, once), &ids[round % ids.len()][request])
                });
                let others = global.into_iter().chain(second).chain(ban).chain(id);
                [own].into_iter().chain(others).collect()
            });
            requests.collect::<Vec<Vec<_>>>()
        });
        let rounds: Vec<_> = rounds.collect();
        let (round, calls) =
            per_round(&self.server, &self.backend, &rounds, calls, at_least).await?;
        if case.requests == 1 {
            return Ok((round, calls));
        }
        let requests = u64::from(case.requests);
        Ok((round.saturating_sub(self.ahead) / requests, calls - 1))
    }
}

impl Bench {
    /// The instructions of a lone request of a gateway, by a connection that asks for nothing else.
    async fn decide_form(&self, policy: &str, quota: &Quota) -> Result<u64> {
        let mut connection = self.server.connection().await?;
        let mut load = redis::cmd("SCRIPT");
        let load = load.arg("LOAD").arg(gateway::script());
        let sha: String = load.query_async(&mut connection).await?;
        let charge = Charge {
            scope: Scope::of(policy, 0, quota),
            quota,
            key: &Key::from("caller-00"),
            cost: 1,
            mode: Mode::Enforce,
        };
        let words = gateway::charge(&charge, 0, Timestamp::default());
        let words = words.ok_or("the decide form does not take this quota")?;
        let name = gateway::name_head("tollgate", charge.scope) + "=caller-00";
        let mut ask = redis::cmd("EVALSHA");
        let ask = ask.arg(sha).arg(1).arg(name).arg(words);
        let mut counted = (0, Instant::now());
        for round in 0..WARM_UP + CALLS {
            if round == WARM_UP {
                counted = (self.server.instructions()?, Instant::now());
            }
            let reply: String = ask.query_async(&mut connection).await?;
            // So that nothing but a decision is counted.
            if !matches!(reply.split(' ').nth(2), Some("0" | "1")) {
                return Err(format!("the decide form answers {reply}").into());
            }
        }
        let timer = self.server.timer_during(counted.1.elapsed());
        let instructions = self.server.instructions()? - counted.0;
        Ok(instructions.saturating_sub(timer) / u64::from(CALLS))
    }
}

/// The terms of ids that stay remembered while they are counted.
fn remembered() -> Result<Once> {
    Ok(Once::try_within(Duration::from_secs(3_600))?.try_replays(MAX_REPLAYS)?)
}

impl Bench {
    async fn all_held(&self) -> Result<Vec<HeldCost>> {
        let mut costs = Vec::new();
        for (number, &(case, requests, one_key)) in HELD.iter().enumerate() {
            for (holders, _) in HOLDERS {
                let policy = format!("held{number:x}-{holders}");
                let instructions = self.held(&policy, requests, one_key, holders).await?;
                costs.push(HeldCost {
                    case,
                    holders,
                    instructions,
                });
            }
        }
        Ok(costs)
    }

    /// The instructions of an acquire and its release. The process itself holds one unit of each key meanwhile, and so does each
    /// of the others.
    async fn held(
        &self,
        policy: &str,
        requests: u32,
        one_key: bool,
        holders: usize,
    ) -> Result<u64> {
        let quota: Quota = Concurrent::at_most(1_000_000).into();
        let scope = Scope::of(policy, 0, &quota);
        let callers = if one_key { 1 } else { requests };
        let keys: Vec<_> = (0..callers)
            .map(|caller| Key::from(format!("caller-{caller:02}")))
            .collect();
        let names: Vec<_> = (0..callers)
            .map(|caller| format!("tollgate:{policy}:0/h:=caller-{caller:02}"))
            .collect();
        let mut connection = self.server.connection().await?;
        if holders > 1 {
            let others = held_by(holders - 1)?;
            for name in &names {
                let mut set = redis::cmd("SET");
                let set = set.arg(name).arg(&others).arg("PX").arg(1_000_000);
                let () = set.query_async(&mut connection).await?;
            }
        }
        let held = |key| Charge {
            scope,
            quota: &quota,
            key,
            cost: 1,
            mode: Mode::Enforce,
        };
        let charges: Vec<_> = { keys.iter().cycle().take(requests as usize) }
            .map(held)
            .collect();
        // Units that stay held for the time of the count.
        let mut stay = Vec::new();
        for key in &keys {
            let charge = [held(key)];
            stay.extend(
                self.backend
                    .decide(Call::of(&charge))
                    .await?
                    .receipts(&charge),
            );
        }
        let rounds = if holders > 100 { 12 } else { CALLS };
        let mut counted = (0, 0);
        for round in 0..=rounds {
            if round == 1 {
                counted = (self.server.instructions()?, self.backend.stats().calls);
            }
            let ahead = (requests > 1).then(|| self.backend.decide(Call::of(&[])));
            let asked: Vec<Answer<Decision>> = { charges.iter() }
                .map(|charge| self.backend.decide(Call::of(std::slice::from_ref(charge))))
                .collect();
            if let Some(ahead) = ahead {
                ahead.await?;
            }
            let mut receipts = Vec::new();
            for (charge, asked) in charges.iter().zip(asked) {
                receipts.extend(asked.await?.receipts(std::slice::from_ref(charge)));
            }
            for receipt in receipts {
                self.backend.refund(receipt, 1);
            }
            // Behind the releases, which leave together.
            self.backend.decide(Call::of(&[])).await?;
            self.backend.decide(Call::of(&[])).await?;
        }
        let rounds = u64::from(rounds);
        let each = (self.server.instructions()? - counted.0) / rounds;
        let calls = (self.backend.stats().calls - counted.1) / rounds;
        for name in &names {
            let mut length = redis::cmd("STRLEN");
            let length: usize = length.arg(name).query_async(&mut connection).await?;
            if length != 21 + 32 * holders {
                return Err(format!("{name} has {length} bytes for {holders} holders").into());
            }
        }
        for receipt in stay {
            self.backend.refund(receipt, 1);
        }
        // All calls but that of the acquires and that of the releases are without charges.
        Ok(each.saturating_sub((calls - 2) * self.ahead) / u64::from(requests))
    }
}

/// A state of what is held by so many others, for longer than the count takes.
fn held_by(others: usize) -> Result<Vec<u8>> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let expires = u64::try_from(now.as_millis())? + 110_000;
    let mut state = vec![252];
    state.extend((others as f64).to_le_bytes());
    state.extend(&expires.to_le_bytes()[..6]);
    state.extend(&expires.to_le_bytes()[..6]);
    for other in 0..others {
        state.extend((0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(other as u64 + 1)).to_le_bytes());
        for part in [0, 1, 255, expires] {
            state.extend(&part.to_le_bytes()[..6]);
        }
    }
    Ok(state)
}

/// The instructions and calls of a round of requests that are made at once, one round after the other, in turn. A call without
/// charges goes ahead of many requests. If there is a least amount, they ask for as much as there is.
async fn per_round(
    server: &Server,
    backend: &RedisBackend,
    rounds: &[Vec<Vec<Charge<'_>>>],
    calls: u32,
    at_least: Option<u64>,
) -> Result<(u64, u64)> {
    let mut counted = (0, 0, Instant::now());
    for (round, requests) in (0..WARM_UP + calls).zip(rounds.iter().cycle()) {
        if round == WARM_UP {
            counted = (
                server.instructions()?,
                backend.stats().calls,
                Instant::now(),
            );
        }
        let ahead = (requests.len() != 1).then(|| backend.decide(Call::of(&[])));
        let ask = |charges: &Vec<Charge<'_>>| backend.decide(Call { charges, at_least });
        let asked: Vec<Answer<Decision>> = requests.iter().map(ask).collect();
        for decision in ahead.into_iter().chain(asked) {
            decision.await?;
        }
    }
    let timer = server.timer_during(counted.2.elapsed());
    let (made, rounds) = (backend.stats().calls - counted.1, u64::from(calls));
    let instructions = server.instructions()? - counted.0;
    Ok((instructions.saturating_sub(timer) / rounds, made / rounds))
}

/// redis-server under callgrind. Gone when it is dropped.
pub(crate) struct Server {
    folder: TempDir,
    process: Child,
    /// The instructions of an idle second.
    idle: u64,
}

impl Server {
    pub(crate) async fn start() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("tollgate-").tempdir()?;
        let counts = folder.path().join("counts");
        let process = Command::new("valgrind")
            .arg("--tool=callgrind")
            .arg(format!("--callgrind-out-file={}", counts.display()))
            .args(["redis-server", "--port", "0", "--save", "", "--hz", "1"])
            .arg("--dir")
            .arg(folder.path())
            .arg("--unixsocket")
            .arg(folder.path().join("socket"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| callgrind::missing(&error))?;
        let mut server = Self {
            folder,
            process,
            idle: 0,
        };
        for _ in 0..200 {
            if server.connection().await.is_ok() {
                let before = server.instructions()?;
                sleep(IDLE).await;
                server.idle = (server.instructions()? - before) / IDLE.as_secs();
                return Ok(server);
            }
            sleep(Duration::from_millis(50)).await;
        }
        Err("redis-server does not answer under valgrind within 10 s: is it installed?".into())
    }

    pub(crate) fn url(&self) -> String {
        format!(
            "redis+unix://{}",
            self.folder.path().join("socket").display()
        )
    }

    async fn connection(&self) -> Result<MultiplexedConnection> {
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let client = redis::Client::open(self.url())?;
        Ok(client
            .get_multiplexed_async_connection_with_config(&config)
            .await?)
    }

    /// The instructions of the server's timer in so much time. A slow machine gives it more of that for each call.
    fn timer_during(&self, elapsed: Duration) -> u64 {
        (u128::from(self.idle) * elapsed.as_micros() / 1_000_000) as u64
    }

    /// Instructions since it was started.
    pub(crate) fn instructions(&self) -> Result<u64> {
        let pid = self.process.id().to_string();
        let status = Command::new("callgrind_control")
            .args(["--dump", &pid])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .map_err(|error| callgrind::missing(&error))?;
        if !status.success() {
            return Err("callgrind_control cannot reach redis-server".into());
        }
        let mut total = 0;
        for part in 1.. {
            let path: PathBuf = self.folder.path().join(format!("counts.{part}"));
            let Ok(text) = fs::read_to_string(path) else {
                break;
            };
            let counts = text
                .lines()
                .filter_map(|line| line.strip_prefix("totals: "));
            total += counts
                .filter_map(|count| count.parse::<u64>().ok())
                .sum::<u64>();
        }
        Ok(total)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.process.kill();
        let _status = self.process.wait();
    }
}
