//! The question and the answer of one attempt, as a client writes them down.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_core::{
    BackendError, Charge, Decision, FailureKind, Key, Mode, Quota, Receipt, Scope, Timestamp,
    Verdict,
};

use crate::terms::{Terms, micros};

/// The life of a known denial, as it is promised, and a thousandth for clocks that are slewed against each other.
pub(crate) const KNOWN_LIFE_US: u64 = 100_100;

/// One budget: a policy of the population, and a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Budget {
    /// The number of the policy.
    pub policy: usize,
    /// The number of the caller.
    pub caller: u32,
}

impl Budget {
    /// The budget that a verdict is about: a bucket, or the window that has replaced it.
    pub(crate) fn told(self, others: &BTreeMap<usize, usize>, said: &VerdictRecord) -> Self {
        let is_bucket = said.terms.is_none_or(|terms| terms.is_bucket);
        let other = others.get(&self.policy).filter(|_| !is_bucket);
        Self {
            policy: other.copied().unwrap_or(self.policy),
            ..self
        }
    }
}

/// The mode of a charge: core's [`Mode`], in a form that can be written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Manner {
    /// All of them or none.
    Enforce,
    /// On its own.
    Shadow,
    /// Nothing is taken.
    Probe,
}

impl Manner {
    /// The mode in core's words.
    #[must_use]
    pub fn mode(self) -> Mode {
        match self {
            Self::Enforce => Mode::Enforce,
            Self::Shadow => Mode::Shadow,
            Self::Probe => Mode::Probe,
        }
    }
}

/// One charge of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedCharge {
    /// The budget.
    pub budget: Budget,
    /// The cost.
    pub cost: u64,
    /// The mode.
    pub manner: Manner,
}

impl AskedCharge {
    /// Says whether both count as one charge of the summed cost, in one call.
    pub(crate) fn is_one_with(&self, other: &Self) -> bool {
        self.budget == other.budget && self.manner == other.manner
    }
}

/// The action of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verb {
    /// To decide about these charges, as one call.
    Decide(Vec<AskedCharge>),
    /// To grant as much as there is, up to the one cost of these charges, and at least this much.
    Grant(Vec<AskedCharge>, u64),
    /// To give back this much of a charge, of which this was said.
    Credit(Budget, VerdictRecord, u64),
    /// To take this much more, past the capacity if need be.
    Debit(Budget, u64),
    /// To forget the charges of a budget.
    Reset(Budget),
}

impl Verb {
    /// The charges, if it is a decision.
    #[must_use]
    pub fn asked(&self) -> &[AskedCharge] {
        match self {
            Self::Decide(asked) | Self::Grant(asked, _) => asked,
            _ => &[],
        }
    }

    /// The least that it asks for, if it asks for as much as there is.
    #[must_use]
    pub fn at_least(&self) -> Option<u64> {
        match self {
            Self::Grant(_, at_least) => Some(*at_least),
            _ => None,
        }
    }

    /// The budgets that it names.
    pub fn budgets(&self) -> impl Iterator<Item = Budget> {
        let only = match self {
            Self::Decide(_) | Self::Grant(..) => None,
            Self::Credit(budget, ..) | Self::Debit(budget, _) | Self::Reset(budget) => {
                Some(*budget)
            }
        };
        let asked = self.asked().iter().map(|asked| asked.budget);
        asked.chain(only)
    }
}

/// The way in which a process asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Door {
    /// Through the backend itself.
    #[default]
    Backend,
    /// Through a limiter, whose policies give each process a share of their budgets while the backend fails.
    Limiter,
    /// By HTTP requests, to a server with the layer around it and such a limiter in it.
    Http,
    /// By HTTP requests, to an Envoy that asks a gateway process about each.
    Envoy,
}

impl Door {
    /// The ways of a run without gateways, in the order in which its processes take them.
    pub const WITHOUT_ENVOY: [Self; 3] = [Self::Backend, Self::Limiter, Self::Http];

    /// The ways of a run with them.
    pub const WITH_ENVOY: [Self; 4] = [Self::Envoy, Self::Backend, Self::Limiter, Self::Http];

    /// The time after which Envoy answers by itself that a request may not pass.
    pub const ENVOY_TIMEOUT: Duration = Duration::from_secs(1);

    /// Says whether a request may wait for its turn, and its process may have a share: it asks a limiter of its own process.
    #[must_use]
    pub fn has_limiter(self) -> bool {
        matches!(self, Self::Limiter | Self::Http)
    }
}

/// The asking process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Asker {
    /// The number of the process.
    pub process: u32,
    /// Its way.
    pub door: Door,
}

/// The limiter's ruling on a failure of the backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fallback {
    /// The process's share decided.
    Decided {
        /// True if it passed.
        admitted: bool,
        /// The remaining units by charge, where the share told them.
        remaining: Vec<Option<u64>>,
        /// The amount that was granted, if the caller asked for as much as there is.
        #[serde(default)]
        granted: Option<u64>,
    },
    /// It was refused: the whole budget might hold the cost, but a share could not.
    Refused,
    /// The backend admitted it, and it was refused before its turn and gave that back: its line was closed.
    Stopped,
    /// The backend admitted it, and it was refused and gave its turn back: the answer took so long that the turn would have come
    /// after its caller had gone.
    TooLate,
}

/// The answer to an HTTP client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpAnswer {
    /// The status.
    pub status: u16,
    /// `Retry-After`.
    pub retry_after_s: Option<u64>,
    /// The remaining units by charge, if the RateLimit field names the charge's policy.
    pub remaining: Vec<Option<u64>>,
    /// The costs that the service stated when it settled, by charge.
    #[serde(default)]
    pub settled: Vec<Option<u64>>,
}

/// The times at which a limiter asked its backend about an attempt, and heard of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asking {
    /// The time of the question. A request that may wait has its place in the line by then, if it gets one.
    pub asked_us: u64,
    /// The time of the answer, just before the limiter heard it.
    pub answered_us: u64,
}

/// The answers to an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptAnswer {
    /// The outcome at the backend.
    pub outcome: Outcome,
    /// The limiter's ruling on it, if it failed or came too late.
    pub fallback: Option<Fallback>,
    /// The answer over HTTP.
    pub told: Option<HttpAnswer>,
    /// The time at which it gave its turn back, before that had come.
    #[serde(default)]
    pub left_us: Option<u64>,
    /// The times at which its limiter asked the backend, if that is known.
    #[serde(default)]
    pub asking: Option<Asking>,
}

impl From<Outcome> for AttemptAnswer {
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome,
            fallback: None,
            told: None,
            left_us: None,
            asking: None,
        }
    }
}

/// One call, from its start to its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The asking process.
    pub asker: Asker,
    /// The number of the limiter among those of its process.
    #[serde(default)]
    pub limiter: u32,
    /// The action.
    pub verb: Verb,
    /// The longest wait for its turn that the caller stated, if it stated one.
    #[serde(default)]
    pub waits_at_most_us: Option<u64>,
    /// The time of the call, in µs of the client's clock.
    pub sent_us: u64,
    /// The time of the answer.
    pub heard_us: u64,
    /// The time at which it was promised to pass, by the backend's clock. Set if it retries a denied attempt that no other
    /// client can have spoilt.
    pub promised_us: Option<u64>,
    /// The outcome at the backend.
    pub outcome: Outcome,
    /// The limiter's ruling on that, if it failed.
    pub fallback: Option<Fallback>,
    /// The answer over HTTP.
    pub told: Option<HttpAnswer>,
    /// The time at which its caller gave the turn back, before that had come, or its limiter did because its line was closed. The
    /// limiter then credits all that was taken.
    #[serde(default)]
    pub left_us: Option<u64>,
    /// The times at which its limiter asked the backend, if that is known.
    #[serde(default)]
    pub asking: Option<Asking>,
    /// Its number among the entries of its process, if it was asked through Envoy. A ruling of the gateway names it.
    #[serde(default)]
    pub question: Option<u64>,
}

impl Attempt {
    /// A call of which a process makes nothing else than asking its backend.
    #[must_use]
    pub fn plain(asker: Asker, verb: Verb, sent_us: u64, heard_us: u64, outcome: Outcome) -> Self {
        Self {
            asker,
            limiter: 0,
            verb,
            waits_at_most_us: None,
            sent_us,
            heard_us,
            promised_us: None,
            outcome,
            fallback: None,
            told: None,
            left_us: None,
            asking: None,
            question: None,
        }
    }

    /// This attempt with the answer that came at that time.
    #[must_use]
    pub fn heard(self, heard_us: u64, heard: AttemptAnswer) -> Self {
        Self {
            heard_us,
            outcome: heard.outcome,
            fallback: heard.fallback,
            told: heard.told,
            left_us: heard.left_us,
            asking: heard.asking,
            ..self
        }
    }

    /// The longest time before its question at which the state was told that decided about it: that of a known denial is as old as
    /// its life.
    pub(crate) fn state_age_us(&self) -> u64 {
        match &self.outcome {
            Outcome::Decided(decided) if decided.unasked => KNOWN_LIFE_US,
            _ => 0,
        }
    }

    /// The time of the answer, without the wait for its turn. A process that asks the backend itself hears the answer at once.
    pub(crate) fn answered_us(&self) -> u64 {
        let wait_us = match self.asker.door {
            Door::Backend | Door::Envoy => 0,
            Door::Limiter | Door::Http => self.wait_us().unwrap_or_default(),
        };
        self.heard_us.saturating_sub(wait_us).max(self.sent_us)
    }

    /// The last time at which it can have been decided: that of the answer, or a later one at which its limiter heard of it. Envoy
    /// answers its client when its patience ends, and a gateway that stood still decides the question afterwards.
    pub(crate) fn decided_by_us(&self) -> u64 {
        let told = self.asking.map_or(0, |asking| asking.answered_us);
        self.heard_us.max(told)
    }

    /// The positions and costs of the charges that the service settled.
    pub(crate) fn settled(&self) -> impl Iterator<Item = (usize, u64)> {
        let costs = self.told.iter().flat_map(|told| &told.settled);
        let costs = costs.enumerate();
        costs.filter_map(|(position, cost)| Some((position, (*cost)?)))
    }

    /// Says whether a charge was decided by a quota that lets requests wait.
    pub(crate) fn may_have_waited(&self, position: usize) -> bool {
        let Outcome::Decided(decided) = &self.outcome else {
            return false;
        };
        let terms = decided.verdicts.get(position).and_then(|said| said.terms);
        terms.is_some_and(|terms| terms.wait_us > 0)
    }

    /// The time for which it waits for its turn once it was decided, if it is decided and admitted: the longest of its enforced
    /// charges.
    #[must_use]
    pub fn wait_us(&self) -> Option<u64> {
        let Outcome::Decided(decided) = &self.outcome else {
            return None;
        };
        let charges = self.verb.asked().iter().zip(&decided.verdicts);
        let enforced = charges.filter(|(asked, _)| asked.manner == Manner::Enforce);
        let waits = enforced.map(|(_, said)| said.wait_us);
        decided.admitted.then(|| waits.max().unwrap_or_default())
    }
}

/// The outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It was decided.
    Decided(DecisionRecord),
    /// The reset is done.
    Reset,
    /// It is on its way, and its client is told no outcome: a credit or a debit.
    Told,
    /// It failed, and the error says that it took nothing.
    Failed(String),
    /// The outcome is unknown: no answer came, or the client died before it did.
    Unknown(String),
}

/// A decision as numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionRecord {
    /// True if every enforced charge was taken.
    pub admitted: bool,
    /// True for a denial that the process knew, so that it did not ask the server. Its time and its verdicts are those of a state
    /// that was told a moment before.
    #[serde(default)]
    pub unasked: bool,
    /// The verdicts.
    pub verdicts: Vec<VerdictRecord>,
}

/// The verdict on one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerdictRecord {
    /// The time, by the clock of the deciding node.
    pub at_us: u64,
    /// True if the backend was asked. On a cluster, charges after a denial may not be asked for.
    pub known: bool,
    /// True if it passes by itself.
    pub passes: bool,
    /// True if it never can pass.
    pub never: bool,
    /// The amount taken for it.
    pub taken: u64,
    /// The remaining units.
    pub remaining: u64,
    /// The time until it would pass; 0 if it passes, or never can.
    pub retry_after_us: u64,
    /// The time until the budget is full again.
    pub reset_after_us: u64,
    /// The time until its turn; 0 if it passes at once, or does not pass.
    #[serde(default)]
    pub wait_us: u64,
    /// The time at which the budget was to be full again after this charge, if it was taken from a bucket: microseconds, and a
    /// rest in parts of the quota.
    #[serde(default)]
    pub full_at: (u64, u32),
    /// The terms that the backend was asked by, if they may be others than the policy's.
    #[serde(default)]
    pub terms: Option<Terms>,
}

impl Outcome {
    /// The reason of an unknown outcome: the client is dead.
    pub(crate) const KILLED: &str = "the client was killed";

    /// The reason of an unknown outcome: the client did not wait for an answer.
    pub(crate) const CLOSED: &str = "the client closed the connection";

    /// The reason of a failure: there was an answer, and no backend was asked.
    pub const UNASKED: &str = "nothing was asked";

    /// The reason of an unknown outcome: one server decided about its charges, and another failed.
    const IN_PART: &str = "decided in part";

    /// Says whether one server decided about its charges, and another failed, so that a share may have decided about these.
    pub(crate) fn is_in_part(&self) -> bool {
        matches!(self, Self::Unknown(why) if why == Self::IN_PART)
    }

    /// Says whether no client can have heard of it, however soon it was answered.
    #[must_use]
    pub fn is_unheard(&self) -> bool {
        matches!(self, Self::Unknown(why) if [Self::KILLED, Self::CLOSED].contains(&why.as_str()))
    }

    /// Says whether its caller waited for an answer in vain.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self, Self::Unknown(_)) && !self.is_unheard()
    }

    /// The outcome for a backend's answer.
    #[must_use]
    pub fn of(answer: &Result<Decision, BackendError>) -> Self {
        match answer {
            // The others were charged, and that server's may have been.
            Ok(decision) if decision.failure().is_some() => Self::Unknown(Self::IN_PART.to_owned()),
            Ok(decision) => Self::Decided(DecisionRecord {
                admitted: decision.is_admitted(),
                unasked: decision.is_known(),
                verdicts: said(decision).collect(),
            }),
            Err(error) => Self::of_error(error),
        }
    }

    /// This outcome of a question by these terms.
    #[must_use]
    pub fn by(mut self, terms: &[Option<Terms>]) -> Self {
        if let Self::Decided(decided) = &mut self {
            for (said, terms) in decided.verdicts.iter_mut().zip(terms) {
                said.terms = *terms;
            }
        }
        self
    }

    /// The outcome for a failure.
    #[must_use]
    pub fn of_error(error: &BackendError) -> Self {
        // The only two kinds after which charges may have been taken, as their documentation says.
        match error.kind() {
            FailureKind::TimedOut { .. } | FailureKind::Unreachable => {
                Self::Unknown(error.to_string())
            }
            _ => Self::Failed(error.to_string()),
        }
    }
}

fn said(decision: &Decision) -> impl Iterator<Item = VerdictRecord> {
    let verdicts = decision.verdicts().iter().enumerate();
    verdicts.map(|(position, verdict)| {
        VerdictRecord::of(verdict, decision.verdict_at(position).as_micros())
    })
}

impl VerdictRecord {
    fn of(verdict: &Verdict, at_us: u64) -> Self {
        Self {
            at_us,
            known: verdict.is_allowed() || verdict.is_denied(),
            passes: verdict.is_allowed(),
            never: verdict.never_passes(),
            taken: verdict.taken(),
            remaining: verdict.remaining(),
            retry_after_us: verdict.retry_after().map_or(0, micros),
            reset_after_us: micros(verdict.reset_after()),
            wait_us: micros(verdict.wait()),
            full_at: full_at(verdict, at_us),
            terms: None,
        }
    }
}

/// The time that a receipt of this verdict tells: it depends on nothing else of the charge.
fn full_at(verdict: &Verdict, at_us: u64) -> (u64, u32) {
    const ANY: Quota = Quota::per_second(1);
    let charge = Charge {
        scope: Scope::of("any", 0, &ANY),
        quota: &ANY,
        key: &Key::global(),
        cost: verdict.taken(),
        mode: Mode::Enforce,
    };
    let receipt = Receipt::of(&charge, verdict, Timestamp::from_micros(at_us));
    receipt.map_or((0, 0), |receipt| receipt.full_at())
}
