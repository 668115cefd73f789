//! The processor's time that a worker of nginx takes for a request, in one run that takes turns: without Redis, with a bare `GET`
//! to Redis, and with the Lua module. It starts everything itself, with the configuration of `lua/nginx/README.md`, and prints a
//! table.
//!
//! ```text
//! cargo build -p tollgate-cli && cargo run -p tollgate-cli --example nginx
//! ```
//!
//! `tests/it/nginx/pace.rs` counts the instructions, which no other load changes.

#![allow(
    clippy::cast_precision_loss,
    clippy::float_arithmetic,
    clippy::print_stdout,
    reason = "it prints measurements"
)]

use std::error::Error;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use tollgate_testkit::{Nginx, Standalone};

#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../tests/it/nginx/page.rs"]
mod page;

/// The ways, each with the name in the table.
const WAYS: [(&str, &str); 3] = [
    ("/nothing/", "no question"),
    (page::BARE, "a bare `GET` by `lua-nginx-redis`"),
    (page::OURS, "this module"),
];

const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_secs(1);
const CONNECTIONS: usize = 16;
/// The kernel counts time in hundredths of a second, on every usual Linux.
const TICK_US: f64 = 10_000.0;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let redis = Standalone::start();
    let _said = redis.command(&["SET", "counter", "12345"]);
    let folder = tempfile::tempdir()?;
    let (toml, json) = (
        folder.path().join("limits.toml"),
        folder.path().join("nginx.json"),
    );
    fs::write(&toml, page::LIMITS)?;
    // Beside the folder of the examples.
    let program = env::current_exe()?.with_file_name("../tollgate");
    let mut converting = Command::new(program);
    let converting = converting.arg("nginx").arg(&toml);
    if !converting.arg("--output").arg(&json).status()?.success() {
        return Err("the program does not write the file: cargo build -p tollgate-cli".into());
    }
    let nginx = Nginx::start_with_lua(&page::measured(&json, redis.port()));
    let mut times = [const { Vec::new() }; WAYS.len()];
    for round in 0..=ROUNDS {
        for ((path, _), times) in WAYS.iter().zip(&mut times) {
            let time = time_us(&nginx, path)?;
            // The first round warms up.
            if round > 0 {
                times.push(time);
            }
        }
    }
    let middles = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    println!("| for each request | time of the worker | pace |");
    println!("| --- | --: | --: |");
    for ((_, name), middle) in WAYS.iter().zip(middles) {
        println!("| {name} | {middle:.1} µs | {:.2} |", middles[1] / middle);
    }
    Ok(())
}

/// The time of the worker for each request of a round.
fn time_us(nginx: &Nginx, path: &str) -> Result<f64, Failure> {
    let before = ticks(nginx.process_id())?;
    let address = nginx.address();
    let asked: Result<usize, Failure> = thread::scope(|scope| {
        let asking: Vec<_> = (0..CONNECTIONS)
            .map(|caller| scope.spawn(move || asked(address, path, caller)))
            .collect();
        let asked = asking
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a client did not end")?);
        asked.sum()
    });
    Ok((ticks(nginx.process_id())? - before) * TICK_US / asked? as f64)
}

fn asked(to: SocketAddr, path: &str, caller: usize) -> Result<usize, Failure> {
    let mut connection = page::connection(to)?;
    let (begun, mut count) = (Instant::now(), 0);
    while begun.elapsed() < ROUND {
        page::ask(&mut connection, path, caller)?;
        count += 1;
    }
    Ok(count)
}

/// The time so far of the only worker of this nginx, in user mode and in the kernel.
fn ticks(of: u32) -> Result<f64, Failure> {
    let children = fs::read_to_string(format!("/proc/{of}/task/{of}/children"))?;
    let worker = children.split_whitespace().next();
    let worker = worker.ok_or("nginx has no worker")?;
    let stat = fs::read_to_string(format!("/proc/{worker}/stat"))?;
    // The name before it may have blanks.
    let (_, numbers) = stat.rsplit_once(") ").ok_or("/proc has another form")?;
    let numbers = numbers.split_whitespace().skip(11).take(2);
    Ok(numbers
        .filter_map(|number| number.parse::<f64>().ok())
        .sum())
}
