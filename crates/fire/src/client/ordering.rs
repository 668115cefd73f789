//! A worker of a client that sends requests with ids, again and again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;
use tollgate_core::Backend;

use super::record::{Line, say};
use super::{BREATH, Client};
use crate::attempt::Outcome;
use crate::order::{Identified, Order};
use crate::population::SHARED_CALLERS;
use crate::wall::now_us;

/// The number of ids that callers send for ever, and of those that they send now and then. All processes share them.
const CONSTANT: u32 = 1;
const IDS: u32 = 24;

/// The longest pause of an orderer, in pauses of other workers.
const RHYTHM: u64 = 3;

pub(super) async fn order(client: Arc<Client>) -> std::io::Result<()> {
    let orders = &client.orders;
    let mut rng = Rng::with_seed(orders.seed ^ (u64::from(orders.number) << 48));
    while !client.is_over() {
        let caller = rng.u32(0..SHARED_CALLERS);
        let is_constant = rng.u8(0..3) == 0;
        let ids = if is_constant {
            0..CONSTANT
        } else {
            CONSTANT..IDS
        };
        let id = rng.u32(ids);
        for _ in 0..rng.u32(1..8) {
            let outcome = client.order(caller, id).await?;
            let longest_us = orders.pause_us * RHYTHM;
            let pause = Duration::from_micros(rng.u64(0..=longest_us));
            let breath = if outcome.is_silence() {
                BREATH
            } else {
                Duration::ZERO
            };
            tokio::time::sleep(pause + breath).await;
        }
    }
    Ok(())
}

impl Client {
    /// Asks once, and records it before and after.
    async fn order(&self, caller: u32, id: u32) -> std::io::Result<Outcome> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let identified = Identified::of(self.entrance.population(), caller, id);
        let identified = identified.map_err(std::io::Error::other)?;
        let order = Order {
            process: self.orders.number,
            caller,
            id,
            sent_us: now_us(),
            heard_us: 0,
            outcome: Outcome::Unknown(String::new()),
        };
        say(&Line::Order(number, order.clone()))?;
        let answer = self.entrance.backend().decide(&identified.charges()).await;
        let outcome = Outcome::of(&answer);
        let heard = Order {
            heard_us: now_us(),
            outcome: outcome.clone(),
            ..order
        };
        say(&Line::Order(number, heard))?;
        Ok(outcome)
    }
}
