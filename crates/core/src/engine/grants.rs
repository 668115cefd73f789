//! Calls that ask for as much as there is: an amount is chosen, and then it is decided like any other.

use smallvec::SmallVec;

use super::{States, decide, decide_one, decide_quickly};
use crate::{BackendError, Charge, Decision, FailureKind, MAX_CHARGES, Mode, State, Timestamp};

/// Refuses a call that [`decide_up_to`] cannot decide. For backends.
///
/// # Errors
///
/// If two charges ask for different amounts, since the call grants one amount, or name one budget under two quotas; if one may wait
/// for its turn, since a grant is decided at once; or if one has an id.
pub fn check_up_to(charges: &[Charge<'_>]) -> Result<(), BackendError> {
    let invalid = |detail: String| Err(BackendError::new(FailureKind::InvalidCall, detail));
    let amounts = || charges.iter().filter(|charge| charge.grants());
    if amounts().any(|charge| charge.quota.waits()) {
        return invalid("a charge that may wait for its turn cannot be granted in part".to_owned());
    }
    if charges.iter().any(|charge| charge.quota.is_once()) {
        return invalid("a charge with an id cannot be granted in part".to_owned());
    }
    let shares = |(index, charge): (usize, &Charge<'_>)| {
        let mut before = charges[..index].iter();
        before.any(|other| other.shares_state_with(charge) && other.quota != charge.quota)
    };
    if charges.iter().enumerate().any(shares) {
        return invalid(
            "charges of one budget under two quotas in one call, which grants one amount"
                .to_owned(),
        );
    }
    let least = amounts().map(|charge| charge.cost).min();
    let most = amounts().map(|charge| charge.cost).max();
    if let (Some(least), Some(most)) = (least, most)
        && least != most
    {
        return invalid(format!(
            "charges of {least} and of {most} in one call, which grants one amount"
        ));
    }
    Ok(())
}

/// Decides a call at `now` about as much as there is, and at least `at_least` of it.
///
/// The charges name one cost, which is the most that the call may take. This chooses the largest amount up to that cost that fits
/// every enforced charge. Without enforced charges the charges on trial count, and without these the probes. If the amount is no
/// less than `at_least`, the call is decided with that amount, and otherwise with `at_least`, so that a denial tells when the least
/// passes. The verdicts say how much was [taken](crate::Verdict::taken).
///
/// ```
/// use tollgate_core::{Charge, Key, Mode, Quota, Scope, State, Timestamp, decide_up_to};
///
/// let quota = Quota::per_minute(10);
/// let charge = Charge {
///     scope: Scope::of("mail", 0, &quota),
///     quota: &quota,
///     key: &Key::from("alice"),
///     cost: 8,
///     mode: Mode::Enforce,
/// };
/// let mut states = [State::full(&quota)];
/// let granted = [8, 2, 0].map(|_| {
///     let decision = decide_up_to(Timestamp::from_micros(0), &[charge], &mut states[..], 1);
///     decision.verdicts()[0].taken()
/// });
/// assert_eq!(granted, [8, 2, 0]);
/// ```
#[must_use]
pub fn decide_up_to(
    now: Timestamp,
    charges: &[Charge<'_>],
    states: &mut (impl States + ?Sized),
    at_least: u64,
) -> Decision {
    if let [charge] = charges
        && charge.grants()
    {
        return decide_one_up_to(now, charge, states.state(0), at_least);
    }
    let amount = amount(now, charges, states).max(at_least);
    let granted = charges.iter().map(|charge| Charge {
        cost: if charge.grants() {
            charge.cost.min(amount)
        } else {
            charge.cost
        },
        ..*charge
    });
    let granted: SmallVec<[Charge<'_>; MAX_CHARGES]> = granted.collect();
    decide(now, &granted, states)
}

/// Decides a call of one charge as [`decide_up_to`] does.
fn decide_one_up_to(
    now: Timestamp,
    charge: &Charge<'_>,
    state: &mut State,
    at_least: u64,
) -> Decision {
    let (rule, now_us) = (charge.quota.rule(), now.as_micros());
    // This brings the state to now and has no other effect.
    rule.passage(state, now_us, 0);
    let amount = rule.budget(state, now_us).remaining.max(at_least);
    let granted = Charge {
        cost: charge.cost.min(amount),
        ..*charge
    };
    decide_quickly(now, &granted, state).unwrap_or_else(|| decide_one(now, &granted, state))
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
    fn grants(&self) -> bool {
        !self.quota.is_ban()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Ban, Key, Quota, Scope};

    #[test]
    fn a_ban_has_no_part_in_an_amount() {
        let quota = Quota::per_day(5);
        let ban =
            Quota::from(Ban::after(1, Duration::from_secs(9)).lasting(Duration::from_secs(1)));
        let key = Key::from("alice");
        let charge = |quota, cost| Charge {
            scope: Scope::of("mail", 0, quota),
            quota,
            key: &key,
            cost,
            mode: Mode::Enforce,
        };
        let charges = [charge(&quota, 4), charge(&ban, 0)];
        let mut states = [State::full(&quota), State::full(&ban)];

        assert!(check_up_to(&charges).is_ok());
        let granted = decide_up_to(Timestamp::from_micros(0), &charges, &mut states[..], 1);

        assert_eq!(granted.verdicts()[0].taken(), 4);
    }
}
