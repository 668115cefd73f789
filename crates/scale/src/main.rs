//! The command line: `cargo run --release -p tollgate-scale` makes the figures and plots of `docs/scale.md` anew, and
//! `cargo run --release -p tollgate-scale -- measure` the points that are measured.

#![allow(clippy::print_stdout, reason = "a command-line tool")]

use std::path::Path;
use std::thread;
use std::time::Instant;
use std::{fs, io};

use clap::{Parser, Subcommand};
use tollgate_scale::runs::{self, Row, Run};
use tollgate_scale::{measured, page, pictures};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Runs fleets in virtual time, and writes docs/scale/.
#[derive(Parser)]
#[command(name = "scale")]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The runs of this table only; the figures of the others stay
    #[arg(long)]
    table: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Measures the points beside the curves: some five minutes, with a Redis on this machine that is started for it
    Measure,
    /// Draws the plots from the figures as they are, and prints the tables of the page
    Draw,
}

fn main() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scale");
    fs::create_dir_all(&folder)?;
    let rows = |name: &str| -> Result<Vec<Row>> {
        let text = fs::read_to_string(folder.join(name))?;
        Ok(serde_json::from_str(&text)?)
    };
    let arguments = Arguments::parse();
    match arguments.command {
        None => {
            let present = rows("figures.json").unwrap_or_default();
            let figures = simulated(arguments.table.as_deref(), &present)?;
            write(&folder.join("figures.json"), &figures)?;
        }
        Some(Command::Measure) => write(&folder.join("measured.json"), &measured::all()?)?,
        Some(Command::Draw) => {}
    }
    let measured = rows("measured.json").unwrap_or_default();
    let simulated = rows("figures.json")?;
    for (name, picture) in pictures::all(&simulated, &measured) {
        fs::write(folder.join(name), picture)?;
    }
    for table in page::tables(&simulated, &measured) {
        println!("{table}");
    }
    Ok(())
}

/// The figures of all runs, two at a time. Those of other tables than the one that is named stay as they are.
fn simulated(table: Option<&str>, present: &[Row]) -> Result<Vec<Row>> {
    let runs = runs::all();
    let half = |first: usize| {
        let own = runs.iter().enumerate().skip(first).step_by(2);
        own.map(|(place, run)| {
            let kept = present
                .iter()
                .find(|row| table.is_some_and(|table| table != run.table) && run.is_of(row));
            (place, kept.cloned().unwrap_or_else(|| figures(run)))
        })
        .collect::<Vec<_>>()
    };
    let mut rows = thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        let mut rows = half(0);
        let others = other
            .join()
            .map_err(|_| io::Error::other("a run has panicked"))?;
        rows.extend(others);
        Result::Ok(rows)
    })?;
    rows.sort_by_key(|(place, _)| *place);
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

fn figures(run: &Run) -> Row {
    let started = Instant::now();
    let row = run.figures();
    println!(
        "{:>6.1} s  {} | {} | {}",
        started.elapsed().as_secs_f64(),
        run.table,
        run.line,
        run.x
    );
    row
}

fn write(path: &Path, rows: &[Row]) -> Result<()> {
    let lines: Vec<_> = rows
        .iter()
        .map(serde_json::to_string)
        .collect::<std::result::Result<_, _>>()?;
    fs::write(path, format!("[\n{}\n]\n", lines.join(",\n")))?;
    Ok(())
}
