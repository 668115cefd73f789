//! The patience of a client's requests.

use std::time::Duration;

use fastrand::Rng;

use super::Client;
use crate::attempt::{AskedCharge, Door};
use crate::patience::Patience;

/// One in this many HTTP requests is abandoned: its connection is closed in the middle of it.
const HASTY: u8 = 16;

/// One in this many requests that may wait is abandoned before its turn: by HTTP clients, whose decisions no one hears then, and
/// by others.
const LEAVES: [u8; 2] = [16, 2];

/// One in this many requests that may wait states how long it waits at most.
const STATES: u8 = 3;

impl Client {
    /// The patience of a request's caller: some leave before their turn, and some state how long they wait, be it for longer than
    /// the quota lets them.
    pub(super) fn patience(&self, rng: &mut Rng, asked: &[AskedCharge]) -> Patience {
        let longest = self.entrance.population().longest_wait(asked);
        let [of_http, of_others] = LEAVES;
        let one_in = match self.asker.door {
            Door::Envoy => HASTY,
            Door::Http if longest.is_zero() => HASTY,
            Door::Http => of_http,
            Door::Backend | Door::Limiter => of_others,
        };
        let most_us = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
        let leaves_after =
            (rng.u8(0..one_in) == 0).then(|| Duration::from_micros(rng.u64(0..most_us.max(4_000))));
        let states = !longest.is_zero() && rng.u8(0..STATES) == 0;
        let waits_at_most =
            states.then(|| Duration::from_millis(rng.u64(0..=most_us / 1_000 * 5 / 4)));
        Patience {
            leaves_after,
            waits_at_most,
        }
    }
}
