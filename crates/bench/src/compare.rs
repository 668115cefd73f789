//! Everything side by side: measured, written down as `target/bench/report.json`, and shown.

mod figures;
mod floors;
mod growth;
mod http;
mod layers;
mod pages;
mod redis;
mod report;
mod setting;
mod threads;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;

pub(crate) use self::figures::thousands;
pub(crate) use self::floors::BY_PEER;
use self::floors::Floor;
use self::report::Report;
use crate::Result;

#[derive(Args)]
pub(crate) struct Compare {
    /// Two minutes rather than ten: fewer rounds, shorter turns, a smaller flood, at most a million keys
    #[arg(long)]
    quick: bool,
    /// Measures nothing: writes the pages anew from the last report
    #[arg(long, conflicts_with = "quick")]
    again: bool,
    /// Measures over HTTP alone, and takes the rest from the last report
    #[arg(long, conflicts_with = "again")]
    http: bool,
}

impl Compare {
    pub(crate) fn run(&self) -> Result<()> {
        let report = if self.again {
            last()?
        } else {
            let report = if self.http {
                measured_over_http(self.quick, last()?)?
            } else {
                measured(self.quick)?
            };
            let path = path();
            fs::create_dir_all(path.parent().ok_or("no folder for the report")?)?;
            fs::write(path, serde_json::to_string_pretty(&report)?)?;
            report
        };
        pages::write(&report)?;
        println!("BENCHMARKS.md and the table in README.md are written");
        for floor in floors::floors(&report)
            .iter()
            .filter(|floor| !floor.is_met())
        {
            println!("missed: {}", pages::sentence(floor));
        }
        Ok(())
    }
}

/// Says which part is measured next.
fn part(what: &str) {
    eprintln!("{what}");
}

/// Fails, and names each floor that the last report misses.
pub(crate) fn check() -> Result<()> {
    let floors = floors::floors(&last()?);
    let missed: Vec<_> = floors.iter().filter(|floor| !floor.is_met()).collect();
    println!(
        "{} of {} floors are kept",
        floors.len() - missed.len(),
        floors.len()
    );
    if missed.is_empty() {
        return Ok(());
    }
    let sentences: Vec<_> = missed
        .into_iter()
        .map(|floor: &Floor| pages::sentence(floor))
        .collect();
    Err(sentences.join("; ").into())
}

/// The folder of cargo's builds, so that `cargo clean` removes the report.
fn path() -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR");
    target
        .map_or_else(|| root.join("target"), PathBuf::from)
        .join("bench/report.json")
}

fn last() -> Result<Report> {
    let path = path();
    let text = fs::read_to_string(&path).map_err(|error| {
        format!(
            "{} cannot be read ({error}): run `compare` first",
            path.display()
        )
    })?;
    Ok(serde_json::from_str(&text)?)
}

fn measured(quick: bool) -> Result<Report> {
    let valgrind = is_there("valgrind");
    let redis = is_there(&tollgate_testkit::server_binary());
    let (redis_costs, redis_held) = if redis && valgrind {
        redis::costs()?
    } else {
        Default::default()
    };
    let report = Report {
        quick,
        setting: setting::setting()?,
        layers: layers::measure(quick, valgrind)?,
        threads: threads::measure(quick),
        redis: if redis {
            redis::pace(quick)?
        } else {
            Vec::new()
        },
        redis_sizes: if redis {
            redis::sizes(valgrind)?
        } else {
            Vec::new()
        },
        redis_costs,
        redis_held,
        http: Vec::new(),
        at_once: Vec::new(),
        growth: growth::measure(quick)?,
        not_measured: Vec::new(),
    };
    measured_over_http(quick, report)
}

/// The report, measured anew over HTTP.
fn measured_over_http(quick: bool, report: Report) -> Result<Report> {
    let is_possible = http::is_there() && is_there(&tollgate_testkit::server_binary());
    let (http, at_once) = if is_possible {
        (http::measure(quick)?, http::measure_at_once(quick)?)
    } else {
        Default::default()
    };
    Ok(Report {
        http,
        at_once,
        not_measured: not_measured(),
        ..report
    })
}

/// The gaps in the report, and the tools that would fill them.
fn not_measured() -> Vec<String> {
    let missing = [
        (
            is_there("valgrind"),
            "There is no valgrind here (`tests/install.sh` installs it): no instructions and no allocations.",
        ),
        (
            http::is_there(),
            "There is no wrk or no taskset here (`tests/install.sh wrk taskset` installs them): nothing over HTTP.",
        ),
        (
            http::has_nginx(),
            "There is no nginx here (`tests/install.sh` installs it): nothing beside `limit_conn`.",
        ),
        (
            is_there(&tollgate_testkit::server_binary()),
            "There is no redis-server here (`tests/install.sh` installs it): nothing on Redis, and nothing over HTTP.",
        ),
    ];
    let missing = missing.into_iter().filter(|(is_there, _)| !is_there);
    missing.map(|(_, what)| what.to_owned()).collect()
}

fn is_there(tool: &str) -> bool {
    let mut command = Command::new(tool);
    let command = command.arg("--version").stdout(Stdio::null());
    command.stderr(Stdio::null()).status().is_ok()
}
