//! A worker of a client that knocks, in spells, under a policy with a ban and a class.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fastrand::Rng;
use tollgate_core::{Backend, Call};

use super::record::{Line, say};
use super::{Client, pause};
use crate::attempt::{Door, Outcome};
use crate::flaw::Flaw;
use crate::gate::Gate;
use crate::knock::{Guarded, Knock};
use crate::population::SHARED_CALLERS;
use crate::wall::now_us;

/// The number of a client's workers that knock.
pub(super) const KNOCKERS: u32 = 2;

/// The longest pause within a spell, in pauses of other workers: some are eager, others calm.
const RHYTHMS: [u64; 4] = [2, 2, 4, 16];

/// One in this many knocks at a service is of a caller that it refuses.
const FAILED: u8 = 5;

pub(super) async fn knock(
    client: Arc<Client>,
    gate: Arc<Gate>,
    knocker: u32,
) -> std::io::Result<()> {
    let orders = &client.orders;
    let own = orders.number * KNOCKERS + knocker;
    let mut rng = Rng::with_seed(orders.seed ^ (u64::from(own) << 8));
    while !client.is_over() {
        let caller = rng.u32(0..SHARED_CALLERS);
        let longest_us = orders.pause_us * rng.choice(RHYTHMS).unwrap_or(2);
        for _ in 0..rng.u32(4..60) {
            if client.is_over() {
                break;
            }
            let outcome = client.knock(&mut rng, &gate, caller).await?;
            pause(&mut rng, longest_us, outcome.is_silence()).await;
        }
    }
    Ok(())
}

impl Client {
    /// Knocks once, and records it before and after. A process that asks through a limiter knocks at a service, which refuses
    /// some that have passed the limiter.
    async fn knock(&self, rng: &mut Rng, gate: &Gate, caller: u32) -> std::io::Result<Outcome> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let is_important = rng.bool();
        let is_at_service = self.asker.door != Door::Backend;
        let fails = is_at_service && rng.u8(0..FAILED) == 0;
        let takes_all = is_important || self.orders.flaw == Some(Flaw::SpendsKept);
        let guarded = Guarded::of(self.entrance.population(), caller, takes_all);
        let knock = Knock {
            process: self.orders.number,
            caller,
            is_important,
            sent_us: now_us(),
            heard_us: 0,
            outcome: Outcome::Unknown(String::new()),
            fails,
            status: None,
        };
        say(&Line::Knock(number, knock.clone()))?;
        let (outcome, status) = if is_at_service {
            let answer = gate.knock(caller, takes_all, fails).await;
            let (outcome, status) = answer.map_err(std::io::Error::other)?;
            (outcome, Some(status))
        } else {
            let answer = self.asking.decide(Call::of(&guarded.charges())).await;
            (Outcome::of(&answer), None)
        };
        let heard = Knock {
            heard_us: now_us(),
            outcome: outcome.clone(),
            status,
            ..knock
        };
        say(&Line::Knock(number, heard))?;
        Ok(outcome)
    }
}
