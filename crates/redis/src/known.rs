//! Known denials: the states of budgets that denied a call, remembered for a moment, so that the next one need not ask.
//!
//! A caller far above its limit is denied thousands of times by one state. Its second denial brings that state along, and core
//! [says](tollgate_core::deny_by_known) for how long it denies what: cost and quota are judged anew each time, and the server's
//! time is taken as late as it can be. So nothing is denied that Redis would let pass, unless units have come back since. The first
//! denial leaves only a mark: a flood of callers that never come again costs little, and pushes nothing out.
//!
//! * Changes by this process are felt at once: a credit, a debit, a reset. From before one is sent until after it has been answered
//!   nothing is known of its budget, and answers to calls that left before its end are not remembered.
//! * When a known denial has run out, one request of its key asks, and the others wait for its answer. So a hot key costs a call
//!   for each life and for each unit that comes back, however many ask at once.
//! * Changes by others, a failover and a clock that steps are felt within [`LIFE`], counted from when the call left; for bans,
//!   which an operator alone lifts, within [`BAN_LIFE`].
//!
//! The states stand in sets by a hash of scope and key. A set has room for a few; the oldest makes room for another. Events lock
//! and clear a whole set, which is simple, and never wrong.

#[cfg(test)]
mod history;
#[cfg(test)]
mod hot_key;
mod sets;
#[cfg(test)]
mod tests;
mod turn;

use std::fmt;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::task::yield_now;
use tollgate_core::{
    Answer, Call, Charge, Decision, Key, KeyHashing, Mode, Scope, State, Timestamp, Unit,
    deny_by_known,
};

use self::sets::{Set, Sets};
pub(crate) use self::turn::{Turn, TurnUnderWay};
use crate::sync::Instant;

/// The time for which the state of a budget is believed. Anything can be given back: by a receipt, by a request that another policy
/// refuses, after a missed deadline.
pub(crate) const LIFE: Duration = Duration::from_millis(100);

/// The time for which a ban is believed.
pub(crate) const BAN_LIFE: Duration = Duration::from_secs(1);

/// The part of the elapsed time by which the server's clock may have run ahead of ours: a thousandth. NTP slews each of the two by
/// at most half of that.
const DRIFT: u32 = 1_000;

/// The states that are remembered at most: 8,192, of 130 to 200 bytes each with short keys.
const SETS: usize = 2_048;
const WAYS: usize = 4;

/// One known denial in so many lets other tasks run first. Without that, callers that ask again at once occupy every thread of the
/// runtime, and nothing reads the server's answers. It is odd, so that two callers in step both come to it.
const YIELDS: u64 = 127;

/// The longest log that is remembered, so that all states together stay small.
const LOG_ENTRIES: usize = 64;

/// The states that denied.
pub(crate) struct KnownDenials {
    /// Empty if each denial is asked for.
    sets: Sets<Entry>,
    hashing: KeyHashing,
    /// The time within which a request is answered.
    deadline: Duration,
    denied: AtomicU64,
}

struct Entry {
    /// The hash of scope and key, which tells most others apart.
    hash: u64,
    scope: Scope,
    key: Key,
    state: State,
    sent_at: Instant,
    told: ToldStates,
    /// The least cost that was denied since a request last passed, by this state or by those that it replaced. The highest number
    /// if none was.
    least_denied: u64,
    /// The request that asks for a newer one, if it is under way.
    asked: Option<TurnUnderWay>,
}

/// The part of a request in what is known.
#[derive(Debug)]
pub(crate) enum KnownPart {
    /// It changes a budget otherwise than by a decision.
    Event(#[expect(dead_code, reason = "it ends with the request")] OwnEvent),
    /// Others wait for its answer.
    Turn(Turn),
}

/// The way of a request.
pub(crate) enum Judged {
    /// It is denied for certain.
    Denied(Decision),
    /// It asks the server. With a turn it asks for others as well.
    Asks(Option<Turn>),
    /// It waits for what another one hears, and is judged again, twice at most.
    Waits(TurnUnderWay),
}

/// The states of one request's charges, and bounds of the server's time.
struct KnownStates {
    states: SmallVec<[State; 4]>,
    earliest: Timestamp,
    latest: Timestamp,
    /// True if all are believed, and of one server.
    are_certain: bool,
}

/// The origin of states.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToldStates {
    /// The server's time, as the answer told it.
    pub(crate) at: Timestamp,
    pub(crate) received_at: Instant,
    /// The slot of the cluster, so that no two states of one call are by the clocks of two servers.
    pub(crate) slot: u16,
}

/// A call that has left: what it brings is known as of then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentCall {
    event: u64,
    pub(crate) sent_at: Instant,
}

/// An event of this process, from before it is sent until after it has been answered or given up.
#[derive(Debug)]
pub(crate) struct OwnEvent {
    known: Arc<KnownDenials>,
    hashes: SmallVec<[u64; 2]>,
}

impl KnownDenials {
    /// Remembers denials, or asks for each.
    pub(crate) fn new(are_kept: bool, deadline: Duration) -> Arc<Self> {
        let sets = if are_kept { SETS } else { 0 };
        Arc::new(Self {
            sets: Sets::new(sets),
            hashing: KeyHashing::random(),
            deadline,
            denied: AtomicU64::new(0),
        })
    }

    /// The number of calls that were denied without the server.
    pub(crate) fn denied(&self) -> u64 {
        self.denied.load(Ordering::Relaxed)
    }

    /// Judges a call. If a denial that was known has just run out, one request of its key asks, and the others wait.
    pub(crate) fn judge(&self, call: Call<'_>) -> Judged {
        if self.sets.is_empty() || call.charges.is_empty() {
            return Judged::Asks(None);
        }
        self.judge_at(Instant::now, call)
    }

    /// Answers a request that is denied for certain.
    pub(crate) fn answer(&self, denied: Decision) -> Answer<Decision> {
        let before = self.denied.fetch_add(1, Ordering::Relaxed);
        if before % YIELDS == YIELDS - 1 {
            return Answer::later(async {
                yield_now().await;
                Ok(denied)
            });
        }
        Answer::now(Ok(denied))
    }

    /// Looks at the clock only if something is known: most callers are not denied.
    fn judge_at(&self, now: impl FnOnce() -> Instant, call: Call<'_>) -> Judged {
        // The server decides about trials and questions.
        if (call.charges.iter()).any(|charge| charge.mode != Mode::Enforce) {
            return Judged::Asks(None);
        }
        let [charge] = call.charges else {
            return self.judge_all(now(), call);
        };
        let hash = self.hash(charge.scope, charge.key);
        let mut set = self.sets.set(hash);
        let Some(entry) = set.as_mut().and_then(|set| set.find(hash, charge)) else {
            return Judged::Asks(None);
        };
        let now = now();
        let least = call.at_least.unwrap_or(charge.cost);
        match entry.deny(now, call) {
            Some(denied) => {
                entry.has_denied(least);
                Judged::Denied(denied)
            }
            None => entry.asks(now, least, self.deadline),
        }
    }

    /// Judges a call of several charges.
    fn judge_all(&self, now: Instant, call: Call<'_>) -> Judged {
        let Some(known) = self.states(now, call.charges) else {
            return Judged::Asks(None);
        };
        let (earliest, latest, states) = (known.earliest, known.latest, &known.states);
        let denied = (known.are_certain)
            .then(|| deny_by_known(earliest, latest, call, states))
            .flatten();
        for (number, charge) in call.charges.iter().enumerate() {
            let hash = self.hash(charge.scope, charge.key);
            let mut set = self.sets.set(hash);
            let Some(entry) = set.as_mut().and_then(|set| set.find(hash, charge)) else {
                continue;
            };
            let least = call.at_least.unwrap_or(charge.cost);
            match &denied {
                Some(denied) if denied.verdicts()[number].is_denied() => entry.has_denied(least),
                Some(_) => {}
                None => match entry.asks(now, least, self.deadline) {
                    Judged::Asks(None) => {}
                    judged => return judged,
                },
            }
        }
        denied.map_or(Judged::Asks(None), Judged::Denied)
    }

    /// The states of several charges; `None` if one of them is missing.
    fn states(&self, now: Instant, charges: &[Charge<'_>]) -> Option<KnownStates> {
        let mut known = KnownStates {
            states: SmallVec::new(),
            earliest: Timestamp::from_micros(u64::MAX),
            latest: Timestamp::default(),
            are_certain: true,
        };
        let mut slot = None;
        for charge in charges {
            let hash = self.hash(charge.scope, charge.key);
            let mut set = self.sets.set(hash)?;
            let entry = set.find(hash, charge)?;
            let is_of_slot = *slot.get_or_insert(entry.told.slot) == entry.told.slot;
            known.are_certain &= is_of_slot && entry.is_believed(now);
            // Each bounds the time of one clock; these bounds hold for all.
            let (first, last) = entry.times(now);
            known.earliest = known.earliest.min(first);
            known.latest = known.latest.max(last);
            known.states.push(entry.state.clone());
        }
        Some(known)
    }

    /// Notes that a call leaves now.
    pub(crate) fn departs(&self) -> SentCall {
        // The event is read first: what ends later is not older than the call.
        let event = self.sets.departs();
        SentCall {
            event,
            sent_at: Instant::now(),
        }
    }

    /// Remembers the states that a call has left, if the decision denied for a second time. What is remembered already becomes
    /// newer with any decision.
    pub(crate) fn learn_from<'c, 's>(
        &self,
        call: SentCall,
        told: ToldStates,
        charges: impl Iterator<Item = Charge<'c>> + Clone,
        decision: &Decision,
        state: impl Fn(usize) -> Option<&'s State>,
    ) {
        if self.sets.is_empty() {
            return;
        }
        let is_new = !decision.is_admitted() && is_repeated(charges.clone(), decision);
        for (index, charge) in charges.enumerate() {
            let is_kept =
                |state: &&State| state.entries() <= LOG_ENTRIES && !charge.quota.is_once();
            let Some(state) = state(index).filter(is_kept) else {
                continue;
            };
            let hash = self.hash(charge.scope, charge.key);
            let Some(mut set) = self.sets.set(hash) else {
                return;
            };
            let is_denied = decision.verdicts()[index].is_denied();
            set.learn(call, (hash, &charge), (is_new, is_denied), || Entry {
                hash,
                scope: charge.scope,
                key: charge.key.clone().compact(),
                state: state.clone(),
                sent_at: call.sent_at,
                told,
                least_denied: u64::MAX,
                asked: None,
            });
        }
    }

    /// Begins an event that changes these budgets otherwise than by a decision.
    pub(crate) fn begins<'a>(
        self: &Arc<Self>,
        changed: impl Iterator<Item = (Scope, &'a Key)>,
    ) -> Option<OwnEvent> {
        if self.sets.is_empty() {
            return None;
        }
        let hashes: SmallVec<[u64; 2]> =
            changed.map(|(scope, key)| self.hash(scope, key)).collect();
        if hashes.is_empty() {
            return None;
        }
        self.sets.begins(&hashes);
        Some(OwnEvent {
            known: Arc::clone(self),
            hashes,
        })
    }

    // A call would cost as much as the hash.
    #[inline(always)]
    fn hash(&self, scope: Scope, key: &Key) -> u64 {
        self.hashing.hash_of(scope, key)
    }
}

/// Says whether the next such call may be denied without the server. Under a ban, if that is in force: other denials are strikes.
fn is_repeated<'c>(
    mut charges: impl Iterator<Item = Charge<'c>> + Clone,
    decision: &Decision,
) -> bool {
    let mut judged = charges.clone().zip(decision.verdicts());
    let is_guarded = charges.any(|charge| charge.quota.is_ban());
    !is_guarded || judged.any(|(charge, verdict)| charge.quota.is_ban() && verdict.is_denied())
}

impl Drop for OwnEvent {
    fn drop(&mut self) {
        self.known.sets.ends(&self.hashes);
    }
}

impl Set<Entry> {
    /// The last state of this charge's budget. While an event is under way there is none.
    fn find(&mut self, hash: u64, charge: &Charge<'_>) -> Option<&mut Entry> {
        let mut entries = self.entries.iter_mut();
        entries.find(|entry| entry.is_of(hash, charge))
    }

    fn learn(
        &mut self,
        call: SentCall,
        (hash, charge): (u64, &Charge<'_>),
        (is_new, is_denied): (bool, bool),
        entry: impl FnOnce() -> Entry,
    ) {
        if !self.may_learn(call.event) {
            return;
        }
        let place = self
            .entries
            .iter()
            .position(|entry| entry.is_of(hash, charge));
        match place {
            Some(place) => {
                let (mut entry, before) = (entry(), &mut self.entries[place]);
                // Answers may come in another order than they were given. A clock that stepped back is believed in the end.
                if entry.told.at >= before.told.at || !before.is_believed(entry.told.received_at) {
                    if is_denied {
                        // The denial goes on: it was asked for a little early, or another process was first.
                        entry.least_denied = before.least_denied;
                        entry.asked = before.asked.take();
                    }
                    *before = entry;
                }
            }
            None if !is_new => {}
            None if !self.marks.contains(&hash) => self.marks = [hash, self.marks[0]],
            None if self.entries.len() < WAYS => self.entries.push(entry()),
            None => {
                let oldest = self.entries.iter_mut().min_by_key(|entry| entry.sent_at);
                if let Some(oldest) = oldest {
                    *oldest = entry();
                }
            }
        }
    }
}

impl Entry {
    fn is_of(&self, hash: u64, charge: &Charge<'_>) -> bool {
        self.hash == hash && self.scope == charge.scope && self.key == *charge.key
    }

    fn is_believed(&self, now: Instant) -> bool {
        !self.life_left(now).is_zero()
    }

    /// Denies a call of one charge.
    fn deny(&self, now: Instant, call: Call<'_>) -> Option<Decision> {
        if !self.is_believed(now) {
            return None;
        }
        let ((earliest, latest), states) = (self.times(now), slice::from_ref(&self.state));
        deny_by_known(earliest, latest, call, states)
    }

    fn has_denied(&mut self, cost: u64) {
        self.least_denied = self.least_denied.min(cost);
    }

    /// Lets a request ask whose cost this state denied and does not any more, unless another one does. A cost that it never denied
    /// is asked for as ever.
    fn asks(&mut self, now: Instant, cost: u64, deadline: Duration) -> Judged {
        if cost < self.least_denied {
            return Judged::Asks(None);
        }
        match self.asked.as_ref().filter(|asked| !asked.is_over(now)) {
            Some(asked) => Judged::Waits(asked.clone()),
            None => {
                let (turn, asked) = Turn::until(now + deadline);
                self.asked = Some(asked);
                Judged::Asks(Some(turn))
            }
        }
    }

    fn life_left(&self, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.sent_at);
        self.life().saturating_sub(passed)
    }

    fn life(&self) -> Duration {
        match self.scope.unit() {
            Unit::Ban => BAN_LIFE,
            _ => LIFE,
        }
    }

    /// Bounds of the server's time.
    fn times(&self, now: Instant) -> (Timestamp, Timestamp) {
        let least = now.saturating_duration_since(self.told.received_at);
        let most = now.saturating_duration_since(self.sent_at);
        let after = |elapsed: Duration| {
            let us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
            Timestamp::from_micros(self.told.at.as_micros().saturating_add(us))
        };
        // A clock shows whole microseconds, and so may our difference be one short.
        let latest = most + most / DRIFT + Duration::from_micros(2);
        (after(least), after(latest))
    }
}

impl fmt::Debug for KnownDenials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the keys, which are identities of callers.
        f.debug_struct("KnownDenials")
            .field("denied", &self.denied())
            .finish_non_exhaustive()
    }
}
