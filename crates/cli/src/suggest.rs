//! `tollgate suggest`: finds limits that would have refused no more than a stated share of the callers of a log.

mod callers;
mod frontier;
mod json;
mod pictures;
mod rates;
mod requests;
mod text;
mod trial;

use std::fs;
use std::path::Path;

use tollgate_limiter::transport::Pattern;

use self::callers::{Callers, Identity};
use self::frontier::{Choice, Point};
use self::trial::Trial;
use crate::arguments::{Counted, Identify, SuggestArguments};
use crate::failure::Failure;
use crate::figures::counted;
use crate::log::{Entry, Reading, read};
use crate::{method, outputs, picture};

/// The limits that a log suggests, and the facts that they come from.
struct Suggestion {
    reading: Reading,
    /// Requests that the operator asks about.
    requests: u64,
    /// Those of them that name no caller.
    unidentified: u64,
    /// The words about requests that are not among them because of the case of a method.
    other_case: Option<String>,
    /// Those that have no cost, if costs count.
    without_cost: u64,
    first_us: u64,
    last_us: u64,
    callers: Callers,
    frontier: Vec<Point>,
    choices: Vec<Choice>,
    /// Nothing, if the log could be read once.
    trial: Option<Trial>,
}

pub(crate) fn run(asked: &SuggestArguments) -> Result<String, Failure> {
    let terms = asked.reading.terms().map_err(Failure::usage)?;
    outputs::prepare(asked.pictures.files(), &[&asked.log])?;
    let filter = Filter::of(asked)?;
    let is_read_again = can_be_read_again(&asked.log);
    if asked.of == Counted::Requests && !is_read_again {
        return Err(Failure::usage(
            "--of requests reads the log several times, and a pipe can be read once",
        ));
    }
    let mut callers = Callers::default();
    let (mut without_cost, mut other_case) = (0, 0);
    let (mut requests, mut unidentified, mut first_us, mut last_us) = (0, 0, u64::MAX, 0);
    let reading = read(&asked.log, &terms, &mut |entry, _line, _number| {
        if !filter.covers(entry) {
            other_case += u64::from(filter.covers_in_other_case(entry));
            return Ok(());
        }
        requests += 1;
        without_cost += u64::from(asked.costs && entry.cost.is_none());
        first_us = first_us.min(entry.time_us);
        last_us = entry.time_us;
        match identity(&asked.key, entry) {
            Some(identity) => callers.count(identity, entry.time_us, cost(asked, entry)),
            None => unidentified += 1,
        }
        Ok(())
    })?;
    if callers.len() < 2 {
        let nameless = match unidentified {
            0 => String::new(),
            _ => format!(", of which {unidentified} have no such identity"),
        };
        let case = match filter.case_words(other_case) {
            Some(words) => format!("; {words}"),
            None => String::new(),
        };
        return Err(Failure::invalid(format_args!(
            "{}: fewer than two callers in {requests} requests that were asked about{nameless}; half of them would serve to check the other half{case}",
            asked.log.display()
        )));
    }
    let reread = |each: &mut dyn FnMut(&Identity, &Entry<'_>) -> Result<(), Failure>| {
        let read_again = read(
            &asked.log,
            &terms,
            &mut |entry, _line, _number| match identity(&asked.key, entry)
                .filter(|_| filter.covers(entry))
            {
                Some(identity) => Ok(each(&identity, entry)?),
                None => Ok(()),
            },
        );
        read_again.map(drop)
    };
    let mut frontier = frontier::of(&callers, asked.refuse);
    if asked.of == Counted::Requests {
        requests::refine(&mut callers, asked.refuse, &mut frontier, &|each| {
            reread(&mut |identity, entry| {
                each(identity, entry.time_us, cost(asked, entry));
                Ok(())
            })
        })?;
    }
    let choices = frontier::choices(&frontier);
    let trial = is_read_again.then(|| {
        let mut trial = Trial::of(&choices)?;
        reread(&mut |identity, entry| trial.decide(identity, entry, cost(asked, entry)))?;
        Ok(trial)
    });
    let suggestion = Suggestion {
        reading,
        requests,
        unidentified,
        other_case: filter.case_words(other_case),
        without_cost,
        first_us,
        last_us,
        callers,
        frontier,
        choices,
        trial: trial.transpose()?,
    };
    picture::write_asked(&asked.pictures, || pictures::page(asked, &suggestion))?;
    Ok(match asked.json {
        true => json::report(asked, &suggestion),
        false => text::report(asked, &suggestion),
    })
}

/// True for a file, and not for standard input or another pipe. A log that is not there is told when it is read.
fn can_be_read_again(log: &Path) -> bool {
    log.as_os_str() != "-" && fs::metadata(log).map_or(true, |found| found.is_file())
}

/// The requests that the operator asks about.
struct Filter {
    paths: Vec<Pattern>,
    methods: Vec<String>,
}

impl Filter {
    fn of(asked: &SuggestArguments) -> Result<Self, Failure> {
        let pattern = |text: &String| {
            Pattern::parse(text)
                .map_err(|reason| Failure::usage(format_args!("--path {text:?}: {reason}")))
        };
        Ok(Self {
            paths: asked.path.iter().map(pattern).collect::<Result<_, _>>()?,
            methods: asked.method.clone(),
        })
    }

    fn covers(&self, entry: &Entry<'_>) -> bool {
        let has_method = self.methods.is_empty()
            || self
                .methods
                .iter()
                .any(|method| method.as_bytes() == &*entry.method);
        has_method && self.covers_path(entry)
    }

    fn covers_path(&self, entry: &Entry<'_>) -> bool {
        self.paths.is_empty()
            || std::str::from_utf8(entry.path())
                .is_ok_and(|path| self.paths.iter().any(|pattern| pattern.covers(path)))
    }

    /// True for a request that only the case of a method keeps from being asked about.
    fn covers_in_other_case(&self, entry: &Entry<'_>) -> bool {
        let is_its = |upper: &str| upper.as_bytes() == &*entry.method;
        let mut methods = self.methods.iter();
        methods.any(|method| method::meant(method, is_its).is_some()) && self.covers_path(entry)
    }

    fn case_words(&self, requests: u64) -> Option<String> {
        let mut methods = self.methods.iter();
        let (method, upper) = methods
            .find_map(|method| Some((method, method::meant(method, |_any| true)?)))
            .filter(|_| requests > 0)?;
        let requests = counted(requests, "request");
        Some(format!(
            "methods are case-sensitive: --method {method} is not {upper}, and so {requests} did not count"
        ))
    }
}

/// The units that a request counts.
fn cost(asked: &SuggestArguments, entry: &Entry<'_>) -> u64 {
    entry.cost.filter(|_| asked.costs).unwrap_or(1)
}

/// The caller of a request.
fn identity(key: &Identify, entry: &Entry<'_>) -> Option<Identity> {
    let text = |bytes: &[u8]| Identity::Text(String::from_utf8_lossy(bytes).into());
    match key {
        Identify::Ip => Some(Identity::of_address(entry.caller)),
        Identify::User => entry.user.as_deref().map(text),
        Identify::Header(name) if name == "user-agent" => entry.user_agent().map(text),
        Identify::Header(name) => {
            let (_, value) = entry.headers.iter().find(|(known, _)| known == name)?;
            Some(Identity::Text(value.as_str().into()))
        }
    }
}
