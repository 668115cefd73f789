//! The questions and their times: random operations from a seed.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Algorithm, Ban, Call, Charge, Key, Mode, Once, Quota, Receipt, Scope};

use crate::name::Name;
use crate::wire::{Request, Work};

/// A fixed sequence of numbers for each seed: SplitMix64.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn of_seed(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    pub(super) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }

    pub(super) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }
}

/// Quotas of one scope, of one unit: callers move between them.
fn families() -> Vec<Vec<Quota>> {
    let us = Duration::from_micros;
    let gcra = |limit, period, burst| Quota::new(limit, us(period)).burst(burst);
    let other = |limit, period, algorithm| Quota::try_with(limit, us(period), algorithm).unwrap();
    let day = 86_400_000_000;
    let mut families = vec![
        vec![gcra(10, 1_000_000, 10)],
        vec![gcra(7, 1_000_000, 3), gcra(7, 1_000_000, 30)],
        vec![gcra(999_983, day, 50), gcra(1, 100, 5), gcra(13, 1_000, 1)],
        vec![gcra(1_000_000, 1_000_000, 100)],
        // Equal but for their rests, so that each goes on in place where another has been.
        [3, 10, 17, 19].map(|n| gcra(n, 1_000_000, n)).to_vec(),
        // Drains from a microsecond to days, two of which have one tag, as while a deploy changes a limit; and rests of many
        // denominators, two of which have one mark.
        vec![
            gcra(10, 60_000_000, 10),
            gcra(10, 60_000_000, 8),
            gcra(10, 1_000_000, 10),
            gcra(100, 1_000_000, 12),
            gcra(1_000_000, 1_000_000, 1),
            gcra(3, day, 2),
            gcra(7, day, 100),
        ],
        vec![
            gcra(3, 1, 30),
            gcra(1_000, 1, 10_000),
            gcra(7, 1_000, 5),
            gcra(65_528, 1_000, 5_000),
            gcra(1_000_003, day, 9),
        ],
    ];
    for offset in [0, 6] {
        let algorithm = Algorithm::FixedWindow { offset: us(offset) };
        families.push(vec![
            other(5, 1_000, algorithm),
            other(20, 1_000, algorithm),
        ]);
    }
    // Room for many refills, for one, and for less; and refills whose units are large beside exact numbers.
    for offset in [0, 6, 400] {
        let algorithm = Algorithm::IntervalRefill { offset: us(offset) };
        families.push(vec![
            other(5, 1_000, algorithm).burst(17),
            other(20, 1_000, algorithm),
            other(3, 1_000, algorithm).burst(2),
            other(5, 1_000, algorithm).burst(12),
        ]);
    }
    let algorithm = Algorithm::IntervalRefill { offset: us(1) };
    families.push(vec![
        other(7, day, algorithm).burst(100),
        other(1 << 40, day, algorithm).burst(1 << 40),
        other(1, day, algorithm).burst(3_660),
    ]);
    for (limits, period) in [
        ([5, 8], 1_000),
        ([1_000_000, 7], day),
        ([864_000_000_000, 3], day),
    ] {
        let quota = |limit| other(limit, period, Algorithm::SlidingWindow);
        families.push(limits.map(quota).to_vec());
    }
    for buckets in [2, 10, 128] {
        let quota = |limit| other(limit, 1_280, Algorithm::RollingWindow { buckets });
        families.push(vec![quota(6), quota(40)]);
    }
    let log = |limit| other(limit, 500, Algorithm::SlidingLog);
    families.push(vec![log(4), log(30)]);
    let wait = us(400);
    families.push(vec![
        gcra(7, 1_000, 2).wait_up_to(wait),
        gcra(10, 1_000, 1).wait_up_to(wait),
        gcra(7, 1_000, 3),
    ]);
    families.push(vec![
        gcra(7, 1_000, 9).warm_up(us(3_000)),
        gcra(10, 1_000, 2).warm_up(us(3_000)).cold_factor(7),
        gcra(7, 1_000, 3),
    ]);
    families
}

/// Buckets that warm up, in which others of another warm-up or of none leave their states, too.
fn families_that_warm_up() -> Vec<Vec<Quota>> {
    let us = Duration::from_micros;
    let gcra = |limit, period, burst| Quota::new(limit, us(period)).burst(burst);
    let second = 1_000_000;
    let gentle = gcra(10, second, 40).warm_up(us(6 * second));
    vec![
        vec![gentle],
        vec![gcra(7, second, 5).warm_up(us(3 * second)).cold_factor(2)],
        vec![
            gentle,
            gcra(10, second, 9).warm_up(us(2 * second)).cold_factor(9),
            gcra(7, second, 12).warm_up(us(6 * second)),
            gcra(7, second, 12),
            // It has the tag of the first, which so might go on in place.
            gcra(10, second, 120),
            gcra(7, second, 5).wait_up_to(us(3 * second)),
        ],
        vec![
            gcra(3, 4, 30).warm_up(us(100)),
            gcra(1_000_003, DAY_US, 9)
                .warm_up(us(3_600 * second))
                .cold_factor(100),
        ],
    ]
}

const DAY_US: u64 = 86_400_000_000;

/// Windows of all kinds, in zones that change their clocks and that do not.
fn families_of_calendars() -> Vec<Vec<Quota>> {
    let of = |calendar: &str| {
        let quota = |limit| format!("{limit}/{calendar}").parse().unwrap();
        [5, 20, 2].map(quota).to_vec()
    };
    vec![
        of("day in Europe/Berlin"),
        of("day in UTC"),
        of("week in America/New_York from sunday"),
        of("month in Asia/Tokyo from 15"),
        of("year in Australia/Sydney from 07-01"),
    ]
}

fn families_with_bans() -> Vec<Vec<Quota>> {
    let us = Duration::from_micros;
    let after = |strikes, within, lasting| Ban::after(strikes, us(within)).lasting(us(lasting));
    let doubling = after(3, 2_000, 500).doubling_to(us(9_000));
    let bans = vec![
        after(1, 300, 700).into(),
        doubling.into(),
        after(3, 1_000, 500)
            .doubling_to(us(9_000))
            .forgiven_after(us(3_000))
            .into(),
        after(64, 100_000, 2_000).into(),
        after(2, 900, 800).doubling_to(us(3_000)).extending().into(),
        doubling.try_imposed(us(1_000)).unwrap().into(),
        Quota::from(doubling).unheard(),
        doubling.forgiven_after(us(1)).into(),
        { doubling.forgiven_after(us(1)) }
            .try_imposed(us(3_000))
            .unwrap()
            .into(),
    ];
    let log = Quota::new(2, us(500)).using(Algorithm::SlidingLog);
    let two = Quota::new(10, us(1_000)).burst(2);
    vec![
        // Also of a class that leaves a unit to another.
        vec![two, two.keeping(1), Quota::new(7, us(1_000)).burst(1)],
        bans.clone(),
        vec![log, log.keeping(1)],
        bans[1..3].to_vec(),
    ]
}

/// The budgets, bans and ids of one policy, and the budgets and ids of another.
fn families_with_ids() -> Vec<Vec<Quota>> {
    let us = Duration::from_micros;
    let once = |life, replays| {
        let once = Once::try_within(us(life)).unwrap();
        Quota::from(once.try_replays(replays).unwrap())
    };
    let ids = vec![
        once(300, 1),
        once(2_000, 2),
        once(50_000, 5),
        once(9_000, 100),
    ];
    let mut families = families_with_bans();
    families.truncate(3);
    let window = |limit| {
        let offset = us(6);
        Quota::new(limit, us(1_000)).using(Algorithm::FixedWindow { offset })
    };
    families[2] = ids.clone();
    families.extend([vec![window(3), window(20)], ids]);
    families
}

/// The number of families of GCRA; they come first.
const GCRA_FAMILIES: usize = 7;

/// A call of enforced GCRA charges: of a caller's own budget, and perhaps of some that are shared.
#[derive(Clone, Copy)]
struct Usual {
    own: usize,
    callers: u64,
    shared: usize,
    charges: usize,
    cost: u64,
    tiers: bool,
}

impl Usual {
    fn any(random: &mut Random) -> Self {
        Self {
            own: random.index(GCRA_FAMILIES),
            callers: random.of(&[1, 2, 40]),
            shared: random.index(GCRA_FAMILIES),
            charges: random.of(&[1, 1, 2, 3]),
            cost: random.of(&[1, 1, 1, 2, 0]),
            tiers: random.below(4) == 0,
        }
    }
}

/// The mix of calls.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Calls {
    /// For quotas of every size and shape.
    Any,
    /// One request each, mostly of one GCRA charge.
    Alone,
    /// For short windows, by a clock that steps back and forth over their ends.
    AtBoundaries,
    /// For few buckets, most of whose charges are given back while others are still to drain.
    Settled,
    /// For few buckets whose requests may wait for their turn, and leave before it or are given back after it.
    Waiting,
    /// For few buckets that warm up, some of whose charges are given back.
    Warming,
    /// For few callers, which are banned now and then. Each family of quotas has one of bans behind it.
    Bans,
    /// For windows of calendars, by a clock that steps over their ends, from a process whose own clock is hours off.
    Calendars,
    /// For few callers with few ids. Behind a policy's family of quotas stand one of bans and one of ids.
    Once,
}

impl Calls {
    /// Says whether most charges are given back.
    fn are_settled(self) -> bool {
        matches!(self, Self::Settled | Self::Waiting | Self::Warming)
    }
}

pub(super) struct Questions {
    calls: Calls,
    random: Random,
    usual: Option<Usual>,
    pub(super) families: Vec<Vec<Quota>>,
    pub(super) scopes: Vec<Scope>,
    pub(super) receipts: Vec<Receipt>,
    /// The time, in µs.
    pub(super) now: u64,
    /// The time of the process that asks, in µs.
    pub(super) process_us: u64,
}

impl Questions {
    pub(super) fn new(calls: Calls, seed: u64) -> Self {
        let mut families = families();
        if calls == Calls::AtBoundaries {
            families.retain(|quotas| {
                let is_short = quotas[0].period() <= Duration::from_micros(1_280);
                is_short && quotas[0].algorithm() != Algorithm::Gcra
            });
        }
        if calls == Calls::Settled {
            let gcra = |limit, period, burst| {
                Quota::new(limit, Duration::from_micros(period)).burst(burst)
            };
            families = vec![
                vec![gcra(10, 1_000_000, 400)],
                vec![gcra(7, 1_000_000, 300), gcra(7, 1_000_000, 30)],
            ];
        }
        if calls == Calls::Waiting {
            let waiting = |limit, period, burst, wait| {
                let quota = Quota::new(limit, Duration::from_micros(period)).burst(burst);
                quota.wait_up_to(Duration::from_micros(wait))
            };
            families = vec![
                vec![waiting(10, 1_000_000, 1, 3_000_000)],
                vec![waiting(7, 1_000_000, 5, 20_000_000)],
                // Others wait for less, or not at all, or count in other fractions.
                vec![
                    waiting(7, 1_000_000, 5, 20_000_000),
                    waiting(7, 1_000_000, 30, 1_000_000),
                    waiting(7, 1_000_000, 5, 20_000_000).waiting_at_most(Duration::ZERO),
                    waiting(19, 1_000_000, 3, 9_000_000),
                    Quota::new(7, Duration::from_secs(1)).burst(5),
                    Quota::new(10, Duration::from_secs(60)).burst(8),
                ],
                vec![
                    waiting(3, 1, 30, 300),
                    waiting(1_000_003, 86_400_000_000, 9, 86_000_000),
                ],
            ];
        }
        if calls == Calls::Warming {
            families = families_that_warm_up();
        }
        if calls == Calls::Bans {
            families = families_with_bans();
        }
        if calls == Calls::Calendars {
            families = families_of_calendars();
        }
        if calls == Calls::Once {
            families = families_with_ids();
        }
        let mut policy = 0;
        let scopes = families
            .iter()
            .enumerate()
            .map(|(number, quotas)| {
                let name = if quotas[0].is_ban() {
                    format!("differential-{policy}#ban")
                } else if quotas[0].is_once() {
                    format!("differential-{policy}#once")
                } else {
                    policy = number;
                    format!("differential-{policy}")
                };
                Scope::of(&name, 0, &quotas[0])
            })
            .collect();
        Self {
            calls,
            random: Random(seed),
            usual: None,
            families,
            scopes,
            receipts: Vec::new(),
            now: 3_500_000_000_000_000,
            process_us: 3_500_000_000_000_000,
        }
    }

    /// True once in this many times.
    pub(super) fn flips(&mut self, one_in: u64) -> bool {
        self.random.below(one_in) == 0
    }

    /// The first total of a log: mostly one just below 31 or 32 bits.
    pub(super) fn total(&mut self) -> u32 {
        let near = self.random.of(&[1 << 31, 1 << 32, 1 << 20]) - self.random.below(12);
        u32::try_from(near % (1 << 32)).unwrap()
    }

    /// The requests of the next call.
    pub(super) fn next(&mut self) -> Vec<Request> {
        let (size, usual) = self.next_calls();
        if self.calls == Calls::AtBoundaries {
            self.step_over_boundaries();
        } else if self.calls.are_settled() {
            self.step_a_little();
        } else if matches!(self.calls, Calls::Bans | Calls::Once) {
            self.step_among_bans();
        } else if self.calls == Calls::Calendars {
            self.step_over_days();
        } else if usual.is_none() || self.random.below(3) == 0 {
            self.move_time();
        }
        self.process_us = self.now;
        if self.calls == Calls::Calendars {
            self.process_us = self.now + self.random.below(2 * DAY_US) - DAY_US;
        }
        (0..size).map(|_| self.request(usual)).collect()
    }

    /// Half of the calls are of the usual kinds, for which the script has special paths. The next call is often like the one
    /// before, so that budgets are used up to the last unit.
    fn next_calls(&mut self) -> (usize, Option<Usual>) {
        if self.random.below(4) == 0 {
            let is_usual = match self.calls {
                Calls::Any => self.random.below(2) == 0,
                Calls::Alone => self.random.below(8) > 0,
                Calls::Bans => self.random.below(2) == 0,
                Calls::AtBoundaries
                | Calls::Settled
                | Calls::Waiting
                | Calls::Warming
                | Calls::Calendars
                | Calls::Once => false,
            };
            self.usual = is_usual.then(|| Usual::any(&mut self.random));
        }
        match self.calls {
            Calls::Any => (self.random.of(&[1, 1, 2, 5, 20, 64]), self.usual),
            Calls::Alone => {
                let usual = self.usual.map(|usual| Usual {
                    charges: 1,
                    ..usual
                });
                (1, usual)
            }
            Calls::AtBoundaries => (self.random.of(&[1, 1, 2, 5, 20]), None),
            Calls::Bans if self.usual.is_some() => (self.random.of(&[1, 1, 2, 5, 30]), self.usual),
            Calls::Settled
            | Calls::Waiting
            | Calls::Warming
            | Calls::Bans
            | Calls::Calendars
            | Calls::Once => (self.random.of(&[1, 2, 5]), None),
        }
    }

    fn move_time(&mut self) {
        let most = self.random.of(&[1, 10, 200, 1_500, 500_000, 100_000_000]);
        let by = self.random.below(most);
        match self.random.below(20) {
            0 => self.now -= by,
            1..=12 => self.now += by,
            _ => {}
        }
    }

    /// Advances the clock to where a charge of long ago is about to have drained. Rarely back.
    fn step_a_little(&mut self) {
        let by = self.random.below(60_000);
        match self.random.below(40) {
            0 => self.now -= by,
            1 => self.now += 40 * by,
            // Until all is drained, and some of it cold.
            2 if self.calls == Calls::Warming => self.now += 400 * by,
            _ => self.now += by,
        }
    }

    /// Advances the clock by less than a ban lasts, mostly. Rarely back.
    fn step_among_bans(&mut self) {
        let by = self.random.below(4_000);
        match self.random.below(60) {
            0 => self.now -= 10 * by,
            1 => self.now += 100 * by,
            2..30 => self.now += by / 10,
            _ => self.now += by / 200,
        }
    }

    /// Advances the clock by hours, or to about a midnight in some zone, or by weeks. Rarely back.
    fn step_over_days(&mut self) {
        let hour = DAY_US / 24;
        match self.random.below(16) {
            0 => self.now -= self.random.below(3 * DAY_US),
            1 => self.now += self.random.below(40 * DAY_US),
            2 => self.now -= self.random.below(20 * hour),
            3..6 => self.now += self.random.below(DAY_US),
            6..9 => {
                let next = self.now - self.now % hour + self.random.below(24) * hour;
                self.now = next + self.random.below(3) - 1;
            }
            _ => {}
        }
    }

    /// The charges of one or two policies, each with its ban before, behind or without it.
    fn guarded_charges(&mut self) -> Vec<(Scope, Quota, Key, u64, Mode)> {
        let key = Key::from(self.random.below(2));
        let pairs = self.families.len() / 2;
        let first = self.random.index(pairs);
        let mut charges = Vec::new();
        for pair in [first, (first + 1) % pairs] {
            let mode = self
                .random
                .of(&[Mode::Enforce, Mode::Enforce, Mode::Shadow, Mode::Probe]);
            let (quotas, bans) = (2 * pair, 2 * pair + 1);
            for _ in 0..self.random.of(&[0, 1, 1, 1, 2]) {
                let quota = self.random.of(&self.families[quotas]);
                let other = Key::from(self.random.below(2));
                let key = if self.flips(8) { other } else { key.clone() };
                let cost = self.random.of(&[0, 1, 1, 1, 2, 1 << 60]);
                charges.push((self.scopes[quotas], quota, key, cost, mode));
            }
            if !self.flips(8) {
                let ban = self.random.of(&self.families[bans]);
                let cost = self.random.of(&[0, 0, 0, 0, 0, 0, 1, 3]);
                let ban_mode = if self.flips(16) { Mode::Shadow } else { mode };
                let place = self.random.index(charges.len() + 1);
                charges.insert(place, (self.scopes[bans], ban, key.clone(), cost, ban_mode));
            }
            if !charges.is_empty() && self.flips(2) {
                break;
            }
        }
        if charges.is_empty() {
            charges.push((self.scopes[1], self.families[1][0], key, 0, Mode::Enforce));
        }
        charges
    }

    /// The charges of one or both policies, each with its ids, and the first with its ban, in any order. A policy has one mode,
    /// mostly.
    fn charges_with_ids(&mut self) -> Vec<(Scope, Quota, Key, u64, Mode)> {
        let mut charges = Vec::new();
        let caller = Key::from(self.random.below(2));
        let modes = [Mode::Enforce, Mode::Enforce, Mode::Shadow, Mode::Probe];
        let policies: &[_] = self
            .random
            .of(&[&[(0, 2)][..], &[(3, 4)], &[(0, 2), (3, 4)]]);
        for &(quotas, ids) in policies {
            let mode = self.random.of(&modes);
            let mut wanted = Vec::new();
            for _ in 0..self.random.of(&[0, 1, 1, 1, 2]) {
                wanted.push((quotas, self.random.of(&[0, 1, 1, 1, 2, 1 << 60])));
            }
            if quotas == 0 && self.flips(2) {
                wanted.push((1, self.random.of(&[0, 0, 0, 0, 0, 1])));
            }
            for _ in 0..self.random.of(&[0, 1, 1, 1, 1, 2]) {
                wanted.push((ids, self.random.of(&[0, 1, 1, 1, 1, 3])));
            }
            for (family, cost) in wanted {
                let quota = self.random.of(&self.families[family]);
                let key = if family == ids || self.flips(8) {
                    Key::from(self.random.below(2))
                } else {
                    caller.clone()
                };
                // Charges on trial and questions of one budget in one call are told apart by no policy.
                let mode = if family == ids && self.flips(16) {
                    self.random.of(&modes)
                } else {
                    mode
                };
                let place = self.random.index(charges.len() + 1);
                charges.insert(place, (self.scopes[family], quota, key, cost, mode));
            }
        }
        if charges.is_empty() {
            charges.push((
                self.scopes[0],
                self.families[0][0],
                caller,
                1,
                Mode::Enforce,
            ));
        }
        charges
    }

    /// A charge, and behind it the ban that guards it: as a policy with a ban makes them.
    fn usually_guarded(&mut self, usual: Usual) -> Vec<(Scope, Quota, Key, u64, Mode)> {
        let key = Key::from(self.random.below(usual.callers));
        let mut charge = |family: usize, cost| {
            let quotas = &self.families[family];
            let quota = if usual.tiers {
                self.random.of(quotas)
            } else {
                quotas[usual.own % quotas.len()]
            };
            (self.scopes[family], quota, key.clone(), cost, Mode::Enforce)
        };
        vec![charge(0, usual.cost), charge(1, 0)]
    }

    fn step_over_boundaries(&mut self) {
        let window = self.random.of(&[10, 128, 500, 640, 1_000, 1_280]);
        let into = self.now % window;
        match self.random.below(8) {
            0 => self.now += window - into + self.random.below(3),
            1 => self.now -= into + self.random.below(3),
            2 => self.now -= self.random.below(600),
            3 => self.now += self.random.below(600),
            _ => {}
        }
    }

    fn request(&mut self, usual: Option<Usual>) -> Request {
        let is_settled = self.calls.are_settled();
        let share = if is_settled { 2 } else { 4 };
        let settle = usual.is_none() && !self.receipts.is_empty() && self.random.below(share) == 0;
        if settle {
            let newest = self.receipts.len() as u64;
            let back = self.random.of(&[1, 5, 40, newest]).min(newest);
            let index = usize::try_from(newest - 1 - self.random.below(back)).unwrap();
            let receipt = self.receipts[index].copy();
            let names = SmallVec::from_iter([name(receipt.scope(), receipt.key())]);
            let n = self.random.of(&[1, 2, receipt.cost(), 1 << 50]);
            let verb = self.random.below(8);
            if is_settled && !self.flips(40) || verb < 4 {
                self.receipts.swap_remove(index);
                return credit(receipt, n);
            }
            let work = match verb {
                4..7 => Work::Debit(receipt, n),
                _ => Work::Reset(receipt.scope()),
            };
            return Request {
                work,
                names,
                owed: None,
                known: None,
            };
        }
        let count = match usual {
            Some(usual) => usual.charges,
            None => self.random.of(&[1, 1, 1, 2, 2, 3, 5]),
        };
        let keys: Vec<_> = match (self.calls, usual) {
            (Calls::Bans, Some(usual)) => self.usually_guarded(usual),
            (Calls::Bans, None) => self.guarded_charges(),
            (Calls::Once, _) => self.charges_with_ids(),
            (_, Some(usual)) => (0..count)
                .map(|number| self.usual_charge(usual, number))
                .collect(),
            (_, None) => (0..count).map(|_| self.any_charge()).collect(),
        };
        let charges: Vec<_> = keys
            .iter()
            .map(|(scope, quota, key, cost, mode)| Charge {
                scope: *scope,
                quota,
                key,
                cost: *cost,
                mode: *mode,
            })
            .collect();
        let request = |call: Call<'_>| Request {
            work: Work::decide(call),
            names: (call.charges.iter())
                .map(|c| name(c.scope, c.key))
                .collect(),
            owed: None,
            known: None,
        };
        if usual.is_none() && self.flips(4) {
            let largest = charges.iter().map(|charge| charge.quota.capacity()).max();
            let largest = largest.unwrap_or(1);
            let most = self
                .random
                .of(&[1, 2, 3, 7, 100, largest, largest + 1, 1 << 60]);
            let at_least = self.random.of(&[0, 1, 1, 2, 5, largest, 1 << 59]);
            let granted = charges.iter().map(|charge| Charge {
                cost: if charge.quota.is_ban() {
                    charge.cost
                } else {
                    most
                },
                ..*charge
            });
            let granted: Vec<_> = granted.collect();
            let grant = Call::of(&granted).at_least(at_least);
            if grant.check().is_ok() {
                return request(grant);
            }
        }
        request(Call::of(&charges))
    }

    fn any_charge(&mut self) -> (Scope, Quota, Key, u64, Mode) {
        let family = self.random.index(self.families.len());
        let is_settled = self.calls.are_settled();
        let key = Key::from(self.random.below(if is_settled { 1 } else { 3 }));
        let quota = self.random.of(&self.families[family]);
        let cost = self
            .random
            .of(&[0, 1, 1, 1, 2, 3, 7, quota.capacity(), 1 << 60]);
        let cost = if is_settled {
            self.random.of(&[1, 2, 5, 9])
        } else {
            cost
        };
        let modes = [Mode::Enforce, Mode::Enforce, Mode::Shadow, Mode::Probe];
        let mode = if self.calls == Calls::Waiting && !self.flips(8) {
            Mode::Enforce
        } else {
            self.random.of(&modes)
        };
        (self.scopes[family], quota, key, cost, mode)
    }

    /// The first charge is to a caller's own budget, the others to a shared one.
    fn usual_charge(&mut self, usual: Usual, number: usize) -> (Scope, Quota, Key, u64, Mode) {
        let family = if number == 0 {
            usual.own
        } else {
            (usual.shared + number) % GCRA_FAMILIES
        };
        let keys = if number == 0 { usual.callers } else { 1 };
        let quota = if usual.tiers {
            self.random.of(&self.families[family])
        } else {
            self.families[family][0]
        };
        let key = Key::from(self.random.below(keys));
        (self.scopes[family], quota, key, usual.cost, Mode::Enforce)
    }
}

fn credit(receipt: Receipt, n: u64) -> Request {
    let id = receipt.id_to_close(n).map(|id| name(id.scope(), id.key()));
    let named = name(receipt.scope(), receipt.key());
    Request::credit(receipt, n, named, id)
}

pub(super) fn name(scope: Scope, key: &Key) -> Name {
    let mut name = format!("{}:", scope.policy()).into_bytes();
    name.extend_from_slice(key.as_bytes());
    name
}
