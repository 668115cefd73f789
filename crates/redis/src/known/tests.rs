//! The states that are remembered, and for how long.

use tollgate_core::{Algorithm, Ban, Call, Once, Quota, Snapshot, decide};

use super::*;

/// A time of the server's.
const NOON: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
const DAY: Duration = Duration::from_secs(86_400);
const DEADLINE: Duration = Duration::from_millis(30);

pub(super) fn remembering() -> Arc<KnownDenials> {
    KnownDenials::new(true, DEADLINE)
}

pub(super) fn charge<'a>(quota: &'a Quota, key: &'a Key, cost: u64) -> Charge<'a> {
    Charge {
        scope: Scope::of("model", 0, quota),
        quota,
        key,
        cost,
        mode: Mode::Enforce,
    }
}

const MS: Duration = Duration::from_millis(1);

fn after_noon(us: u64) -> Timestamp {
    Timestamp::from_micros(NOON.as_micros() + us)
}

fn denial(judged: &Judged) -> Option<&Decision> {
    match judged {
        Judged::Denied(denied) => Some(denied),
        _ => None,
    }
}

/// A denied budget, as an answer tells it.
struct Denied {
    scope: Scope,
    quota: Quota,
    key: Key,
    state: State,
    decision: Decision,
}

impl Denied {
    fn of(key: u64, quota: Quota) -> Self {
        Self::of_key(Key::from(key), quota)
    }

    /// The opposite: an admission that has left some.
    fn with_room(key: u64, quota: Quota) -> Self {
        let key = Key::from(key);
        let asked = [charge(&quota, &key, 1)];
        let mut states = [State::full(&quota)];
        let decision = decide(NOON, Call::of(&asked), &mut states[..]);
        Self {
            scope: Scope::of("model", 0, &quota),
            decision,
            quota,
            state: State::full(&quota),
            key,
        }
    }

    fn of_key(key: Key, quota: Quota) -> Self {
        let mut state = State::full(&quota);
        let mut ask = || {
            let asked = [charge(&quota, &key, 1)];
            decide(NOON, Call::of(&asked), slice::from_mut(&mut state))
        };
        let mut decision = ask();
        while decision.is_admitted() {
            decision = ask();
        }
        Self {
            scope: Scope::of("model", 0, &quota),
            decision,
            quota,
            key,
            state,
        }
    }

    fn is_learned(&self, known: &KnownDenials, call: SentCall, at: Timestamp) {
        self.is_told(known, call, call.sent_at, at);
    }

    fn is_told(&self, known: &KnownDenials, call: SentCall, received_at: Instant, at: Timestamp) {
        let told = ToldStates {
            at,
            received_at,
            slot: 0,
        };
        let asked = [Charge {
            scope: self.scope,
            ..charge(&self.quota, &self.key, 1)
        }];
        // The first one leaves a mark.
        for _ in 0..2 {
            known.learn_from(call, told, asked.iter().copied(), &self.decision, |_| {
                Some(&self.state)
            });
        }
    }

    fn judged(&self, known: &KnownDenials, at: Instant, cost: u64) -> Judged {
        known.judge_at(|| at, Call::of(&[charge(&self.quota, &self.key, cost)]))
    }

    fn is_known(&self, known: &KnownDenials, at: Instant) -> bool {
        matches!(self.judged(known, at, 1), Judged::Denied(_))
    }
}

fn remembered(known: &KnownDenials) -> usize {
    known.sets.count()
}

#[test]
fn a_state_is_believed_for_100_ms_and_that_of_a_ban_for_a_second() {
    let known = remembering();
    let sent = known.departs();
    let denied = Denied::of(1, Quota::per_day(1));
    let banned = Denied::of(1, Quota::from(Ban::after(1, DAY).lasting(DAY)));
    for it in [&denied, &banned] {
        it.is_learned(&known, sent, NOON);
    }

    for (it, life_ms) in [(&denied, 100), (&banned, 1_000)] {
        let life = Duration::from_millis(life_ms);
        assert!(it.is_known(&known, sent.sent_at));
        assert!(it.is_known(&known, sent.sent_at + life - Duration::from_micros(1)));
        assert!(!it.is_known(&known, sent.sent_at + life));
    }
}

/// The server's time is that of the answer and what has passed since: at least from when it came, and at most from when the
/// question left, by a clock that is a thousandth faster than ours and shows whole microseconds.
#[test]
fn the_bounds_of_the_server_s_time_are_those_of_the_answer_and_of_both_clocks() {
    let known = remembering();
    let denied = Denied::of(1, Quota::per_day(1));
    let sent = known.departs();
    denied.is_told(&known, sent, sent.sent_at + 5 * MS, NOON);
    let hash = known.hash(Scope::of("model", 0, &denied.quota), &denied.key);

    let times = known.sets.set(hash).unwrap().entries[0].times(sent.sent_at + 60 * MS);

    assert_eq!(times, (after_noon(55_000), after_noon(60_062)));
}

#[test]
fn of_several_states_the_earliest_and_the_latest_bound_count() {
    let key = Key::from("alice");
    // Both are told within a call of a millisecond: the first at noon, and the second, 10 ms later, by a clock that is 5 ms ahead.
    let judged_20_ms_later = |first: Quota| {
        let known = remembering();
        let sent = known.departs();
        let quotas = [first, Quota::per_day(1)];
        for (slot, quota) in (0_u16..).zip(&quotas) {
            let denied = Denied {
                scope: Scope::of("joint", slot, quota),
                ..Denied::of_key(key.clone(), *quota)
            };
            let later = 10 * u32::from(slot);
            let call = SentCall {
                sent_at: sent.sent_at + later * MS,
                ..sent
            };
            let at = after_noon(u64::from(later) * 1_500);
            denied.is_told(&known, call, call.sent_at + MS, at);
        }
        let charges = [0_u16, 1].map(|slot| Charge {
            scope: Scope::of("joint", slot, &quotas[usize::from(slot)]),
            ..charge(&quotas[usize::from(slot)], &key, 1)
        });
        known.judge_at(|| sent.sent_at + 20 * MS, Call::of(&charges))
    };

    let denied = judged_20_ms_later(Quota::per_day(1));
    assert_eq!(denial(&denied).map(Decision::at), Some(after_noon(19_000)));
    // By its own clock it is 20.022 ms after noon at the latest, and by the other 25.012.
    for (passes_after_us, is_known) in [(25_012, false), (25_013, true)] {
        let quota = Quota::new(1, Duration::from_micros(passes_after_us));
        let judged = judged_20_ms_later(quota);
        assert_eq!(denial(&judged).is_some(), is_known, "{passes_after_us}");
    }
}

#[test]
fn the_state_of_another_policy_says_nothing() {
    let known = remembering();
    let denied = Denied::of(1, Quota::per_day(1));
    let sent = known.departs();
    denied.is_learned(&known, sent, NOON);
    let of_scope = |scope| Charge {
        scope,
        ..charge(&denied.quota, &denied.key, 1)
    };

    for (policy, slot, is_known) in [("model", 0, true), ("model", 1, false), ("other", 0, false)] {
        let charge = of_scope(Scope::of(policy, slot, &denied.quota));
        // Side by side in one set.
        let hash = known.hash(denied.scope, &denied.key);
        let mut set = known.sets.set(hash).unwrap();
        assert_eq!(
            set.find(hash, &charge).is_some(),
            is_known,
            "{policy} {slot}"
        );
    }
}

#[test]
fn once_a_denial_has_run_out_one_request_asks_and_the_others_wait_for_it() {
    let known = remembering();
    let denied = Denied::of(1, Quota::per_day(1));
    let sent = known.departs();
    denied.is_learned(&known, sent, NOON);
    assert!(denied.is_known(&known, sent.sent_at));
    let ended = sent.sent_at + LIFE;
    let asks = || match denied.judged(&known, ended, 1) {
        Judged::Asks(turn) => turn.unwrap(),
        _ => panic!("it does not ask"),
    };
    let waits = |at| matches!(denied.judged(&known, at, 1), Judged::Waits(_));

    // Until its request has gone, or the server has been silent for too long.
    let turn = asks();
    assert!(waits(ended) && waits(ended + DEADLINE - Duration::from_micros(1)));
    drop(turn);
    let turn = asks();
    assert!(waits(ended));
    assert!(!waits(ended + DEADLINE));
    drop(turn);

    // Until it has been answered: by a denial, or by a state with room, about which each may ask.
    let turn = asks();
    assert!(waits(ended));
    let later = SentCall {
        sent_at: ended,
        ..known.departs()
    };
    denied.is_learned(&known, later, after_noon(100_000));
    turn.end();
    assert!(denied.is_known(&known, ended));
    Denied::with_room(1, denied.quota).is_learned(&known, later, after_noon(100_001));
    for _ in 0..2 {
        let judged = denied.judged(&known, ended, 1);
        assert!(matches!(judged, Judged::Asks(None)));
    }
}

/// The bounds of the server's time are as wide as the call was long, so that a question may come before the unit does.
#[test]
fn after_a_question_that_came_a_little_early_still_one_request_asks_at_a_time() {
    let known = remembering();
    let denied = Denied::of(1, Quota::new(1, 50 * MS));
    let sent = known.departs();
    denied.is_learned(&known, sent, NOON);
    assert!(denied.is_known(&known, sent.sent_at));
    let passes = sent.sent_at + 50 * MS;
    let Judged::Asks(Some(turn)) = denied.judged(&known, passes, 1) else {
        panic!("it does not ask");
    };
    let early = SentCall {
        sent_at: passes,
        ..known.departs()
    };

    denied.is_told(&known, early, passes + 3 * MS, after_noon(49_900));

    // That answer was another's, and then it is this one's.
    let judged = || denied.judged(&known, passes + 3 * MS, 1);
    assert!(matches!(judged(), Judged::Waits(_)));
    turn.end();
    let next = judged();
    assert!(matches!(next, Judged::Asks(Some(_))));
    assert!(matches!(judged(), Judged::Waits(_)));
}

/// The state denied a cost of 3, and not one of 2, which others ask about as ever.
#[test]
fn a_cost_that_was_not_denied_waits_for_none() {
    let known = remembering();
    let denied = Denied::of(1, Quota::per_second(10));
    let sent = known.departs();
    denied.is_learned(&known, sent, NOON);
    let at = sent.sent_at + 25 * LIFE / 100;
    let later = at + 75 * LIFE / 100;
    for cost in [3, 4] {
        assert!(matches!(denied.judged(&known, at, cost), Judged::Denied(_)));
    }

    let Judged::Asks(Some(turn)) = denied.judged(&known, later, 3) else {
        panic!("it does not ask");
    };
    assert!(matches!(denied.judged(&known, later, 4), Judged::Waits(_)));
    for _ in 0..2 {
        assert!(matches!(
            denied.judged(&known, later, 2),
            Judged::Asks(None)
        ));
    }
    // As much as there is, from 2 or from 3 on.
    let up_to = |least| {
        let charges = [charge(&denied.quota, &denied.key, 9)];
        known.judge_at(|| later, Call::of(&charges).at_least(least))
    };
    assert!(matches!(up_to(2), Judged::Asks(None)));
    assert!(matches!(up_to(3), Judged::Waits(_)));
    // Nor do trials and questions.
    for mode in [Mode::Shadow, Mode::Probe] {
        let charge = Charge {
            mode,
            ..charge(&denied.quota, &denied.key, 4)
        };
        let judged = known.judge_at(|| later, Call::of(&[charge]));
        assert!(matches!(judged, Judged::Asks(None)), "{mode:?}");
    }
    drop(turn);
}

/// Of the budgets of a call only those that denied make others wait.
#[test]
fn a_caller_does_not_wait_because_another_was_denied_beside_the_budget_of_all() {
    let known = remembering();
    let (own, all) = (Quota::per_day(1), Quota::per_day(9));
    let (alice, bob, everybody) = (Key::from("alice"), Key::from("bob"), Key::global());
    let charges = |caller| {
        let charge = |slot, quota, key| Charge {
            scope: Scope::of("joint", slot, quota),
            ..charge(quota, key, 1)
        };
        [charge(0, &all, &everybody), charge(1, &own, caller)]
    };
    let mut states = [State::full(&all), State::full(&own)];
    let mut decided = || decide(NOON, Call::of(&charges(&alice)), &mut states[..]);
    assert!(decided().is_admitted());
    let denied = decided();
    let sent = known.departs();
    let told = ToldStates {
        at: NOON,
        received_at: sent.sent_at,
        slot: 0,
    };
    for caller in [&alice, &bob, &alice, &bob] {
        known.learn_from(sent, told, charges(caller).into_iter(), &denied, |index| {
            states.get(index)
        });
    }
    let judge = |caller, at| known.judge_at(|| at, Call::of(&charges(caller)));
    assert!(denial(&judge(&alice, sent.sent_at)).is_some());

    let later = sent.sent_at + LIFE;
    assert!(matches!(judge(&bob, later), Judged::Asks(None)));
    let asks = judge(&alice, later);
    assert!(matches!(asks, Judged::Asks(Some(_))));
    assert!(matches!(judge(&alice, later), Judged::Waits(_)));
    assert!(matches!(judge(&bob, later), Judged::Asks(None)));
}

#[test]
fn an_event_clears_what_is_known_when_it_begins_and_when_it_ends() {
    let known = remembering();
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
    let known = remembering();
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
    let known = remembering();
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
fn callers_that_are_denied_once_push_nothing_out() {
    let known = remembering();
    let sent = known.departs();
    let told = ToldStates {
        at: NOON,
        received_at: sent.sent_at,
        slot: 0,
    };
    let often = Denied::of(0, Quota::per_day(1));
    often.is_learned(&known, sent, NOON);

    for key in 1..10 * (SETS * WAYS) as u64 {
        let once = Denied::of(key, Quota::per_day(1));
        let asked = charge(&once.quota, &once.key, 1);
        let (decision, state) = (&once.decision, &once.state);
        known.learn_from(sent, told, [asked].into_iter(), decision, |_| Some(state));
    }

    assert_eq!(remembered(&known), 1);
    assert!(often.is_known(&known, sent.sent_at));
}

#[test]
fn a_full_set_forgets_its_states_in_the_order_in_which_their_calls_left() {
    let known = remembering();
    let sent = known.departs();
    let place = |key: &u64| {
        let scope = Scope::of("model", 0, &Quota::per_day(1));
        known.hash(scope, &Key::from(*key)) % SETS as u64
    };
    let first = place(&0);
    let keys: Vec<_> = (0..)
        .filter(|key| place(key) == first)
        .take(WAYS + 2)
        .collect();
    let denied: Vec<_> = keys
        .iter()
        .map(|key| Denied::of(*key, Quota::per_day(1)))
        .collect();
    for (later, denied) in (0..).zip(&denied) {
        let call = SentCall {
            sent_at: sent.sent_at + later * MS,
            ..sent
        };
        denied.is_learned(&known, call, NOON);
    }

    let are_known: Vec<_> = denied
        .iter()
        .map(|it| it.is_known(&known, sent.sent_at + 9 * MS))
        .collect();
    assert_eq!(are_known, [false, false, true, true, true, true]);
}

#[test]
fn ids_long_logs_and_strikes_are_not_remembered_and_nothing_is_if_each_denial_is_asked_for() {
    let log = Quota::per_day(64).using(Algorithm::SlidingLog);
    for (count, expected) in [(65, 0), (64, 1)] {
        let known = remembering();
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
        let known = KnownDenials::new(are_kept, DEADLINE);
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
            let decision = decide(NOON, Call::of(&charges), &mut states[..]);
            let told = ToldStates {
                at: NOON,
                received_at: sent.sent_at,
                slot: 0,
            };
            known.learn_from(sent, told, charges.iter().copied(), &decision, |index| {
                states.get(index)
            });
            remembered(&known)
        })
    };
    // An admission, a strike, the strike that bans, and another request under the ban: the first denial leaves a mark.
    assert_eq!(ask(true, &[&quota, &ban]), [0, 0, 0, 2]);
    assert_eq!(ask(true, &[&quota, &once]), [0, 0, 1, 1]);
    assert_eq!(ask(true, &[&quota]), [0, 0, 1, 1]);
    assert_eq!(ask(false, &[&quota]), [0; 4]);
}

#[test]
fn the_states_of_one_request_are_by_one_clock() {
    let known = remembering();
    let quotas = [Quota::per_day(1), Quota::per_hour(1)];
    let key = Key::from("alice");
    let charges = [0_u16, 1].map(|slot| Charge {
        scope: Scope::of("joint", slot, &quotas[usize::from(slot)]),
        ..charge(&quotas[usize::from(slot)], &key, 1)
    });
    let mut states = quotas.map(|quota| State::full(&quota));
    assert!(decide(NOON, Call::of(&charges), &mut states[..]).is_admitted());
    let denied = decide(NOON, Call::of(&charges), &mut states[..]);
    for (slots, is_known) in [([3, 3], true), ([3, 4], false)] {
        let sent = known.departs();
        for (index, slot) in slots
            .into_iter()
            .enumerate()
            .chain(slots.into_iter().enumerate())
        {
            let told = ToldStates {
                at: NOON,
                received_at: sent.sent_at,
                slot,
            };
            let one = &charges[index..=index];
            let decision = decide(NOON, Call::of(one), &mut states.clone()[index..=index]);
            known.learn_from(sent, told, one.iter().copied(), &decision, |_| {
                Some(&states[index])
            });
        }

        let said = known.judge_at(|| sent.sent_at, Call::of(&charges));

        let verdicts = denial(&said).map(Decision::verdicts);
        assert_eq!(verdicts, is_known.then_some(denied.verdicts()));
    }
}
