//! Calls that ask for as much as there is: an amount is chosen, and then it is decided like any other.

use smallvec::SmallVec;

use super::states::States;
use crate::{Charge, MAX_CHARGES, Mode, Timestamp};

/// The charges with the largest amount that fits, or with the least.
pub(super) fn granted<'a>(
    now: Timestamp,
    charges: &[Charge<'a>],
    states: &mut (impl States + ?Sized),
    at_least: u64,
) -> SmallVec<[Charge<'a>; MAX_CHARGES]> {
    let amount = amount(now, charges, states).max(at_least);
    let granted = charges.iter().map(|charge| Charge {
        cost: if charge.grants() {
            charge.cost.min(amount)
        } else {
            charge.cost
        },
        ..*charge
    });
    granted.collect()
}

/// The largest amount that passes, whatever was asked for.
fn amount(now: Timestamp, charges: &[Charge<'_>], states: &mut (impl States + ?Sized)) -> u64 {
    let now_us = now.as_micros();
    let modes = [Mode::Enforce, Mode::Shadow, Mode::Probe];
    let leading = modes
        .into_iter()
        .find(|mode| { charges.iter() }.any(|charge| charge.grants() && charge.mode == *mode));
    let leads = |charge: &&Charge<'_>| charge.grants() && Some(charge.mode) == leading;
    let mut amount = u64::MAX;
    for (index, charge) in charges.iter().enumerate() {
        if !leads(&charge) {
            continue;
        }
        // Several charges of one budget share what is left there.
        let of_this = |other: &&Charge<'_>| leads(other) && other.shares_state_with(charge);
        let sharers = charges.iter().filter(of_this).count() as u64;
        let (rule, state) = (charge.quota.rule(), states.state(index));
        // This brings the state to now and has no other effect.
        rule.passage(state, now_us, 0);
        let left = rule.budget(state, now_us).remaining;
        amount = amount.min(left / sharers);
    }
    amount
}

impl Charge<'_> {
    /// Says whether the charge has a part in the amount: a ban has none, since it counts no units.
    pub(crate) fn grants(&self) -> bool {
        !self.quota.is_ban()
    }
}
