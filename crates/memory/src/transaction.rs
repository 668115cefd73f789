//! A transaction: a call of several charges, with all its locks at once, in one order.

use std::mem;

use smallvec::SmallVec;
use tollgate_core::{
    BackendError, Call, Charge, Clock, Decision, KeyHashing, MAX_CHARGES, Quota, Receipt, State,
    States, Timestamp, decide,
};

use crate::lookup::Lookup;
use crate::shard::{Shard, not_before};
use crate::shards::Shards;
use crate::sync::MutexGuard;
use crate::table::{ANY_QUOTA, Slot};

/// Stack space for the largest possible call, so that no call allocates. It is filled in place: moving it would cost more than
/// deciding.
type PerCharge<T> = SmallVec<[T; MAX_CHARGES]>;

/// A key, and the lock that guards its state.
struct Place<'b> {
    lookup: Lookup<'b>,
    /// The first charge that names it.
    quota: &'b Quota,
    /// The number of its shard.
    shard: usize,
    /// The position of its lock among those held.
    lock: usize,
}

/// The place of a state that one or several charges name.
enum StatePlace {
    /// In its shard, under the lock at this position.
    Kept(usize, Slot),
    /// Here, because its key was never seen: full until something is taken.
    Fresh(State),
}

/// The states of a call under way.
pub(crate) struct CallStates<'s, 'a> {
    locked: &'s mut [MutexGuard<'a, Shard>],
    homes: &'s mut [StatePlace],
    /// The home of each charge's state.
    home_of: &'s [usize],
}

/// Decides a valid call.
///
/// Every call locks in ascending order, so that no two wait for each other.
///
/// # Errors
///
/// If a shard has no room for a key, because something is held of all its keys. Then nothing is taken.
pub(crate) fn decide_several(
    shards: &Shards,
    hashing: &KeyHashing,
    clock: &dyn Clock,
    call: Call<'_>,
) -> Result<Decision, BackendError> {
    let charges = call.charges;
    let mut places: PerCharge<Place<'_>> = SmallVec::new();
    let mut place_of: PerCharge<usize> = SmallVec::new();
    let mut numbers: PerCharge<usize> = SmallVec::new();
    for charge in charges {
        let lookup = lookup(hashing, charge);
        let known = places.iter().position(|place| place.lookup == lookup);
        place_of.push(known.unwrap_or(places.len()));
        if known.is_none() {
            let shard = shards.number(&lookup);
            let at = position(&numbers, shard);
            if numbers.get(at) != Some(&shard) {
                numbers.insert(at, shard);
            }
            places.push(Place {
                lookup,
                quota: charge.quota,
                shard,
                lock: 0,
            });
        }
    }

    let came_at = clock.now();
    let mut locked: PerCharge<MutexGuard<'_, Shard>> = SmallVec::new();
    for number in &numbers {
        locked.push(shards.lock(*number));
    }
    let last = locked.iter().map(|shard| shard.last()).max();
    let now = not_before(last.unwrap_or_default(), came_at, clock);
    let mut homes: PerCharge<StatePlace> = SmallVec::new();
    for place in &mut places {
        place.lock = position(&numbers, place.shard);
        let shard = &mut locked[place.lock];
        shard.set_time(now);
        homes.push(match shard.find(&place.lookup) {
            Some(slot) => StatePlace::Kept(place.lock, slot),
            None => StatePlace::Fresh(State::full(place.quota)),
        });
    }
    let mut held = CallStates {
        locked: &mut locked,
        homes: &mut homes,
        home_of: &place_of,
    };
    let decision = decide(now, call, &mut held);

    // Only now, because this may evict: no slot that was found above may move before the call is decided.
    let taken = |place| {
        let verdicts = decision.verdicts().iter().zip(&place_of);
        verdicts
            .filter(|(_, place_of)| **place_of == place)
            .any(|(verdict, _)| verdict.taken() > 0)
    };
    for (index, (home, place)) in homes.iter_mut().zip(&places).enumerate() {
        // A ban remembers strikes, and a strike is not a charge that was taken.
        let counts = |state: &State| state.meaningless_at(place.quota.unit()) > now;
        if let StatePlace::Fresh(state) = home
            && (taken(index) || place.quota.is_ban() && counts(state))
        {
            let state = mem::replace(state, State::full(&ANY_QUOTA));
            let shard = &mut locked[place.lock];
            let inserted = shard.insert(hashing, now, &place.lookup, state, place.quota.is_ban());
            if let Err(error) = inserted {
                undo(
                    hashing,
                    &mut locked,
                    &places,
                    &place_of,
                    now,
                    charges,
                    &decision,
                );
                return Err(error);
            }
        }
    }
    Ok(decision)
}

/// Gives back all that a decision took, under the locks that it was taken under.
#[cold]
fn undo(
    hashing: &KeyHashing,
    locked: &mut [MutexGuard<'_, Shard>],
    places: &[Place<'_>],
    place_of: &[usize],
    now: Timestamp,
    charges: &[Charge<'_>],
    decision: &Decision,
) {
    let taken = charges.iter().zip(decision.verdicts()).zip(place_of);
    for ((charge, verdict), place) in taken {
        let place = &places[*place];
        let shard = &mut locked[place.lock];
        // A key that was not inserted has nothing to give back.
        if let Some(receipt) = Receipt::of(charge, verdict, now)
            && let Some(slot) = shard.find(&place.lookup)
        {
            receipt.credit_to(shard.settled_mut(slot), now, verdict.taken());
            shard.gave_back(hashing, charge.quota.unit(), slot);
        }
    }
}

/// Kept out of the loop, which would otherwise load all secrets before it knows which of them it needs.
#[inline(never)]
fn lookup<'b>(hashing: &KeyHashing, charge: &Charge<'b>) -> Lookup<'b> {
    Lookup::new(hashing, charge.scope, charge.key)
}

/// The position of the first that is not less, among a few in ascending order.
fn position(numbers: &[usize], number: usize) -> usize {
    let less = numbers.iter().position(|other| *other >= number);
    less.unwrap_or(numbers.len())
}

impl States for CallStates<'_, '_> {
    #[inline]
    fn state(&mut self, index: usize) -> &mut State {
        match &mut self.homes[self.home_of[index]] {
            StatePlace::Kept(lock, slot) => self.locked[*lock].state_mut(*slot),
            StatePlace::Fresh(state) => state,
        }
    }
}
