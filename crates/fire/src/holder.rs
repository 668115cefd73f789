//! A worker of a client that holds places, and gives them back.

use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep_until};
use tollgate::{CheckOutcome, Limiter, OnFailure, Policy};
use tollgate_core::{Backend, Call, Charge, Concurrent, Key, Mode, Quota, Receipt, Scope, Verdict};
use tollgate_redis::RedisBackend;

use crate::Result;
use crate::hold::{Grant, Hold, KEYS, LONG, LONG_KEYS, PLACES, SHORT, SHORT_KEYS, WAIT};

/// The interval at which a holder looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// The name of the limit. No policy of a population has it.
const NAME: &str = "at-once";

/// The holder's side of a client: its backend, and its limiter, in which requests wait for places.
#[derive(Clone, Debug)]
pub(crate) struct PlaceDesk {
    backend: RedisBackend,
    limiter: Limiter,
}

impl PlaceDesk {
    pub(crate) fn of(backend: &RedisBackend) -> Result<Self> {
        let quota = Quota::from(Concurrent::at_most(PLACES)).wait_up_to(WAIT);
        // A request that is not decided holds nothing.
        let policy = Policy::new(NAME, quota).on_failure(OnFailure::Deny);
        let limiter = Limiter::builder().policy(policy).backend(backend.clone());
        Ok(Self {
            backend: backend.clone(),
            limiter: limiter.build()?,
        })
    }
}

/// A place that is held: by a charge, or by the answer of a limiter until that is dropped.
enum HeldPlace {
    Charged(Receipt),
    Guarded(CheckOutcome),
}

/// The places of one key.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    scope: Scope,
    quota: Quota,
    key: Key,
    number: u32,
}

impl Places {
    /// The places of each key.
    pub(crate) fn all() -> Vec<Self> {
        let quota = Quota::from(Concurrent::at_most(PLACES));
        let scope = Scope::of(NAME, 0, &quota);
        (0..KEYS)
            .map(|number| Self {
                scope,
                quota,
                key: Key::from(u64::from(number)),
                number,
            })
            .collect()
    }

    fn charge(&self, cost: u64, mode: Mode) -> Charge<'_> {
        Charge {
            scope: self.scope,
            quota: &self.quota,
            key: &self.key,
            cost,
            mode,
        }
    }

    /// The number of places that are free, if the backend answers.
    pub(crate) async fn free(&self, backend: &impl Backend) -> Option<u64> {
        let decided = backend
            .decide(Call::of(&[self.charge(0, Mode::Probe)]))
            .await
            .ok()?;
        decided.verdicts().first().map(Verdict::remaining)
    }

    /// Says whether the places of this key are held for longer than a lease.
    pub(crate) fn are_long(&self) -> bool {
        (SHORT_KEYS..SHORT_KEYS + LONG_KEYS).contains(&self.number)
    }

    /// Says whether requests wait for the places of this key.
    pub(crate) fn are_waited_for(&self) -> bool {
        self.number >= SHORT_KEYS + LONG_KEYS
    }

    async fn ask(&self, desk: &PlaceDesk) -> (Grant, Option<HeldPlace>) {
        if self.are_waited_for() {
            return match desk.limiter.acquire(NAME, self.key.clone()).await {
                Err(_unknown) => (Grant::Unknown, None),
                Ok(outcome) if outcome.undecided().is_some() => (Grant::Unknown, None),
                Ok(outcome) if outcome.is_allowed() => {
                    (Grant::Held, Some(HeldPlace::Guarded(outcome)))
                }
                Ok(_refused) => (Grant::Denied, None),
            };
        }
        let charge = self.charge(1, Mode::Enforce);
        match desk.backend.decide(Call::of(&[charge])).await {
            Err(_unknown) => (Grant::Unknown, None),
            Ok(decision) => match decision.receipts(std::slice::from_ref(&charge)).next() {
                Some(receipt) => (Grant::Held, Some(HeldPlace::Charged(receipt))),
                None => (Grant::Denied, None),
            },
        }
    }

    /// Asks for a place, holds it for a while or until `is_over`, and gives it back. Says when it is held, and when it was given
    /// back.
    pub(crate) async fn hold(
        &self,
        desk: &PlaceDesk,
        process: u32,
        rng: &mut Rng,
        now_us: fn() -> u64,
        is_over: impl Fn() -> bool,
        mut say: impl FnMut(Hold) -> std::io::Result<()>,
    ) -> std::io::Result<Grant> {
        let mut hold = Hold {
            process,
            key: self.number,
            sent_us: now_us(),
            heard_us: 0,
            outcome: Grant::Unknown,
            lasts_us: rng.u64(if self.are_long() { LONG } else { SHORT }),
            until_us: None,
        };
        let (outcome, place) = self.ask(desk).await;
        (hold.heard_us, hold.outcome) = (now_us(), outcome);
        say(hold)?;
        if let Some(place) = place {
            let until = Instant::now() + Duration::from_micros(hold.lasts_us);
            while Instant::now() < until && !is_over() {
                sleep_until(until.min(Instant::now() + LOOK)).await;
            }
            hold.until_us = Some(now_us());
            say(hold)?;
            match place {
                HeldPlace::Charged(receipt) => desk.backend.refund(receipt, 1),
                HeldPlace::Guarded(outcome) => drop(outcome),
            }
        }
        Ok(hold.outcome)
    }
}
