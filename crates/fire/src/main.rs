//! The command line: `cargo run --release -p tollgate-fire --bin fire -- help`.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool"
)]

mod table;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tollgate_fire::{
    Campaign, Clockwork, DEADLINE, Door, Flaw, Forgery, Report, Result, Soak, Topology,
    check_again, client, gateway,
};

use self::table::table;

/// Asks Tollgate for decisions while everything around it fails, and checks each.
#[derive(Parser)]
#[command(name = "fire")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Runs against one kind of servers, or each in turn, and prints a table
    Run(Run),
    /// Asks for many decisions without any fault, and prints what the process holds early and late
    Soak(Heavy),
    /// Judges a history that was kept because of a finding
    Check { path: PathBuf },
    /// The process that a run starts for each client
    #[command(hide = true)]
    Client { orders: String },
    /// The process that a run starts for Envoy to ask
    #[command(hide = true)]
    Gateway { orders: String },
}

#[derive(Args, Clone)]
struct Run {
    /// The servers; each kind in turn unless set
    #[arg(long)]
    topology: Option<Kind>,
    /// Time for which faults are done, in all
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Time after the faults of each kind of servers for which clients go on without any
    #[arg(long, default_value_t = 0)]
    still: u64,
    /// Seed of all random choices; a new one unless set
    #[arg(long)]
    seed: Option<u64>,
    /// Number of asking processes; one for each way to ask unless set
    #[arg(long)]
    clients: Option<u32>,
    /// One way to ask is through a real Envoy, and faults are done to that and its gateway as well
    #[arg(long)]
    envoy: bool,
    /// Gives the one server's script a defect, to see that it is noticed
    #[arg(long, value_parser = forgery)]
    forge: Option<Forgery>,
    /// Gives the clients' shares a defect, to see that it is noticed
    #[arg(long, value_parser = flaw)]
    flaw: Option<Flaw>,
    /// Only faults of this name, as the table's last lines give them
    #[arg(long)]
    only: Option<String>,
    /// Leaves the server's clock alone
    #[arg(long)]
    without_clock: bool,
}

#[derive(Args, Clone)]
struct Heavy {
    /// Number of decisions in all
    #[arg(long, default_value_t = 1_000_000)]
    decisions: u64,
    /// Number of decisions that wait at any time
    #[arg(long, default_value_t = 10_000)]
    in_flight: u64,
    /// Number of callers, which take turns
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    identities: u64,
    /// Asks over HTTP, through the layer
    #[arg(long)]
    http: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Single,
    Sentinel,
    Cluster,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().what {
        What::Run(run) => run.start(),
        What::Soak(heavy) => heavy.start(),
        What::Check { path } => check(&path),
        What::Client { orders } => serde_json::from_str(&orders)
            .map_err(Into::into)
            .and_then(|orders| client::run(&orders))
            .map(|()| true),
        What::Gateway { orders } => serde_json::from_str(&orders)
            .map_err(Into::into)
            .and_then(|orders| gateway::run(&orders))
            .map(|()| true),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("fire: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Heavy {
    fn start(self) -> Result<bool> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let soak = Soak {
            decisions: self.decisions,
            in_flight: self.in_flight,
            identities: self.identities,
            over_http: self.http,
        };
        let soaked = runtime.block_on(soak.run(|done| eprintln!("{done} decisions")))?;
        println!("{soaked:#?}");
        Ok(soaked.failed == 0)
    }
}

fn check(path: &Path) -> Result<bool> {
    let findings = check_again(path)?;
    for wrong in findings.wrongs() {
        println!("WRONG: {wrong}");
    }
    let wrongs = findings.wrongs().count();
    println!("{} decisions, {wrongs} wrong", findings.decided);
    Ok(findings.is_possible())
}

fn forgery(name: &str) -> std::result::Result<Forgery, String> {
    let mut all = Forgery::ALL.into_iter();
    let names = Forgery::ALL.map(Forgery::name).join(", ");
    all.find(|one| one.name() == name)
        .ok_or(format!("there are {names}"))
}

fn flaw(name: &str) -> std::result::Result<Flaw, String> {
    let mut all = Flaw::ALL.into_iter();
    let names = Flaw::ALL.map(Flaw::name).join(", ");
    all.find(|one| one.name() == name)
        .ok_or(format!("there are {names}"))
}

impl Run {
    /// Says whether there was no finding.
    fn start(self) -> Result<bool> {
        let is_outer = std::env::var_os(INNER).is_none();
        if is_outer && !self.without_clock {
            return start_with_clock();
        }
        let seed = self.seed.unwrap_or_else(|| fastrand::u64(..1 << 48));
        let ways = match self.envoy {
            true => Door::WITH_ENVOY.len(),
            false => Door::WITHOUT_ENVOY.len(),
        };
        let clients = self.clients.map_or_else(|| u32::try_from(ways), Ok)?;
        println!("seed {seed}, deadline {DEADLINE:?}, {clients} clients");
        let topologies = match self.topology {
            Some(Kind::Single) => vec![Topology::Single],
            Some(Kind::Sentinel) => vec![Topology::Sentinel],
            Some(Kind::Cluster) => vec![Topology::Cluster],
            None => Topology::ALL.to_vec(),
        };
        let share = Duration::from_secs(self.seconds) / u32::try_from(topologies.len())?;
        let (mut reports, mut is_whole) = (Vec::new(), true);
        for topology in topologies {
            let campaign = Campaign {
                topology,
                seed,
                time: share,
                still: Duration::from_secs(self.still),
                clients,
                has_envoy: self.envoy,
                forgery: self.forge,
                flaw: self.flaw,
                only: self.only.clone(),
                program: std::env::current_exe()?,
            };
            let name = topology.name();
            match campaign.run(|what| eprintln!("{name}: {what}")) {
                Ok(report) => {
                    let (decided, wrong) = (report.findings.decided, report.wrongs().len());
                    eprintln!("{name}: {decided} decisions, {wrong} wrong");
                    reports.push(report);
                }
                Err(error) => {
                    // The other runs should still find their findings.
                    eprintln!("{name}: not run: {error}");
                    is_whole = false;
                }
            }
        }
        print(&reports);
        Ok(is_whole && reports.iter().all(|report| report.wrongs().is_empty()))
    }
}

/// Starts this program again, as a process whose servers' clock can be set.
fn start_with_clock() -> Result<bool> {
    let clockwork = Clockwork::new()?;
    let mut inner = Command::new(std::env::current_exe()?);
    inner.args(std::env::args_os().skip(1)).env(INNER, "1");
    clockwork.give_to(&mut inner);
    Ok(inner.status()?.success())
}

/// The variable that is set in the process with a clock.
const INNER: &str = "TOLLGATE_FIRE_INNER";

fn print(reports: &[Report]) {
    println!();
    for line in table(reports) {
        println!("{line}");
    }
    println!();
    for report in reports {
        let faults = report
            .faults
            .iter()
            .map(|(name, times)| format!("{name} {times}"));
        let faults: Vec<_> = faults.collect();
        println!("{}: {}", report.topology.name(), faults.join(", "));
        for undone in &report.undone {
            println!("not done: {}: {undone}", report.topology.name());
        }
        for wrong in report.wrongs() {
            println!("WRONG: {}: {wrong}", report.topology.name());
        }
        for line in &report.evidence {
            println!("{line}");
        }
    }
}
