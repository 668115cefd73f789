//! What is remembered, and for how long.

use tollgate_core::{Algorithm, Ban, Once, Quota, Snapshot, decide};

use super::*;

/// A time of the server's.
const NOON: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
const DAY: Duration = Duration::from_secs(86_400);

pub(super) fn charge<'a>(quota: &'a Quota, key: &'a Key, cost: u64) -> Charge<'a> {
    Charge {
        scope: Scope::of("model", 0, quota),
        quota,
        key,
        cost,
        mode: Mode::Enforce,
    }
}

/// A denied budget, as an answer tells it.
struct Denied {
    quota: Quota,
    key: Key,
    state: State,
    decision: Decision,
}

impl Denied {
    fn of(key: u64, quota: Quota) -> Self {
        let (key, mut state) = (Key::from(key), State::full(&quota));
        let mut ask = || {
            let asked = [charge(&quota, &key, 1)];
            decide(NOON, &asked, std::slice::from_mut(&mut state))
        };
        let mut decision = ask();
        while decision.is_admitted() {
            decision = ask();
        }
        Self {
            decision,
            quota,
            key,
            state,
        }
    }

    fn is_learned(&self, known: &KnownDenials, call: SentCall, at: Timestamp) {
        let told = ToldStates {
            at,
            received_at: call.sent_at,
            slot: 0,
        };
        let asked = [charge(&self.quota, &self.key, 1)];
        known.learn_from(call, told, &asked, &self.decision, |_| Some(&self.state));
    }

    fn is_known(&self, known: &KnownDenials, at: Instant) -> bool {
        let charges = [charge(&self.quota, &self.key, 1)];
        known.deny_at(at, &charges, None).is_some()
    }
}

fn remembered(known: &KnownDenials) -> usize {
    let sets = known.sets.iter();
    sets.map(|set| set.lock().unwrap().entries.len()).sum()
}

#[test]
fn a_state_is_believed_for_100_ms_and_that_of_a_ban_for_a_second() {
    let known = KnownDenials::new(true);
    let sent = known.departs();
    let denied = Denied::of(1, Quota::per_day(1));
    let banned = Denied::of(1, Quota::from(Ban::after(1, DAY).lasting(DAY)));
    for it in [&denied, &banned] {
        it.is_learned(&known, sent, NOON);
    }

    for (it, life_ms) in [(&denied, 100), (&banned, 1_000)] {
        let life = Duration::from_millis(life_ms);
        assert!(it.is_known(&known, sent.sent_at));
        assert!(it.is_known(&known, sent.sent_at + life / 2 - Duration::from_micros(1)));
        // One request asks before all have to.
        assert!(!it.is_known(&known, sent.sent_at + life / 2));
        assert!(it.is_known(&known, sent.sent_at + life / 2));
        assert!(it.is_known(&known, sent.sent_at + life - Duration::from_micros(1)));
        assert!(!it.is_known(&known, sent.sent_at + life));
    }
}

#[test]
fn an_event_clears_what_is_known_when_it_begins_and_when_it_ends() {
    let known = KnownDenials::new(true);
    let denied = Denied::of(1, Quota::per_day(1));
    let scope = Scope::of("model", 0, &denied.quota);
    let sent = known.departs();
    let is_known = || denied.is_known(&known, sent.sent_at);
    denied.is_learned(&known, sent, NOON);
    assert!(is_known());

    let event = known.begins([(scope, &denied.key)].into_iter());
    assert!(!is_known());
    // Answers to calls from before it, and from while it is under way.
    let during = known.departs();
    for call in [sent, during] {
        denied.is_learned(&known, call, NOON);
        assert!(!is_known());
    }
    drop(event);
    for call in [sent, during] {
        denied.is_learned(&known, call, NOON);
        assert!(!is_known());
    }
    denied.is_learned(&known, known.departs(), NOON);
    assert!(is_known());
}

#[test]
fn an_older_answer_changes_nothing_unless_the_clock_stepped_back() {
    let known = KnownDenials::new(true);
    let denied = Denied::of(1, Quota::per_second(1));
    let full = Denied {
        state: State::full(&denied.quota),
        ..Denied::of(1, denied.quota)
    };
    let sent = known.departs();
    let newer = Timestamp::from_micros(NOON.as_micros() + 5);
    denied.is_learned(&known, sent, newer);
    full.is_learned(&known, sent, NOON);
    assert!(denied.is_known(&known, sent.sent_at));

    // In the end the server is believed, whatever its clock says.
    let later = SentCall {
        sent_at: sent.sent_at + LIFE,
        ..known.departs()
    };
    denied.is_learned(&known, later, NOON);
    assert!(denied.is_known(&known, later.sent_at));
}

#[test]
fn no_more_is_remembered_than_there_is_room_for_and_the_oldest_goes_first() {
    let known = KnownDenials::new(true);
    let sent = known.departs();
    let keys = 4 * (SETS * WAYS) as u64;
    for key in 0..keys {
        let call = SentCall {
            sent_at: sent.sent_at + Duration::from_nanos(key),
            ..sent
        };
        Denied::of(key, Quota::per_day(1)).is_learned(&known, call, NOON);
    }

    let now = sent.sent_at + Duration::from_millis(1);
    let most = SETS * WAYS;
    let kept = remembered(&known);
    assert!(kept <= most && kept > most * 9 / 10, "{kept}");
    assert!(Denied::of(keys - 1, Quota::per_day(1)).is_known(&known, now));
    let first = (0..64).filter(|key| Denied::of(*key, Quota::per_day(1)).is_known(&known, now));
    assert!(first.count() < 32);
    // As the docs state it.
    assert!(size_of::<Entry>() <= 160, "{} bytes", size_of::<Entry>());
}

#[test]
fn ids_long_logs_and_strikes_are_not_remembered_and_nothing_is_if_each_denial_is_asked_for() {
    let log = Quota::per_day(64).using(Algorithm::SlidingLog);
    for (count, expected) in [(65, 0), (64, 1)] {
        let known = KnownDenials::new(true);
        let entries = (0..count).map(|n| (NOON.as_micros() - count + n, 1));
        let entries = entries.collect();
        let denied = Denied {
            state: State::from(Snapshot::SlidingLog { entries }),
            ..Denied::of(1, log)
        };
        denied.is_learned(&known, known.departs(), NOON);
        assert_eq!(remembered(&known), expected, "{count}");
    }

    let (quota, once) = (Quota::per_day(1), Quota::from(Once::default()));
    let ban = Quota::from(Ban::after(2, DAY).lasting(DAY));
    let key = Key::from("alice");
    let ask = |are_kept, quotas: &[&Quota]| {
        let known = KnownDenials::new(are_kept);
        let charge = |(slot, quota): (u16, &&'_ Quota)| (slot, **quota);
        let quotas: Vec<_> = (0..).zip(quotas).map(charge).collect();
        let charges: Vec<_> = { quotas.iter() }
            .map(|(slot, quota)| Charge {
                scope: Scope::of("joint", *slot, quota),
                quota,
                // One id, and then another.
                key: &key,
                cost: u64::from(!quota.is_ban() && !quota.is_once()),
                mode: Mode::Enforce,
            })
            .collect();
        let mut states: Vec<_> = quotas.iter().map(|(_, quota)| State::full(quota)).collect();
        [(); 4].map(|()| {
            let sent = known.departs();
            let decision = decide(NOON, &charges, &mut states[..]);
            let told = ToldStates {
                at: NOON,
                received_at: sent.sent_at,
                slot: 0,
            };
            known.learn_from(sent, told, &charges, &decision, |index| states.get(index));
            remembered(&known)
        })
    };
    // An admission, a strike, the strike that bans.
    assert_eq!(ask(true, &[&quota, &ban]), [0, 0, 2, 2]);
    assert_eq!(ask(true, &[&quota, &once]), [0, 1, 1, 1]);
    assert_eq!(ask(true, &[&quota]), [0, 1, 1, 1]);
    assert_eq!(ask(false, &[&quota]), [0; 4]);
}

#[test]
fn the_states_of_one_request_are_by_one_clock() {
    let known = KnownDenials::new(true);
    let quotas = [Quota::per_day(1), Quota::per_hour(1)];
    let key = Key::from("alice");
    let charges = [0_u16, 1].map(|slot| Charge {
        scope: Scope::of("joint", slot, &quotas[usize::from(slot)]),
        ..charge(&quotas[usize::from(slot)], &key, 1)
    });
    let mut states = quotas.map(|quota| State::full(&quota));
    assert!(decide(NOON, &charges, &mut states[..]).is_admitted());
    let denied = decide(NOON, &charges, &mut states[..]);
    for (slots, is_known) in [([3, 3], true), ([3, 4], false)] {
        let sent = known.departs();
        for (index, slot) in slots.into_iter().enumerate() {
            let told = ToldStates {
                at: NOON,
                received_at: sent.sent_at,
                slot,
            };
            let one = &charges[index..=index];
            let decision = decide(NOON, one, &mut states.clone()[index..=index]);
            known.learn_from(sent, told, one, &decision, |_| Some(&states[index]));
        }

        let said = known.deny_at(sent.sent_at, &charges, None);

        let verdicts = said.as_ref().map(Decision::verdicts);
        assert_eq!(verdicts, is_known.then_some(denied.verdicts()));
    }
}
