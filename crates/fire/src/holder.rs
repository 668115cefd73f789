//! A worker of a client that holds places, and gives them back.

use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep_until};
use tollgate_core::{Backend, Charge, Concurrent, Key, Mode, Quota, Scope, Verdict};

use crate::hold::{Grant, Hold, KEYS, LONG, PLACES, SHORT, SHORT_KEYS};

/// The interval at which a holder looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// The name of the limit. No policy of a population has it.
const NAME: &str = "at-once";

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
        let decided = backend.decide(&[self.charge(0, Mode::Probe)]).await.ok()?;
        decided.verdicts().first().map(Verdict::remaining)
    }

    /// Says whether the places of this key are held for longer than a lease.
    pub(crate) fn are_long(&self) -> bool {
        self.number >= SHORT_KEYS
    }

    /// Asks for a place, holds it for a while or until `is_over`, and gives it back. Says when it is held, and when it was given
    /// back.
    pub(crate) async fn hold(
        &self,
        backend: &impl Backend,
        process: u32,
        rng: &mut Rng,
        now_us: fn() -> u64,
        is_over: impl Fn() -> bool,
        mut say: impl FnMut(Hold) -> std::io::Result<()>,
    ) -> std::io::Result<Grant> {
        let charge = self.charge(1, Mode::Enforce);
        let mut hold = Hold {
            process,
            key: self.number,
            sent_us: now_us(),
            heard_us: 0,
            outcome: Grant::Unknown,
            lasts_us: rng.u64(if self.are_long() { LONG } else { SHORT }),
            until_us: None,
        };
        let decided = backend.decide(&[charge]).await;
        hold.heard_us = now_us();
        let receipt = match &decided {
            Ok(decision) => decision.receipts(std::slice::from_ref(&charge)).next(),
            Err(_unknown) => None,
        };
        hold.outcome = match (&decided, &receipt) {
            (Err(_unknown), _) => Grant::Unknown,
            (Ok(_), Some(_)) => Grant::Held,
            (Ok(_), None) => Grant::Denied,
        };
        say(hold)?;
        if let Some(receipt) = receipt {
            let until = Instant::now() + Duration::from_micros(hold.lasts_us);
            while Instant::now() < until && !is_over() {
                sleep_until(until.min(Instant::now() + LOOK)).await;
            }
            hold.until_us = Some(now_us());
            say(hold)?;
            backend.credit(receipt, 1);
        }
        Ok(hold.outcome)
    }
}
