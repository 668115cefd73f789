//! One run: clients ask, faults are done, and in the end it is looked at whether all that can have been.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tollgate_core::Backend;

use crate::Result;
use crate::attempt::{Asked, Asker, Attempt, Budget, Manner, Outcome, Verb};
use crate::checker::{Findings, check};
use crate::client::{Orders, Place, now_us};
use crate::crew::Crew;
use crate::fault::{Fault, Topology};
use crate::flaw::Flaw;
use crate::forger::Forgery;
use crate::history::{Disturbance, History};
use crate::population::{Population, SHARED_CALLERS};
use crate::stage::Stage;

/// The deadline of each decision.
pub const DEADLINE: Duration = Duration::from_millis(250);

/// How much later than that an answer may be seen: a client has to be given a processor by a machine that is busy.
pub const SLACK: Duration = Duration::from_secs(2);

/// How long clients ask before the first fault: they have to connect, and what nobody is told of must have happened after a
/// while only where none acts.
const CALM: Duration = Duration::from_secs(5);

/// Fewer decisions than this are none that a run could be judged by.
const FEWEST: u64 = 300;

/// What a run is to be like.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// What is asked.
    pub topology: Topology,
    /// Everything else that is left to chance.
    pub seed: u64,
    /// How long faults are done. The run takes some seconds more.
    pub time: Duration,
    /// How many processes ask.
    pub clients: u32,
    /// How the one server's script is wrong, if it is to be.
    pub forgery: Option<Forgery>,
    /// How the clients are wrong about their shares, if they are to be.
    pub flaw: Option<Flaw>,
    /// Only faults of this name, if there is one.
    pub only: Option<String>,
    /// This program, which is the client too.
    pub program: PathBuf,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was asked.
    pub topology: Topology,
    /// What the checker found.
    pub findings: Findings,
    /// What was wrong besides: answers past their deadline, keys that would stay.
    pub other_wrongs: Vec<String>,
    /// What led to the first wrongs: what was asked of the same budgets before, and what was done meanwhile.
    pub evidence: Vec<String>,
    /// How often each fault was done.
    pub faults: BTreeMap<&'static str, u32>,
    /// The longest that anybody waited for an answer.
    pub slowest: Duration,
    /// The longest from the end of a fault until somebody's question was answered with a decision.
    pub recovery: Duration,
}

impl Report {
    /// What cannot have been, or should not.
    #[must_use]
    pub fn wrongs(&self) -> Vec<String> {
        let findings = self.findings.wrong.iter().map(ToString::to_string);
        findings.chain(self.other_wrongs.iter().cloned()).collect()
    }
}

impl Campaign {
    /// Runs, and tells `progress` of each fault.
    ///
    /// # Errors
    ///
    /// If the run itself fails. What it finds is in the report.
    pub fn run(&self, mut progress: impl FnMut(&str)) -> Result<Report> {
        let mut stage = Stage::start(self.topology, self.forgery)?;
        let orders = Orders {
            seed: self.seed,
            number: 0,
            workers: 4,
            pause_us: 12_000,
            deadline_us: u64::try_from(DEADLINE.as_micros())?,
            place: stage.place(),
            flaw: self.flaw,
        };
        let mut crew = Crew::start(self.program.clone(), orders, self.clients)?;
        let mut rng = Rng::with_seed(self.seed);
        let (mut faults, mut disturbances) = (BTreeMap::new(), Vec::new());
        let mut waiting: Vec<Fault> = Vec::new();
        sleep(CALM);
        let started_at = Instant::now();
        while started_at.elapsed() < self.time {
            if waiting.is_empty() {
                waiting = self.topology.round(&mut rng, stage.has_clock());
                let is_meant =
                    |fault: &Fault| self.only.as_ref().is_none_or(|only| only == fault.name());
                waiting.retain(is_meant);
            }
            let Some(fault) = waiting.pop() else { continue };
            let second = rng
                .bool()
                .then(|| waiting.iter().position(|it| it.is_instant()));
            let second = second
                .flatten()
                .map(|position| waiting.swap_remove(position));
            progress(&format!(
                "{fault:?}{}",
                second.map_or(String::new(), |it| format!(", {it:?}"))
            ));
            for fault in [Some(fault), second].into_iter().flatten() {
                *faults.entry(fault.name()).or_default() += 1;
            }
            let mut meanwhile = |stage: &mut Stage, done: &mut Vec<Disturbance>| match second {
                Some(Fault::ClientDies) => replace_one(&mut crew, done),
                Some(second) => stage.suffer(second, done, |_, _| Ok(())),
                None => Ok(()),
            };
            let mut was_done = false;
            stage.suffer(fault, &mut disturbances, |stage, done| {
                was_done = true;
                meanwhile(stage, done)
            })?;
            if !was_done {
                meanwhile(&mut stage, &mut disturbances)?;
            }
            if fault == Fault::ClientDies {
                replace_one(&mut crew, &mut disturbances)?;
            }
            sleep(Duration::from_millis(rng.u64(300..1_800)));
        }
        progress("quiet");
        sleep(Duration::from_secs(1));
        let mut attempts = crew.finish()?;
        attempts.extend(look(&stage.place(), self.seed)?);
        disturbances.sort_by_key(|disturbance| disturbance.from_us);
        let history = History {
            quotas: Population::of(self.seed).quotas().to_vec(),
            attempts,
            disturbances,
            is_apart: self.topology == Topology::Cluster,
        };
        progress("checking");
        Ok(report(self.topology, &history, &stage, faults))
    }
}

/// Whoever dies takes with it what nobody was to hear of.
fn replace_one(crew: &mut Crew, done: &mut Vec<Disturbance>) -> Result<()> {
    let from_us = now_us();
    crew.replace_one()?;
    done.push(Disturbance::trouble(from_us, now_us()));
    Ok(())
}

/// Asks, when all is quiet, what remains of every budget.
fn look(place: &Place, seed: u64) -> Result<Vec<Attempt>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let population = Population::of(seed);
    runtime.block_on(async {
        let backend = place
            .backend()
            .deadline(Duration::from_secs(5))
            .connect()
            .await?;
        let mut attempts = Vec::new();
        for caller in 0..SHARED_CALLERS {
            for policy in 0..population.quotas().len() {
                let budget = Budget { policy, caller };
                let asked = [Asked {
                    budget,
                    cost: 0,
                    manner: Manner::Probe,
                }];
                let (keys, sent_us) = (population.keys(&asked), now_us());
                let answer = backend.decide(&population.charges(&asked, &keys)).await;
                attempts.push(Attempt {
                    asker: Asker::default(),
                    verb: Verb::Decide(asked.to_vec()),
                    sent_us,
                    heard_us: now_us(),
                    promised_us: None,
                    outcome: Outcome::of(&answer),
                    fallback: None,
                    told: None,
                });
            }
        }
        Ok(attempts)
    })
}

fn report(
    topology: Topology,
    history: &History,
    stage: &Stage,
    faults: BTreeMap<&'static str, u32>,
) -> Report {
    let took = |attempt: &Attempt| Duration::from_micros(attempt.heard_us - attempt.sent_us);
    let attempts = history.attempts.iter();
    let answered = attempts.filter(|attempt| !attempt.outcome.is_unheard());
    let slowest = answered.map(took).max().unwrap_or_default();
    let mut other_wrongs = Vec::new();
    if slowest > DEADLINE + SLACK {
        other_wrongs.push(format!(
            "somebody waited {slowest:?}, and the deadline is {DEADLINE:?}"
        ));
    }
    let immortal = stage.immortal_keys();
    if !immortal.is_empty() {
        other_wrongs.push(format!(
            "{} keys never expire: {}",
            immortal.len(),
            immortal[0]
        ));
    }
    let findings = check(history);
    if findings.decided < FEWEST {
        let decided = findings.decided;
        other_wrongs.push(format!("only {decided} decisions: that shows nothing"));
    }
    Report {
        topology,
        evidence: evidence(history, &findings),
        findings,
        other_wrongs,
        faults,
        slowest,
        recovery: recovery(history),
    }
}

/// What a reader needs to judge a wrong that no second run will show again.
fn evidence(history: &History, findings: &Findings) -> Vec<String> {
    const WRONGS: usize = 4;
    const BEFORE: Duration = Duration::from_secs(10);

    let mut lines = Vec::new();
    for wrong in findings.wrong.iter().take(WRONGS) {
        let last_us = history.attempts[wrong.attempt].heard_us;
        let from_us = last_us.saturating_sub(u64::try_from(BEFORE.as_micros()).unwrap_or(u64::MAX));
        let is_near = |sent_us: u64, heard_us: u64| sent_us <= last_us && heard_us >= from_us;
        let is_same = |attempt: &&Attempt| {
            let mut budgets = attempt.verb.budgets().map(Some);
            is_near(attempt.sent_us, attempt.heard_us)
                && (wrong.budget.is_none() || budgets.any(|budget| budget == wrong.budget))
        };
        let mut told: Vec<_> = (history.attempts.iter().filter(is_same))
            .map(|attempt| (attempt.sent_us, format!("  {attempt:?}")))
            .collect();
        let done = history.disturbances.iter();
        told.extend(
            done.filter(|it| is_near(it.from_us, it.to_us))
                .map(|it| (it.from_us, format!("  {it:?}"))),
        );
        told.sort();
        lines.push(format!("before: {wrong}"));
        lines.extend(told.into_iter().map(|(_, line)| line));
    }
    lines
}

fn recovery(history: &History) -> Duration {
    let ends = history
        .disturbances
        .iter()
        .map(|disturbance| disturbance.to_us);
    let mut decided: Vec<_> = (history.attempts.iter())
        .filter(|attempt| matches!(attempt.outcome, Outcome::Decided(_)))
        .map(|attempt| (attempt.sent_us, attempt.heard_us))
        .collect();
    decided.sort_unstable();
    let first_after = |end_us: u64| {
        let first = decided.partition_point(|(sent_us, _)| *sent_us < end_us);
        let heard_us = decided[first..]
            .iter()
            .map(|(_, heard_us)| *heard_us)
            .min()?;
        Some(heard_us - end_us)
    };
    Duration::from_micros(ends.filter_map(first_after).max().unwrap_or_default())
}
