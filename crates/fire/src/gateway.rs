//! The gateway process: what `tollgate serve` runs, on the campaign's servers, with its decisions written down.

pub(crate) mod configuration;

use std::io::Read;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tollgate_core::{
    Admin, Answer, Backend, Call, Charge, Decision, Scope, Settlement, Timestamp, Verdict,
};
use tollgate_redis::RedisBackend;
use tollgate_server::Gateway;

use crate::Result;
use crate::attempt::{Asking, Outcome};
use crate::client::{Line, Place, say, watch_the_machine};
use crate::flaw::Flaw;
use crate::population::Population;
use crate::ruling::{QUESTION, Question, Ruling};
use crate::terms::Terms;
use crate::wall::now_us;

/// One in this many questions is not answered by a process that forgets to.
const FORGETS: u64 = 64;

/// The orders of a gateway process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GatewayOrders {
    /// The seed of the policies.
    pub seed: u64,
    /// The place of the budgets.
    pub place: Place,
    /// The deadline of its decisions.
    pub deadline_us: u64,
    /// Its file.
    pub file: PathBuf,
    /// The address on which it answers.
    pub address: SocketAddr,
    /// Its defect, if it should have one.
    pub flaw: Option<Flaw>,
}

/// Answers until its input ends, and writes down its decisions.
///
/// # Errors
///
/// If the orders cannot be followed.
pub fn run(orders: &GatewayOrders) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(answer(orders))
}

async fn answer(orders: &GatewayOrders) -> Result<()> {
    let backend = orders.place.backend().ask_every_denial();
    let backend = backend.deadline(Duration::from_micros(orders.deadline_us));
    let backend = RulingBackend {
        backend: backend.start()?,
        population: Population::of(orders.seed),
        flaw: orders.flaw,
    };
    let gateway = Gateway::start(&orders.file, None, |builder| builder.backend(backend))?;
    let listener = TcpListener::bind(orders.address).await?;
    tokio::spawn(watch_the_machine());
    let input = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    gateway.serve(listener, async { drop(input.await) }).await?;
    Ok(())
}

/// The backend of the gateway's limiter. It takes the charge that names the question for itself, and asks the servers about the
/// others alone.
#[derive(Debug)]
struct RulingBackend {
    backend: RedisBackend,
    population: Population,
    flaw: Option<Flaw>,
}

impl RulingBackend {
    fn charge(&self, charge: &Charge<'_>) -> (usize, String, u64) {
        let policies = 0..self.population.quotas().len();
        let mut policies = policies.filter(|it| self.population.scope(*it) == charge.scope);
        let identity = charge.key.text().unwrap_or_default().to_owned();
        (policies.next().unwrap_or(usize::MAX), identity, charge.cost)
    }
}

impl Backend for RulingBackend {
    fn decide(&self, call: Call<'_>) -> Answer<Decision> {
        let names_question = |charge: &Charge<'_>| {
            let is_alike = charge.scope == Scope::of(QUESTION, 0, charge.quota);
            is_alike.then(|| Question::from_key(charge.key)).flatten()
        };
        let mut names = call.charges.iter().enumerate();
        let named = names.find_map(|(at, charge)| Some((at, names_question(charge)?)));
        let Some((position, question)) = named else {
            return self.backend.decide(call);
        };
        let mut others = call.charges.to_vec();
        let name = others.remove(position);
        let passed = Verdict::allowed(&name, 0, name.quota.capacity());
        let flaw = self.flaw;
        let asked: Vec<_> = others.iter().map(|charge| self.charge(charge)).collect();
        let let_through = others.iter().map(|charge| Verdict::allowed(charge, 0, 0));
        let let_through: Vec<_> = let_through.collect();
        let terms = Terms::of_charges(&others);
        let asked_us = now_us();
        let answer = self.backend.decide(Call::of(&others));
        Answer::later(async move {
            let answer = answer.await;
            let asking = Asking {
                asked_us,
                answered_us: now_us(),
            };
            let ruling = Ruling {
                question,
                charges: asked,
                outcome: Outcome::of(&answer).by(&terms),
                asking,
            };
            // Before the answer: one that a client hears stands in the record, also if this process dies at once.
            if say(&Line::Ruled(ruling)).is_err() {
                // The parent has gone.
                std::future::pending::<()>().await;
            }
            if flaw == Some(Flaw::NeverAnswers) && question.number % FORGETS == 0 {
                std::future::pending::<()>().await;
            }
            let decision = answer?;
            let at = |position| decision.verdict_at(position);
            let is_forged = flaw == Some(Flaw::LetsThrough) && !decision.is_admitted();
            let mut verdicts: Vec<(Timestamp, Verdict)> = match is_forged {
                true => let_through.into_iter().map(|it| (at(0), it)).collect(),
                false => (decision.verdicts().iter().enumerate())
                    .map(|(position, verdict)| (at(position), *verdict))
                    .collect(),
            };
            verdicts.insert(position.min(verdicts.len()), (decision.at(), passed));
            let admitted = decision.is_admitted() || is_forged;
            Ok(Decision::apart(admitted, verdicts).failing(decision.failure().cloned()))
        })
    }

    fn settle(&self, settlement: Settlement<'_>) {
        self.backend.settle(settlement);
    }

    fn admin(&self) -> &dyn Admin {
        self.backend.admin()
    }
}
