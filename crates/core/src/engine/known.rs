//! Denials that follow from what is known already: states that a server told a while ago, and bounds of its time.

use smallvec::SmallVec;

use super::decide;
use crate::{Call, Charge, Decision, Mode, State, Timestamp};

/// Denies a call by states that the backend's server told a while ago; `None` if only the server can tell. For backends.
///
/// The server's time is between `earliest` and `latest` by now. A state that denies a charge at `latest` denies it until then,
/// and what others have charged since keeps it denied for longer. So the denial is certain unless something came back since: a
/// credit, a release, a reset. The backend bounds for how long it believes a state, because of these.
///
/// The verdicts are those at `earliest`, so that no caller comes back too soon. The decision [is known](Decision::is_known).
///
/// These calls are the server's, for all that the states say:
///
/// * calls with a charge on trial, which is taken from a denied call as well, or with a probe, which asks how things are by now;
/// * calls with an id: a retry of an admission that another process has heard of passes;
/// * calls with a charge that is held, since no time is known at which it would pass;
/// * calls whose denial is a strike of a ban, or which a ban hears as a knock;
/// * calls of which one charge is denied at `earliest` and passes at `latest`, and those with two charges of one budget.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::{Call, Charge, Key, Mode, Quota, Scope, State, Timestamp, decide, deny_by_known};
///
/// let quota = Quota::per_second(10).burst(1);
/// let charge = Charge {
///     scope: Scope::of("api", 0, &quota),
///     quota: &quota,
///     key: &Key::from("alice"),
///     cost: 1,
///     mode: Mode::Enforce,
/// };
/// let told = Timestamp::from_micros(1_700_000_000_000_000);
/// let mut states = [State::full(&quota)];
/// assert!(decide(told, Call::of(&[charge]), &mut states[..]).is_admitted());
///
/// // Some 40 ms later: the bucket has room after 100.
/// let after = |ms: u64| Timestamp::from_micros(told.as_micros() + ms * 1_000);
/// let denied = deny_by_known(after(40), after(42), Call::of(&[charge]), &states);
/// assert_eq!(denied.and_then(|denied| denied.retry_after()), Some(Duration::from_millis(60)));
/// // Once there may be room, the server is asked.
/// assert!(deny_by_known(after(99), after(100), Call::of(&[charge]), &states).is_none());
/// ```
#[must_use]
pub fn deny_by_known(
    earliest: Timestamp,
    latest: Timestamp,
    call: Call<'_>,
    states: &[State],
) -> Option<Decision> {
    let charges = call.charges;
    if !charges.iter().all(is_judged_by_state) {
        return None;
    }
    let mut before = charges.iter().enumerate();
    let are_apart = before.all(|(number, charge)| {
        let mut before = charges[..number].iter();
        !before.any(|other| other.shares_state_with(charge))
    });
    if charges.len() != states.len() || !are_apart {
        return None;
    }
    let decided = |at| {
        let mut states: SmallVec<[State; 2]> = states.iter().cloned().collect();
        decide(at, call, &mut states[..])
    };
    let (first, last) = (decided(earliest), decided(latest));
    let mut outcomes = first.verdicts().iter().zip(last.verdicts());
    // Each charge that is denied first is denied at last.
    let is_certain =
        !first.is_admitted() && outcomes.all(|(first, last)| first.is_denied() == last.is_denied());
    (is_certain && !is_heard(earliest, charges, states, &first)).then(|| first.known())
}

/// Says whether the state and the time say all about an enforced charge.
#[inline]
fn is_judged_by_state(charge: &Charge<'_>) -> bool {
    charge.mode == Mode::Enforce && !charge.quota.is_held() && !charge.quota.is_once()
}

/// Says whether a ban hears of a denied call: as a knock, if it is in force, or as a strike, if none is.
fn is_heard(at: Timestamp, charges: &[Charge<'_>], states: &[State], denied: &Decision) -> bool {
    let in_force = |(ban, state): (&Charge<'_>, &State)| {
        let passage = |mut state| ban.quota.rule().passage(&mut state, at.as_micros(), 0);
        ban.quota.is_ban() && !passage(state.clone()).passes()
    };
    let is_banned = charges.iter().zip(states).any(in_force);
    let knocks = |(ban, state)| in_force((ban, state)) && ban.quota.hears_knocks();
    let strikes = |ban: &Charge<'_>| {
        let mut judged = charges.iter().zip(denied.verdicts());
        judged.any(|(charge, verdict)| verdict.is_denied() && ban.guards(charge))
    };
    charges.iter().zip(states).any(knocks) || !is_banned && charges.iter().any(strikes)
}
