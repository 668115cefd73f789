//! Heartbeats: the telling of each key, three times in each lease.

mod schedule;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::fleet::{Fleet, WeakFleet};
use crate::holder::{Holder, NO_ENTRY, NOT_YET, Report};
use crate::job::Job;
use crate::name::Name;
use crate::sync::{Instant, sleep_until, timeout_at};
use crate::wire::{Request, Work};

use schedule::Schedule;

/// The number of heartbeats in a lease. Two of them may fail.
const IN_A_LEASE: u32 = 3;

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
        let now = Instant::now();
        let mut schedule = Schedule::new(self.holder.lease, now, now + self.interval());
        loop {
            let now = Instant::now();
            let wakes_at = schedule.wakes_at(now);
            let is_in_doubt = if schedule.hears_doubt(now) {
                timeout_at(wakes_at, self.holder.doubt.notified())
                    .await
                    .is_ok()
            } else {
                sleep_until(wakes_at).await;
                false
            };
            if self.fleet.upgrade().is_none() {
                return;
            }
            if is_in_doubt || schedule.is_beat(Instant::now()) {
                self.begin().await;
            }
            let now = Instant::now();
            let names = self
                .holder
                .choose(&mut schedule, now, is_in_doubt, self.interval());
            let Some(fleet) = self.fleet.upgrade() else {
                return;
            };
            for name in names {
                fleet.push(Job::unattended(self.holder.telling(name), fleet.counters()));
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

    fn choose(
        &self,
        schedule: &mut Schedule,
        now: Instant,
        is_in_doubt: bool,
        interval: Duration,
    ) -> Vec<Name> {
        let books = &mut self.identity().books;
        schedule.choose(books, now, is_in_doubt, interval)
    }

    fn telling(self: &Arc<Self>, name: Name) -> Request {
        let telling = Report {
            holder: Arc::clone(self),
            name: name.clone(),
            units: AtomicU64::new(NOT_YET),
            entry: AtomicU64::new(NO_ENTRY),
        };
        Request {
            work: Work::Tell(telling),
            names: [name].into_iter().collect(),
            owed: None,
            known: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;
    use crate::holder::LEASE;
    use crate::stats::Counters;

    #[test]
    fn a_key_stays_in_doubt_if_its_telling_never_leaves_or_does_not_run() {
        let holder = Holder::new(LEASE);
        let key: Name = b"key".to_vec();
        let in_doubt = || holder.identity().books.take_doubts();
        let telling = || {
            let request = holder.telling(key.clone());
            vec![Job::unattended(request, &Arc::new(Counters::default()))]
        };
        holder.identity().books.doubt(key.clone());

        // Its queue is closed.
        assert_eq!(in_doubt(), slice::from_ref(&key));
        drop(telling());

        // A call of an earlier generation is under way.
        assert_eq!(in_doubt(), slice::from_ref(&key));
        let earlier = holder.identity().books.departs();
        holder.begin();
        let mut jobs = telling();
        assert!(holder.departs(&mut jobs).is_none() && jobs.is_empty());
        holder.identity().books.ends(earlier.generation);

        // The server refuses the call.
        assert_eq!(in_doubt(), slice::from_ref(&key));
        let mut jobs = telling();
        let departure = holder.departs(&mut jobs).expect("it is known");
        departure.has_not_run(&jobs);
        drop(jobs);
        assert_eq!(in_doubt(), [key]);
    }
}
