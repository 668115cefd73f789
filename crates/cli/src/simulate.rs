//! `tollgate simulate`: replays a log, and says which requests, callers and routes would be refused.

mod callers;
mod json;
mod pictures;
mod places;
mod rows;
mod tally;
mod text;
mod tiers;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use self::tally::{Difference, Tally};
use crate::arguments::SimulateArguments;
use crate::failure::Failure;
use crate::log::{Reading, Unused, read};
use crate::replay::{Replay, RequestDecision};
use crate::{outputs, picture};

/// The outcome of a replay, to be written down.
struct Simulation {
    reading: Reading,
    tally: Tally,
    names: Vec<String>,
    /// Policies that take no part.
    left_out: Vec<String>,
    /// The other file, the replay by it, and the differences.
    against: Option<(Tally, Vec<String>, Difference)>,
}

pub(crate) fn run(asked: &SimulateArguments) -> Result<String, Failure> {
    let mut terms = asked.reading.terms().map_err(Failure::usage)?;
    let other = asked.against.as_deref();
    let inputs: Vec<&Path> = [&*asked.log, &*asked.limits]
        .into_iter()
        .chain(other)
        .collect();
    outputs::prepare(
        asked.pictures.files().chain(asked.decisions.as_deref()),
        &inputs,
    )?;
    let mut replay = Replay::of(&asked.limits, &asked.without)?;
    let other = other
        .map(|path| Replay::of(path, &asked.without))
        .transpose()?;
    refuse_unknown(asked, &replay, other.as_ref())?;
    terms.from_beginnings =
        replay.needs_durations() || other.as_ref().is_some_and(Replay::needs_durations);
    let mut other = other.map(|replay| (replay, Tally::default(), Difference::default()));
    let mut decisions = asked
        .decisions
        .as_deref()
        .map(Decisions::begin)
        .transpose()?;

    let mut tally = Tally::default();
    let (mut decided, mut decided_by_other) =
        (RequestDecision::default(), RequestDecision::default());
    let reading = read(&asked.log, &terms, &mut |entry, line, number| {
        let others = other.iter_mut().map(|(other, ..)| other);
        let mut replays = std::iter::once(&mut replay).chain(others);
        if let Some(lacking) = replays.find_map(|replay| replay.lacking(entry)) {
            return Err(Unused::Line(lacking));
        }
        replay.decide(entry, &mut decided)?;
        tally.count(&replay, entry, line, number, &decided);
        if let Some((other, their_tally, difference)) = &mut other {
            other.decide(entry, &mut decided_by_other)?;
            their_tally.count(other, entry, line, number, &decided_by_other);
            let (ours, theirs) = (&decided, &decided_by_other);
            difference.count(replay.caller(entry.caller), ours, theirs);
        }
        match &mut decisions {
            Some(decisions) => Ok(decisions.write(number, &decided, replay.names())?),
            None => Ok(()),
        }
    })?;
    if let Some(decisions) = decisions {
        decisions.end()?;
    }

    let simulation = Simulation {
        reading,
        tally,
        names: replay.names().to_vec(),
        left_out: replay.left_out().to_vec(),
        against: other
            .map(|(replay, tally, difference)| (tally, replay.names().to_vec(), difference)),
    };
    picture::write_asked(&asked.pictures, || pictures::page(asked, &simulation))?;
    Ok(match asked.json {
        true => json::report(asked, &simulation),
        false => text::report(asked, &simulation),
    })
}

/// Refuses the name of a policy that would be left out, and that no file has.
fn refuse_unknown(
    asked: &SimulateArguments,
    replay: &Replay,
    other: Option<&Replay>,
) -> Result<(), Failure> {
    let is_known = |name: &&String| {
        let mut replays = std::iter::once(replay).chain(other);
        replays.any(|replay| replay.left_out().contains(*name))
    };
    let Some(name) = asked.without.iter().find(|name| !is_known(name)) else {
        return Ok(());
    };
    let path = asked.limits.display();
    let files = match &asked.against {
        Some(other) => format!("neither {path} nor {} has such a policy", other.display()),
        None => format!("{path} has no such policy"),
    };
    Err(Failure::invalid(format_args!("--without {name}: {files}")))
}

/// The file of all decisions.
struct Decisions {
    file: BufWriter<File>,
    path: String,
}

impl Decisions {
    fn begin(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        match File::create(path) {
            Ok(file) => Ok(Self {
                file: BufWriter::new(file),
                path: name,
            }),
            Err(error) => Err(Failure::invalid(format_args!("{name}: {error}"))),
        }
    }

    fn write(
        &mut self,
        number: u64,
        decided: &RequestDecision,
        names: &[String],
    ) -> Result<(), Failure> {
        let written = match &decided.refused {
            Some((policy, _)) => writeln!(self.file, "{number} refuse {}", names[*policy]),
            None => writeln!(self.file, "{number} pass"),
        };
        written.map_err(|error| self.failed(&error))
    }

    fn end(mut self) -> Result<(), Failure> {
        self.file.flush().map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &std::io::Error) -> Failure {
        Failure::invalid(format_args!("{}: {error}", self.path))
    }
}
