//! A second reading of the log: the chosen quotas decide every request, by the library's limiter.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU64;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use foldhash::fast::RandomState;
use tollgate::{Key, Limiter, ManualClock, MemoryBackend, Policy, Quota, Timestamp};

use super::callers::Identity;
use super::frontier::Choice;
use crate::failure::Failure;
use crate::log::Entry;
use crate::timeline::Timeline;

/// Programs of one caller that are told apart.
const MOST_AGENTS: usize = 16;

/// The chosen quotas, at work.
pub(super) struct Trial {
    limiter: Limiter,
    clock: ManualClock,
    names: Vec<&'static str>,
    /// Refused requests of each choice.
    pub(super) refused: Vec<u64>,
    /// Refused requests of each choice over time.
    pub(super) timelines: Vec<Timeline>,
    /// Callers that were refused by any.
    callers: HashMap<Identity, HashSet<u64>, RandomState>,
}

impl Trial {
    pub(super) fn of(choices: &[Choice]) -> Result<Self, Failure> {
        let clock = ManualClock::new();
        let backend = MemoryBackend::builder()
            .max_keys(16_000_000)
            .clock(clock.clone())
            .build();
        let mut builder = Limiter::builder().backend(backend);
        let mut names = Vec::new();
        for choice in choices {
            let quota: Quota = choice.point.quota().parse().map_err(Failure::invalid)?;
            builder =
                builder.policy(Policy::try_new(choice.words, quota).map_err(Failure::invalid)?);
            names.push(choice.words);
        }
        Ok(Self {
            limiter: builder.build().map_err(Failure::invalid)?,
            clock,
            refused: vec![0; names.len()],
            timelines: names.iter().map(|_| Timeline::default()).collect(),
            names,
            callers: HashMap::default(),
        })
    }

    pub(super) fn decide(
        &mut self,
        identity: &Identity,
        entry: &Entry<'_>,
        cost: u64,
    ) -> Result<(), Failure> {
        self.clock.set(Timestamp::from_micros(entry.time_us));
        let key = identity.key();
        let mut is_refused = false;
        let counts = self.refused.iter_mut().zip(&mut self.timelines);
        for (name, (refused, timeline)) in self.names.iter().zip(counts) {
            let passes = ask(&self.limiter, name, key.clone(), cost)?;
            timeline.count(entry.time_us, !passes);
            *refused += u64::from(!passes);
            is_refused |= !passes;
        }
        if is_refused && let Some(agent) = entry.user_agent() {
            let agents = self.callers.entry(identity.clone()).or_default();
            if agents.len() < MOST_AGENTS {
                use std::hash::BuildHasher;
                agents.insert(foldhash::fast::FixedState::default().hash_one(agent));
            }
        }
        Ok(())
    }

    /// The number of programs of a caller that was refused.
    pub(super) fn programs(&self, identity: &Identity) -> String {
        match self.callers.get(identity).map(HashSet::len) {
            None => "?".to_owned(),
            Some(MOST_AGENTS) => format!("{MOST_AGENTS} or more"),
            Some(some) => some.to_string(),
        }
    }
}

/// True if the limiter lets one request of a caller pass. The backend is in memory, so that the answer is there at once.
pub(super) fn ask(limiter: &Limiter, policy: &str, key: Key, cost: u64) -> Result<bool, Failure> {
    // A cost of 0 is free under any limit.
    let Some(cost) = NonZeroU64::new(cost) else {
        return Ok(true);
    };
    let asked = pin!(limiter.check(policy, key).cost(cost.get()).into_future());
    match asked.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Ok(outcome.map_err(Failure::invalid)?.is_allowed()),
        Poll::Pending => Err(Failure::invalid(
            "the backend in memory did not answer at once",
        )),
    }
}
