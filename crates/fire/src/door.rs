//! The ways to ask: through the backend itself, a limiter, or a server with the layer around it.

mod ordering;
mod through_envoy;
mod told;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use fastrand::Rng;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tollgate::CheckOutcome;
use tollgate_core::{Backend, Call, Receipt};
use tollgate_redis::RedisBackend;

use self::told::told_by;
use crate::Result;
use crate::attempt::{
    AskedCharge, Asking, AttemptAnswer, DecisionRecord, Door, Fallback, Manner, Outcome, Verb,
};
use crate::flaw::Flaw;
use crate::instance::Instance;
use crate::observed::{DECIDED, ObservedBackend, SLOT, Slot};
use crate::patience::Patience;
use crate::population::{CALLER, COST, Population, WAITS_AT_MOST};
use crate::ruling::Question;
use crate::settling::{STAYS, Settler};
use crate::terms::Terms;
use crate::wall::now_us;

/// A door, open.
#[derive(Debug)]
pub(crate) struct Entrance {
    backend: RedisBackend,
    population: Population,
    flaw: Option<Flaw>,
    way: Way,
    /// The version of the quotas.
    version: AtomicUsize,
}

#[derive(Debug)]
enum Way {
    Backend,
    Limiter(Mutex<Instance>),
    Http(Box<Client<HttpConnector, Body>>, Mutex<Instance>),
    Envoy(Box<Client<HttpConnector, Body>>, SocketAddr),
}

impl Entrance {
    pub(crate) async fn open(
        door: Door,
        backend: RedisBackend,
        population: Population,
        flaw: Option<Flaw>,
        settler: Settler,
        envoy: Option<SocketAddr>,
    ) -> Result<Self> {
        let observed = ObservedBackend::of(&backend, flaw);
        let first = |settler| Instance::first(&population, observed, flaw, settler);
        let way = match door {
            Door::Backend => Way::Backend,
            Door::Limiter => Way::Limiter(Mutex::new(first(None).await?)),
            Door::Http => {
                let client = Client::builder(TokioExecutor::new()).build_http();
                Way::Http(Box::new(client), Mutex::new(first(Some(settler)).await?))
            }
            Door::Envoy => {
                let client = Client::builder(TokioExecutor::new()).build_http();
                Way::Envoy(Box::new(client), envoy.ok_or("there is no Envoy to ask")?)
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

    /// Replaces the quotas of this limiter, or those by which the backend itself is asked, by this version of theirs.
    pub(crate) fn replace_quotas(&self, instance: Option<&Instance>, version: usize) -> Result<()> {
        if self.flaw == Some(Flaw::KeepsQuotas) {
            return Ok(());
        }
        self.version.store(version, Ordering::Relaxed);
        let Some(instance) = instance else {
            return Ok(());
        };
        let policies = self.population.policies(version, self.flaw)?;
        Ok(instance.limiter.replace(policies)?)
    }

    /// The limiter that is asked at present; `None` if the backend itself is asked.
    pub(crate) fn instance(&self) -> Option<Instance> {
        Some(lock(self.present()?).clone())
    }

    /// A limiter in place of this one, which is asked once it is [entered](Self::enter).
    pub(crate) async fn next_instance(&self, rng: &mut Rng, last: &Instance) -> Result<Instance> {
        let backend = ObservedBackend::of(&self.backend, self.flaw);
        last.next(rng, &self.population, backend, self.flaw).await
    }

    /// From now on this limiter is asked. The one before lets those that wait go on.
    pub(crate) fn enter(&self, instance: Instance) {
        if let Some(present) = self.present() {
            // A new limiter begins with the quotas of the seed.
            self.version.store(0, Ordering::Relaxed);
            *lock(present) = instance;
        }
    }

    fn present(&self) -> Option<&Mutex<Instance>> {
        match &self.way {
            Way::Backend | Way::Envoy(..) => None,
            Way::Limiter(instance) | Way::Http(_, instance) => Some(instance),
        }
    }

    pub(crate) fn backend(&self) -> &RedisBackend {
        &self.backend
    }

    pub(crate) fn population(&self) -> &Population {
        &self.population
    }

    /// True if only the answer to a caller says that its turn has come, and the caller cannot leave before.
    pub(crate) fn answers_after_the_wait(&self) -> bool {
        self.present().is_some()
    }

    /// The part of an action that can be asked for this way.
    pub(crate) fn fitting(&self, mut asked: Vec<AskedCharge>) -> Vec<AskedCharge> {
        match self.way {
            Way::Backend => {}
            Way::Limiter(_) => asked.truncate(1),
            Way::Envoy(..) => {
                // The order of the descriptors, of which a request has one for each policy.
                let policies = self.population.asked_by(Door::Envoy);
                for asked in &mut asked {
                    let policy = &mut asked.budget.policy;
                    if !policies.contains(policy) {
                        *policy = policies[*policy % policies.len()];
                    }
                }
                asked.sort_by_key(|asked| asked.budget.policy);
                asked.dedup_by_key(|asked| asked.budget.policy);
            }
            Way::Http(..) => {
                // The order in which a limiter goes through its policies. Each charges a request once.
                asked.sort_by_key(|asked| asked.budget.policy);
                asked.dedup_by_key(|asked| asked.budget.policy);
            }
        }
        for asked in &mut asked {
            asked.manner = match (&self.way, asked.manner) {
                (Way::Limiter(_), Manner::Shadow) | (Way::Http(..) | Way::Envoy(..), _) => {
                    Manner::Enforce
                }
                // A check never waits, and so a probe would say that it does not pass where another does.
                (Way::Limiter(_), _) if !self.population.longest_wait(&[*asked]).is_zero() => {
                    Manner::Enforce
                }
                (_, manner) => manner,
            };
        }
        asked
    }

    /// Asks, and gives up after a while if the caller leaves. The limiter is one that this entrance has given.
    pub(crate) async fn ask(
        &self,
        instance: Option<&Instance>,
        verb: &Verb,
        mut patience: Patience,
        question: Question,
    ) -> (AttemptAnswer, Vec<Receipt>) {
        let asked = verb.asked();
        if self.flaw == Some(Flaw::StatesNoWait) {
            patience.waits_at_most = None;
        }
        let (heard, receipts) = match (&self.way, instance) {
            (Way::Envoy(client, envoy), _) => {
                let envoy = (*envoy, &self.population);
                let told = through_envoy::request(client, envoy, question, asked, patience);
                (told.await, Vec::new())
            }
            (Way::Backend, _) | (_, None) => self.decide(verb, patience).await,
            (Way::Limiter(_), Some(instance)) => self.check(instance, verb, patience).await,
            (Way::Http(client, _), Some(instance)) => {
                let told = request(client, instance, asked, patience);
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

    async fn decide(&self, verb: &Verb, patience: Patience) -> (AttemptAnswer, Vec<Receipt>) {
        let asked = verb.asked();
        let most = patience.waits_at_most.unwrap_or(Duration::MAX);
        let version = self.version.load(Ordering::Relaxed);
        let quota = |asked: &AskedCharge| self.population.quota(asked.budget.policy, version);
        let quotas = asked.iter().map(|asked| quota(asked).waiting_at_most(most));
        let quotas: Vec<_> = quotas.collect();
        let keys = self.population.keys(asked);
        let mut charges = self.population.charges(asked, &keys);
        for ((charge, quota), asked) in charges.iter_mut().zip(&quotas).zip(asked) {
            let budget = self.population.budget_by(asked.budget, quota);
            charge.scope = self.population.scope(budget.policy);
            charge.quota = quota;
        }
        let call = Call {
            charges: &charges,
            at_least: verb.at_least(),
        };
        let answer = self.backend.decide(call).await;
        let whole = answer.iter().filter(|it| it.failure().is_none());
        let receipts = whole.flat_map(|it| it.receipts(&charges));
        let outcome = Outcome::of(&answer).by(&Terms::of_charges(&charges));
        (outcome.into(), receipts.collect())
    }

    async fn check(
        &self,
        instance: &Instance,
        verb: &Verb,
        patience: Patience,
    ) -> (AttemptAnswer, Vec<Receipt>) {
        let limiter = &instance.limiter;
        let nothing = || Outcome::Failed(Outcome::UNASKED.to_owned());
        let [asked] = verb.asked() else {
            return (nothing().into(), Vec::new());
        };
        let policy = Population::name(asked.budget.policy);
        let key = self.population.key(asked.budget.caller);
        let check = if self.population.longest_wait(&[*asked]).is_zero() {
            let check = limiter.check(&policy, key);
            let check = match verb.at_least() {
                Some(at_least) => check.up_to(asked.cost).at_least(at_least),
                None => check.cost(asked.cost),
            };
            match asked.manner {
                Manner::Probe => check.probe().into_future(),
                _ => check.into_future(),
            }
        } else if self.flaw == Some(Flaw::PassesEarly) {
            return self.decide(verb, patience).await;
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
                    let told = lock(&slot).take();
                    let decided = told.filter(|(it, _)| matches!(it, Outcome::Decided(_)));
                    let asking = decided.as_ref().map(|(_, asking)| *asking);
                    let outcome = decided.map(|(outcome, _)| outcome);
                    let heard = AttemptAnswer {
                        left_us: Some(left_us),
                        asking,
                        ..outcome.unwrap_or_else(closed).into()
                    };
                    return (heard, Vec::new());
                }
            },
        };
        let Some((outcome, asking)) = lock(&slot).take() else {
            return (nothing().into(), Vec::new());
        };
        let refused = match &checked {
            Ok(checked) if checked.is_allowed() => None,
            Ok(_denied) => Some(Fallback::TooLate),
            Err(_unavailable) => Some(Fallback::Stopped),
        };
        if has_turn(&outcome)
            && let Some(refused) = refused
        {
            return (without_turn(instance, outcome, asking, refused), Vec::new());
        }
        let is_decided = matches!(outcome, Outcome::Decided(_));
        let fallback = match &checked {
            _ if is_decided => None,
            Ok(checked) => Some(Fallback::Decided {
                admitted: checked.is_allowed(),
                remaining: vec![Some(checked.remaining())],
                granted: verb.at_least().map(|_| checked.granted()),
            }),
            Err(_unavailable) => Some(Fallback::Refused),
        };
        let heard = AttemptAnswer {
            fallback,
            asking: Some(asking),
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
            (Flaw::FreshShare, Way::Limiter(instance)) if is_decided => {
                let backend = ObservedBackend::of(&self.backend, None);
                let mut present = lock(instance);
                let version = self.version.load(Ordering::Relaxed);
                if let Ok(fresh) = present.fresh(&self.population, backend)
                    && let Ok(policies) = self.population.policies(version, None)
                    && fresh.replace(policies).is_ok()
                {
                    present.limiter = fresh;
                }
            }
            (Flaw::ChargedAgain, _) if is_let_through => {
                let (backend, population) = (self.backend.clone(), self.population.clone());
                let asked = asked.to_vec();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(2)).await;
                    let keys = population.keys(&asked);
                    backend
                        .decide(Call::of(&population.charges(&asked, &keys)))
                        .await
                });
            }
            _ => {}
        }
    }
}

async fn request(
    client: &Client<HttpConnector, Body>,
    instance: &Instance,
    asked: &[AskedCharge],
    patience: Patience,
) -> AttemptAnswer {
    let lost = |why: String| AttemptAnswer::from(Outcome::Unknown(why));
    let Some(server) = instance.server() else {
        return lost("no server".to_owned());
    };
    let mut request = Request::get(format!("http://{server}/"));
    if let Some(most) = patience.waits_at_most {
        request = request.header(WAITS_AT_MOST, most.as_millis().to_string());
    }
    if patience.leaves_after.is_none() {
        request = request.header(STAYS, "1");
    }
    for asked in asked {
        let policy = asked.budget.policy;
        request = request
            .header(format!("{CALLER}{policy}"), asked.budget.caller)
            .header(format!("{COST}{policy}"), asked.cost);
    }
    let request = match request.body(Body::empty()) {
        Ok(request) => request,
        Err(error) => return lost(error.to_string()),
    };
    match client.request(request).await {
        Ok(response) => heard(instance, response.status(), response.headers(), asked),
        Err(error) => lost(error.to_string()),
    }
}

/// The content of a response.
fn heard(
    instance: &Instance,
    status: StatusCode,
    headers: &HeaderMap,
    asked: &[AskedCharge],
) -> AttemptAnswer {
    let told = told_by(status, headers, asked);
    let Some((outcome, asking)) = of_backend(headers) else {
        return AttemptAnswer {
            told: Some(told),
            ..Outcome::Failed(format!("only {status} was said")).into()
        };
    };
    let refused = match told.status {
        429 => Some(Fallback::TooLate),
        503 => Some(Fallback::Stopped),
        _ => None,
    };
    if has_turn(&outcome)
        && let Some(refused) = refused
    {
        return AttemptAnswer {
            told: Some(told),
            ..without_turn(instance, outcome, asking, refused)
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
            granted: None,
        }),
        (_, 503) => Some(Fallback::Refused),
        _ => None,
    };
    AttemptAnswer {
        outcome,
        fallback,
        told: Some(told),
        left_us: None,
        asking: Some(asking),
    }
}

/// The backend's answer to the server.
fn of_backend(headers: &HeaderMap) -> Option<(Outcome, Asking)> {
    let decided = headers.get(DECIDED)?.to_str().ok()?;
    serde_json::from_str(decided).ok()
}

/// Says whether the backend gave a turn that was still to come. It gave none where a probe was denied.
fn has_turn(outcome: &Outcome) -> bool {
    let waits = |decided: &DecisionRecord| decided.verdicts.iter().any(|said| said.wait_us > 0);
    matches!(outcome, Outcome::Decided(decided) if decided.admitted && waits(decided))
}

/// The answer to a request that was refused although the backend had admitted it. It gave its turn back when the answer came, or
/// when the line was closed.
fn without_turn(
    instance: &Instance,
    outcome: Outcome,
    asking: Asking,
    refused: Fallback,
) -> AttemptAnswer {
    let closing_us = match refused {
        Fallback::Stopped => instance.closing_us().unwrap_or_default(),
        _ => 0,
    };
    AttemptAnswer {
        fallback: Some(refused),
        left_us: Some(asking.answered_us.max(closing_us)),
        asking: Some(asking),
        ..outcome.into()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
