//! The program `tollgate` by itself: the instructions for a line of a log beside a floor, its pace, its memory for a million
//! callers, and a log of five million lines whose truth is known. It runs as its users run it, as a process of its own.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use clap::Args;
use serde_json::Value;

use crate::Result;
use crate::callgrind::instructions_of;
use crate::compare::thousands;

#[derive(Args)]
pub(crate) struct Program {
    /// Writes the figures down, for BENCHMARKS.md
    #[arg(long)]
    record: bool,
}

/// The lines whose instructions are counted.
const COUNTED: u64 = 200_000;
/// The lines of the long log.
const LINES: u64 = 5_000_000;
const CALLERS: u32 = 1_000_000;
/// The requests of each of a million callers, in one second.
const EACH: u32 = 5;
/// The requests of each caller in the log of ten million lines.
const EACH_OF_TEN_MILLION: u32 = 10;

/// The bounds of the project.
const MOST_TIMES_FLOOR: f64 = 3.0;
const LEAST_LINES_A_SECOND: f64 = 1e6;
const MOST_MB_OF_SIMULATE: f64 = 200.0;
const MOST_MB_OF_SUGGEST: f64 = 600.0;

/// The time between two looks at a process.
const LOOK: Duration = Duration::from_millis(1);

/// The callers of the model that are like no reader: the office, the broken client and the scanner.
const THREE: [&str; 3] = ["198.51.100.1", "203.0.113.66", "203.0.113.77"];

impl Program {
    /// Measures and prints. It is an error if a bound is missed.
    pub(crate) fn run(&self) -> Result<()> {
        let programs = Programs::beside_this()?;
        let folder = tempfile::Builder::new().prefix("tollgate-").tempdir()?;
        let mut figures = Figures::default();
        count_instructions(&programs, folder.path(), &mut figures)?;
        read_long_log(&programs, folder.path(), &mut figures)?;
        read_million_callers(&programs, folder.path(), &mut figures)?;
        let Figures { rows, missed } = figures;
        print!("{rows}");
        if self.record {
            let page = concat!(env!("CARGO_MANIFEST_DIR"), "/src/compare/pages/program.md");
            fs::write(page, HEAD.to_owned() + &rows)?;
        }
        match missed.is_empty() {
            true => Ok(()),
            false => Err(format!("missed: {}", missed.join("; ")).into()),
        }
    }
}

const HEAD: &str = "
## The program

`cargo run --release -p tollgate-bench -- program` measures the program `tollgate` as a process of its own, on logs in the combined
format; `--record` writes this table. The model of the traffic is that of `crates/cli/examples/traffic.rs`, and the policy is one by
address. Memory is the process's peak of resident memory, and times are processor time.

| | measured | to be |
| --- | ---: | --- |
";

/// The rows of the table, and the bounds that are missed.
#[derive(Default)]
struct Figures {
    rows: String,
    missed: Vec<String>,
}

impl Figures {
    fn add(&mut self, what: &str, measured: &str, bound: &str) {
        eprintln!("{what}: {measured}");
        let row = format!("| {what} | {measured} | {bound} |\n");
        self.rows.push_str(&row);
    }

    fn bound(&mut self, what: &str, measured: &str, bound: &str, is_kept: bool) {
        self.add(what, measured, bound);
        if !is_kept {
            self.missed.push(format!("{what}: {measured}"));
        }
    }

    fn memory(&mut self, what: &str, ran: &Ran, most_mb: f64) {
        let mb = ran.peak_kib as f64 * 1024.0 / 1e6;
        let measured = format!("{mb:.0} MB, {:.1} s", ran.busy.as_secs_f64());
        let bound = format!("at most {most_mb:.0} MB");
        self.bound(what, &measured, &bound, mb <= most_mb);
    }
}

/// A file of limits with one policy by address.
fn limits(folder: &Path, quota: &str) -> Result<PathBuf> {
    let path = folder.join("limits.toml");
    let policy = format!("policies = [{{ name = \"by-address\", quotas = \"{quota}\" }}]");
    fs::write(&path, policy)?;
    Ok(path)
}

/// Counts the instructions of a replay and of its floor.
fn count_instructions(programs: &Programs, folder: &Path, figures: &mut Figures) -> Result<()> {
    let log = folder.join("short.log");
    programs.write_traffic(COUNTED, &log)?;
    let limits = limits(folder, "1/s burst 8")?;
    let floor = instructions_of([programs.floor.as_os_str(), log.as_os_str()])? as f64;
    let replay = instructions_of([
        programs.tollgate.as_os_str(),
        OsStr::new("simulate"),
        log.as_os_str(),
        limits.as_os_str(),
    ])? as f64;
    let of_line = |instructions: f64| thousands(instructions / COUNTED as f64);
    figures.add("`simulate`, instructions for a line", &of_line(replay), "");
    figures.add(
        "the floor: a `memchr` split, address and time",
        &of_line(floor),
        "",
    );
    let times = replay / floor;
    figures.bound(
        "`simulate` by the floor",
        &format!("{times:.2}"),
        "at most 3",
        times <= MOST_TIMES_FLOOR,
    );
    Ok(())
}

/// Replays a log of five million lines whose truth is known, and lets `suggest` find that.
fn read_long_log(programs: &Programs, folder: &Path, figures: &mut Figures) -> Result<()> {
    let log = folder.join("long.log");
    programs.write_traffic(LINES, &log)?;
    let limits = limits(folder, "1/s burst 8")?;
    let replay = programs.tollgate(&["simulate"], &[&log, &limits])?;
    let pace = |time: Duration| LINES as f64 / time.as_secs_f64();
    figures.bound(
        "`simulate`, lines in a second of its processor time",
        &thousands(pace(replay.busy)),
        "at least 1,000,000",
        pace(replay.busy) >= LEAST_LINES_A_SECOND,
    );
    figures.add(
        "the same, in a second of wall time",
        &thousands(pace(replay.elapsed)),
        "",
    );
    let suggested = programs.tollgate(&["suggest", "--refuse", "1%", "--json"], &[&log])?;
    fs::remove_file(&log)?;
    let found = truth(&serde_json::from_str(&suggested.out)?);
    let measured = found.as_ref().map_or_else(String::as_str, |()| "yes");
    figures.bound(
        "`suggest` finds the truth of five million lines",
        measured,
        "the readers' burst, the office, the scanner and the broken client",
        found.is_ok(),
    );
    Ok(())
}

/// Looks at the memory for a million callers.
fn read_million_callers(programs: &Programs, folder: &Path, figures: &mut Figures) -> Result<()> {
    let log = folder.join("many.log");
    write_million(EACH_OF_TEN_MILLION, &log)?;
    let none_refused = limits(folder, "10/s burst 10")?;
    let ran = programs.tollgate(&["simulate"], &[&log, &none_refused])?;
    figures.memory(
        "`simulate`, ten million lines of a million callers, none refused",
        &ran,
        MOST_MB_OF_SIMULATE,
    );
    write_million(EACH, &log)?;
    let two_refused = limits(folder, "1/h burst 3")?;
    let ran = programs.tollgate(&["simulate"], &[&log, &two_refused])?;
    figures.memory(
        "`simulate`, a million callers, each refused twice",
        &ran,
        MOST_MB_OF_SIMULATE,
    );
    let ran = programs.tollgate(&["suggest"], &[&log])?;
    figures.memory(
        "`suggest`, a million callers, 30 rates",
        &ran,
        MOST_MB_OF_SUGGEST,
    );
    Ok(())
}

/// The programs that are measured, built beside this one.
struct Programs {
    tollgate: PathBuf,
    floor: PathBuf,
    traffic: PathBuf,
}

/// The outcome of a run. Memory and time are those of the last look, each millisecond.
struct Ran {
    out: String,
    peak_kib: u64,
    /// The processor time.
    busy: Duration,
    elapsed: Duration,
}

impl Programs {
    fn beside_this() -> Result<Self> {
        let this = env::current_exe()?;
        let folder = this.parent().ok_or("no folder of this program")?;
        let built = |path: &str| {
            let path = folder.join(path);
            match path.exists() {
                true => Ok(path),
                false => Err(format!(
                    "{} is missing: cargo build --release -p tollgate-cli --bins --examples",
                    path.display()
                )),
            }
        };
        Ok(Self {
            tollgate: built("tollgate")?,
            floor: built("examples/floor")?,
            traffic: built("examples/traffic")?,
        })
    }

    fn write_traffic(&self, lines: u64, path: &Path) -> Result<()> {
        let mut program = Command::new(&self.traffic);
        let program = program.arg(lines.to_string()).stdout(File::create(path)?);
        match program.status()?.success() {
            true => Ok(()),
            false => Err("the traffic could not be written".into()),
        }
    }

    fn tollgate(&self, arguments: &[&str], paths: &[&PathBuf]) -> Result<Ran> {
        let out = tempfile::NamedTempFile::new()?;
        let mut program = Command::new(&self.tollgate);
        let program = program.args(&arguments[..1]).args(paths);
        let program = program.args(&arguments[1..]).stdin(Stdio::null());
        let start = Instant::now();
        let mut running = program.stdout(out.reopen()?).spawn()?;
        let (mut peak_kib, mut busy) = (0, Duration::ZERO);
        let status = loop {
            if let Some(status) = running.try_wait()? {
                break status;
            }
            peak_kib = peak_kib.max(peak_of(&running).unwrap_or(0));
            busy = busy.max(busy_of(&running).unwrap_or_default());
            thread::sleep(LOOK);
        };
        let elapsed = start.elapsed();
        if !status.success() {
            return Err(format!("tollgate {}: {status}", arguments.join(" ")).into());
        }
        Ok(Ran {
            out: fs::read_to_string(out.path())?,
            peak_kib,
            busy,
            elapsed,
        })
    }
}

/// The peak of resident memory, which never falls.
fn peak_of(running: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", running.id())).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// The processor time in user and system mode.
fn busy_of(running: &Child) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", running.id())).ok()?;
    // The fields behind the name, which may hold blanks.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut times = fields.split(' ').skip(11);
    let ticks: u64 = [times.next()?, times.next()?]
        .iter()
        .map(|ticks| ticks.parse::<u64>().ok())
        .sum::<Option<u64>>()?;
    let ticks_in_second = rustix::param::clock_ticks_per_second();
    Some(Duration::from_secs_f64(
        ticks as f64 / ticks_in_second as f64,
    ))
}

/// A log of a million callers, each of which asks so many times in its second of a day.
fn write_million(each: u32, path: &Path) -> Result<()> {
    let mut log = BufWriter::new(File::create(path)?);
    for caller in 0..CALLERS {
        let [_, b, c, d] = caller.to_be_bytes();
        let second = u64::from(caller) * 86_000 / u64::from(CALLERS);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        for part in 0..each {
            writeln!(
                log,
                "100.{}.{c}.{d} - - [24/Nov/2026:{hour:02}:{minute:02}:{second:02} +0000] \"GET /pages/{part} HTTP/1.1\" 200 512 \"-\" \"Browser/1\"",
                64 + b
            )?;
        }
    }
    log.flush()?;
    Ok(())
}

/// Compares what was suggested with the model: a page of 8 requests is the readers' burst at one or two a second, and three callers
/// are like no reader.
fn truth(suggested: &Value) -> std::result::Result<(), String> {
    let frontier = suggested["frontier"].as_array().ok_or("no frontier")?;
    for rate in ["1/s", "2/s"] {
        let point = frontier.iter().find(|point| point["rate"] == rate);
        let point = point.ok_or("a rate is missing")?;
        let halves = ["found", "checked"].into_iter();
        let refused: Option<u64> = halves.map(|half| point[half]["refused"].as_u64()).sum();
        if point["burst"] != 8 || refused != Some(3) {
            let truth = "a burst of 8, which refuses 3, is true";
            return Err(format!("at {rate} {truth}, and not {point}"));
        }
    }
    let callers = suggested["top_callers"].as_array().ok_or("no callers")?;
    let mut top: Vec<_> = callers
        .iter()
        .take(3)
        .map(|of| of["caller"].as_str())
        .collect();
    top.sort_unstable();
    match top == THREE.map(Some) {
        true => Ok(()),
        false => Err(format!("{THREE:?} need most, and not {top:?}")),
    }
}
