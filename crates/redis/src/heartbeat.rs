//! Heartbeats: the telling of each key, three times in each lease.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::fleet::{Fleet, WeakFleet};
use crate::holder::{Holder, Report};
use crate::job::Job;
use crate::name::Name;
use crate::sync::{Instant, sleep, timeout_at};
use crate::wire::{Request, Work};

/// The number of heartbeats in a lease. Two of them may fail.
const IN_A_LEASE: u32 = 3;

/// The most keys that are told in one go: half of a call, so that callers have room beside them.
const IN_ONE_GO: usize = 32;

/// The pause after a telling out of turn, and the part of a short lease that it takes. While a server fails each call, all of its
/// keys are in doubt all the time.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSES_IN_A_LEASE: u32 = 30;

/// The task that tells what this process holds, for as long as the backend exists.
pub(crate) struct Heartbeat {
    holder: Arc<Holder>,
    fleet: WeakFleet,
}

impl Heartbeat {
    pub(crate) fn of(fleet: &Fleet) -> Self {
        Self {
            holder: Arc::clone(fleet.holder()),
            fleet: fleet.downgrade(),
        }
    }

    pub(crate) async fn run(self) {
        let mut next = Instant::now() + self.interval();
        let mut waiting = Vec::new().into_iter();
        let mut pause = Duration::ZERO;
        loop {
            let rings = if waiting.len() == 0 {
                next
            } else {
                next.min(Instant::now() + pause)
            };
            let is_in_doubt = timeout_at(rings, self.holder.doubt.notified())
                .await
                .is_ok();
            let is_beat = Instant::now() >= next;
            if self.fleet.upgrade().is_none() {
                return;
            }
            if is_beat || is_in_doubt {
                self.begin().await;
            }
            let names = if is_beat {
                next = Instant::now() + self.interval();
                let due: Vec<_> = waiting.chain(self.holder.take_due(true)).collect();
                // Over half of the time until the next.
                let goes = u32::try_from(due.len() / IN_ONE_GO + 1).unwrap_or(u32::MAX);
                pause = self.interval() / 2 / goes;
                waiting = due.into_iter();
                waiting.by_ref().take(IN_ONE_GO).collect()
            } else if is_in_doubt {
                self.holder.take_due(false)
            } else {
                waiting.by_ref().take(IN_ONE_GO).collect::<Vec<_>>()
            };
            let Some(fleet) = self.fleet.upgrade() else {
                return;
            };
            for name in names {
                fleet.push(Job::unattended(self.holder.telling(name), fleet.counters()));
            }
            drop(fleet);
            if is_in_doubt {
                sleep(PAUSE.min(self.holder.lease / PAUSES_IN_A_LEASE)).await;
            }
        }
    }

    /// Begins another generation, and waits until all calls of the earlier ones have ended. Each ends a few seconds after its
    /// deadline at the latest. If that is longer than a heartbeat, the next one begins, and what is not known is not told.
    async fn begin(&self) {
        self.holder.begin();
        let patient_until = Instant::now() + self.interval();
        while !self.holder.is_settled() {
            if timeout_at(patient_until, self.holder.settled.notified())
                .await
                .is_err()
            {
                return;
            }
        }
    }

    /// The time until the next heartbeat: at most a third of the lease, and not that of all other processes.
    fn interval(&self) -> Duration {
        let random = RandomState::new().hash_one(0).to_le_bytes()[0];
        self.holder.lease / IN_A_LEASE * (1_000 - u32::from(random) / 3) / 1_000
    }
}

impl Holder {
    fn begin(&self) {
        self.identity().books.begin();
    }

    fn is_settled(&self) -> bool {
        self.identity().books.is_settled()
    }

    fn take_due(&self, all: bool) -> Vec<Name> {
        self.identity().books.take_due(all)
    }

    fn telling(self: &Arc<Self>, name: Name) -> Request {
        let telling = Report {
            holder: Arc::clone(self),
            name: name.clone(),
            units: AtomicU64::new(0),
        };
        Request {
            work: Work::Tell(telling),
            names: [name].into_iter().collect(),
            owed: None,
        }
    }
}
