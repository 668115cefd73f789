//! Decides a call: all or nothing over the enforced charges, each other charge on its own.

mod known;
mod partial_acquire;
mod parts;
mod states;

pub use self::known::deny_by_known;
use self::parts::{takes, verdict};
pub use self::states::States;
use crate::{Call, Charge, Decision, Timestamp};

/// Decides a call at `now`.
///
/// * **Budgets.** If each enforced charge passes, each is taken; otherwise none is. Each shadow charge follows on its own, in
///   order, against the state that this leaves. The probes come last and take nothing. Charges of one scope and key in one mode are
///   one charge of the summed cost, under the first one's quota.
/// * **Bans** are asked first. If an enforced one is in force, no enforced charge is taken or a strike; it is judged all the same,
///   so that retry-after is a promise. A ban in shadow mode keeps only its own policy's shadow charges from being taken. Otherwise
///   each denial is a strike of the ban that guards the charge: one for each call, however many of its charges are denied.
/// * **Idempotency keys** are asked first, too. The budgets of a policy whose key is replayed are charged nothing, and so they
///   pass and say how much is left. Bans stay in force, each request holds its own permit, and other policies are charged as ever.
///   If the call is admitted, a new key is remembered and a replay is counted; in shadow mode, if all of the policy's own charges pass.
///
/// A call for as much as there is chooses its amount first: see [`Call::at_least`]. If less than the least passes, it is denied for that
/// much, so that the denial tells when the least passes.
///
/// The verdicts report each budget as the whole call left it. A denied call may hold an enforced charge and a shadow charge on
/// one budget. The enforced charge is then judged by the budget after the shadow, so that the wait it is told is long enough.
#[must_use]
#[inline(always)]
pub fn decide(now: Timestamp, call: Call<'_>, states: &mut (impl States + ?Sized)) -> Decision {
    match call.at_least {
        None => all(now, call.charges, states),
        Some(least) => up_to(now, call.charges, states, least),
    }
}

/// Decides about all that the charges ask for.
#[inline(always)]
fn all(now: Timestamp, charges: &[Charge<'_>], states: &mut (impl States + ?Sized)) -> Decision {
    // Most calls have one charge, which needs no parts.
    if let [charge] = charges {
        let Charge {
            quota, cost, mode, ..
        } = *charge;
        let (rule, now_us, takes) = (quota.rule(), now.as_micros(), takes(mode, true));
        let taken = if takes { cost } else { 0 };
        let decided = |step| Decision::of_one(now, mode, verdict(quota, mode, step, taken));
        let state = states.state(0);
        // Two arms, so that the step of the commonest algorithm stays in registers: 35 of 376 instructions.
        return match rule.quick_step(state, now_us, cost, takes) {
            Some(step) => decided(step),
            None => decided(rule.step(state, now_us, cost, takes)),
        };
    }
    parts::decide(now, charges, states)
}

/// Decides about the largest amount that fits, or about the least.
#[inline(never)]
fn up_to(
    now: Timestamp,
    charges: &[Charge<'_>],
    states: &mut (impl States + ?Sized),
    at_least: u64,
) -> Decision {
    let granted = partial_acquire::granted(now, charges, states, at_least);
    all(now, &granted, states)
}
