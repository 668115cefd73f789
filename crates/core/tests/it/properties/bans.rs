//! Bans: strikes are exact, a ban neither ends early nor feeds itself, whatever the clock does, and it forgets.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestCaseResult};
use tollgate_core::{
    Ban, Call, Charge, Decision, Key, Mode, Quota, Scope, State, Timestamp, Verdict, decide,
};

use crate::support::budget::{Budget, micros, warms_up};
use crate::support::quotas;
use crate::support::runner::check;

/// A ban as plain numbers.
#[derive(Clone, Copy, Debug)]
struct Terms {
    strikes: u64,
    within: u64,
    lasting: u64,
    longest: u64,
    forgiven: u64,
    extends: bool,
}

impl Terms {
    fn quota(self) -> Quota {
        let ban = Ban::after(self.strikes, Duration::from_micros(self.within))
            .lasting(Duration::from_micros(self.lasting))
            .doubling_to(Duration::from_micros(self.longest))
            .forgiven_after(Duration::from_micros(self.forgiven));
        if self.extends { ban.extending() } else { ban }.into()
    }
}

fn terms() -> impl Strategy<Value = Terms> {
    (1_u64..=4, 1_u64..=20, 1_u64..=20, 1_u64..=9, 1_u64..=60).prop_flat_map(
        |(strikes, within, lasting, times, forgiven)| {
            any::<bool>().prop_map(move |extends| Terms {
                strikes,
                within,
                lasting,
                longest: lasting * times,
                forgiven,
                extends,
            })
        },
    )
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Pause(u64),
    /// The clock steps, back or forth, and no time passes.
    Step(i64),
    /// A request of a class that leaves so many units to others, which is denied if the quota has no room for both.
    Ask(u64, u64),
    /// The application names a response as so many strikes.
    Strike(u64),
    /// An operator bans for so long.
    Impose(u64),
    /// A question that changes nothing.
    Probe(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0_u64..=12).prop_map(Event::Pause),
        1 => (0_u64..=120).prop_map(Event::Pause),
        1 => prop_oneof![-5_i64..=5, -40_i64..=40, -400_i64..=400].prop_map(Event::Step),
        8 => (0_u64..=3).prop_map(|cost| Event::Ask(cost, 0)),
        4 => (0_u64..=3, 1_u64..=2).prop_map(|(cost, kept)| Event::Ask(cost, kept)),
        1 => (1_u64..=3).prop_map(Event::Strike),
        1 => (1_u64..=40).prop_map(Event::Impose),
        2 => (0_u64..=3).prop_map(Event::Probe),
    ];
    prop::collection::vec(event, 1..60)
}

/// The books of a model that remembers everything: each strike, and each ban with its start, its end, and the doublings behind it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Books {
    strikes: Vec<u64>,
    last: Option<(u64, u64)>,
    doublings: u64,
}

impl Books {
    /// The clock stands here. If it has stepped back to before the ban, this one starts anew, and strikes ahead count as made now.
    fn advance(&mut self, now: u64) {
        if let Some((start, end)) = self.last
            && now < start
        {
            self.last = Some((now, now + end - start));
        }
        for strike in &mut self.strikes {
            *strike = (*strike).min(now);
        }
    }

    fn banned_until(&self, now: u64) -> Option<u64> {
        let (_, end) = self.last?;
        (now < end).then_some(end)
    }

    fn live(&self, terms: &Terms, now: u64) -> u64 {
        let counts = |at: &&u64| now - **at < terms.within;
        self.strikes.iter().filter(counts).count() as u64
    }

    fn strike(&mut self, terms: &Terms, now: u64, strikes: u64) {
        if let Some((start, end)) = self.last
            && now < end
        {
            if terms.extends {
                self.last = Some((now, now + end - start));
            }
            return;
        }
        // A strike that no longer counts is forgotten with the next one, and does not come back with a clock that steps back.
        self.strikes.retain(|at| now - at < terms.within);
        for _ in 0..strikes.min(terms.strikes) {
            self.strikes.push(now);
        }
        if self.live(terms, now) < terms.strikes {
            return;
        }
        self.forgive(terms, now);
        let length = (terms.lasting << self.doublings).min(terms.longest);
        if length < terms.longest {
            self.doublings += 1;
        }
        self.last = Some((now, now + length));
        self.strikes.clear();
    }

    fn forgive(&mut self, terms: &Terms, now: u64) {
        let quiet = self.last.map_or(0, |(_, end)| now.saturating_sub(end));
        self.doublings -= self.doublings.min(quiet / terms.forgiven);
    }

    fn impose(&mut self, terms: &Terms, now: u64, length: u64) {
        if self.last.is_none_or(|(_, end)| end < now + length) {
            self.forgive(terms, now);
            self.last = Some((now, now + length));
        }
    }
}

/// The ends of bans that were told, in the time that passes whatever the clock does.
#[derive(Clone, Copy, Debug, Default)]
struct Promise {
    passed: u64,
    not_before: u64,
}

impl Promise {
    /// A step forward ends a ban earlier by as much. A step back does not excuse it.
    fn step(&mut self, us: i64) {
        let forward = u64::try_from(us).unwrap_or(0);
        self.not_before = self.not_before.saturating_sub(forward);
    }

    /// Hears the wait of a banned caller, or that there is none.
    fn hear(&mut self, wait: Option<u64>) -> TestCaseResult {
        prop_assert!(
            wait.is_some() || self.passed >= self.not_before,
            "ends {} µs before it was told",
            self.not_before - self.passed
        );
        let told = wait.map_or(0, |wait| self.passed + wait);
        self.not_before = self.not_before.max(told);
        Ok(())
    }
}

/// A policy of one quota, whose requests may be of classes, and a ban, and a twin of the quota that hears of the admitted charges
/// alone.
#[derive(Clone)]
struct Gate {
    quota: Quota,
    ban: Quota,
    mode: Mode,
    states: [State; 2],
    now: u64,
}

impl Gate {
    fn call(&mut self, cost: u64, mode: Mode) -> Decision {
        let key = Key::from("mallory");
        let charges = [
            (&self.quota, 0, cost),
            // A cost of a ban would be strikes.
            (&self.ban, 1, 0),
        ]
        .map(|(quota, slot, cost)| Charge {
            scope: Scope::of("gate", slot, quota),
            quota,
            key: &key,
            cost,
            mode,
        });
        decide(
            Timestamp::from_micros(self.now),
            Call::of(&charges),
            &mut self.states[..],
        )
    }

    fn alone(&mut self, ban: &Quota, cost: u64) -> Verdict {
        let charge = Charge {
            scope: Scope::of("gate", 1, ban),
            quota: ban,
            key: &Key::from("mallory"),
            cost,
            mode: Mode::Shadow,
        };
        let now = Timestamp::from_micros(self.now);
        decide(now, Call::of(&[charge]), &mut self.states[1..]).verdicts()[0]
    }
}

fn run(quota: Quota, terms: Terms, mode: Mode, events: &[Event]) -> TestCaseResult {
    let mut gate = Gate {
        quota,
        ban: terms.quota(),
        mode,
        states: [State::full(&quota), State::full(&terms.quota())],
        now: 1_000_000,
    };
    let (mut books, mut twin) = (Books::default(), Budget::full(quota));
    let mut promise = Promise::default();
    for event in events {
        let (now, known) = (gate.now, books.clone());
        if !matches!(event, Event::Pause(_) | Event::Step(_)) {
            books.advance(now);
        }
        match *event {
            Event::Pause(us) => {
                gate.now += us;
                promise.passed += us;
            }
            Event::Step(us) => {
                gate.now = now.saturating_add_signed(us);
                promise.step(us);
            }
            Event::Strike(n) => {
                gate.alone(&terms.quota(), n);
                books.strike(&terms, now, n);
            }
            Event::Impose(length) => {
                let ban = terms.quota().ban().unwrap();
                let imposed = ban.try_imposed(Duration::from_micros(length)).unwrap();
                gate.alone(&imposed.into(), 1);
                books.impose(&terms, now, length);
            }
            Event::Probe(cost) => {
                let before = gate.states[1].snapshot();
                let decision = gate.call(cost, Mode::Probe);
                let banned = books.banned_until(now).map(|end| end - now);
                let wait = decision.verdicts()[1].retry_after().map(micros);
                prop_assert_eq!(wait, banned);
                let listed = gate.states[1].banned_for(Timestamp::from_micros(now));
                prop_assert_eq!(listed.map(micros), banned);
                promise.hear(wait)?;
                twin.decide(now, cost, Mode::Probe);
                // It writes nothing but that the clock has stepped back.
                if books == known {
                    prop_assert_eq!(gate.states[1].snapshot(), before);
                }
            }
            Event::Ask(cost, kept) => {
                let class = quota.try_keeping(kept).unwrap_or(quota);
                (gate.quota, twin.quota) = (class, class);
                let [charge, ban] = ask(&mut gate, &mut books, &mut twin, &terms, cost)?;
                (gate.quota, twin.quota) = (quota, quota);
                promise.hear(ban.retry_after().map(micros))?;
                // The kept share is left, whichever caller was banned meanwhile.
                let state = gate.states[0].clone();
                let left = Budget { quota, state }.peek(now).remaining();
                let is_left = left + class.capacity() >= quota.capacity();
                // While a budget is cold, a unit takes more than its own room.
                prop_assert!(charge.taken() == 0 || is_left || warms_up(&quota));
            }
        }
    }
    Ok(())
}

fn ask(
    gate: &mut Gate,
    books: &mut Books,
    twin: &mut Budget,
    terms: &Terms,
    cost: u64,
) -> Result<[Verdict; 2], TestCaseError> {
    let (now, mode) = (gate.now, gate.mode);
    let was_banned = books.banned_until(now).is_some();
    let decision = gate.call(cost, mode);
    let [charge, ban] = [0, 1].map(|index| decision.verdicts()[index]);
    if was_banned {
        // A banned caller is charged nothing, and strikes nothing. One on trial is not judged.
        prop_assert_eq!(charge.taken(), 0);
        // The twin hears that the clock has stepped back, as the quota does.
        let expected = twin.decide(now, cost, Mode::Probe).0;
        if mode == Mode::Enforce {
            let wait = expected.verdicts()[0].retry_after();
            prop_assert_eq!(charge.retry_after(), wait);
        }
        books.strike(terms, now, 0);
    } else {
        let expected = twin.decide(now, cost, mode).0;
        let expected = expected.verdicts()[0];
        prop_assert_eq!(charge.outcome(), expected.outcome());
        prop_assert_eq!(charge.taken(), expected.taken());
        prop_assert_eq!(charge.retry_after(), expected.retry_after());
        if expected.is_denied() {
            books.strike(terms, now, 1);
        }
    }
    let banned_until = books.banned_until(now);
    match banned_until {
        Some(end) => prop_assert_eq!(ban.retry_after().map(micros), Some(end - now)),
        None => {
            prop_assert!(ban.is_allowed());
            prop_assert_eq!(ban.remaining(), terms.strikes - books.live(terms, now));
        }
    }
    let is_denied = charge.is_denied() || banned_until.is_some();
    prop_assert_eq!(decision.is_admitted(), mode != Mode::Enforce || !is_denied);
    prop_assert_eq!(gate.clone().alone(&terms.quota(), 0).taken(), 0);
    if let Some(wait) = decision.retry_after().map(micros)
        && !terms.extends
    {
        // Retry-after is a promise, and not a microsecond too long.
        let mut early = gate.clone();
        early.now = now + wait - 1;
        prop_assert!(!early.call(cost, Mode::Enforce).is_admitted());
        let mut late = gate.clone();
        late.now = now + wait;
        prop_assert!(late.call(cost, Mode::Enforce).is_admitted());
    }
    Ok([charge, ban])
}

#[test]
fn strikes_are_exact_and_a_ban_ends_when_it_was_said() {
    let modes = prop_oneof![Just(Mode::Enforce), Just(Mode::Shadow)];
    let inputs = (quotas::tiny(), terms(), modes, events());
    check(4_000, &inputs, |(quota, terms, mode, events)| {
        run(quota, terms, mode, &events)
    });
}

/// The policy `gate` with two quotas and a ban, and another policy in the same call.
fn charge_of<'a>(policy: &str, slot: u16, quota: &'a Quota, key: &'a Key) -> Charge<'a> {
    Charge {
        scope: Scope::of(policy, slot, quota),
        quota,
        key,
        cost: u64::from(!quota.is_ban()),
        mode: Mode::Enforce,
    }
}

#[test]
fn a_call_is_one_strike_of_its_own_policy_however_many_quotas_deny_it() {
    let (one, ban) = (Quota::per_day(1), Quota::from(Ban::after(2, DAY)));
    let keys = [Key::from("alice"), Key::from("office")];
    let charges = [
        charge_of("login", 0, &one, &keys[0]),
        charge_of("login#gold", 1, &one, &keys[0]),
        charge_of("login", 2, &ban, &keys[0]),
        charge_of("office", 0, &one, &keys[1]),
        charge_of("office", 1, &ban, &keys[1]),
    ];
    let mut states = charges.map(|charge| State::full(charge.quota));
    let now = Timestamp::from_micros(1_000_000);
    assert!(decide(now, Call::of(&charges), &mut states[..]).is_admitted());

    // Both quotas of the login deny, and so does the office's: a strike for each policy.
    let decision = decide(now, Call::of(&charges), &mut states[..]);
    let left = [2, 4].map(|index| decision.verdicts()[index].remaining());
    assert_eq!((decision.is_admitted(), left), (false, [1, 1]));

    // The office's quota alone: no strike of the login.
    let decision = decide(now, Call::of(&charges[3..]), &mut states[3..]);
    assert!(decision.verdicts()[1].is_denied());
    assert_eq!(decision.retry_after(), Some(DAY));

    // A caller of a banned office gets no strike of the login policy, although its quotas deny as well.
    let decision = decide(now, Call::of(&charges), &mut states[..]);
    assert!(decision.verdicts()[0].is_denied());
    assert_eq!(decision.verdicts()[2].remaining(), 1);
    assert!(!decision.is_admitted() && decision.retry_after() == Some(DAY));
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[test]
fn a_policy_on_trial_is_neither_charged_while_its_ban_would_hold_nor_denies_the_others() {
    let (two, ban) = (Quota::per_second(2), Quota::from(Ban::after(1, DAY)));
    let key = Key::from("alice");
    let mut charges = [
        charge_of("trial", 0, &two, &key),
        charge_of("trial", 1, &ban, &key),
        // Another policy on trial, of which no caller is banned.
        charge_of("elsewhere", 0, &two, &key),
        charge_of("api", 0, &two, &key),
        // A quota that the ban's policy enforces.
        charge_of("trial", 2, &two, &key),
    ];
    for trial in &mut charges[..3] {
        trial.mode = Mode::Shadow;
    }
    let mut states = charges.map(|charge| State::full(charge.quota));
    let at = |seconds: u64| Timestamp::from_micros(seconds * 1_000_000);
    for _ in 0..2 {
        assert!(decide(at(1), Call::of(&charges), &mut states[..]).is_admitted());
    }
    // The trial's quota denies, and its ban begins; so does the other policy's quota, which is enforced.
    let third = decide(at(1), Call::of(&charges), &mut states[..]);
    assert!(!third.is_admitted() && third.verdicts()[1].is_denied());
    // Later all have room. The ban on trial keeps its own quota on trial full, and no caller out.
    let later = decide(at(100), Call::of(&charges), &mut states[..]);
    let taken: Vec<u64> = later.verdicts().iter().map(Verdict::taken).collect();
    assert_eq!((later.is_admitted(), taken), (true, vec![0, 0, 1, 1, 1]));
}

#[test]
fn a_verdict_of_a_ban_tells_the_strikes_that_it_has_counted_and_no_others() {
    let (plenty, ban) = (Quota::per_second(100), Quota::from(Ban::after(1, DAY)));
    let key = Key::from("alice");
    let strike = charge_of("login", 0, &ban, &key);
    let other = charge_of("api", 0, &plenty, &key);
    let mut states = [State::full(&plenty), State::full(&ban)];
    let mut taken = |mode| {
        let strike = Charge {
            cost: 1,
            mode,
            ..strike
        };
        let charges = [other, strike];
        let decision = decide(
            Timestamp::from_micros(1),
            Call::of(&charges),
            &mut states[..],
        );
        decision.verdicts()[1].taken()
    };

    // A question counts nothing. The first strike bans, and while the ban is in force there is no other.
    assert_eq!(taken(Mode::Probe), 0);
    assert_eq!(taken(Mode::Enforce), 1);
    assert_eq!([taken(Mode::Enforce), taken(Mode::Shadow)], [0, 0]);
}
