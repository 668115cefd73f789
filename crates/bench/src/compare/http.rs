//! Over HTTP: a server that says hello in a process of its own, driven by wrk.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;

use clap::ValueEnum;
use tollgate_testkit::Standalone;

use super::part;
use super::report::Served;
use crate::Result;
use crate::measure::median;
use crate::serve::Who;

const CONNECTIONS: &str = "64";

/// The number of rounds in which all take turns, and the seconds of each turn.
const ROUNDS: [usize; 2] = [7, 2];
const TURN: [&str; 2] = ["2s", "1s"];

pub(super) fn measure(quick: bool) -> Result<Vec<Served>> {
    part("over HTTP, driven by wrk");
    take_turns(&Who::ALL, quick)
}

/// Limits on how many at once. Without nginx, those of axum's server alone.
pub(super) fn measure_at_once(quick: bool) -> Result<Vec<Served>> {
    part("over HTTP, driven by wrk: so many at once");
    let mut all = Who::AT_ONCE.to_vec();
    all.retain(|who| !who.is_nginx() || has_nginx());
    take_turns(&all, quick)
}

fn take_turns(all: &[Who], quick: bool) -> Result<Vec<Served>> {
    let redis = Standalone::start();
    pin(&redis)?;
    let decides = redis.pid().ok_or("no redis-server")?;
    let servers = all
        .iter()
        .map(|who| Server::start(*who, &redis.url()))
        .collect::<Result<Vec<_>>>()?;
    // Connections, tables and caches are warm by then.
    for server in &servers {
        server.drive("1s", decides)?;
    }
    let mut turns: Vec<Vec<Turn>> = servers.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS[usize::from(quick)] {
        for (server, turns) in servers.iter().zip(&mut turns) {
            turns.push(server.drive(TURN[usize::from(quick)], decides)?);
        }
    }
    let bare_of = |who: Who| all.iter().position(|one| *one == who.bare());
    let served = all.iter().zip(&turns).map(|(who, own)| {
        let bare = bare_of(*who).map_or(own, |place| &turns[place]);
        let middle = |of: fn(&Turn) -> f64| median(own.iter().map(of));
        let by_bare = |of: fn(&Turn) -> f64| {
            let pairs = own.iter().zip(bare);
            median(pairs.map(|(this, bare)| of(this) / of(bare)))
        };
        Served {
            who: who.about().to_owned(),
            per_second: middle(|turn| turn.per_second),
            processor_us: middle(|turn| turn.processor_us),
            wrk_us: middle(|turn| turn.wrk_us),
            redis_us: middle(|turn| turn.redis_us),
            p50_us: middle(|turn| turn.p50_us),
            p99_us: middle(|turn| turn.p99_us),
            rate_by_bare: by_bare(|turn| turn.per_second),
            processor_by_bare: by_bare(|turn| turn.processor_us),
            p50_by_bare: by_bare(|turn| turn.p50_us),
            p99_by_bare: by_bare(|turn| turn.p99_us),
        }
    });
    Ok(served.collect())
}

/// Says whether all needed tools are installed.
pub(super) fn is_there() -> bool {
    ["wrk", "taskset"].into_iter().all(starts)
}

pub(super) fn has_nginx() -> bool {
    starts("nginx")
}

fn starts(tool: &str) -> bool {
    let mut tool = Command::new(tool);
    let tool = tool.arg("-v").stdout(Stdio::null());
    tool.stderr(Stdio::null()).status().is_ok()
}

struct Turn {
    per_second: f64,
    processor_us: f64,
    wrk_us: f64,
    redis_us: f64,
    p50_us: f64,
    p99_us: f64,
}

/// Gone when it is dropped.
struct Server {
    /// Ends with its input.
    process: Child,
    /// The process that serves, which may be a child of that.
    serves: u32,
    url: String,
}

impl Server {
    fn start(who: Who, redis: &str) -> Result<Self> {
        let name = who.to_possible_value().ok_or("a server without a name")?;
        let mut process = on_core(0)
            .arg(env::current_exe()?)
            .args(["serve", name.get_name(), "--redis", redis])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().ok_or("a server without an output")?;
        let mut server = Self {
            process,
            serves: 0,
            url: String::new(),
        };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let said = line.trim().split_once(' ');
        let (port, serves) = said.ok_or_else(|| format!("the server {name:?} does not start"))?;
        server.url = format!("http://127.0.0.1:{port}/");
        server.serves = serves.parse()?;
        Ok(server)
    }

    /// The server has one core and wrk another, if there are two.
    fn drive(&self, turn: &str, redis: u32) -> Result<Turn> {
        let before = self.accounts(redis)?;
        let output = on_core(1)
            .args(["wrk", "-t1", "-c", CONNECTIONS, "-d", turn, "--latency"])
            .arg(&self.url)
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        if let Some(line) = text.lines().find(|line| line.contains("Non-2xx")) {
            return Err(format!("{}: {}", self.url, line.trim()).into());
        }
        let after = |name: &str| {
            let mut lines = text.lines().map(str::trim);
            let value = lines.find_map(|line| line.strip_prefix(name));
            value
                .map(str::trim)
                .ok_or_else(|| format!("wrk does not tell {name} in:\n{text}"))
        };
        let requests = text
            .lines()
            .find_map(|line| line.split_once(" requests in "));
        let (requests, _) = requests.ok_or_else(|| format!("wrk counts nothing:\n{text}"))?;
        let requests: f64 = requests.trim().parse()?;
        let accounts = before.into_iter().zip(self.accounts(redis)?);
        let mut spent = accounts.map(|(before, after)| (after - before) / requests);
        let mut next = || spent.next().unwrap_or(0.0);
        Ok(Turn {
            per_second: after("Requests/sec:")?.parse()?,
            processor_us: next(),
            wrk_us: next(),
            redis_us: next(),
            p50_us: micros(after("50%")?)?,
            p99_us: micros(after("99%")?)?,
        })
    }

    /// The processor time of the server, wrk and redis-server.
    fn accounts(&self, redis: u32) -> Result<[f64; 3]> {
        Ok([
            processor_us(self.serves)?,
            children_us()?,
            processor_us(redis)?,
        ])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _status = self.process.wait();
    }
}

/// The processor time of the threads of a process, which the kernel counts in nanoseconds.
fn processor_us(process: u32) -> Result<f64> {
    let mut nanos = 0.0;
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let account = fs::read_to_string(thread?.path().join("schedstat"))?;
        let own = account.split_whitespace().next();
        nanos += own.map_or(Ok(0.0), str::parse::<f64>)?;
    }
    Ok(nanos / 1e3)
}

/// The processor time of the child processes that have ended.
fn children_us() -> Result<f64> {
    let account = fs::read_to_string("/proc/self/stat")?;
    // The name may have spaces in it, and ends with the last bracket. From there on, both times stand thirteen words behind.
    let (_, account) = account
        .rsplit_once(')')
        .ok_or("no account of the children")?;
    let ticks = account
        .split_whitespace()
        .skip(13)
        .take(2)
        .map(str::parse::<f64>);
    let ticks = ticks.sum::<std::result::Result<f64, _>>()?;
    Ok(ticks * 1e6 / rustix::param::clock_ticks_per_second() as f64)
}

/// `812.00us`, `1.20ms` or `1.05s`, as wrk writes them.
fn micros(text: &str) -> Result<f64> {
    let (number, factor) = if let Some(number) = text.strip_suffix("us") {
        (number, 1.0)
    } else if let Some(number) = text.strip_suffix("ms") {
        (number, 1e3)
    } else {
        (text.trim_end_matches('s'), 1e6)
    };
    Ok(number.parse::<f64>()? * factor)
}

/// The nth core, or the last one.
fn core(n: usize) -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    n.min(cores - 1)
}

/// A command that is pinned to one core with all of its threads.
fn on_core(n: usize) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &core(n).to_string()]);
    command
}

/// Redis has a core of its own if there is a third. Otherwise it shares wrk's, and never the server's.
fn pin(redis: &Standalone) -> Result<()> {
    let pid = redis.pid().ok_or("no redis-server")?.to_string();
    let pinned = Command::new("taskset")
        .args(["-apc", &core(2).to_string(), &pid])
        .stdout(Stdio::null())
        .status()?;
    if pinned.success() {
        Ok(())
    } else {
        Err("taskset cannot keep redis-server on a core".into())
    }
}
