//! A worker of a client that sends requests with ids, again and again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;
use tollgate_core::Backend;

use super::record::{Line, say};
use super::{Client, pause};
use crate::attempt::Outcome;
use crate::flaw::Flaw;
use crate::order::{Order, OrderName};
use crate::population::SHARED_CALLERS;
use crate::wall::now_us;

/// The number of ids that callers send for ever, and of those that they send now and then. All processes share them.
const CONSTANT: u32 = 1;
const IDS: u32 = 24;

/// The largest cost of a request: with another cost its id is another id.
const DEAREST: u64 = 2;

/// The longest pause of an orderer, in pauses of other workers.
const RHYTHM: u64 = 3;

/// One in this many requests is abandoned, by callers that wait so long at most.
const HASTY: u8 = 12;
const SHORTEST_PATIENCE_US: u64 = 3_000;

/// One in this many charges is given back.
const RETURNED: u8 = 8;

pub(super) async fn order(client: Arc<Client>) -> std::io::Result<()> {
    let orders = &client.orders;
    let mut rng = Rng::with_seed(orders.seed ^ (u64::from(orders.number) << 48));
    while !client.is_over() {
        let is_constant = rng.u8(0..3) == 0;
        let ids = if is_constant {
            0..CONSTANT
        } else {
            CONSTANT..IDS
        };
        let name = OrderName {
            caller: rng.u32(0..SHARED_CALLERS),
            id: rng.u32(ids),
            cost: rng.u64(1..=DEAREST),
        };
        for _ in 0..rng.u32(1..8) {
            let name = match orders.flaw {
                Some(Flaw::IdsOnce) => OrderName {
                    id: rng.u32(IDS..),
                    ..name
                },
                _ => name,
            };
            let outcome = client.order(&mut rng, name).await?;
            let longest_us = orders.pause_us * RHYTHM;
            pause(&mut rng, longest_us, outcome.is_silence()).await;
        }
    }
    Ok(())
}

impl Client {
    /// Asks once, and records it before and after. Some callers leave before the answer, and some give their charge back.
    async fn order(&self, rng: &mut Rng, name: OrderName) -> std::io::Result<Outcome> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let leaves = rng.u8(0..HASTY) == 0;
        let leaves_after = leaves.then(|| Duration::from_micros(rng.u64(0..SHORTEST_PATIENCE_US)));
        let order = Order {
            process: self.orders.number,
            door: self.asker.door,
            name,
            sent_us: now_us(),
            heard_us: 0,
            outcome: Outcome::Unknown(String::new()),
            passed: None,
            returned_us: None,
        };
        say(&Line::Order(number, order.clone()))?;
        let answer = self.entrance.order(name, leaves_after).await;
        let answer = answer.map_err(std::io::Error::other)?;
        let heard = Order {
            heard_us: now_us(),
            outcome: answer.outcome.clone(),
            passed: answer.passed,
            ..order
        };
        say(&Line::Order(number, heard.clone()))?;
        if !answer.receipts.is_empty() && rng.u8(0..RETURNED) == 0 {
            let returned = Order {
                returned_us: Some(now_us()),
                ..heard
            };
            say(&Line::Order(number, returned))?;
            for receipt in answer.receipts {
                let n = receipt.cost();
                self.entrance.backend().refund(receipt, n);
            }
        }
        Ok(answer.outcome)
    }
}
