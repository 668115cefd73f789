//! A worker of a client that bans callers by hand, and pardons them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;

use super::Client;
use super::record::{Line, say};
use crate::attempt::Outcome;
use crate::gate::Gate;
use crate::knock::Guarded;
use crate::operator::{OperatorAct, OperatorCall};
use crate::population::SHARED_CALLERS;
use crate::terms::micros;
use crate::wall::now_us;

/// The times between two calls, in ms: so long that callers are banned by their strikes as well.
const PAUSES_MS: std::ops::Range<u64> = 400..2_600;

/// The lengths of most bans. They end in the middle of longer ones, or lengthen them.
const SHORT_US: std::ops::Range<u64> = 20_000..400_000;

pub(super) async fn operate(client: Arc<Client>, gate: Arc<Gate>) -> std::io::Result<()> {
    let orders = &client.orders;
    let mut rng = Rng::with_seed(orders.seed ^ (u64::from(orders.number) << 56));
    while !client.is_over() {
        let caller = rng.u32(0..SHARED_CALLERS);
        // Now and then a second call, while the first one's ban is in force.
        for _ in 0..rng.choice([1, 1, 2]).unwrap_or(1) {
            client.operate(&gate, caller, any_act(&mut rng)).await?;
        }
        tokio::time::sleep(Duration::from_millis(rng.u64(PAUSES_MS))).await;
    }
    Ok(())
}

fn any_act(rng: &mut Rng) -> OperatorAct {
    match rng.u8(0..5) {
        0 | 1 => OperatorAct::Unban,
        2 => OperatorAct::Ban {
            lasting_us: rng.u64(SHORT_US.end..=micros(Guarded::LONGEST_BY_HAND)),
        },
        _ => OperatorAct::Ban {
            lasting_us: rng.u64(SHORT_US),
        },
    }
}

impl Client {
    /// Calls once, and records it before and after.
    async fn operate(&self, gate: &Gate, caller: u32, act: OperatorAct) -> std::io::Result<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let call = OperatorCall {
            process: self.orders.number,
            caller,
            act,
            sent_us: now_us(),
            heard_us: 0,
            outcome: Outcome::Unknown(String::new()),
        };
        say(&Line::Operator(number, call.clone()))?;
        let outcome = gate.operate(caller, act).await;
        say(&Line::Operator(
            number,
            OperatorCall {
                heard_us: now_us(),
                outcome,
                ..call
            },
        ))
    }
}
