//! A backend that writes down its questions and answers; on the fleet's Redis it only probes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tollgate::{
    Admin, Answer, Backend, BanList, Call, Capabilities, Charge, Decision, Key, Mode, Quota, Scope,
    Settlement, Unit, Verdict,
};

use crate::failure::Failure;
use crate::figures::{about, left, ms};

/// A question to the backend, and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) policy: String,
    pub(crate) scope: Scope,
    pub(crate) quota: Quota,
    pub(crate) key: Key,
    pub(crate) cost: u64,
    /// Nothing, if the backend failed.
    pub(crate) verdict: Option<Verdict>,
}

impl Question {
    /// The question of a quota, and not of a ban or an id.
    pub(crate) fn is_of_quota(&self) -> bool {
        match self.scope.unit() {
            Unit::Ban | Unit::Once => false,
            Unit::Gcra
            | Unit::FixedWindow { .. }
            | Unit::SlidingWindow { .. }
            | Unit::RollingWindow { .. }
            | Unit::SlidingLog { .. }
            | Unit::IntervalRefill { .. }
            | Unit::Calendar(_)
            | Unit::Held => true,
        }
    }

    /// True if the request waits: for its turn, or until a place comes back.
    pub(crate) fn waits(&self) -> bool {
        let verdict = self.verdict.as_ref();
        verdict.is_some_and(|verdict| !verdict.wait().is_zero() || self.waits_for_place(verdict))
    }

    fn waits_for_place(&self, verdict: &Verdict) -> bool {
        self.quota.is_held() && self.quota.waits() && verdict.is_denied()
    }

    /// The rest of a ban in force.
    pub(crate) fn banned_for(&self) -> Option<Duration> {
        let verdict = self.verdict.as_ref()?;
        let is_banned = self.scope.unit() == Unit::Ban && verdict.is_denied();
        verdict.retry_after().filter(|_wait| is_banned)
    }

    /// The quota and its verdict for programs.
    pub(crate) fn json(&self) -> Value {
        let verdict = self.verdict.as_ref();
        json!({
            "quota": self.quota.to_string(),
            "limit": verdict.map(Verdict::limit),
            "remaining": verdict.map(Verdict::remaining),
            "cost": self.cost,
            "passes": verdict.map(Verdict::is_allowed),
            "retry_after_ms": verdict.and_then(Verdict::retry_after).map(ms),
            "reset_after_ms": verdict.map(|verdict| ms(verdict.reset_after())),
        })
    }

    /// The quota and its verdict in words.
    pub(crate) fn words(&self) -> String {
        let quota = &self.quota;
        let Some(verdict) = &self.verdict else {
            return quota.to_string();
        };
        let left = left(verdict.remaining(), verdict.limit());
        if verdict.never_passes() {
            format!("{quota}: refuses, since the cost is more than the quota ever holds; {left}")
        } else if self.waits_for_place(verdict) {
            format!("{quota}: lets it wait for a place; {left}")
        } else if let Some(wait) = verdict.retry_after() {
            format!("{quota}: refuses, and passes it in {}; {left}", about(wait))
        } else if verdict.is_denied() {
            format!("{quota}: refuses; {left}")
        } else if !verdict.wait().is_zero() {
            format!("{quota}: passes it in {}; {left}", about(verdict.wait()))
        } else if verdict.reset_after().is_zero() {
            format!("{quota}: passes; {left}")
        } else {
            let full = about(verdict.reset_after());
            format!("{quota}: passes; {left}, full again in {full}")
        }
    }
}

/// The questions and answers of one request.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) questions: Vec<Question>,
    pub(crate) failure: Option<Failure>,
}

/// The backend inside, and the record.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) inner: Arc<dyn Backend>,
    /// True if nothing may be taken.
    pub(crate) only_probes: bool,
    pub(crate) record: Arc<Mutex<Record>>,
}

pub(crate) fn lock(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder {
    fn mode(&self, asked: Mode) -> Mode {
        if self.only_probes { Mode::Probe } else { asked }
    }
}

impl Backend for Recorder {
    fn decide(&self, call: Call<'_>) -> Answer<Decision> {
        let asked: Vec<_> = call
            .charges
            .iter()
            .map(|charge| Charge {
                mode: self.mode(charge.mode),
                ..*charge
            })
            .collect();
        let enforced: Vec<_> = call
            .charges
            .iter()
            .map(|it| it.mode == Mode::Enforce)
            .collect();
        let first = {
            let mut record = lock(&self.record);
            let first = record.questions.len();
            record
                .questions
                .extend(call.charges.iter().map(|charge| Question {
                    policy: charge.scope.policy_alone().to_owned(),
                    scope: charge.scope,
                    quota: *charge.quota,
                    key: charge.key.clone(),
                    cost: charge.cost,
                    verdict: None,
                }));
            first
        };
        let (record, only_probes) = (Arc::clone(&self.record), self.only_probes);
        self.inner.decide(Call::of(&asked)).map(move |answer| {
            let mut record = lock(&record);
            let decision = match answer {
                Ok(decision) => decision,
                Err(failure) => {
                    record.failure = Some(Failure::unreachable(&failure));
                    return Err(failure);
                }
            };
            let questions = record.questions.iter_mut().skip(first);
            for (question, verdict) in questions.zip(decision.verdicts()) {
                question.verdict = Some(*verdict);
            }
            if !only_probes {
                return Ok(decision);
            }
            // A probe denies nothing, so the call.charges that are enforced decide here.
            let mut verdicts = enforced.iter().zip(decision.verdicts());
            let is_admitted = verdicts.all(|(enforced, verdict)| !enforced || !verdict.is_denied());
            let verdicts = decision.verdicts().iter().enumerate();
            let verdicts = verdicts.map(|(place, verdict)| (decision.verdict_at(place), *verdict));
            Ok(Decision::apart(is_admitted, verdicts).failing(decision.failure().cloned()))
        })
    }

    // A request that is explained is charged nothing, so that nothing has to be given back.
    fn settle(&self, _settlement: Settlement<'_>) {}

    fn admin(&self) -> &dyn Admin {
        self
    }
}

impl Admin for Recorder {
    fn reset(&self, _scope: Scope, _key: &Key) -> Answer<()> {
        Answer::now(Ok(()))
    }

    fn bans(&self, scope: Scope) -> Answer<BanList> {
        self.inner.admin().bans(scope)
    }

    fn place(&self) -> Option<String> {
        self.inner.admin().place()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.admin().capabilities()
    }
}
