//! The command line of the measurements: `cargo run --release -p tollgate-bench -- help`.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool"
)]
#![allow(
    clippy::float_arithmetic,
    clippy::cast_possible_truncation,
    reason = "figures to be looked at"
)]

mod callgrind;
mod compare;
mod contender;
mod grow;
mod load;
mod measure;
mod pace;
mod program;
mod punctual;
mod recorded;
mod redis_instructions;
mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tollgate_bench::Scenario;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Measures Tollgate beside the alternatives.
#[derive(Parser)]
#[command(name = "tollgate-bench")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Counts the instructions of each scenario per request, above the same request without a limiter
    Instructions {
        /// This scenario only
        #[arg(value_parser = named)]
        scenario: Option<Scenario>,
        /// Writes them down as what later changes are held to
        #[arg(long, conflicts_with = "scenario")]
        record: bool,
    },
    /// Measures everything beside the alternatives, and writes BENCHMARKS.md and the table in README.md
    Compare(compare::Compare),
    /// Fails if a scenario costs more instructions than its record allows, or if the last `compare` missed a floor
    Check {
        /// Only the instructions: most floors depend on time and on the machine
        #[arg(long)]
        instructions: bool,
    },
    /// Runs a scenario, for `instructions` to count
    #[command(hide = true)]
    Run {
        #[arg(value_parser = named)]
        scenario: Scenario,
        rounds: u32,
    },
    /// Serves HTTP until its input ends, for `compare` to drive with wrk
    #[command(hide = true)]
    Serve(serve::Serve),
    /// Lets one limiter grow, for `compare` to measure its memory and pauses
    #[command(hide = true)]
    Grow(grow::Grow),
    /// Counts the instructions of redis-server per decision, and of an empty EVALSHA
    RedisInstructions {
        /// Only the cases with these words in their names, and those beside which they stand
        words: Option<String>,
    },
    /// Measures the program `tollgate`, built beside this one, and fails if it takes more instructions or memory than it may, or
    /// misses the truth of a log
    Program(program::Program),
    /// Measures how long after their turns waits end, beside tokio's timers for the same instants
    Punctual,
    /// Measures the pace of decisions out of leased blocks, beside that of budgets in memory
    Pace(pace::Pace),
    /// Drives a Redis backend and prints one line of JSON
    Load(load::Load),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().what {
        What::Instructions { record: true, .. } => recorded::record(),
        What::Instructions { scenario: None, .. } => callgrind::instructions(Scenario::ALL),
        What::Instructions {
            scenario: Some(scenario),
            ..
        } => callgrind::instructions(&[scenario]),
        What::Compare(compare) => compare.run(),
        What::Check { instructions: true } => recorded::check(),
        What::Check {
            instructions: false,
        } => recorded::check().and_then(|()| compare::check()),
        What::Run { scenario, rounds } => {
            scenario.run(rounds);
            Ok(())
        }
        What::Serve(serve) => serve.run(),
        What::Grow(grow) => grow.run(),
        What::RedisInstructions { words } => redis_instructions::run(words.as_deref()),
        What::Program(program) => program.run(),
        What::Punctual => punctual::run(),
        What::Pace(pace) => pace.run(),
        What::Load(load) => load.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tollgate-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn named(name: &str) -> std::result::Result<Scenario, String> {
    let names: Vec<_> = Scenario::ALL.iter().map(|one| one.name()).collect();
    Scenario::named(name).ok_or_else(|| format!("there are {}", names.join(", ")))
}
