//! The script's reply, and the decisions that follow from it.

use redis::Value;
use smallvec::SmallVec;
use tollgate_core::{
    BackendError, Call, Decision, FailureKind, Snapshot, State, States, Timestamp, Unit, decide,
};

use super::calendars::Calendars;
use super::numbers::EXACT;
use super::plan::Plan;
use super::request::{OwnedCharge, Request, Work};
use super::state::{self, HeldDigest, OwnEntry};
use crate::holder::Held;

/// The time, the number of admitted requests, and the states as they were found.
#[derive(Debug)]
pub(crate) struct Reply(Vec<u8>);

impl Reply {
    /// Reads a reply.
    pub(crate) fn parse(value: Value) -> Option<Self> {
        match value {
            Value::BulkString(text) => Some(Self(text)),
            _ => None,
        }
    }

    /// The time, in the reply to a request for nothing.
    pub(crate) fn now(&self) -> Option<Timestamp> {
        self.now_of(0)
    }

    /// The time, in the reply to requests for so many keys.
    pub(super) fn now_of(&self, keys: usize) -> Option<Timestamp> {
        self.read(keys).map(|reply| reply.now)
    }

    fn read(&self, keys: usize) -> Option<DecodedReply<'_>> {
        DecodedReply::of(&self.0, keys)
    }
}

struct DecodedReply<'a> {
    now: Timestamp,
    admitted: u64,
    states: Vec<Slot<'a>>,
}

impl<'a> DecodedReply<'a> {
    fn of(text: &'a [u8], keys: usize) -> Option<Self> {
        let mut packed = ReplyReader(text);
        let (seconds, us) = (packed.decimal()?, packed.decimal()?);
        let now = Timestamp::from_micros(seconds.checked_mul(1_000_000)?.checked_add(us)?);
        let admitted = packed.integer()?;
        if packed.list()? != keys {
            return None;
        }
        let mut states = Vec::with_capacity(keys);
        for _ in 0..keys {
            states.push(packed.slot()?);
        }
        packed.0.is_empty().then_some(Self {
            now,
            admitted,
            states,
        })
    }
}

/// The outcome of one request: a decision, or nothing to report, or a foreign value in the place of a state.
pub(crate) type Outcome = Result<Option<Decision>, BackendError>;

/// Repeats the script's decisions: the same requests in the same order on the same states at the same time. Hands each outcome
/// to the caller with the position of its request, and tells `learn` of each decision, with the states that the call has left.
///
/// # Errors
///
/// If the reply cannot be read, or if the script admitted another number of requests than core. Then the decisions are unknown,
/// and nothing may pass.
pub(crate) fn replay<'a>(
    reply: &Reply,
    plan: &Plan,
    keys: usize,
    request: impl Fn(usize) -> &'a Request,
    mut learn: impl FnMut(usize, &Decision, &LeftStates<'_, '_>),
) -> Result<Vec<(usize, Outcome)>, BackendError> {
    let broken = |detail: &str| BackendError::new(FailureKind::ScriptFailed, detail);
    let mut read = reply
        .read(keys)
        .ok_or_else(|| broken("the script's reply cannot be read"))?;
    let mut admitted = 0;
    let mut outcomes = Vec::with_capacity(plan.order.len());
    for &position in &plan.order {
        let request = request(position);
        let outcome = one(
            read.now,
            &mut read.states,
            &plan.keys[position],
            &request.work,
            &plan.calendars,
        );
        // The script is not told of requests for nothing.
        let is_admitted = matches!(&outcome, Ok(Some(decision)) if decision.is_admitted());
        admitted += u64::from(is_admitted && !request.names.is_empty());
        outcomes.push((position, outcome));
    }
    if admitted != read.admitted {
        return Err(broken("the script and this process do not agree"));
    }
    for (position, outcome) in &outcomes {
        if let Ok(Some(decision)) = outcome {
            let left = LeftStates {
                at: read.now,
                slots: &read.states,
                keys: &plan.keys[*position],
            };
            learn(*position, decision, &left);
        }
    }
    Ok(outcomes)
}

/// The states of one request's charges, as the whole call has left them.
pub(crate) struct LeftStates<'s, 'a> {
    at: Timestamp,
    slots: &'s [Slot<'a>],
    keys: &'s [u8],
}

impl LeftStates<'_, '_> {
    /// The server's time.
    pub(crate) fn at(&self) -> Timestamp {
        self.at
    }

    /// The state of one charge's budget; `None` for places that are held, of which a reply has a digest.
    pub(crate) fn state(&self, charge: usize) -> Option<&State> {
        match self.slots.get(usize::from(*self.keys.get(charge)?))? {
            Slot::Live(state) => Some(state),
            _ => None,
        }
    }
}

/// A state: as it was found, and as it is now.
enum Slot<'a> {
    /// Empty if the key was missing.
    Found(Option<&'a [u8]>),
    /// The answer of the script's usual path on a held limit: twice the units, and one more if the process has an entry.
    Sum(u64),
    Live(State),
    /// The units that are held, and the part of this process.
    Held(State, Part),
    /// One that takes nothing, for this reason.
    Barred(FailureKind),
}

/// The part of the calling process in what is held.
#[derive(Clone, Copy, Default)]
struct Part {
    units: i64,
    is_there: bool,
}

impl Part {
    /// Releases some. Returns the number that this frees.
    fn release(&mut self, n: u64) -> u64 {
        if !self.is_there {
            return 0;
        }
        let before = self.units.max(0);
        self.units = self.units.saturating_sub_unsigned(n);
        before.abs_diff(self.units.max(0))
    }
}

fn held(units: u64) -> State {
    State::from(Snapshot::Held {
        held: units,
        generation_us: 0,
    })
}

impl Slot<'_> {
    /// As a state of this unit.
    fn open(&mut self, unit: Unit) -> Result<&mut State, BackendError> {
        if let Slot::Found(found) = self {
            *self = Self::of(*found, unit);
        }
        if let (Slot::Sum(sum), Unit::Held) = (&*self, unit) {
            // The script releases no more than the process holds, and that is at most all.
            let part = Part {
                units: (sum / 2).cast_signed(),
                is_there: sum % 2 == 1,
            };
            *self = Slot::Held(held(sum / 2), part);
        }
        match self {
            Slot::Live(state) | Slot::Held(state, _) => Ok(state),
            Slot::Barred(kind) => Err(barred(*kind)),
            Slot::Found(_) | Slot::Sum(_) => Err(barred(FailureKind::ForeignState)),
        }
    }

    fn of<'a>(found: Option<&[u8]>, unit: Unit) -> Slot<'a> {
        match (found, unit) {
            (None, Unit::Held) => Slot::Held(held(0), Part::default()),
            (None, _) => Slot::Live(State::empty(unit)),
            (Some(bytes), Unit::Held) => {
                let Some(HeldDigest { total, own, .. }) = HeldDigest::read(bytes) else {
                    return Slot::Barred(FailureKind::ForeignState);
                };
                match own {
                    OwnEntry::Holds { units, .. } => {
                        let is_there = true;
                        Slot::Held(held(total), Part { units, is_there })
                    }
                    OwnEntry::Missing => Slot::Held(held(total), Part::default()),
                    OwnEntry::NoRoom => Slot::Barred(FailureKind::Full),
                    OwnEntry::Void => Slot::Barred(FailureKind::Unreachable),
                }
            }
            (Some(bytes), _) => state::decode(bytes, unit)
                .map_or(Slot::Barred(FailureKind::ForeignState), Slot::Live),
        }
    }
}

struct Slots<'s, 'a> {
    slots: &'s mut [Slot<'a>],
    keys: &'s [u8],
    /// The state of a slot with a foreign value. Never asked for, since its requests are not decided.
    none: State,
}

impl States for Slots<'_, '_> {
    fn state(&mut self, index: usize) -> &mut State {
        match &mut self.slots[usize::from(self.keys[index])] {
            Slot::Live(state) | Slot::Held(state, _) => state,
            Slot::Found(_) | Slot::Sum(_) | Slot::Barred(_) => &mut self.none,
        }
    }
}

fn one(
    now: Timestamp,
    slots: &mut [Slot<'_>],
    keys: &[u8],
    work: &Work,
    calendars: &Calendars,
) -> Outcome {
    let in_window = |unit: Unit| match unit.calendar() {
        Some(calendar) => calendars.check(calendar, now),
        None => Ok(()),
    };
    match work {
        Work::Decide(charges, at_least) => {
            let opened = |(key, charge): (&u8, &OwnedCharge)| {
                slots[usize::from(*key)].open(charge.scope.unit()).map(drop)
            };
            // All of them, as the script does.
            let opened: SmallVec<[_; 2]> = keys.iter().zip(charges).map(opened).collect();
            opened.into_iter().collect::<Result<(), _>>()?;
            (charges.iter()).try_for_each(|charge| in_window(charge.scope.unit()))?;
            let charges: SmallVec<[_; 2]> = charges.iter().map(OwnedCharge::borrow).collect();
            let mut states = Slots {
                slots,
                keys,
                none: State::empty(Unit::Gcra),
            };
            let call = Call {
                charges: &charges,
                at_least: *at_least,
            };
            let decision = decide(now, call, &mut states);
            for (key, verdict) in keys.iter().zip(decision.verdicts()) {
                if let Slot::Held(state, part) = &mut slots[usize::from(*key)]
                    && let Snapshot::Held { held: units, .. } = state.snapshot()
                    && verdict.taken() > 0
                {
                    // Redis knows no generations of receipts: what a process holds is in its own books.
                    *state = held(units);
                    part.is_there = true;
                    part.units = part.units.saturating_add_unsigned(verdict.taken());
                }
            }
            Ok(Some(decision))
        }
        Work::Credit(receipt, n) => {
            let slot = &mut slots[usize::from(keys[0])];
            let state = slot.open(receipt.scope().unit())?;
            if let Snapshot::Held { held: units, .. } = state.snapshot() {
                if let Slot::Held(state, part) = slot {
                    *state = held(units.saturating_sub(part.release((*n).min(receipt.cost()))));
                }
            } else {
                in_window(receipt.scope().unit())?;
                let mut may_give_back = true;
                if let Some(id) = keys.get(1) {
                    let id = slots[usize::from(*id)].open(Unit::Once)?;
                    may_give_back = receipt.close(id, now);
                }
                if may_give_back {
                    let state = slots[usize::from(keys[0])].open(receipt.scope().unit())?;
                    receipt.credit_to(state, now, *n);
                }
            }
            Ok(None)
        }
        Work::Debit(receipt, n) => {
            let state = slots[usize::from(keys[0])].open(receipt.scope().unit())?;
            in_window(receipt.scope().unit())?;
            receipt.debit_from(state, now, *n);
            Ok(None)
        }
        Work::Reset(scope) => {
            let slot = &mut slots[usize::from(keys[0])];
            match slot.open(scope.unit()) {
                Err(error) if error.kind() == FailureKind::ForeignState => return Err(error),
                _ => *slot = Slot::of(None, scope.unit()),
            }
            Ok(None)
        }
        // They go behind all others.
        Work::Tell(_) => {
            slots[usize::from(keys[0])].open(Unit::Held)?;
            Ok(None)
        }
    }
}

/// The process's own part under each key of a call; `None` where nothing can be held.
pub(crate) fn held_by_caller(reply: &Reply, keys: usize) -> Vec<Option<Held>> {
    let states = reply.read(keys).map_or_else(Vec::new, |read| read.states);
    let nothing = Held {
        place: Some(0),
        ..Held::default()
    };
    let of = |digest: HeldDigest| {
        let own = match digest.own {
            OwnEntry::Holds {
                units,
                earlier,
                generation,
                is_told,
                place,
            } => Held {
                is_there: true,
                generation,
                earlier,
                units,
                is_told,
                place: Some(place),
                ..nothing
            },
            OwnEntry::Missing | OwnEntry::NoRoom => nothing,
            // The reply does not tell it, but it is newer than the call.
            OwnEntry::Void => Held {
                is_there: true,
                generation: u64::MAX,
                is_told: true,
                place: None,
                ..nothing
            },
        };
        Held {
            reclaimed: digest.reclaimed,
            ..own
        }
    };
    let held = |slot: Slot<'_>| match slot {
        Slot::Found(Some(bytes)) => HeldDigest::read(bytes).map(of),
        Slot::Sum(sum) => Some(Held {
            is_there: sum % 2 == 1,
            ..Held::default()
        }),
        _ => Some(nothing),
    };
    states.into_iter().map(held).collect()
}

pub(super) fn barred(kind: FailureKind) -> BackendError {
    let detail = match kind {
        FailureKind::Full => "as many processes as have room hold something under this key",
        FailureKind::ForeignState => {
            "a value that Tollgate did not write stands under one of its keys"
        }
        _ => "the call was given up before it came",
    };
    BackendError::new(kind, detail)
}

/// Decimals, and the part of MessagePack that whole numbers and a list of texts need.
struct ReplyReader<'a>(&'a [u8]);

impl<'a> ReplyReader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// A decimal number with a space behind it.
    fn decimal(&mut self) -> Option<u64> {
        let end = self.0.iter().position(|byte| *byte == b' ')?;
        let (digits, _space) = (self.take(end)?, self.take(1)?);
        let is_number = digits.iter().all(u8::is_ascii_digit);
        std::str::from_utf8(digits)
            .ok()?
            .parse()
            .ok()
            .filter(|_| is_number)
    }

    fn integer(&mut self) -> Option<u64> {
        let bytes = match self.number(1)? {
            small @ 0..=0x7f => return u64::try_from(small).ok(),
            0xcc => 1,
            0xcd => 2,
            0xce => 4,
            0xcf => 8,
            _ => return None,
        };
        let bytes = self.take(bytes)?;
        Some((bytes.iter()).fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn number(&mut self, bytes: usize) -> Option<usize> {
        let bytes = self.take(bytes)?;
        Some(
            bytes
                .iter()
                .fold(0, |number, byte| number << 8 | usize::from(*byte)),
        )
    }

    /// A state as it was found, or the sum of one that is held.
    fn slot(&mut self) -> Option<Slot<'a>> {
        match self.0.first()? {
            0..=0x7f | 0xcc..=0xcf => {
                let sum = self.integer()?;
                (sum < EXACT).then_some(Slot::Sum(sum))
            }
            _ => self.text().map(Slot::Found),
        }
    }

    fn list(&mut self) -> Option<usize> {
        match self.number(1)? {
            // An empty table may be either.
            0x80 => Some(0),
            tag @ 0x90..=0x9f => Some(tag & 0xf),
            0xdc => self.number(2),
            0xdd => self.number(4),
            _ => None,
        }
    }

    /// A text; `None` for `false`.
    #[expect(
        clippy::option_option,
        reason = "unreadable, and nothing there, are two things"
    )]
    fn text(&mut self) -> Option<Option<&'a [u8]>> {
        let length = match self.number(1)? {
            0xc2 => return Some(None),
            tag @ 0xa0..=0xbf => tag & 0x1f,
            0xd9 | 0xc4 => self.number(1)?,
            0xda | 0xc5 => self.number(2)?,
            0xdb | 0xc6 => self.number(4)?,
            _ => return None,
        };
        self.take(length).map(Some)
    }
}
