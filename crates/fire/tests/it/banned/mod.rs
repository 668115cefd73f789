//! A limiter of one caller in one thread, with a ban and a kept share, and defects of it.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use fastrand::Rng;
use tollgate_core::{Call, Charge, Mode, Quota, Receipt, Snapshot, State, Timestamp, decide};
use tollgate_fire::{
    BanFindings, Disturbance, Effect, Guarded, History, Knock, OperatorAct, OperatorCall, Outcome,
    Population, check,
};

pub(crate) const START_US: u64 = 1_700_000_000_000_000;
pub(crate) const STEPS: usize = 1_500;
pub(crate) const SEEDS: std::ops::Range<u64> = 0..40;

/// A defect of a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    None,
    /// A ban ends in the middle.
    EndsEarly,
    /// A ban is forgotten.
    Forgotten,
    /// Each request of a banned caller begins the ban anew.
    FeedsItself,
    /// A ban begins one strike too early.
    OneStrikeFewer,
    /// A ban begins one strike too late.
    OneStrikeMore,
    /// A strike is not counted, now and then.
    StrikeLost,
    /// A strike counts for half of its time.
    StrikeShort,
    /// A request of a banned caller is a strike.
    BannedStrikes,
    /// A request of a banned caller is charged.
    BannedCharged,
    /// A denied request is charged.
    DeniedCharged,
    /// No ban lasts longer than the one before.
    NeverDoubles,
    /// No doubling is forgiven.
    NeverForgives,
    /// Unimportant requests spend what is kept.
    KeptSpent,
    /// Unimportant requests leave one unit less than is kept.
    KeptSpentInPart,
    /// Important requests leave what is kept for them.
    KeptFromAll,
    /// A ban by hand ends in the middle.
    ByHandShort,
    /// A ban by hand ends a longer one.
    ByHandShortens,
    /// A ban by hand is told, and not done.
    ByHandNotDone,
    /// A ban by hand doubles the next one by strikes.
    ByHandDoubles,
    /// A ban by hand forgives all doublings.
    ByHandForgives,
    /// Strikes from before a ban by hand count after it.
    ByHandForgetsStrikes,
    /// A pardon is told, and not done.
    PardonNotDone,
    /// A pardon ends the ban, and the next one lasts as long as if there had been none.
    PardonKeepsDoublings,
    /// Strikes from before a pardon count after it.
    PardonKeepsStrikes,
    /// A strike by a response is not counted, now and then.
    ResponseLost,
    /// A strike by a response is counted twice, now and then.
    ResponseTwice,
    /// A strike by a response counts although its caller is banned by then.
    ResponseWhileBanned,
}

impl Defect {
    pub(crate) const ALL: [Self; 15] = [
        Self::EndsEarly,
        Self::Forgotten,
        Self::FeedsItself,
        Self::OneStrikeFewer,
        Self::OneStrikeMore,
        Self::StrikeLost,
        Self::StrikeShort,
        Self::BannedStrikes,
        Self::BannedCharged,
        Self::DeniedCharged,
        Self::NeverDoubles,
        Self::NeverForgives,
        Self::KeptSpent,
        Self::KeptSpentInPart,
        Self::KeptFromAll,
    ];

    /// The defects of what operators do, and of strikes by responses.
    pub(crate) const BY_HAND: [Self; 12] = [
        Self::ByHandShort,
        Self::ByHandShortens,
        Self::ByHandNotDone,
        Self::ByHandDoubles,
        Self::ByHandForgives,
        Self::ByHandForgetsStrikes,
        Self::PardonNotDone,
        Self::PardonKeepsDoublings,
        Self::PardonKeepsStrikes,
        Self::ResponseLost,
        Self::ResponseTwice,
        Self::ResponseWhileBanned,
    ];
}

/// Something that arrives later, or without its client.
#[derive(Clone, Copy, Debug)]
enum Late {
    Knock { is_important: bool },
    Act(OperatorAct),
    Strike,
}

/// The time within which a strike by a response arrives if nothing is in its way.
const STRIKE_ARRIVES_US: u64 = 90_000;

/// A limiter of one caller, in one thread, with faults or without.
pub(crate) struct Trial {
    rng: Rng,
    /// The policy for the unimportant, and for the important.
    classes: [Guarded; 2],
    defect: Defect,
    states: [State; 2],
    /// The states that a replica has, while it lacks what came since.
    replica: Option<(u64, [State; 2])>,
    wall_us: u64,
    ahead_us: i64,
    /// The times at which requests arrive whose clients heard of no answer.
    late: Vec<(u64, Late)>,
    /// True if operators ban and pardon, and responses are strikes.
    is_operated: bool,
    /// The time of the last disturbance, and of the last decision, by the clients' clock.
    disturbed_us: u64,
    decided_us: u64,
    history: History,
}

impl Trial {
    pub(crate) fn new(seed: u64, defect: Defect) -> Self {
        let population = Population::of(seed);
        let classes = [false, true].map(|is_important| Guarded::of(&population, 0, is_important));
        let states = classes[1].charges().map(|charge| State::full(charge.quota));
        Self {
            rng: Rng::with_seed(seed),
            classes,
            defect,
            states,
            replica: None,
            wall_us: START_US,
            ahead_us: 0,
            late: Vec::new(),
            is_operated: false,
            disturbed_us: 0,
            decided_us: 0,
            history: History::default(),
        }
    }

    /// With operators, and responses that are strikes.
    pub(crate) fn operated(seed: u64, defect: Defect) -> Self {
        Self {
            is_operated: true,
            ..Self::new(seed, defect)
        }
    }

    pub(crate) fn run(mut self, with_faults: bool) -> History {
        // In spells, eager and calm.
        let mut longest_us = 0;
        for step in 0..STEPS {
            if step % 40 == 0 {
                longest_us = self.rng.choice([10_000, 25_000, 60_000, 160_000]).unwrap();
            }
            self.wall_us += self.rng.u64(1..longest_us);
            self.arrive_late();
            let one_in = if self.replica.is_some() { 20 } else { 80 };
            if with_faults && self.rng.u8(0..one_in) == 0 {
                self.disturb();
            }
            let is_lost = with_faults && self.rng.u8(0..80) == 0;
            if self.is_operated && self.rng.u8(0..25) == 0 {
                let is_lost = with_faults && self.rng.u8(0..6) == 0;
                self.operate(is_lost);
            }
            self.knock(is_lost);
        }
        self.history.disturbances.sort_by_key(|it| it.from_us);
        self.history
    }

    /// The time of a decision by the server's clock.
    fn now_us(&mut self) -> u64 {
        self.decided_us = self.wall_us;
        self.wall_us.saturating_add_signed(self.ahead_us)
    }

    fn knock(&mut self, is_lost: bool) {
        let (sent_us, is_important) = (self.wall_us, self.rng.bool());
        self.wall_us += self.rng.u64(1..500);
        let outcome = if is_lost {
            if self.rng.bool() {
                let arrives_us = self.wall_us + self.rng.u64(0..1_000_000);
                self.late.push((arrives_us, Late::Knock { is_important }));
            }
            Outcome::Unknown("lost".to_owned())
        } else {
            self.decide(is_important)
        };
        self.wall_us += self.rng.u64(1..500);
        let fails = self.is_operated && self.rng.u8(0..4) == 0;
        let is_admitted = matches!(&outcome, Outcome::Decided(decided) if decided.admitted);
        let status = match (&outcome, fails) {
            (Outcome::Decided(_), true) if is_admitted => Some(401),
            (Outcome::Decided(_), _) => Some(if is_admitted { 200 } else { 429 }),
            _ => None,
        };
        if is_admitted && fails {
            self.fail();
        }
        self.history.knocks.push(Knock {
            process: 0,
            caller: 0,
            is_important,
            sent_us,
            heard_us: self.wall_us,
            outcome,
            fails,
            status: status.filter(|_| self.is_operated),
        });
    }

    /// A response is a strike, which is on its way. Soon after a disturbance it may be late, or lost.
    fn fail(&mut self) {
        if self.defect == Defect::ResponseLost && self.rng.u8(0..10) == 0 {
            return;
        }
        if self.defect == Defect::ResponseTwice && self.rng.u8(0..4) == 0 {
            self.late.push((self.wall_us, Late::Strike));
        }
        let longest_us = if self.wall_us < self.disturbed_us + 900_000 {
            match self.rng.u8(0..3) {
                0 => return,
                _ => 2_000_000,
            }
        } else {
            STRIKE_ARRIVES_US
        };
        let arrives_us = self.wall_us + self.rng.u64(0..longest_us);
        self.late.push((arrives_us, Late::Strike));
    }

    /// An operator bans or pardons. Requests may come before and behind it while it is under way.
    fn operate(&mut self, is_lost: bool) {
        let act = match self.rng.u8(0..5) {
            0 | 1 => OperatorAct::Unban,
            2 => OperatorAct::Ban {
                lasting_us: self.rng.u64(400_000..=1_500_000),
            },
            _ => OperatorAct::Ban {
                lasting_us: self.rng.u64(20_000..400_000),
            },
        };
        let sent_us = self.wall_us;
        self.meanwhile();
        let outcome = if is_lost {
            if self.rng.bool() {
                let arrives_us = self.wall_us + self.rng.u64(0..1_000_000);
                self.late.push((arrives_us, Late::Act(act)));
            }
            Outcome::Unknown("lost".to_owned())
        } else {
            self.act(act)
        };
        self.meanwhile();
        self.history.operated.push(OperatorCall {
            process: 0,
            caller: 0,
            act,
            sent_us,
            heard_us: self.wall_us,
            outcome,
        });
    }

    fn meanwhile(&mut self) {
        for _ in 0..self.rng.u8(0..2) {
            self.knock(false);
        }
        self.wall_us += self.rng.u64(1..500);
    }

    fn act(&mut self, act: OperatorAct) -> Outcome {
        let before = self.states[1].clone();
        let at = Timestamp::from_micros(self.now_us());
        let (is_banned, level) = match before.snapshot() {
            Snapshot::Ban {
                until_us, level, ..
            } => (until_us > at.as_micros(), level),
            other => panic!("{other:?}"),
        };
        let OperatorAct::Ban { lasting_us } = act else {
            let kept = Snapshot::clone(&before.snapshot());
            if self.defect != Defect::PardonNotDone {
                self.states[1] = State::full(&Quota::from(Guarded::BAN));
            }
            match self.defect {
                Defect::PardonKeepsDoublings => self.states[1] = State::from(ended(kept, at)),
                Defect::PardonKeepsStrikes if !is_banned => self.states[1] = before,
                _ => {}
            }
            return Outcome::Reset;
        };
        let lasting = std::time::Duration::from_micros(lasting_us);
        let imposed = Quota::from(Guarded::BAN.try_imposed(lasting).unwrap());
        let [_, ban] = self.classes[1].charges();
        let by_hand = Charge {
            quota: &imposed,
            cost: 1,
            mode: Mode::Shadow,
            ..ban
        };
        if self.defect == Defect::ByHandShortens && is_banned {
            let now_us = at.as_micros();
            change(&mut self.states[1], |since, until, _, _| {
                (*since, *until) = ((*since).min(now_us), now_us);
            });
        }
        let outcome = Outcome::of(&Ok(decide(at, Call::of(&[by_hand]), &mut self.states[1..])));
        let ban = &mut self.states[1];
        match self.defect {
            Defect::ByHandShort => change(ban, |since, until, _, _| {
                *until = *since + (*until - *since) / 2;
            }),
            Defect::ByHandNotDone => *ban = before,
            Defect::ByHandDoubles => change(ban, |_, _, level, _| *level = (*level + 1).min(2)),
            Defect::ByHandForgives if level > 0 => change(ban, |_, _, level, _| *level = 0),
            Defect::ByHandForgetsStrikes => change(ban, |_, _, _, strikes| strikes.clear()),
            _ => {}
        }
        outcome
    }

    /// A strike by a response arrives.
    fn strike(&mut self) {
        let at = Timestamp::from_micros(self.now_us());
        let banned_until_us = match self.states[1].snapshot() {
            Snapshot::Ban { until_us, .. } => until_us,
            other => panic!("{other:?}"),
        };
        if self.defect == Defect::ResponseWhileBanned && at.as_micros() < banned_until_us {
            change(&mut self.states[1], |_, until, _, strikes| {
                if strikes.len() < 5 {
                    strikes.push(*until);
                }
            });
            return;
        }
        strike(&self.classes[1], &mut self.states[1], at);
    }

    fn decide(&mut self, is_important: bool) -> Outcome {
        let at = Timestamp::from_micros(self.now_us());
        let before = self.states.clone();
        let [unimportant, important] = &self.classes;
        let part = Guarded::QUOTA.keeping(Guarded::KEPT - 1);
        let mut charges = match (self.defect, is_important) {
            (Defect::KeptSpent, _) => important.charges(),
            (Defect::KeptFromAll, _) => unimportant.charges(),
            (_, true) => important.charges(),
            (_, false) => unimportant.charges(),
        };
        if self.defect == Defect::KeptSpentInPart && !is_important {
            charges[0].quota = &part;
        }
        let outcome = Outcome::of(&Ok(decide(
            at,
            Call::of(&charges),
            self.states.as_mut_slice(),
        )));
        let Outcome::Decided(decided) = &outcome else {
            panic!("{outcome:?}");
        };
        let [quota, ban] = decided.verdicts.as_slice() else {
            panic!("{decided:?}");
        };
        let was_banned = decide(at, Call::of(&charges[1..]), &mut before.clone()[1..]);
        let was_banned = !was_banned.is_admitted();
        let is_struck = !quota.passes && !was_banned;
        let (left, begins) = (ban.remaining, is_struck && !ban.passes);
        self.spoil(&before, at, was_banned, is_struck, left, begins);
        outcome
    }

    /// Does what the defect is about to the states that a decision left.
    fn spoil(
        &mut self,
        before: &[State; 2],
        at: Timestamp,
        was_banned: bool,
        is_struck: bool,
        left: u64,
        begins: bool,
    ) {
        let [_, ban] = &mut self.states;
        match self.defect {
            Defect::EndsEarly if begins => change(ban, |since, until, _, _| {
                *until = *since + (*until - *since) / 2;
            }),
            Defect::Forgotten if was_banned && self.rng.u8(0..10) == 0 => {
                *ban = State::full(&Quota::from(Guarded::BAN));
            }
            Defect::FeedsItself if was_banned => change(ban, |since, until, _, _| {
                let length = *until - *since;
                (*since, *until) = (at.as_micros(), at.as_micros() + length);
            }),
            Defect::OneStrikeFewer if is_struck && left == 1 => strike(&self.classes[1], ban, at),
            Defect::OneStrikeMore if is_struck && left == 1 => change(ban, |_, _, _, strikes| {
                strikes.remove(0);
            }),
            Defect::StrikeLost if is_struck && self.rng.u8(0..10) == 0 => {
                ban.clone_from(&before[1]);
            }
            Defect::StrikeShort => change(ban, |_, _, _, strikes| {
                strikes.retain(|strike| strike + 400_000 > at.as_micros());
            }),
            Defect::BannedStrikes if was_banned => change(ban, |_, _, _, strikes| {
                if strikes.len() < 5 {
                    strikes.push(at.as_micros());
                }
            }),
            Defect::BannedCharged if was_banned => self.charge(at),
            Defect::DeniedCharged if is_struck => self.charge(at),
            Defect::NeverDoubles => change(ban, |_, _, level, _| *level = 0),
            Defect::NeverForgives if begins => change(ban, |_, _, level, _| *level = 2),
            _ => {}
        }
    }

    fn charge(&mut self, at: Timestamp) {
        let charge = self.classes[1].charges()[0];
        let mut full = [State::full(charge.quota)];
        let admitted = decide(at, Call::of(&[charge]), full.as_mut_slice());
        let receipt = Receipt::of(&charge, &admitted.verdicts()[0], at);
        receipt.unwrap().debit_from(&mut self.states[0], at, 1);
    }

    fn arrive_late(&mut self) {
        let now_us = self.wall_us;
        let (now, later) = self.late.drain(..).partition(|(at_us, _)| *at_us <= now_us);
        self.late = later;
        let mut now: Vec<(u64, Late)> = now;
        now.sort_by_key(|(at_us, _)| *at_us);
        for (at_us, late) in now {
            // An event that overlaps a decision is decided behind it.
            let then_us = std::mem::replace(&mut self.wall_us, at_us.max(self.decided_us));
            match late {
                Late::Knock { is_important } => drop(self.decide(is_important)),
                Late::Act(act) => drop(self.act(act)),
                Late::Strike => self.strike(),
            }
            self.wall_us = then_us;
        }
    }

    /// A loss of data, a step of the clock, or a replica that takes over with the states of an earlier time.
    fn disturb(&mut self) {
        let (kind, from_us) = (self.rng.u8(0..6), self.wall_us);
        if kind > 2 && self.replica.is_none() {
            // Nobody notices that it has parted.
            self.replica = Some((from_us, self.states.clone()));
            return;
        }
        self.disturbed_us = from_us;
        // Strikes on their way may be lost, or take longer.
        for (at_us, late) in &mut self.late {
            if matches!(late, Late::Strike) {
                *at_us += self.rng.u64(0..1_000_000);
            }
        }
        let is_kept = |late: &Late, rng: &mut Rng| !matches!(late, Late::Strike) || rng.bool();
        self.late.retain(|(_, late)| is_kept(late, &mut self.rng));
        match kind {
            0 => {
                self.states = self.classes[1]
                    .charges()
                    .map(|charge| State::full(charge.quota));
                self.wall_us += 10;
                self.note(Effect::Loss, from_us);
            }
            1 | 2 => {
                self.ahead_us += self.rng.i64(-2_000_000..2_000_000);
                self.wall_us += 10;
                self.note(Effect::Clock(self.ahead_us), from_us);
            }
            _ => {
                if let Some((parted_us, states)) = self.replica.take() {
                    self.states = states;
                    self.ahead_us += self.rng.i64(-500_000..500_000);
                    self.wall_us += 10;
                    self.note(Effect::MaybeLoss, parted_us);
                    self.note(Effect::Clock(self.ahead_us), from_us);
                }
            }
        }
    }

    fn note(&mut self, effect: Effect, from_us: u64) {
        let done = Disturbance::of_all(effect, from_us, self.wall_us);
        self.history.disturbances.push(done);
    }
}

fn strike(guarded: &Guarded, ban: &mut State, at: Timestamp) {
    let [_, charge] = guarded.charges();
    let one = Charge { cost: 1, ..charge };
    let _counted = decide(at, Call::of(&[one]), std::slice::from_mut(ban));
}

/// Changes a ban's begin, end, doublings and strikes.
fn change(ban: &mut State, change: impl FnOnce(&mut u64, &mut u64, &mut u8, &mut Vec<u64>)) {
    let mut snapshot = ban.snapshot();
    if let Snapshot::Ban {
        since_us,
        until_us,
        level,
        strikes_us,
        ..
    } = &mut snapshot
    {
        change(since_us, until_us, level, strikes_us);
    }
    *ban = State::from(snapshot);
}

/// This record of a ban, with the ban ended and its strikes forgotten.
fn ended(mut ban: Snapshot, at: Timestamp) -> Snapshot {
    if let Snapshot::Ban {
        since_us,
        until_us,
        strikes_us,
        ..
    } = &mut ban
    {
        *since_us = (*since_us).min(at.as_micros());
        *until_us = (*until_us).min(at.as_micros());
        strikes_us.clear();
    }
    ban
}

pub(crate) fn judged(history: &History) -> BanFindings {
    check(history).banned
}
