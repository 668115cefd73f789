//! A process that holds places is stopped for longer than its lease.
//!
//! Nothing else is done meanwhile. So the other processes get its places, all of them; it says that it lost a lease when it goes
//! on; and then the number inside is judged as after any loss.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::inside::lock;
use super::{Client, Crew};
use crate::Result;
use crate::hold::{Hold, LEASE, PLACES};
use crate::signal::signal;
use crate::wall::now_us;

/// The least number of processes that hold: the others must be able to take all places of the one that is stopped.
pub(crate) const FEWEST_HOLDERS: u32 = 3;

/// The time in which a process comes to hold a place for long, beyond all that an earlier fault leaves behind.
const PATIENCE: Duration = LEASE.saturating_mul(3);

/// The interval at which the processes are looked at.
const LOOK: Duration = Duration::from_millis(20);

impl Crew {
    /// Stops a process that holds a place until others have taken all, and lets it go on. Returns what was wrong.
    pub(crate) fn stop_a_holder(&self) -> Result<Vec<String>> {
        // One that will hold its place for a while, so that it surely holds it when it is stopped.
        let is_fresh = |hold: &Hold| now_us() < hold.heard_us + hold.lasts_us / 2;
        let holds = |client: &&Client| lock(&client.inside).for_long().any(is_fresh);
        let until = Instant::now() + PATIENCE;
        let stopped = loop {
            if let Some(client) = self.living.iter().find(holds) {
                break client;
            }
            if Instant::now() > until {
                return Err("no process holds a place for long".into());
            }
            sleep(LOOK);
        };
        let from_us = now_us();
        signal(&stopped.process, "-STOP")?;
        // Time for its last words to arrive, too.
        sleep(LEASE);
        let others = || {
            let others = self.living.iter();
            let others = others.filter(|it| it.process.id() != stopped.process.id());
            let held = others.map(|client| lock(&client.inside).for_long().count() as u64);
            held.sum::<u64>()
        };
        let have_got = within(PATIENCE, || others() >= PLACES);
        let held = lock(&stopped.inside).for_long().count();
        let lost_before = lock(&stopped.inside).lost_leases;
        let in_others = others();
        signal(&stopped.process, "-CONT")?;
        lock(&stopped.inside).stops.push((from_us, now_us()));
        if held == 0 {
            return Err("the process gave its places back before it was stopped".into());
        }
        let says_so = within(PATIENCE, || lock(&stopped.inside).lost_leases > lost_before);
        let mut wrongs = Vec::new();
        if !have_got {
            wrongs.push(format!(
                "of {PLACES} places others hold {in_others}, long after the lease of a process that was stopped"
            ));
        } else if !says_so {
            wrongs.push(format!(
                "a process was stopped until others held all {PLACES} places, had held {held} of them, and tells of no lost lease"
            ));
        }
        Ok(wrongs)
    }
}

/// Waits until something is so, for this long at most, and returns whether it is.
fn within(time: Duration, is_so: impl Fn() -> bool) -> bool {
    let until = Instant::now() + time;
    while !is_so() {
        if Instant::now() > until {
            return false;
        }
        sleep(LOOK);
    }
    true
}
