//! Requests that overlap: retries with the same idempotency key, refunds that come late, and callers that hang up.
//!
//! The handler runs at most as often as the budget admits, plus the replays of each charge that stays. A run is free only if the
//! operator frees its response. Who has enough strikes runs nothing more, and a caller that hangs up under `strike_if` has one.
//!
//! Memory decides immediately, so that a tenth of the cases runs on a real Redis as well: there a caller can hang up while its request is
//! being decided.

use std::convert::Infallible;
use std::fmt::Write;
use std::future::poll_fn;
use std::iter::repeat_with;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use fastrand::Rng;
use http::{Request, Response, StatusCode};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tollgate::key::Header;
use tollgate::{
    Backend, Ban, Limiter, ManualClock, MemoryBackend, Policy, Quota, RateLimitLayer, Share,
};
use tollgate_testkit::{Standalone, cases, seed};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};

use crate::common::in_redis;
use crate::truth::campaign::{poll, runtime};
use crate::truth::readings::HEADER;
use crate::truth::requests::one;

const CASES: u64 = 5_000;
const CASES_ON_REDIS: u64 = CASES / 10;
const STEPS: usize = 60;
const ID: &str = "idempotency-key";
const CLASS: &str = "x-class";
const KEPT: &str = "critical";
/// What requests say of their class, line by line. Who says two things is in none.
const CLASSES: [&[&str]; 5] = [&[], &["low"], &[KEPT], &[KEPT, "low"], &["low", KEPT]];
const REPLAYS: usize = 2;
const CALLERS: usize = 2;

/// The policy.
#[derive(Clone, Copy, Debug)]
struct Terms {
    quota: usize,
    once: bool,
    frees: Option<Frees>,
    /// The number of wrong answers that ban.
    strikes: Option<usize>,
    /// True if half of the budget is kept for a class.
    keeps: bool,
}

/// The way in which the operator frees right answers.
#[derive(Clone, Copy, Debug)]
enum Frees {
    CountIf,
    FreeIf,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Ask {
        caller: usize,
        id: Option<u8>,
        classes: &'static [&'static str],
        /// The turns of other tasks until the caller hangs up, if the request is not decided before.
        patience: Option<u8>,
    },
    Answer {
        which: usize,
        is_right: bool,
    },
    HangUp {
        which: usize,
    },
}

#[derive(Debug, Default)]
struct Tally {
    runs: usize,
    refused: usize,
    free: usize,
    hung_up: usize,
    hung_up_undecided: usize,
}

type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>>>>;

/// A request whose handler has begun.
struct Running {
    caller: usize,
    is_kept: bool,
    response: ResponseFuture,
    answer: oneshot::Sender<StatusCode>,
}

/// The answer that a handler waits for, until it has begun.
#[derive(Clone)]
struct Waits(Arc<Mutex<Option<oneshot::Receiver<StatusCode>>>>);

/// The backend of a trial, which knows none of the trial's callers.
struct Place {
    /// Memory if there is none.
    redis: Option<Arc<dyn Backend>>,
    trials: usize,
}

#[test]
fn a_request_in_flight_is_paid_for_however_it_ends() {
    let tally = runtime().block_on(try_cases(CASES, None));

    tally.assert_says_something();
}

#[test]
fn a_request_in_flight_on_redis_is_paid_for_however_it_ends() {
    let server = Standalone::start();
    let tally = runtime().block_on(async {
        let redis = in_redis(&server.url()).await;
        try_cases(CASES_ON_REDIS, Some(Arc::new(redis))).await
    });

    tally.assert_says_something();
    assert!(tally.hung_up_undecided > 0, "{tally:?}");
}

async fn try_cases(full: u64, redis: Option<Arc<dyn Backend>>) -> Tally {
    let seed = seed();
    let mut rng = Rng::with_seed(seed);
    let mut place = Place { redis, trials: 0 };
    let mut tally = Tally::default();
    for _ in 0..cases(full) {
        let terms = Terms::draw(&mut rng);
        let steps: Vec<_> = repeat_with(|| Step::draw(&mut rng)).take(STEPS).collect();
        if let Err(wrong) = run(terms, &steps, &mut place, &mut tally).await {
            let (steps, wrong) = smallest(terms, steps, wrong, &mut place).await;
            let mut told = format!("InFlight of policy: {wrong}\n{terms:?}\n");
            for step in steps {
                writeln!(told, "{step:?}").unwrap();
            }
            panic!("{told}\nrepeat with TOLLGATE_SEED={seed}");
        }
    }
    tally
}

impl Tally {
    /// A property of requests that never run, or that all do, would hold whatever the limiter did.
    #[track_caller]
    fn assert_says_something(&self) {
        let ends = self.free + self.hung_up;
        assert!(
            self.refused > 0 && self.free > 0 && self.hung_up > 0 && self.runs > ends,
            "{self:?}"
        );
    }
}

impl Place {
    fn backend_of_next_trial(&mut self) -> Arc<dyn Backend> {
        self.trials += 1;
        self.redis.clone().unwrap_or_else(|| {
            let memory = MemoryBackend::builder().clock(ManualClock::new());
            Arc::new(memory.build())
        })
    }
}

impl Terms {
    fn draw(rng: &mut Rng) -> Self {
        // A retry is let in for the class of the first request.
        let once = rng.u8(0..4) != 0;
        let keeps = !once && rng.bool();
        Self {
            quota: if keeps {
                2 * rng.usize(1..=2)
            } else {
                rng.usize(1..=3)
            },
            once,
            frees: rng
                .choice([Frees::CountIf, Frees::FreeIf])
                .filter(|_| rng.u8(0..3) != 0),
            strikes: rng.bool().then(|| rng.usize(1..=6)),
            keeps,
        }
    }

    fn service(
        self,
        backend: Arc<dyn Backend>,
    ) -> BoxCloneSyncService<Request<Body>, Response<Body>, Infallible> {
        let quota = u64::try_from(self.quota).unwrap();
        let mut policy = Policy::new("policy", Quota::per_day(quota)).key(Header::new(HEADER));
        if self.once {
            policy = policy.once_by(Header::new(ID));
        }
        if self.keeps {
            let half = Share::percent(50);
            policy = policy.class_by(Header::new(CLASS)).keep_for(KEPT, half);
        }
        let is_right = |status| status == StatusCode::OK;
        policy = match self.frees {
            None => policy,
            Some(Frees::CountIf) => policy.count_if(move |response| !is_right(response.status())),
            Some(Frees::FreeIf) => policy.free_if(move |response| is_right(response.status())),
        };
        if let Some(strikes) = self.strikes {
            let hour = Duration::from_secs(3_600);
            policy = policy
                .ban(Ban::after(u64::try_from(strikes).unwrap(), hour).lasting(hour))
                .strike_if(move |response| !is_right(response.status()));
        }
        let limiter = Limiter::builder().policy(policy).backend(backend);
        let handler = service_fn(|request: Request<Body>| async move {
            let waits = request.extensions().get::<Waits>().unwrap().0.lock();
            let answer = waits.unwrap().take().unwrap();
            let mut response = Response::new(Body::empty());
            *response.status_mut() = answer.await.unwrap();
            Ok::<_, Infallible>(response)
        });
        let layer = RateLimitLayer::new(limiter.build().unwrap());
        BoxCloneSyncService::new(layer.layer(handler))
    }
}

impl Step {
    fn draw(rng: &mut Rng) -> Self {
        match rng.u8(0..8) {
            0..4 => Self::Ask {
                caller: rng.usize(0..CALLERS),
                id: (rng.u8(0..6) != 0).then(|| rng.u8(0..4)),
                classes: one(rng, &CLASSES),
                patience: (rng.u8(0..4) == 0).then(|| rng.u8(0..5)),
            },
            4..7 => Self::Answer {
                which: rng.usize(0..4),
                is_right: rng.bool(),
            },
            _ => Self::HangUp {
                which: rng.usize(0..4),
            },
        }
    }
}

/// The first thing that is wrong.
async fn run(
    terms: Terms,
    steps: &[Step],
    place: &mut Place,
    tally: &mut Tally,
) -> Result<(), String> {
    let service = terms.service(place.backend_of_next_trial());
    let trial = place.trials;
    let mut running: Vec<Running> = Vec::new();
    // The runs that are over and were not free, and the strikes, of each caller.
    let (mut counted, mut strikes) = ([0; CALLERS], [0; CALLERS]);
    // Those of them that are in no class.
    let mut classless = [0; CALLERS];
    for step in steps {
        match *step {
            Step::Ask {
                caller,
                id,
                classes,
                patience,
            } => {
                let (answer, waits) = oneshot::channel();
                let waits = Waits(Arc::new(Mutex::new(Some(waits))));
                let request = Request::get("/").header(HEADER, format!("{trial}-{caller}"));
                let mut request = match id {
                    None => request,
                    Some(id) => request.header(ID, format!("{trial}-{id}")),
                };
                for class in classes {
                    request = request.header(CLASS, *class);
                }
                let request = request.extension(waits.clone()).body(Body::empty());
                let mut response: ResponseFuture =
                    Box::pin(service.clone().oneshot(request.unwrap()));
                match waits.begins(&mut response, patience).await {
                    Some(true) => {}
                    Some(false) => {
                        tally.refused += 1;
                        continue;
                    }
                    None => {
                        tally.hung_up_undecided += 1;
                        continue;
                    }
                }
                tally.runs += 1;
                running.push(Running {
                    caller,
                    is_kept: classes == [KEPT],
                    response,
                    answer,
                });
                let struck = strikes[caller];
                if terms.strikes.is_some_and(|most| struck >= most) {
                    return Err(format!("caller {caller} runs after {struck} strikes"));
                }
            }
            Step::Answer { which, is_right } if which < running.len() => {
                let Running {
                    caller,
                    is_kept,
                    response,
                    answer,
                } = running.remove(which);
                let status = if is_right { 200 } else { 401 };
                answer.send(StatusCode::from_u16(status).unwrap()).unwrap();
                response.await.unwrap();
                let is_free = is_right && terms.frees.is_some();
                tally.free += usize::from(is_free);
                counted[caller] += usize::from(!is_free);
                classless[caller] += usize::from(!is_free && !is_kept);
                strikes[caller] += usize::from(!is_right);
            }
            Step::HangUp { which } if which < running.len() => {
                let Running {
                    caller, is_kept, ..
                } = running.remove(which);
                tally.hung_up += 1;
                counted[caller] += 1;
                classless[caller] += usize::from(!is_kept);
                strikes[caller] += 1;
            }
            Step::Answer { .. } | Step::HangUp { .. } => {}
        }
        let most = terms.quota * if terms.once { 1 + REPLAYS } else { 1 };
        for (caller, counted) in counted.iter().enumerate() {
            let open = running.iter().filter(|one| one.caller == caller).count();
            if counted + open > most {
                return Err(format!(
                    "caller {caller} had {counted} runs and has {open}, and at most {most} are paid for"
                ));
            }
            let open = running
                .iter()
                .filter(|one| one.caller == caller && !one.is_kept);
            let all = classless[caller] + open.count();
            if terms.keeps && all > terms.quota / 2 {
                return Err(format!(
                    "caller {caller} had or has {all} runs without the class that the rest is for"
                ));
            }
        }
    }
    Ok(())
}

impl Waits {
    /// Whether the handler begins. `None` if the caller hangs up before that is decided.
    async fn begins(&self, response: &mut ResponseFuture, patience: Option<u8>) -> Option<bool> {
        let mut begins = pin!(poll_fn(|cx| {
            let is_over = response.as_mut().poll(cx).is_ready();
            if self.0.lock().unwrap().is_none() {
                Poll::Ready(true)
            } else if is_over {
                Poll::Ready(false)
            } else {
                Poll::Pending
            }
        }));
        let Some(patience) = patience else {
            return Some(begins.await);
        };
        let decided = poll(begins.as_mut());
        if decided.is_none() {
            for _ in 0..patience {
                yield_now().await;
            }
        }
        decided
    }
}

/// As few steps as still show something wrong.
async fn smallest(
    terms: Terms,
    mut steps: Vec<Step>,
    mut wrong: String,
    place: &mut Place,
) -> (Vec<Step>, String) {
    let mut at = 0;
    while at < steps.len() {
        let mut fewer = steps.clone();
        fewer.remove(at);
        match run(terms, &fewer, place, &mut Tally::default()).await {
            Ok(()) => at += 1,
            Err(found) => (steps, wrong, at) = (fewer, found, 0),
        }
    }
    (steps, wrong)
}
