//! Questions for as much as there is, in place of some for a cost.

use fastrand::Rng;

use super::Client;
use crate::attempt::{AskedCharge, Door, Verb};

/// One in this many questions asks for as much as there is.
const ONE_IN: u8 = 4;

impl Client {
    /// The action that asks about these charges. A layer and Envoy know no grants, and a request that may wait for its turn has
    /// none.
    pub(super) fn verb(&self, rng: &mut Rng, asked: Vec<AskedCharge>) -> Verb {
        let population = self.entrance.population();
        let may_wait = !population.longest_wait(&asked).is_zero();
        if matches!(self.asker.door, Door::Http | Door::Envoy) || may_wait || rng.u8(0..ONE_IN) > 0
        {
            return Verb::Decide(asked);
        }
        population.grant(rng, asked)
    }
}
