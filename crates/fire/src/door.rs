//! The ways to ask: through the backend itself, a limiter, or a server with the layer around it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get;
use fastrand::Rng;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tollgate::{CheckOutcome, ConfigError, HeaderForm, Limiter, RateLimitHeaders, RateLimitLayer};
use tollgate_core::{
    Answer, Backend, BanList, Capabilities, Charge, Decision, Figure, Key, Receipt, Scope,
};
use tollgate_redis::RedisBackend;

use crate::Result;
use crate::attempt::{
    AskedCharge, AttemptAnswer, DecisionRecord, Door, Fallback, HttpAnswer, Manner, Outcome,
};
use crate::flaw::Flaw;
use crate::patience::Patience;
use crate::population::{CALLER, COST, Population, WAITS_AT_MOST};
use crate::terms::Terms;
use crate::wall::now_us;

/// The header in which the server tells its backend's decision, so that the checker has all numbers and not only those of the
/// answer.
const DECIDED: &str = "x-fire-decided";

/// A door, open.
#[derive(Debug)]
pub(crate) struct Entrance {
    backend: RedisBackend,
    population: Population,
    flaw: Option<Flaw>,
    way: Way,
    /// The version of the quotas by which the backend itself is asked.
    version: AtomicUsize,
}

#[derive(Debug)]
enum Way {
    Backend,
    /// Replaced only by a defect.
    Limiter(Mutex<Limiter>),
    Http(Box<Client<HttpConnector, Body>>, SocketAddr, Limiter),
}

impl Entrance {
    pub(crate) async fn open(
        door: Door,
        backend: RedisBackend,
        population: Population,
        flaw: Option<Flaw>,
    ) -> Result<Self> {
        let limiter = || population.limiter(ObservedBackend(backend.clone()), flaw);
        let way = match door {
            Door::Backend => Way::Backend,
            Door::Limiter => Way::Limiter(Mutex::new(limiter()?)),
            Door::Http => {
                let client = Client::builder(TokioExecutor::new()).build_http();
                let limiter = limiter()?;
                let server = serve(&limiter).await?;
                Way::Http(Box::new(client), server, limiter)
            }
        };
        Ok(Self {
            backend,
            population,
            flaw,
            way,
            version: AtomicUsize::default(),
        })
    }

    /// Replaces the quotas by some version of theirs.
    pub(crate) fn replace_quotas(&self, rng: &mut Rng) -> std::result::Result<(), ConfigError> {
        let has_limiter = !matches!(self.way, Way::Backend);
        let version = Population::any_version(rng, has_limiter);
        let limiter = match &self.way {
            Way::Backend => {
                self.version.store(version, Ordering::Relaxed);
                return Ok(());
            }
            Way::Limiter(limiter) => lock(limiter).clone(),
            Way::Http(_, _, limiter) => limiter.clone(),
        };
        limiter.replace(self.population.policies(version, self.flaw))
    }

    pub(crate) fn backend(&self) -> &RedisBackend {
        &self.backend
    }

    pub(crate) fn population(&self) -> &Population {
        &self.population
    }

    /// True if only the answer to a caller says that its turn has come, and the caller cannot leave before.
    pub(crate) fn answers_after_the_wait(&self) -> bool {
        !matches!(self.way, Way::Backend)
    }

    /// The part of an action that can be asked for this way.
    pub(crate) fn fitting(&self, mut asked: Vec<AskedCharge>) -> Vec<AskedCharge> {
        match self.way {
            Way::Backend => {}
            Way::Limiter(_) => asked.truncate(1),
            Way::Http(..) => {
                // The order in which a limiter goes through its policies. Each charges a request once.
                asked.sort_by_key(|asked| asked.budget.policy);
                asked.dedup_by_key(|asked| asked.budget.policy);
            }
        }
        for asked in &mut asked {
            asked.manner = match (&self.way, asked.manner) {
                (Way::Limiter(_), Manner::Shadow) | (Way::Http(..), _) => Manner::Enforce,
                // A check never waits, and so a probe would say that it does not pass where another does.
                (Way::Limiter(_), _) if !self.population.longest_wait(&[*asked]).is_zero() => {
                    Manner::Enforce
                }
                (_, manner) => manner,
            };
        }
        asked
    }

    /// Asks, and gives up after a while if the caller leaves.
    pub(crate) async fn ask(
        &self,
        asked: &[AskedCharge],
        mut patience: Patience,
    ) -> (AttemptAnswer, Vec<Receipt>) {
        if self.flaw == Some(Flaw::StatesNoWait) {
            patience.waits_at_most = None;
        }
        let (heard, receipts) = match &self.way {
            Way::Backend => self.decide(asked, patience).await,
            Way::Limiter(limiter) => self.check(limiter, asked, patience).await,
            Way::Http(client, server, _) => {
                let told = request(client, *server, asked, patience);
                let heard = match patience.leaves_after {
                    Some(patience) => tokio::time::timeout(patience, told).await.ok(),
                    None => Some(told.await),
                };
                let closed = || Outcome::Unknown(Outcome::CLOSED.to_owned()).into();
                (heard.unwrap_or_else(closed), Vec::new())
            }
        };
        if let Some(flaw) = self.flaw {
            self.spoil(flaw, asked, &heard);
        }
        (heard, receipts)
    }

    async fn decide(
        &self,
        asked: &[AskedCharge],
        patience: Patience,
    ) -> (AttemptAnswer, Vec<Receipt>) {
        let most = patience.waits_at_most.unwrap_or(Duration::MAX);
        let version = self.version.load(Ordering::Relaxed);
        let quota = |asked: &AskedCharge| self.population.quota(asked.budget.policy, version);
        let quotas = asked.iter().map(|asked| quota(asked).waiting_at_most(most));
        let quotas: Vec<_> = quotas.collect();
        let keys = self.population.keys(asked);
        let mut charges = self.population.charges(asked, &keys);
        for (charge, quota) in charges.iter_mut().zip(&quotas) {
            charge.quota = quota;
        }
        let answer = self.backend.decide(&charges).await;
        let receipts = answer.iter().flat_map(|it| it.receipts(&charges));
        let outcome = Outcome::of(&answer).by(&Terms::of_charges(&charges));
        (outcome.into(), receipts.collect())
    }

    async fn check(
        &self,
        limiter: &Mutex<Limiter>,
        asked: &[AskedCharge],
        patience: Patience,
    ) -> (AttemptAnswer, Vec<Receipt>) {
        let limiter = lock(limiter).clone();
        let nothing = || Outcome::Failed("nothing was asked".to_owned());
        let [asked] = asked else {
            return (nothing().into(), Vec::new());
        };
        let policy = Population::name(asked.budget.policy);
        let key = self.population.key(asked.budget.caller);
        let check = if self.population.longest_wait(&[*asked]).is_zero() {
            let check = limiter.check(&policy, key).cost(asked.cost);
            match asked.manner {
                Manner::Probe => check.probe().into_future(),
                _ => check.into_future(),
            }
        } else if self.flaw == Some(Flaw::PassesEarly) {
            return self.decide(&[*asked], patience).await;
        } else {
            let acquire = limiter.acquire(&policy, key).cost(asked.cost);
            match patience.waits_at_most {
                Some(most) => acquire.up_to(most).into_future(),
                None => acquire.into_future(),
            }
        };
        let slot = Slot::default();
        let mut checking = Box::pin(SLOT.scope(Arc::clone(&slot), check));
        let checked = match patience.leaves_after {
            None => checking.await,
            Some(patience) => match tokio::time::timeout(patience, &mut checking).await {
                Ok(checked) => checked,
                Err(_left) => {
                    let left_us = now_us();
                    // This gives the turn back.
                    drop(checking);
                    let closed = || Outcome::Unknown(Outcome::CLOSED.to_owned());
                    let outcome = lock(&slot).take().map(|(outcome, _)| outcome);
                    let decided = outcome.filter(|it| matches!(it, Outcome::Decided(_)));
                    let heard = AttemptAnswer {
                        left_us: Some(left_us),
                        ..decided.unwrap_or_else(closed).into()
                    };
                    return (heard, Vec::new());
                }
            },
        };
        let (outcome, came_us) = lock(&slot).take().unwrap_or_else(|| (nothing(), now_us()));
        if has_turn(&outcome) && checked.as_ref().is_ok_and(|checked| !checked.is_allowed()) {
            return (too_late(outcome, came_us), Vec::new());
        }
        let is_decided = matches!(outcome, Outcome::Decided(_));
        let fallback = match &checked {
            _ if is_decided => None,
            Ok(checked) => Some(Fallback::Decided {
                admitted: checked.is_allowed(),
                remaining: vec![Some(checked.remaining())],
            }),
            Err(_unavailable) => Some(Fallback::Refused),
        };
        let heard = AttemptAnswer {
            fallback,
            ..outcome.into()
        };
        let receipts = checked.map(CheckOutcome::into_receipts);
        (heard, receipts.unwrap_or_default())
    }

    /// Applies the process's defect, after an attempt.
    fn spoil(&self, flaw: Flaw, asked: &[AskedCharge], heard: &AttemptAnswer) {
        let is_decided = matches!(heard.outcome, Outcome::Decided(_));
        let is_let_through =
            matches!(heard.fallback, Some(Fallback::Decided { admitted, .. }) if admitted);
        match (flaw, &self.way) {
            (Flaw::FreshShare, Way::Limiter(limiter)) if is_decided => {
                let fresh = self
                    .population
                    .limiter(ObservedBackend(self.backend.clone()), None);
                if let Ok(fresh) = fresh {
                    *lock(limiter) = fresh;
                }
            }
            (Flaw::ChargedAgain, _) if is_let_through => {
                let (backend, population) = (self.backend.clone(), self.population.clone());
                let asked = asked.to_vec();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(2)).await;
                    let keys = population.keys(&asked);
                    backend.decide(&population.charges(&asked, &keys)).await
                });
            }
            _ => {}
        }
    }
}

/// The backend's last answer, and the time at which it came.
type Slot = Arc<Mutex<Option<(Outcome, u64)>>>;

tokio::task_local! {
    /// The place where the backend's answers to the asking task are recorded.
    static SLOT: Slot;
}

/// The backend of a limiter, with its answers recorded: a limiter tells neither the time of a decision nor the reason of a
/// failure.
#[derive(Debug)]
pub(crate) struct ObservedBackend(RedisBackend);

impl Backend for ObservedBackend {
    fn decide(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        let answer = self.0.decide(charges);
        let Ok(slot) = SLOT.try_with(Arc::clone) else {
            return answer;
        };
        let terms = Terms::of_charges(charges);
        Answer::later(async move {
            let answer = answer.await;
            *lock(&slot) = Some((Outcome::of(&answer).by(&terms), now_us()));
            answer
        })
    }

    fn decide_up_to(&self, charges: &[Charge<'_>], at_least: u64) -> Answer<Decision> {
        self.0.decide_up_to(charges, at_least)
    }

    fn credit(&self, receipt: Receipt, n: u64) {
        self.0.credit(receipt, n);
    }

    fn debit(&self, receipt: &Receipt, n: u64) {
        self.0.debit(receipt, n);
    }

    fn reset(&self, scope: Scope, key: &Key) -> Answer<()> {
        self.0.reset(scope, key)
    }

    fn place(&self) -> Option<String> {
        self.0.place()
    }

    fn figures(&self, tell: &mut dyn FnMut(Figure, u64)) {
        self.0.figures(tell);
    }

    fn assume(&self, charge: &Charge<'_>) -> bool {
        self.0.assume(charge)
    }

    fn bans(&self, scope: Scope) -> Answer<BanList> {
        self.0.bans(scope)
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
}

/// A server of its own, for the life of the process.
async fn serve(limiter: &Limiter) -> Result<SocketAddr> {
    let headers = RateLimitHeaders::from(HeaderForm::Draft11).of_all_policies();
    let app: Router = Router::new()
        .route("/", get(async || "passed"))
        .layer(RateLimitLayer::new(limiter).headers(headers))
        .layer(from_fn(observe));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}

async fn observe(request: Request, next: Next) -> Response {
    let slot = Slot::default();
    let mut response = SLOT.scope(Arc::clone(&slot), next.run(request)).await;
    let outcome = lock(&slot).take();
    let text = outcome.and_then(|outcome| serde_json::to_vec(&outcome).ok());
    if let Some(value) = text.and_then(|text| HeaderValue::try_from(text).ok()) {
        response.headers_mut().insert(DECIDED, value);
    }
    response
}

async fn request(
    client: &Client<HttpConnector, Body>,
    server: SocketAddr,
    asked: &[AskedCharge],
    patience: Patience,
) -> AttemptAnswer {
    let mut request = Request::get(format!("http://{server}/"));
    if let Some(most) = patience.waits_at_most {
        request = request.header(WAITS_AT_MOST, most.as_millis().to_string());
    }
    for asked in asked {
        let policy = asked.budget.policy;
        request = request
            .header(format!("{CALLER}{policy}"), asked.budget.caller)
            .header(format!("{COST}{policy}"), asked.cost);
    }
    let lost = |why: String| AttemptAnswer::from(Outcome::Unknown(why));
    let request = match request.body(Body::empty()) {
        Ok(request) => request,
        Err(error) => return lost(error.to_string()),
    };
    match client.request(request).await {
        Ok(response) => heard(response.status(), response.headers(), asked),
        Err(error) => lost(error.to_string()),
    }
}

/// The content of a response.
fn heard(status: StatusCode, headers: &HeaderMap, asked: &[AskedCharge]) -> AttemptAnswer {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let members = headers.get_all("ratelimit").iter();
    let members = members.filter_map(|line| line.to_str().ok());
    let members: Vec<_> = members.flat_map(|line| line.split(", ")).collect();
    let left = |asked: &AskedCharge| {
        let name = format!("\"{}\";", Population::name(asked.budget.policy));
        let mut own = members.iter().filter_map(|it| it.strip_prefix(&name));
        let mut fields = own.next()?.split(';');
        fields.find_map(|field| field.strip_prefix("r=")?.parse().ok())
    };
    let told = HttpAnswer {
        status: status.as_u16(),
        retry_after_s: text("retry-after").and_then(|value| value.parse().ok()),
        remaining: asked.iter().map(left).collect(),
    };
    let decided = text(DECIDED).and_then(|text| serde_json::from_str(text).ok());
    let nothing = || (Outcome::Failed(format!("only {status} was said")), 0);
    let (outcome, came_us) = decided.unwrap_or_else(nothing);
    if has_turn(&outcome) && told.status == 429 {
        return AttemptAnswer {
            told: Some(told),
            ..too_late(outcome, came_us)
        };
    }
    let fallback = match (&outcome, told.status) {
        (Outcome::Decided(_), _) => None,
        (_, status @ (200 | 429)) => Some(Fallback::Decided {
            admitted: status == 200,
            // A refusal says that nothing is left, and not how much.
            remaining: (told.remaining.iter())
                .map(|left| left.filter(|left| status == 200 || *left > 0))
                .collect(),
        }),
        (_, 503) => Some(Fallback::Refused),
        _ => None,
    };
    AttemptAnswer {
        outcome,
        fallback,
        told: Some(told),
        left_us: None,
    }
}

/// Says whether the backend gave a turn that was still to come. It gave none where a probe was denied.
fn has_turn(outcome: &Outcome) -> bool {
    let waits = |decided: &DecisionRecord| decided.verdicts.iter().any(|said| said.wait_us > 0);
    matches!(outcome, Outcome::Decided(decided) if decided.admitted && waits(decided))
}

/// The answer to a request that was refused although the backend had admitted it.
fn too_late(outcome: Outcome, came_us: u64) -> AttemptAnswer {
    AttemptAnswer {
        fallback: Some(Fallback::TooLate),
        left_us: Some(came_us),
        ..outcome.into()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
