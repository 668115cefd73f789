//! A call of several charges: all its locks at once, in one order.

use smallvec::SmallVec;
use tollgate_core::{Charge, Clock, Decision, MAX_CHARGES, State, States, decide};

use crate::hashing::Hashing;
use crate::shard::Shard;
use crate::shards::Shards;
use crate::slab::Slot;
use crate::sought::Sought;
use crate::sync::MutexGuard;

/// The states of a call under way, and the locks on all of them.
///
/// There is room on the stack for the largest call there can be, so that none allocates.
struct Call<'a, 'b> {
    /// In the order of their shards, which is the order in which they were locked.
    locked: SmallVec<[MutexGuard<'a, Shard>; MAX_CHARGES]>,
    /// One for each distinct state.
    places: SmallVec<[Place<'b>; MAX_CHARGES]>,
    /// For each charge which place is its own.
    place_of: SmallVec<[usize; MAX_CHARGES]>,
}

/// Where the state is that one or several charges speak of.
struct Place<'b> {
    sought: Sought<'b>,
    /// Which of the locks.
    lock: usize,
    home: Home,
}

enum Home {
    /// In its shard.
    Kept(Slot),
    /// Here, because its key was never seen: full until something is taken.
    Fresh(State),
}

/// Decides a call of any number of charges up to [`MAX_CHARGES`].
///
/// Every call locks in ascending order, so that no two wait for each other. The time is read when all locks are held: of
/// two calls that meet in a shard the one decided later then also has the later time, and no window is entered, left and
/// entered again.
pub(crate) fn decide_several(
    shards: &Shards,
    hashing: &Hashing,
    clock: &dyn Clock,
    charges: &[Charge<'_>],
) -> Decision {
    let mut call = Call::lock(shards, hashing, charges);
    let now = clock.now();
    let decision = decide(now, charges, &mut call);

    // Only now, because it may evict: no slot that was found above may move before the call is decided.
    let Call {
        mut locked,
        places,
        place_of,
    } = call;
    let taken = |place| {
        let verdicts = decision.verdicts().iter().zip(&place_of);
        verdicts
            .filter(|(_, place_of)| **place_of == place)
            .any(|(verdict, _)| verdict.taken() > 0)
    };
    for (index, place) in places.into_iter().enumerate() {
        if let Home::Fresh(state) = place.home
            && taken(index)
        {
            locked[place.lock].insert(hashing, now, &place.sought, state);
        }
    }
    decision
}

impl<'a, 'b> Call<'a, 'b> {
    fn lock(shards: &'a Shards, hashing: &Hashing, charges: &'b [Charge<'b>]) -> Self {
        let sought: SmallVec<[Sought<'_>; MAX_CHARGES]> = charges
            .iter()
            .map(|charge| Sought::new(hashing, charge.scope, charge.key))
            .collect();
        let mut numbers: SmallVec<[usize; MAX_CHARGES]> =
            sought.iter().map(|sought| shards.number(sought)).collect();
        numbers.sort_unstable();
        numbers.dedup();

        let mut call = Self {
            locked: numbers.iter().map(|number| shards.lock(*number)).collect(),
            places: SmallVec::new(),
            place_of: SmallVec::new(),
        };
        for (charge, sought) in charges.iter().zip(sought) {
            let known = call.places.iter().position(|place| place.sought == sought);
            call.place_of.push(known.unwrap_or(call.places.len()));
            if known.is_none() {
                let lock = numbers.partition_point(|number| *number < shards.number(&sought));
                let home = call.locked[lock]
                    .find(&sought)
                    .map_or_else(|| Home::Fresh(State::full(charge.quota)), Home::Kept);
                call.places.push(Place { sought, lock, home });
            }
        }
        call
    }
}

impl States for Call<'_, '_> {
    fn state(&mut self, index: usize) -> &mut State {
        let place = &mut self.places[self.place_of[index]];
        match &mut place.home {
            Home::Kept(slot) => self.locked[place.lock].state_mut(*slot),
            Home::Fresh(state) => state,
        }
    }
}
