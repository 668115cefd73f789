//! One run: clients ask, faults are done, and in the end the checker says whether the whole history is possible.

mod report;
mod shown;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tollgate_core::{Backend, Call};

pub use self::report::Report;
use self::report::report;
use self::shown::missing;
use crate::Result;
use crate::attempt::{AskedCharge, Asker, Attempt, Budget, Door, Manner, Outcome, Verb};
use crate::client::{Orders, Place};
use crate::crew::{Crew, FEWEST_HOLDERS};
use crate::fault::{Fault, Topology};
use crate::flaw::Flaw;
use crate::forgery::Forgery;
use crate::front::Front;
use crate::gateway::GatewayOrders;
use crate::history::{Disturbance, Effect, History, Wait};
use crate::hold::{LEASE, PLACES};
use crate::holder::Places;
use crate::idle_client::IdleClient;
use crate::kept::keep;
use crate::population::{Population, SHARED_CALLERS};
use crate::ruling::join;
use crate::stage::Stage;
use crate::terms::Terms;
use crate::wall::now_us;

/// The deadline of each decision.
pub const DEADLINE: Duration = Duration::from_millis(250);

/// The time for which clients ask before the first fault. They have to connect, and an action without an answer is certain only
/// if no fault acts for three seconds after it. So lost corrections show in the rests.
const CALM: Duration = Duration::from_secs(6);

/// The time without faults after which some refused places must have been judged.
const STILL: Duration = Duration::from_secs(40);

/// The time after which some lines must have been full, some closed while requests waited, and some ids replayed.
const LONG: Duration = Duration::from_secs(60);

/// The least number of decisions by which a run can be judged.
const FEWEST: u64 = 300;

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The servers that are asked.
    pub topology: Topology,
    /// The seed of everything else that is random.
    pub seed: u64,
    /// The time for which faults are done. The run takes some seconds more.
    pub time: Duration,
    /// The time after the faults for which clients go on without any.
    pub still: Duration,
    /// The number of asking processes.
    pub clients: u32,
    /// The defect of the one server's script, if it should have one.
    pub forgery: Option<Forgery>,
    /// The defect of the clients' shares, if they should have one.
    pub flaw: Option<Flaw>,
    /// True if clients ask through a real Envoy too, and faults are done to that.
    pub has_envoy: bool,
    /// Faults of this name only, if it is set.
    pub only: Option<String>,
    /// This program, which is the client too.
    pub program: PathBuf,
}

impl Campaign {
    /// Runs, and tells `progress` of each fault.
    ///
    /// # Errors
    ///
    /// If there is no server to run against. All other trouble is in the report.
    pub fn run(&self, mut progress: impl FnMut(&str)) -> Result<Report> {
        let ahead_s = self.ahead_s();
        let stage = again(|| Stage::start(self.topology, self.forgery, self.seed, ahead_s))?;
        let orders = Orders {
            seed: self.seed,
            number: 0,
            workers: 4,
            pause_us: 12_000,
            deadline_us: micros(DEADLINE),
            place: stage.place(),
            flaw: self.flaw,
            envoy: None,
        };
        let front = match self.has_envoy {
            true => Some(again(|| self.front(&orders))?),
            false => None,
        };
        let envoy = front.as_ref().map(Front::address);
        let orders = Orders { envoy, ..orders };
        let mut run = Run {
            crew: Crew::start(self.program.clone(), orders, self.clients)?,
            idle: again(|| IdleClient::connect(&stage.place()))?,
            wrongs: Vec::new(),
            stage,
            front,
            rng: Rng::with_seed(self.seed),
            faults: BTreeMap::new(),
            undone: Vec::new(),
            disturbances: Vec::new(),
        };
        run.disturbances.extend(run.stage.first_clocks());
        sleep(CALM);
        let until = Instant::now() + self.time;
        let mut ended_early = None;
        let mut waiting: Vec<Fault> = Vec::new();
        let has_holders = self.stops_holders();
        while Instant::now() < until {
            if waiting.is_empty() {
                let has_clock = run.stage.has_clock();
                waiting =
                    (self.topology).round(&mut run.rng, has_clock, self.has_envoy, has_holders);
                if let Some(only) = &self.only {
                    waiting = only_these(only, waiting)?;
                }
            }
            if !run.go_on(&mut waiting, &mut progress) {
                ended_early = Some("ended early: the servers cannot be made whole".to_owned());
                break;
            }
        }
        progress("quiet");
        sleep(Duration::from_secs(1) + self.still);
        run.look_at_clocks();
        // While the clients live, which tell whatever they think that they hold.
        let held_for_ever_by_living = run.crew.hold_nothing();
        let held_for_ever_by_living = match held_for_ever_by_living {
            Ok(()) => held_for_ever(&run.stage.place()),
            Err(error) => Some(format!("a client could not be told: {error}")),
        };
        let record = run.crew.finish();
        let mut other_wrongs = record.wrongs;
        other_wrongs.extend(ended_early);
        other_wrongs.append(&mut run.wrongs);
        let in_books = record.figures.iter().map(|it| it.held).sum::<u64>();
        if in_books > 0 {
            other_wrongs.push(format!(
                "{in_books} places are held in the books of idle clients"
            ));
        }
        let population = Population::of(self.seed);
        let (mut attempts, mut waits) = (record.attempts, record.waits);
        let mut away = Vec::new();
        if let Some(front) = run.front {
            let of_front = front.finish()?;
            other_wrongs.extend(of_front.wrongs);
            other_wrongs.extend(join(&mut attempts, of_front.rulings, &population));
            waits.extend(of_front.waits);
            away = of_front.away;
        }
        let held_for_ever = || held_for_ever(&run.stage.place());
        other_wrongs.extend(held_for_ever_by_living.or_else(held_for_ever));
        match again(|| look(&run.stage.place(), self.seed)) {
            Ok(seen) => attempts.extend(seen),
            Err(error) => {
                other_wrongs.push(format!("no server could be asked at the end: {error}"));
            }
        }
        other_wrongs.extend(immortal(&run.stage));
        // A low rate is enough.
        waits.push(Wait {
            process: REFEREE.process,
            from_us: 0,
            to_us: u64::MAX,
        });
        let budgets = attempts.iter().flat_map(|attempt| attempt.verb.budgets());
        let callers: BTreeSet<_> = budgets.map(|budget| budget.caller).collect();
        let homes = guarded(|| run.stage.homes(&population, callers.into_iter()));
        let homes = homes.unwrap_or_else(|error| {
            other_wrongs.push(format!("the homes of callers are unknown: {error}"));
            BTreeMap::new()
        });
        run.disturbances
            .sort_by_key(|disturbance| disturbance.from_us);
        let history = History {
            quotas: population.quotas().to_vec(),
            replacements: population.replacements().clone(),
            others: population.others().clone(),
            attempts,
            homes,
            disturbances: run.disturbances,
            is_apart: self.topology == Topology::Cluster,
            waits,
            deadline_us: Some(micros(DEADLINE)),
            holds: record.holds,
            knocks: record.knocks,
            spends: record.spends,
            operated: record.operated,
            orders: record.orders,
            lines: record.lines,
            replaced: record.replaced,
            away,
        };
        progress("checking");
        let has_clock = run.stage.has_clock() || self.topology != Topology::Single;
        let mut report = Report {
            faults: run.faults,
            undone: run.undone,
            lost_leases: record.figures.iter().map(|it| it.lost_leases).sum(),
            reclaimed: record.figures.iter().map(|it| it.reclaimed).sum(),
            ..report(self.topology, &history, other_wrongs)
        };
        if self.still >= STILL && report.findings.held.refused == 0 {
            let wrong = "no refused place could be judged: that shows nothing";
            report.other_wrongs.push(wrong.to_owned());
        }
        let of_all_kinds = self.time >= LONG && self.flaw.is_none();
        let missing = missing(&report.findings, of_all_kinds, has_clock, self.has_envoy);
        report.other_wrongs.extend(missing);
        if self.is_sound() && !report.findings.is_possible() {
            let kept = keep(self.topology, self.seed, history)?;
            let line = format!("fire check {} judges it again", kept.display());
            report.evidence.insert(0, line);
        }
        Ok(report)
    }

    /// True if nothing has a defect on purpose.
    fn is_sound(&self) -> bool {
        self.forgery.is_none() && self.flaw.is_none()
    }

    /// True if a process that holds places is stopped now and then. That takes the time of ten other faults, which a short run has not.
    fn stops_holders(&self) -> bool {
        let has_time = self.time >= LONG || self.only.is_some();
        has_time && self.clients >= FEWEST_HOLDERS && self.is_sound()
    }

    /// Envoy and the gateway process, which ask the same servers as these clients.
    fn front(&self, clients: &Orders) -> Result<Front> {
        let orders = GatewayOrders {
            seed: self.seed,
            place: clients.place.clone(),
            deadline_us: clients.deadline_us,
            file: PathBuf::new(),
            address: (Ipv4Addr::UNSPECIFIED, 0).into(),
            flaw: self.flaw,
        };
        Front::start(self.program.clone(), orders)
    }

    /// The seconds by which the servers' clocks are ahead of those of the clients, so that a day ends in the middle of the run
    /// under the policy of days.
    fn ahead_s(&self) -> i64 {
        let now_us = now_us();
        let midnight_us = Population::of(self.seed).midnight_after(now_us);
        let until_s = midnight_us.map_or(0, |midnight_us| (midnight_us - now_us) / 1_000_000);
        let half_s = (self.time / 2 + CALM).as_secs();
        i64::try_from(until_s).unwrap_or_default() - i64::try_from(half_s).unwrap_or_default()
    }
}

/// A campaign under way.
struct Run {
    crew: Crew,
    idle: IdleClient,
    /// What the idle client was not answered.
    wrongs: Vec<String>,
    stage: Stage,
    front: Option<Front>,
    rng: Rng,
    faults: BTreeMap<&'static str, u32>,
    undone: Vec<String>,
    disturbances: Vec<Disturbance>,
}

impl Run {
    /// Does the next fault, and perhaps another in the middle of it. False if there is no server left to do faults to.
    fn go_on(&mut self, waiting: &mut Vec<Fault>, progress: &mut impl FnMut(&str)) -> bool {
        let Some(fault) = waiting.pop() else {
            return true;
        };
        let second = self
            .rng
            .bool()
            .then(|| waiting.iter().position(|it| it.is_instant()));
        let second = second
            .flatten()
            .map(|position| waiting.swap_remove(position));
        let with = second.map_or(String::new(), |it| format!(", {it:?}"));
        progress(&format!("{fault:?}{with}"));
        for fault in [Some(fault), second].into_iter().flatten() {
            *self.faults.entry(fault.name()).or_default() += 1;
        }
        let from_us = now_us();
        let is_well = match guarded(|| self.suffer(fault, second)) {
            Ok(()) => true,
            Err(error) => {
                progress(&format!("{fault:?} could not be done: {error}"));
                self.undone.push(format!("{}: {error}", fault.name()));
                let is_whole = guarded(|| self.stage.mend()).is_ok();
                // It may have got so far that another server decides, or did meanwhile.
                self.doubt_clocks();
                // It may have lost the data or not.
                let lost = self.stage.done_since(Effect::MaybeLoss, from_us);
                self.disturbances.push(lost);
                is_whole
            }
        };
        sleep(Duration::from_millis(self.rng.u64(300..1_800)));
        is_well
    }

    fn look_at_clocks(&mut self) {
        let look = || {
            self.stage.look_at_clocks(&mut self.disturbances);
            Ok(())
        };
        if let Err(error) = guarded(look) {
            self.undone.push(format!("a look at the clocks: {error}"));
        }
    }

    fn doubt_clocks(&mut self) {
        let doubt = || {
            self.stage.doubt_clocks(&mut self.disturbances);
            Ok(())
        };
        if let Err(error) = guarded(doubt) {
            self.undone.push(format!("a look at the clocks: {error}"));
        }
    }

    fn suffer(&mut self, fault: Fault, second: Option<Fault>) -> Result<()> {
        let Self {
            crew,
            idle,
            wrongs,
            stage,
            front,
            disturbances,
            ..
        } = self;
        // Only where the servers are well: this is about connections.
        let asks_after = fault.is_of_idle_client() && idle.is_answered();
        if fault.is_of_gateway() {
            of_front(front, fault, disturbances)?;
        }
        if fault == Fault::HolderStops {
            // Only where the servers are well: places come back within a lease.
            if !idle.is_answered() {
                return Err("the servers do not decide".into());
            }
            wrongs.extend(crew.stop_a_holder()?);
        }
        let mut meanwhile = |stage: &mut Stage, done: &mut Vec<Disturbance>| match second {
            Some(Fault::ClientDies) => replace_one(crew, done),
            Some(second) if second.is_of_gateway() => of_front(front, second, done),
            Some(second) => stage.suffer(second, done, |_, _| Ok(())),
            None => Ok(()),
        };
        let mut was_done = false;
        if !fault.is_of_gateway() && fault != Fault::HolderStops {
            stage.suffer(fault, disturbances, |stage, done| {
                was_done = true;
                meanwhile(stage, done)
            })?;
        }
        if asks_after {
            wrongs.extend(idle.ask_after(fault));
        }
        if !was_done {
            meanwhile(stage, disturbances)?;
        }
        if fault == Fault::ClientDies {
            replace_one(crew, disturbances)?;
        }
        Ok(())
    }
}

/// Test servers that do not answer panic. Such a panic should end a fault, and not a run of many.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let said = |panic: &(dyn Any + Send)| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
        text.unwrap_or_else(|| "a panic".to_owned())
    };
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(said(&*panic).into()))
}

/// A machine that is busy with something else may need another try.
fn again<T>(work: impl Fn() -> Result<T>) -> Result<T> {
    const TRIES: usize = 3;
    let mut last = guarded(&work);
    for _ in 1..TRIES {
        if last.is_ok() {
            break;
        }
        last = guarded(&work);
    }
    last
}

/// A client that looks at everything when all is over.
const REFEREE: Asker = Asker {
    process: u32::MAX,
    door: Door::Backend,
};

/// Longer than a busy machine holds up a question when all is over.
const PATIENT: Duration = Duration::from_secs(60);

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The places that are not free one lease after all clients have given back theirs, or have ended.
fn held_for_ever(place: &Place) -> Option<String> {
    let left = || -> Result<Option<String>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let backend = place.backend().deadline(PATIENT).connect_deadline(PATIENT);
            let backend = backend.held_lease(LEASE).connect().await?;
            let until = Instant::now() + LEASE + Duration::from_secs(2);
            loop {
                let mut taken = 0;
                for places in Places::all() {
                    // A key that is not read counts as taken.
                    taken += PLACES - places.free(&backend).await.unwrap_or(0).min(PLACES);
                }
                if taken == 0 {
                    return Ok(None);
                }
                if Instant::now() > until {
                    return Ok(Some(format!("{taken} places are held without a holder")));
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
    };
    match again(left) {
        Ok(held) => held,
        Err(error) => Some(format!("the held places could not be read: {error}")),
    }
}

/// The defects of the keys at the end.
fn immortal(stage: &Stage) -> Option<String> {
    match guarded(|| Ok(stage.immortal_keys())) {
        Ok(keys) => {
            let first = keys.first()?;
            Some(format!("{} keys never expire: {first}", keys.len()))
        }
        Err(error) => Some(format!("the keys could not be read: {error}")),
    }
}

/// A client that dies takes along its credits and debits.
fn replace_one(crew: &mut Crew, done: &mut Vec<Disturbance>) -> Result<()> {
    let from_us = now_us();
    crew.replace_one()?;
    done.push(Disturbance::trouble(from_us, now_us()));
    Ok(())
}

/// The faults of this name. A run without any would show nothing.
fn only_these(name: &str, faults: Vec<Fault>) -> Result<Vec<Fault>> {
    let (wanted, others): (Vec<_>, Vec<_>) =
        faults.into_iter().partition(|fault| fault.name() == name);
    if wanted.is_empty() {
        let others: BTreeSet<_> = others.into_iter().map(Fault::name).collect();
        let others = Vec::from_iter(others).join(", ");
        return Err(format!("no fault of this run is named {name}; these are: {others}").into());
    }
    Ok(wanted)
}

/// A gateway process that dies or stops takes along what it was about to give back.
fn of_front(front: &mut Option<Front>, fault: Fault, done: &mut Vec<Disturbance>) -> Result<()> {
    let front = front.as_mut().ok_or("there is no gateway")?;
    let from_us = now_us();
    front.suffer(fault)?;
    done.push(Disturbance::trouble(from_us, now_us()));
    Ok(())
}

/// Asks, when all is quiet, for the rest of every budget.
fn look(place: &Place, seed: u64) -> Result<Vec<Attempt>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let population = Population::of(seed);
    runtime.block_on(async {
        let backend = place
            .backend()
            .deadline(PATIENT)
            .connect_deadline(PATIENT)
            .connect()
            .await?;
        let mut attempts = Vec::new();
        for caller in 0..SHARED_CALLERS {
            for policy in 0..population.quotas().len() {
                let budget = Budget { policy, caller };
                let asked = [AskedCharge {
                    budget,
                    cost: 0,
                    manner: Manner::Probe,
                }];
                let (keys, sent_us) = (population.keys(&asked), now_us());
                let charges = population.charges(&asked, &keys);
                let answer = backend.decide(Call::of(&charges)).await;
                let outcome = Outcome::of(&answer).by(&Terms::of_charges(&charges));
                let verb = Verb::Decide(asked.to_vec());
                attempts.push(Attempt::plain(REFEREE, verb, sent_us, now_us(), outcome));
            }
        }
        Ok(attempts)
    })
}
