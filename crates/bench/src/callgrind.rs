//! Counts, with valgrind's callgrind, the instructions of scenarios and what they allocate.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::{env, fs, iter, thread};

use tollgate_bench::Scenario;

use crate::Result;

/// The number of counted rounds, of a thousand requests each.
const ROUNDS: u32 = 10;

pub(crate) fn instructions(scenarios: &[Scenario]) -> Result<()> {
    let counter = Counter::of(scenarios.iter().copied())?;
    for scenario in scenarios {
        let own = counter.above_baseline(*scenario)?.instructions;
        println!("{own:>7}  {:<24} {}", scenario.name(), scenario.about());
    }
    Ok(())
}

/// The counts of one request.
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) instructions: i64,
    pub(crate) allocations: i64,
}

/// The counts so far, each scenario once: most of them share a baseline.
pub(crate) struct Counter {
    counted: HashMap<&'static str, Counts>,
}

impl Counter {
    /// Counts these scenarios and their baselines, as many at a time as there are cores: other load does not change a count.
    pub(crate) fn of(scenarios: impl IntoIterator<Item = Scenario>) -> Result<Self> {
        let with_baseline = |one: Scenario| [Some(one), one.baseline()].into_iter().flatten();
        let all: HashMap<_, _> = scenarios
            .into_iter()
            .flat_map(with_baseline)
            .map(|one| (one.name(), one))
            .collect();
        let waiting = Mutex::new(all.into_values());
        let next = || waiting.lock().ok()?.next();
        let count = || -> std::result::Result<Vec<_>, String> {
            iter::from_fn(next)
                .map(|one| Ok((one.name(), counted(one).map_err(|error| error.to_string())?)))
                .collect()
        };
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let mut counter = HashMap::new();
        thread::scope(|scope| -> Result<()> {
            let threads: Vec<_> = (0..cores).map(|_| scope.spawn(count)).collect();
            for thread in threads {
                counter.extend(thread.join().map_err(|_| "a count did not end")??);
            }
            Ok(())
        })?;
        Ok(Self { counted: counter })
    }

    /// The cost of a scenario above that of the service without a limiter.
    pub(crate) fn above_baseline(&self, scenario: Scenario) -> Result<Counts> {
        let all = self.per_request(scenario)?;
        let Some(baseline) = scenario.baseline() else {
            return Ok(all);
        };
        let baseline = self.per_request(baseline)?;
        Ok(Counts {
            instructions: all.instructions - baseline.instructions,
            allocations: all.allocations - baseline.allocations,
        })
    }

    fn per_request(&self, scenario: Scenario) -> Result<Counts> {
        let counts = self.counted.get(scenario.name()).copied();
        counts.ok_or_else(|| format!("{} was not counted", scenario.name()).into())
    }
}

/// Counts only inside [`Scenario::measured`]: not the start, nor the first round, in which states are made and tables grow.
fn counted(scenario: Scenario) -> Result<Counts> {
    let (instructions, all) = of_rounds(scenario, ROUNDS)?;
    // callgrind counts calls everywhere. The calls outside are in a run of one round as well.
    let (_, first) = of_rounds(scenario, 1)?;
    let more = i64::from(ROUNDS - 1) * 1000;
    Ok(Counts {
        instructions: instructions / (i64::from(ROUNDS) * 1000),
        // A table may grow late.
        allocations: (all - first + more / 2) / more,
    })
}

fn of_rounds(scenario: Scenario, rounds: u32) -> Result<(i64, i64)> {
    let folder = tempfile::Builder::new().prefix("tollgate-").tempdir()?;
    let calls = folder.path().join("calls");
    let mut callgrind = callgrind(&calls);
    callgrind
        .arg("--compress-strings=no")
        .arg("--toggle-collect=*Scenario*measured*")
        .arg(env::current_exe()?)
        .args(["run", scenario.name(), &rounds.to_string()]);
    Ok((count(callgrind)?, allocations(&fs::read_to_string(calls)?)))
}

/// The instructions of a whole program with its arguments.
pub(crate) fn instructions_of<'w>(words: impl IntoIterator<Item = &'w OsStr>) -> Result<i64> {
    let mut callgrind = callgrind(Path::new("/dev/null"));
    callgrind.args(words);
    count(callgrind)
}

fn callgrind(calls: &Path) -> Command {
    let mut callgrind = Command::new("valgrind");
    callgrind
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", calls.display()));
    callgrind
}

fn count(mut callgrind: Command) -> Result<i64> {
    let output = callgrind.output().map_err(|error| missing(&error))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text
        .lines()
        .find_map(|line| line.split_once("Collected : "));
    let (_, count) = collected.ok_or_else(|| format!("callgrind failed:\n{text}"))?;
    Ok(count.trim().parse()?)
}

/// The number of allocations. A call takes two lines, the first of which names the callee.
fn allocations(calls: &str) -> i64 {
    const ALLOCATORS: [&str; 4] = ["malloc", "calloc", "realloc", "posix_memalign"];

    let mut allocates = false;
    let mut count = 0;
    for line in calls.lines() {
        if let Some(name) = line.strip_prefix("cfn=") {
            allocates = ALLOCATORS.contains(&name);
        } else if let Some(call) = line.strip_prefix("calls=").filter(|_| allocates) {
            let number = call.split_whitespace().next();
            count += number.and_then(|number| number.parse().ok()).unwrap_or(0);
        }
    }
    count
}

/// The error if valgrind cannot be started.
pub(crate) fn missing(error: &std::io::Error) -> String {
    format!("valgrind cannot be run ({error}); install it with: apt-get install valgrind")
}
