//! Many services, each asked many times, and the smallest case of what is wrong.

use std::collections::HashMap;
use std::fmt;
use std::iter::repeat_with;
use std::ops::AddAssign;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use fastrand::Rng;
use http_body_util::BodyExt;
use tokio::runtime::{Builder, Runtime};
use tollgate_testkit::seed;
use tower::ServiceExt;

use crate::truth::book::Book;
use crate::truth::judge::{Judge, Kind, Wrong};
use crate::truth::policies::Rule;
use crate::truth::requests::Ask;
use crate::truth::services::{self, Service, Spec};

/// Requests of one service: so many that callers are seen again, and so few that there are many services.
const REQUESTS_EACH: usize = 200;

/// Cases that are drawn from one seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Campaign {
    seed: u64,
}

/// A service, its policies, and what it is asked.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) spec: Spec,
    pub(crate) rules: Vec<Rule>,
    pub(crate) asks: Vec<Ask>,
}

/// The counts of what was tried.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    pub(crate) services: usize,
    pub(crate) requests: usize,
    /// Handlers that ran.
    pub(crate) runs: usize,
    pub(crate) charges: usize,
    pub(crate) refused: usize,
}

impl Campaign {
    /// Of the seed that is asked for, or of a new one.
    pub(crate) fn drawn() -> Self {
        Self::of(seed())
    }

    /// Of this seed, for cases that have to have something in them.
    pub(crate) const fn of(seed: u64) -> Self {
        Self { seed }
    }

    /// Asks so many requests, and panics with the smallest case of each thing that is wrong.
    pub(crate) fn run(self, requests: usize) -> Report {
        let cases = requests.div_ceil(REQUESTS_EACH);
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let (report, found) = thread::scope(|scope| {
            let run = |first| {
                let runtime = runtime();
                let mut report = Report::default();
                let mut found = HashMap::new();
                for number in (first..cases).step_by(threads) {
                    let case = self.case(number);
                    let wrongs = case.ask(&runtime, &mut report);
                    for wrong in wrongs {
                        found.entry(wrong.kind).or_insert((wrong, case.clone()));
                    }
                }
                (report, found)
            };
            let threads: Vec<_> = (0..threads)
                .map(|first| scope.spawn(move || run(first)))
                .collect();
            let mut report = Report::default();
            let mut all = HashMap::new();
            for thread in threads {
                let (part, found) = thread.join().unwrap();
                report += part;
                all.extend(found);
            }
            (report, all)
        });
        self.tell(found.into_values());
        report
    }

    /// A case of this campaign.
    pub(crate) fn case(self, number: usize) -> Case {
        let mut rng = Rng::with_seed(self.seed);
        let seed = rng.u64(..).wrapping_add(u64::try_from(number).unwrap());
        Case::draw(&mut Rng::with_seed(seed))
    }

    /// Panics if anything is wrong.
    pub(crate) fn tell(self, found: impl Iterator<Item = (Wrong, Case)>) {
        let runtime = runtime();
        let told: Vec<_> = found
            .map(|(wrong, case)| {
                let (wrong, case) = case.shrunk(&runtime, wrong);
                format!(
                    "{:?} of {}: {}\n{case:?}",
                    wrong.kind, wrong.rule, wrong.what
                )
            })
            .collect();
        assert!(
            told.is_empty(),
            "{}\n\nrepeat with TOLLGATE_SEED={}",
            told.join("\n\n"),
            self.seed
        );
    }
}

impl Case {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        loop {
            let spec = Spec::draw(rng);
            let rules = Rule::draw_several(rng, &spec);
            // Policies that contradict themselves are refused when the limiter is built.
            if services::build(&spec, &rules, &Arc::default()).is_some() {
                // No server hands on a request that the types of `http` cannot hold.
                let asks = repeat_with(|| Ask::draw(rng, &spec));
                let asks = asks.filter(|ask| ask.request().is_some());
                let asks = asks.take(REQUESTS_EACH).collect();
                return Self { spec, rules, asks };
            }
        }
    }

    /// Everything that is wrong, asked one request after the other.
    pub(crate) fn ask(&self, runtime: &Runtime, report: &mut Report) -> Vec<Wrong> {
        let book = Arc::<Book>::default();
        let Some(service) = services::build(&self.spec, &self.rules, &book) else {
            return Vec::new();
        };
        report.services += 1;
        let intercepting = services::intercepts(&self.spec, &self.rules);
        let mut judge = Judge::new(&self.rules, intercepting);
        let mut wrongs = Vec::new();
        for (number, ask) in self.asks.iter().enumerate() {
            let Some(is_refused) = runtime.block_on(answer(&service, ask)) else {
                continue;
            };
            let page = book.read();
            report.requests += 1;
            report.runs += page.runs.len();
            report.charges += page.taken.len();
            report.refused += usize::from(is_refused);
            wrongs.extend(judge.hear(number, &page));
        }
        wrongs
    }

    /// The case with as little in it as still shows what is wrong.
    fn shrunk(mut self, runtime: &Runtime, mut wrong: Wrong) -> (Wrong, Self) {
        self.asks = {
            let asks = wrong
                .requests
                .iter()
                .map(|number| self.asks[*number].clone());
            asks.collect()
        };
        let shows = |case: &Self, kind: Kind| {
            let wrongs = case.ask(runtime, &mut Report::default());
            wrongs.into_iter().find(|wrong| wrong.kind == kind)
        };
        // A budget that was spent by others may be needed: then it is told as it was found.
        if shows(&self, wrong.kind).is_none() {
            return (wrong, self);
        }
        while let Some((smaller, found)) = self
            .smaller()
            .into_iter()
            .find_map(|case| shows(&case, wrong.kind).map(|found| (case, found)))
        {
            self = smaller;
            wrong = found;
        }
        (wrong, self)
    }

    /// The case without any one of its parts.
    fn smaller(&self) -> Vec<Self> {
        let without = |change: &dyn Fn(&mut Self)| {
            let mut case = self.clone();
            change(&mut case);
            case
        };
        let mut smaller = Vec::new();
        for at in 0..self.rules.len() {
            smaller.push(without(&|case| drop(case.rules.remove(at))));
        }
        for at in 0..self.spec.bricks.len() {
            smaller.push(without(&|case| {
                case.spec.bricks.remove(at);
            }));
        }
        if self.spec.grpc.is_some() {
            smaller.push(without(&|case| case.spec.grpc = None));
        }
        for at in 0..self.asks.len() {
            smaller.push(without(&|case| drop(case.asks.remove(at))));
            for header in 0..self.asks[at].headers.len() {
                smaller.push(without(&|case| {
                    drop(case.asks[at].headers.remove(header));
                }));
            }
            if !self.asks[at].body.is_empty() {
                smaller.push(without(&|case| case.asks[at].body.clear()));
            }
            if self.asks[at].authority.is_some() {
                smaller.push(without(&|case| case.asks[at].authority = None));
            }
            if let Some((path, _)) = self.asks[at].path.split_once('?') {
                smaller.push(without(&|case| path.clone_into(&mut case.asks[at].path)));
            }
        }
        smaller
    }
}

/// True if it is refused; `None` if it is not a request.
async fn answer(service: &Service, ask: &Ask) -> Option<bool> {
    let request = ask.request()?;
    let Ok(response) = service.clone().oneshot(request).await;
    let is_denied = response.status() == http::StatusCode::TOO_MANY_REQUESTS;
    let status = response.headers().get("grpc-status").cloned();
    // The handlers of streams report while the body is read.
    drop(response.into_body().collect().await);
    Some(is_denied || status.is_some_and(|status| status == "8"))
}

pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// The result, if there is one already.
pub(crate) fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

impl Report {
    /// A property of requests that reach nothing would hold whatever the limiter did. A part of a full run has few services, and in
    /// some of them little happens.
    #[track_caller]
    pub(crate) fn assert_says_something(&self, requests: usize, full: u64) {
        let few = if (requests as u64) < full { 4 } else { 1 };
        assert!(self.requests >= requests, "{self:?}");
        assert!(self.runs * 3 * few >= self.requests, "{self:?}");
        assert!(self.charges * 3 * few >= self.runs, "{self:?}");
    }
}

impl AddAssign for Report {
    fn add_assign(&mut self, other: Self) {
        self.services += other.services;
        self.requests += other.requests;
        self.runs += other.runs;
        self.charges += other.charges;
        self.refused += other.refused;
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.spec)?;
        for rule in &self.rules {
            writeln!(f, "{rule:?}")?;
        }
        for ask in &self.asks {
            writeln!(f, "{ask:?}")?;
        }
        Ok(())
    }
}
