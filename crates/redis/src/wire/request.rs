//! A request, and its words for the script.

use std::time::Duration;

use smallvec::{SmallVec, smallvec};
use tollgate_core::{
    Ban, Call, Charge, DEBT_CEILING, Key, Mode, Once, Quota, Receipt, Scope, Unit,
};

use super::calendars::{BOUNDS, Calendars};
use super::numbers::{Words, put};
use crate::holder::{Caller, PendingRelease, Report};
use crate::known::KnownPart;
use crate::name::{Name, Names};
use crate::script;

/// A charge that outlives the caller's borrow.
#[derive(Clone, Debug)]
pub(crate) struct OwnedCharge {
    pub(super) scope: Scope,
    quota: Quota,
    pub(super) key: Key,
    cost: u64,
    mode: Mode,
}

impl OwnedCharge {
    fn of(charge: &Charge<'_>) -> Self {
        Self {
            scope: charge.scope,
            quota: *charge.quota,
            key: charge.key.clone(),
            cost: charge.cost,
            mode: charge.mode,
        }
    }

    pub(crate) fn borrow(&self) -> Charge<'_> {
        Charge {
            scope: self.scope,
            quota: &self.quota,
            key: &self.key,
            cost: self.cost,
            mode: self.mode,
        }
    }
}

/// The verb of a request.
#[derive(Debug)]
pub(crate) enum Work {
    /// A decision about all of it, or about as much as there is and at least this much.
    Decide(SmallVec<[OwnedCharge; 2]>, Option<u64>),
    Credit(Receipt, u64),
    Debit(Receipt, u64),
    Reset(Scope),
    /// The units that all calls of earlier generations hold: see `lua/held.lua`. They are known when the call leaves.
    Tell(Report),
}

impl Work {
    pub(crate) fn decide(call: Call<'_>) -> Self {
        let charges = call.charges.iter().map(OwnedCharge::of);
        Self::Decide(charges.collect(), call.at_least)
    }

    /// The charges to be decided, if it asks for a decision.
    pub(crate) fn charges(&self) -> Option<&[OwnedCharge]> {
        match self {
            Self::Decide(charges, _) => Some(charges),
            Self::Credit(..) | Self::Debit(..) | Self::Reset(_) | Self::Tell(_) => None,
        }
    }
}

/// One request of a call: its verb and charges, and the names of its states in Redis, one for each of its charges.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) work: Work,
    pub(crate) names: SmallVec<[Name; 2]>,
    /// The units that leave the books of this process with it, if it is a release.
    pub(crate) owed: Option<PendingRelease>,
    /// Its part in what this process knows of denials, if it has one.
    pub(crate) known: Option<KnownPart>,
}

impl Caller {
    /// The run that goes ahead of all others.
    pub(super) fn run(&self, places: &[u16]) -> Vec<u8> {
        let mut run = vec![0, CALLER];
        run.extend_from_slice(&self.holder);
        run.extend_from_slice(&self.generation.to_le_bytes()[..6]);
        run.extend_from_slice(&self.lease_ms.to_le_bytes()[..6]);
        run.extend(places.iter().flat_map(|place| place.to_le_bytes()));
        run
    }
}

/// A request in the words of the script: the head of a run, which equal requests share, and the positions of its names.
#[derive(Debug)]
pub(super) struct Wording {
    /// The verb and the charges.
    pub(super) shape: Words,
    /// Positions in the request's names, one for each charge of the shape.
    pub(super) names: SmallVec<[usize; 4]>,
    /// The words behind the numbers of the keys, an equal part behind each: the receipts of a credit.
    pub(super) behind: Words,
}

const DECIDE: u8 = 0;
const CREDIT: u8 = 1;
const DEBIT: u8 = 2;
const RESET: u8 = 3;
const CALLER: u8 = 4;
const TELL: u8 = 5;
const RELEASE: u8 = 6;
const GRANT: u8 = 7;

pub(super) const ENFORCE: u8 = 0;
pub(super) const SHADOW: u8 = 1;
pub(super) const PROBE: u8 = 2;

impl Request {
    /// The placeholder of a request that has gone on.
    pub(crate) fn nothing() -> Self {
        Self {
            work: Work::Decide(SmallVec::new(), None),
            names: SmallVec::new(),
            owed: None,
            known: None,
        }
    }

    /// A request that gives back at most `n` of a charge. If an id [must be closed](Receipt::id_to_close) first, its name stands
    /// behind that of the charge.
    pub(crate) fn credit(receipt: Receipt, n: u64, name: Name, id: Option<Name>) -> Self {
        Self {
            work: Work::Credit(receipt, n),
            names: [name].into_iter().chain(id).collect(),
            owed: None,
            known: None,
        }
    }

    /// The charges that it would hold, with the positions of their names.
    pub(crate) fn held(&self) -> impl Iterator<Item = usize> {
        let charges = self.work.charges().unwrap_or_default();
        let held = |charge: &OwnedCharge| charge.scope.unit() == Unit::Held;
        (charges.iter().enumerate())
            .filter_map(move |(index, charge)| held(charge).then_some(index))
    }

    /// Says whether the script must know whose call it is.
    pub(crate) fn concerns_a_holder(&self) -> bool {
        match &self.work {
            Work::Decide(charges, _) => charges
                .iter()
                .any(|charge| charge.scope.unit() == Unit::Held),
            Work::Credit(receipt, _) | Work::Debit(receipt, _) => {
                receipt.scope().unit() == Unit::Held
            }
            Work::Reset(scope) => scope.unit() == Unit::Held,
            Work::Tell(_) => true,
        }
    }

    /// A request for a decision.
    pub(crate) fn for_decision(call: Call<'_>, names: &Names) -> Self {
        let charges = call.charges.iter();
        let names = charges.map(|it| names.of(it.scope, it.key));
        Self {
            work: Work::decide(call),
            names: names.collect(),
            owed: None,
            known: None,
        }
    }

    /// Its verb and the numbers of its charges' rules, if a composed script may decide it: it shares calls with requests of the same.
    pub(crate) fn shape(&self) -> Option<SmallVec<[u8; 4]>> {
        let (charges, verb, most) = match &self.work {
            Work::Decide(charges, None) => (charges, DECIDE, script::MOST),
            Work::Decide(charges, Some(_)) => (charges, GRANT, 1),
            _ => return None,
        };
        let is_usual = |charge: &OwnedCharge| {
            let has_rule = script::is_composed(charge.scope.unit().number());
            has_rule && charge.mode == Mode::Enforce && is_plain(&charge.quota)
        };
        let may_have_one = (1..=most).contains(&charges.len()) && charges.iter().all(is_usual);
        let numbers = charges.iter().map(|charge| charge.scope.unit().number());
        may_have_one.then(|| [verb].into_iter().chain(numbers).collect())
    }

    /// The least amount that it is worth, if it asks for as much as there is.
    pub(crate) fn least(&self) -> Option<u64> {
        match self.work {
            Work::Decide(_, least) => least,
            _ => None,
        }
    }

    /// The names of its ids, or of all else.
    pub(super) fn names_of(&self, ids: bool) -> impl Iterator<Item = &Name> {
        let charges = self.work.charges().unwrap_or_default();
        let is_id = move |index: usize| charges.get(index).is_some_and(|it| it.quota.is_once());
        let names = self.names.iter().enumerate();
        names.filter_map(move |(index, name)| (is_id(index) == ids).then_some(name))
    }

    /// Says whether others wait for its answer.
    pub(crate) fn has_turn(&self) -> bool {
        matches!(self.known, Some(KnownPart::Turn(_)))
    }

    /// The number of its states that may be long. Those of bans and of ids are not.
    pub(crate) fn long_states(&self) -> usize {
        match self.work.charges() {
            Some(charges) => (charges.iter())
                .filter(|charge| !charge.quota.is_ban() && !charge.quota.is_once())
                .count(),
            None => self.names.len(),
        }
    }

    /// Its cost to the server, in enforced GCRA charges: 14,000 instructions each. `tollgate-bench redis-instructions` counts
    /// the others.
    pub(crate) fn weight(&self) -> usize {
        let rolling = |unit| match unit {
            Unit::RollingWindow { buckets, .. } => buckets as usize / 5,
            _ => 0,
        };
        if self.shape().is_some() {
            // A composed script pays 12,000 to 20,000 for any other charge.
            let charges = self.work.charges().unwrap_or_default();
            let each = charges.iter().map(|it| 1 + rolling(it.scope.unit()));
            return each.sum();
        }
        let of = |unit| match unit {
            // 16 kB are read, cut and written whole, and a bisection reads ten entries. The weight is above the count of
            // instructions, because most of the time is waiting for memory.
            Unit::SlidingLog { .. } => 32,
            Unit::Gcra => 1,
            _ => 3 + rolling(unit),
        };
        let settled = |unit| 2 + of(unit);
        match &self.work {
            Work::Decide(charges, None) => (charges.iter())
                .map(|charge| {
                    let is_usual = charge.mode == Mode::Enforce && is_plain(&charge.quota);
                    of(charge.scope.unit()) + 3 * usize::from(!is_usual)
                })
                .sum(),
            Work::Decide(charges, Some(_)) => (charges.iter())
                .map(|charge| 2 * settled(charge.scope.unit()))
                .sum(),
            Work::Credit(receipt, n) => {
                let id = receipt.id_to_close(*n).map_or(0, |_| settled(Unit::Once));
                let back = match receipt.scope().unit() {
                    // It may have to look at 32 earlier credits, and to write them.
                    Unit::Gcra => 12,
                    // 23,000 to 45,000 instructions, as an acquire.
                    Unit::Held => of(Unit::Held),
                    unit => settled(unit),
                };
                back + id
            }
            Work::Debit(receipt, _) => settled(receipt.scope().unit()),
            Work::Reset(scope) => settled(scope.unit()),
            Work::Tell(_) => settled(Unit::Held),
        }
    }
}

/// Says whether neither turns nor a warm-up need the general path.
const fn is_plain(quota: &Quota) -> bool {
    !quota.waits() && quota.warm_up_period().is_zero()
}

impl Request {
    /// Says whether equal ones for the same keys may be sent as one and its number of times.
    pub(super) fn may_repeat(&self) -> bool {
        match &self.work {
            Work::Decide(charges, _) => !charges.is_empty(),
            Work::Credit(..) => self.concerns_a_holder(),
            Work::Debit(..) | Work::Reset(_) | Work::Tell(_) => false,
        }
    }

    /// Says whether both have one charge in the same words, of any state.
    pub(super) fn asks_as(&self, other: &Self) -> bool {
        let asked = |charge: &OwnedCharge| (charge.quota, charge.cost, charge.mode);
        self.one_charge()
            .is_some_and(|one| other.one_charge().map(asked) == Some(asked(one)))
    }

    fn one_charge(&self) -> Option<&OwnedCharge> {
        match &self.work {
            Work::Decide(charges, None) => match &charges[..] {
                [charge] => Some(charge),
                _ => None,
            },
            _ => None,
        }
    }

    pub(super) fn wording(&self, calendars: &mut Calendars) -> Wording {
        match &self.work {
            Work::Decide(charges, at_least) => self.decide(charges, *at_least, calendars),
            Work::Credit(receipt, n) if receipt.scope().unit() == Unit::Held => settle(
                RELEASE,
                receipt,
                (*n).min(receipt.cost()),
                Words::new(),
                calendars,
            ),
            Work::Credit(receipt, n) => {
                let mut behind = Words::new();
                put_receipt(&mut behind, receipt);
                let n = (*n).min(receipt.cost());
                let Some(id) = receipt.id_to_close(n) else {
                    return settle(CREDIT, receipt, n, behind, calendars);
                };
                // The id first, since it says whether the charge comes back.
                let mut shape: Words = smallvec![CREDIT, 2];
                put_charge(&mut shape, PROBE, 1, id.quota(), calendars);
                shape.extend_from_slice(&[0; CONCERNED]);
                put_settled(&mut shape, receipt, n, calendars);
                let receipt = behind.clone();
                behind.extend(receipt);
                Wording {
                    shape,
                    names: SmallVec::from_slice(&[1, 0]),
                    behind,
                }
            }
            Work::Debit(receipt, n) => settle(DEBIT, receipt, *n, Words::new(), calendars),
            Work::Reset(scope) => {
                let mut shape: Words = smallvec![RESET, 1];
                put_unit(&mut shape, scope.unit());
                Wording {
                    shape,
                    names: SmallVec::from_slice(&[0]),
                    behind: Words::new(),
                }
            }
            Work::Tell(telling) => {
                let mut shape: Words = smallvec![TELL, 1];
                put_unit(&mut shape, Unit::Held);
                Wording {
                    shape,
                    names: SmallVec::from_slice(&[0]),
                    behind: SmallVec::from_slice(&telling.units().to_le_bytes()[..6]),
                }
            }
        }
    }

    /// Charges with one state and mode are one. Enforced ones stand first, then shadows, then probes. If at least so much is to be
    /// granted, charges cost one unit each, and the script multiplies them.
    fn decide(
        &self,
        charges: &[OwnedCharge],
        at_least: Option<u64>,
        calendars: &mut Calendars,
    ) -> Wording {
        let cost_of = |charge: &OwnedCharge| match at_least {
            Some(_) if !charge.quota.is_ban() => 1,
            _ => charge.cost,
        };
        let mut groups: SmallVec<[(usize, u64); 4]> = SmallVec::new();
        for (index, charge) in charges.iter().enumerate() {
            // Each id counts its own replay.
            let equal = groups.iter_mut().find(|(first, _)| {
                charges[*first].mode == charge.mode
                    && self.names[*first] == self.names[index]
                    && !charge.quota.is_once()
            });
            match equal {
                Some((_, cost)) => *cost = cost.saturating_add(cost_of(charge)),
                None => groups.push((index, cost_of(charge))),
            }
        }
        let mut wanted: SmallVec<[(usize, u8, u64); 4]> = SmallVec::new();
        for (mode, number) in [
            (Mode::Enforce, ENFORCE),
            (Mode::Shadow, SHADOW),
            (Mode::Probe, PROBE),
        ] {
            let of_mode = groups.iter().filter(|(index, _)| {
                charges[*index].mode == mode && !charges[*index].quota.is_once()
            });
            wanted.extend(of_mode.map(|&(index, cost)| (index, number, cost)));
        }
        // If charges share a state, the last one's quota decides how far ahead of now it may lie.
        let shares =
            (1..self.names.len()).any(|index| self.names[..index].contains(&self.names[index]));
        if shares {
            let budgets = (0..charges.len()).filter(|index| !charges[*index].quota.is_once());
            wanted.extend(budgets.map(|index| (index, PROBE, 0)));
        }
        // Behind all others, in their own order.
        let ids = groups
            .iter()
            .filter(|(index, _)| charges[*index].quota.is_once());
        wanted.extend(ids.map(|&(index, cost)| {
            let number = match charges[index].mode {
                Mode::Enforce => ENFORCE,
                Mode::Shadow => SHADOW,
                _ => PROBE,
            };
            (index, number, cost)
        }));

        let verb = at_least.map_or(DECIDE, |_| GRANT);
        let mut shape: Words = smallvec![verb, u8::try_from(wanted.len()).unwrap_or(u8::MAX)];
        let mut names = SmallVec::new();
        for &(index, mode, cost) in &wanted {
            let quota = &charges[index].quota;
            // Above the capacity no cost passes, however large.
            let cost = cost.min(quota.capacity() + 1);
            put_charge(&mut shape, mode, cost, quota, calendars);
            if quota.is_ban() || quota.is_once() {
                let rule = charges[index].borrow();
                let concerns = |&(other, mode, _): &(usize, u8, u64)| {
                    let other = charges[other].borrow();
                    mode != PROBE && rule.guards(&other) || rule.is_id_beside(&other)
                };
                let bits = wanted.iter().take(32).enumerate();
                let concerned = bits.fold(0_u32, |bits, (number, other)| {
                    bits | u32::from(concerns(other)) << number
                });
                shape.extend_from_slice(&concerned.to_le_bytes());
            }
            names.push(index);
        }
        if let Some(at_least) = at_least {
            let granted = || charges.iter().filter(|charge| !charge.quota.is_ban());
            // Above all capacities no amount passes, however large.
            let largest = granted().map(|charge| charge.quota.capacity() + 1).max();
            let most = granted().map(|charge| charge.cost).max();
            let most = most.min(largest).unwrap_or(0);
            put(&mut shape, most);
            put(&mut shape, at_least.min(most));
        }
        Wording {
            shape,
            names,
            behind: Words::new(),
        }
    }
}

fn settle(
    verb: u8,
    receipt: &Receipt,
    n: u64,
    behind: Words,
    calendars: &mut Calendars,
) -> Wording {
    let mut shape: Words = smallvec![verb, 1];
    put_settled(&mut shape, receipt, n, calendars);
    Wording {
        shape,
        names: SmallVec::from_slice(&[0]),
        behind,
    }
}

/// The charge of a receipt, of which `n` are settled.
fn put_settled(shape: &mut Words, receipt: &Receipt, n: u64, calendars: &mut Calendars) {
    let quota = receipt.quota();
    // A budget owes no more.
    let n = n.min(quota.capacity() * DEBT_CEILING);
    put_charge(shape, PROBE, n, quota, calendars);
    if quota.is_ban() || quota.is_once() {
        shape.extend_from_slice(&[0; CONCERNED]);
    }
}

/// The times of a receipt: of its charge, and at which its budget was to be full.
fn put_receipt(out: &mut Words, receipt: &Receipt) {
    let (at, (full_us, full_rest)) = (receipt.at().as_micros(), full_at(receipt));
    put(out, at);
    put(out, full_us);
    out.extend_from_slice(&full_rest.to_le_bytes());
}

/// The number of the algorithm, the mode, the cost and the quota's parameters.
pub(super) fn put_charge(
    out: &mut Words,
    mode: u8,
    cost: u64,
    quota: &Quota,
    calendars: &mut Calendars,
) {
    match quota.unit() {
        Unit::Gcra => {
            let period_us = u64::try_from(quota.period().as_micros()).unwrap_or(u64::MAX);
            let interval = Interval::of(period_us, quota.limit());
            put_gcra(out, mode, &interval, cost, quota.capacity());
            if quota.waits() {
                put_wait(out, quota);
            } else if let Some(figures) = quota.warmth(cost) {
                put_warm_up(out, quota, figures);
            }
        }
        unit @ (Unit::FixedWindow { .. }
        | Unit::SlidingWindow { .. }
        | Unit::RollingWindow { .. }
        | Unit::SlidingLog { .. }) => put_window(out, mode, cost, quota.limit(), unit),
        unit @ Unit::IntervalRefill { .. } => {
            put_window(out, mode, cost, quota.limit(), unit);
            put(out, quota.capacity());
        }
        unit @ Unit::Calendar(calendar) => {
            let bounds = calendars.bounds(calendar);
            put_calendar(out, unit, mode, [cost, quota.limit()], bounds);
        }
        Unit::Held => put_held(out, mode, cost, quota.limit()),
        Unit::Ban => put_ban(out, mode, cost, quota.ban()),
        Unit::Once => put_once(out, mode, cost, quota.once().unwrap_or_default()),
    }
}

/// The time at which the budget of a receipt would have been full, as its quota counts. If one request charged a key under two
/// quotas, the rest counts by the first one's. A rest of this quota's microsecond or more counts as one microsecond, in the
/// script as in core.
fn full_at(receipt: &Receipt) -> (u64, u32) {
    let ((us, rest), quota) = (receipt.full_at(), receipt.quota());
    let period_us = u64::try_from(quota.period().as_micros()).unwrap_or(u64::MAX);
    if u64::from(rest) >= Interval::of(period_us, quota.limit()).denominator {
        (us + 1, 0)
    } else {
        (us, rest)
    }
}

/// A charge of some quota of this unit: a reset must know the kind of state that it forgets, but not the limit.
fn put_unit(out: &mut Words, unit: Unit) {
    match unit {
        Unit::Gcra => put_gcra(out, PROBE, &Interval::of(1, 1), 0, 1),
        Unit::FixedWindow { .. }
        | Unit::SlidingWindow { .. }
        | Unit::RollingWindow { .. }
        | Unit::SlidingLog { .. } => put_window(out, PROBE, 0, 1, unit),
        Unit::IntervalRefill { .. } => {
            put_window(out, PROBE, 0, 1, unit);
            put(out, 1);
        }
        Unit::Calendar(_) => put_calendar(out, unit, PROBE, [0, 1], [0; BOUNDS]),
        Unit::Held => put_held(out, PROBE, 0, 1),
        Unit::Ban => {
            put_ban(out, PROBE, 0, None);
            out.extend_from_slice(&[0; CONCERNED]);
        }
        Unit::Once => {
            put_once(out, PROBE, 0, Once::default());
            out.extend_from_slice(&[0; CONCERNED]);
        }
    }
}

/// The drain of one unit of a GCRA budget: period/limit in lowest terms, in µs.
pub(super) struct Interval {
    units: u64,
    denominator: u64,
}

impl Interval {
    pub(super) fn of(period_us: u64, limit: u64) -> Self {
        let divisor = gcd(limit, period_us);
        Self {
            units: period_us / divisor,
            denominator: limit / divisor,
        }
    }

    /// The drain of `cost`, and the rest of a microsecond.
    pub(super) fn times(&self, cost: u64) -> (u64, u64) {
        let units = u128::from(cost) * u128::from(self.units);
        let denominator = u128::from(self.denominator);
        let whole = |number| u64::try_from(number).unwrap_or(u64::MAX);
        (whole(units / denominator), whole(units % denominator))
    }
}

/// The drains of the cost and of a full budget, worked out here because the script's time is more expensive. The tag tells the
/// largest power of two that is no longer than a full drain. It gives the width of the cells at whose ends states expire, so
/// that no state outlives its meaning by more than a drain. It also tells another quota how much of a debt to leave alone.
fn put_gcra(out: &mut Words, mode: u8, interval: &Interval, cost: u64, burst: u64) {
    let ((us, rest), (full_us, full_rest)) = (interval.times(cost), interval.times(burst));
    let cell = full_us.max(1).ilog2().min(48);
    out.extend_from_slice(&[Unit::Gcra.number(), mode]);
    put(out, us);
    put(out, full_us);
    out.push(128 | u8::try_from(cell).unwrap_or(48));
    put(out, interval.denominator);
    put(out, rest);
    put(out, full_rest);
}

/// Makes the charge at the end one of a quota under which requests may wait: see `lua/waiting.lua`.
fn put_wait(out: &mut Words, quota: &Quota) {
    let thirty_seconds = put_reach(out, Unit::TURNS_NUMBER, quota);
    put_micros(out, quota.longest_wait());
    out.push(thirty_seconds);
}

/// Makes the charge at the end one of a quota that warms up: see `lua/warming.lua`.
fn put_warm_up(out: &mut Words, quota: &Quota, [spent, step, steps, surcharge_us]: [u64; 4]) {
    let thirty_seconds = put_reach(out, Unit::WARM_UP_NUMBER, quota);
    out.push(thirty_seconds);
    put(out, spent);
    put_micros(out, quota.warm_up_period());
    put(out, step);
    put(out, steps);
    put(out, surcharge_us);
}

/// Gives the charge at the end this number, and the tag of its quota's reach. Returns the thirty-seconds of that.
fn put_reach(out: &mut Words, number: u8, quota: &Quota) -> u8 {
    const WORDS: usize = 43;
    const TAG: usize = 2 + 8 + 8;

    let (exponent, thirty_seconds) = quota.reach().unwrap_or_default();
    let start = out.len().saturating_sub(WORDS);
    out[start] = number;
    out[start + TAG] = 128 | exponent;
    thirty_seconds
}

fn put_micros(out: &mut Words, time: Duration) {
    put(out, u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
}

fn put_window(out: &mut Words, mode: u8, cost: u64, limit: u64, unit: Unit) {
    out.extend_from_slice(&[unit.number(), mode]);
    put(out, cost);
    put(out, limit);
    put(out, unit.period_us().unwrap_or_default());
    if let Some((_sign, detail)) = unit.detail() {
        put(out, detail);
    }
}

/// The bounds of the windows around this process's time, of which the server's time chooses one: see `lua/calendar.lua`.
fn put_calendar(out: &mut Words, unit: Unit, mode: u8, figures: [u64; 2], bounds: [u64; BOUNDS]) {
    out.extend_from_slice(&[unit.number(), mode]);
    (figures.into_iter().chain(bounds)).for_each(|number| put(out, number));
}

fn put_held(out: &mut Words, mode: u8, cost: u64, limit: u64) {
    out.extend_from_slice(&[Unit::Held.number(), mode]);
    put(out, cost);
    put(out, limit);
}

/// The length of the bits for the charges that a ban guards or an id stands beside, which stand behind it.
const CONCERNED: usize = 4;

fn put_once(out: &mut Words, mode: u8, cost: u64, once: Once) {
    let (life_us, replays) = once.figures();
    out.extend_from_slice(&[Unit::Once.number(), mode]);
    put(out, cost);
    put(out, life_us);
    out.push(replays);
}

fn put_ban(out: &mut Words, mode: u8, cost: u64, ban: Option<Ban>) {
    out.extend_from_slice(&[Unit::Ban.number(), mode]);
    put(out, cost);
    let (strikes, onset, times) = ban.map_or((1, 0, [1; 4]), |ban| ban.figures());
    out.extend_from_slice(&[strikes, onset]);
    times.into_iter().for_each(|time| put(out, time));
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
