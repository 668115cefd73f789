//! The script's reply, and the decisions that follow from it.

use redis::Value;
use smallvec::SmallVec;
use tollgate_core::{BackendError, Decision, FailureKind, State, States, Timestamp, Unit, decide};

use super::plan::Plan;
use super::request::{OwnedCharge, Request, Work};
use super::state;

/// The time, the number of admitted requests, and the states as they were found.
#[derive(Debug)]
pub(crate) enum Reply {
    /// All of these in one text.
    Text(Vec<u8>),
    /// The time. A lone request found its budget full, and was admitted.
    Full(Timestamp),
}

/// September 2001, in microseconds: a smaller number is the answer to another command.
const EARLIEST: u64 = 1_000_000_000_000_000;

impl Reply {
    /// Reads a reply.
    pub(crate) fn parse(value: Value) -> Option<Self> {
        match value {
            Value::BulkString(text) => Some(Self::Text(text)),
            Value::Int(now) => {
                let now = u64::try_from(now).ok().filter(|now| *now >= EARLIEST)?;
                Some(Self::Full(Timestamp::from_micros(now)))
            }
            _ => None,
        }
    }

    fn read(&self, keys: usize) -> Option<DecodedReply<'_>> {
        match self {
            Self::Text(text) => DecodedReply::of(text, keys),
            Self::Full(now) => (keys == 1).then(|| DecodedReply {
                now: *now,
                admitted: 1,
                states: vec![Slot::Found(None)],
            }),
        }
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
        let (seconds, behind) = packed.decimal()?;
        let us = packed.digits()?;
        let now = Timestamp::from_micros(seconds.checked_mul(1_000_000)?.checked_add(us)?);
        if behind != b' ' {
            // A lone request and the state that it found: these are all that is left.
            let state = packed.0;
            return (keys == 1 && matches!(behind, b'+' | b'-')).then(|| Self {
                now,
                admitted: u64::from(behind == b'+'),
                states: vec![Slot::Found((!state.is_empty()).then_some(state))],
            });
        }
        packed.take(1)?;
        let admitted = packed.integer()?;
        if packed.list()? != keys {
            return None;
        }
        let mut states = Vec::with_capacity(keys);
        for _ in 0..keys {
            states.push(Slot::Found(packed.text()?));
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
/// to `deliver`, with the position of its request.
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
        );
        // The script is not told of requests for nothing.
        let is_admitted = matches!(&outcome, Ok(Some(decision)) if decision.is_admitted());
        admitted += u64::from(is_admitted && !request.names.is_empty());
        outcomes.push((position, outcome));
    }
    if admitted == read.admitted {
        Ok(outcomes)
    } else {
        Err(broken("the script and this process do not agree"))
    }
}

/// A state: as it was found, and as it is now.
enum Slot<'a> {
    /// Empty if the key was missing.
    Found(Option<&'a [u8]>),
    Live(State),
    Foreign,
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
            Slot::Live(state) => state,
            Slot::Found(_) | Slot::Foreign => &mut self.none,
        }
    }
}

fn one(now: Timestamp, slots: &mut [Slot<'_>], keys: &[u8], work: &Work) -> Outcome {
    match work {
        Work::Decide(charges) => {
            let foreign = (charges.iter().enumerate())
                .filter(|(index, charge)| open(slots, keys[*index], charge.scope.unit()).is_none())
                .count();
            if foreign > 0 {
                return Err(foreign_state());
            }
            let charges: SmallVec<[_; 2]> = charges.iter().map(OwnedCharge::borrow).collect();
            let mut states = Slots {
                slots,
                keys,
                none: State::empty(Unit::Gcra),
            };
            Ok(Some(decide(now, &charges, &mut states)))
        }
        Work::Credit(receipt, n) => {
            let state = open(slots, keys[0], receipt.scope().unit()).ok_or_else(foreign_state)?;
            receipt.credit_to(state, now, *n);
            Ok(None)
        }
        Work::Debit(receipt, n) => {
            let state = open(slots, keys[0], receipt.scope().unit()).ok_or_else(foreign_state)?;
            receipt.debit_from(state, now, *n);
            Ok(None)
        }
        Work::Reset(scope) => {
            let state = open(slots, keys[0], scope.unit()).ok_or_else(foreign_state)?;
            *state = State::empty(scope.unit());
            Ok(None)
        }
    }
}

fn open<'s>(slots: &'s mut [Slot<'_>], key: u8, unit: Unit) -> Option<&'s mut State> {
    let slot = &mut slots[usize::from(key)];
    if let Slot::Found(found) = slot {
        let state = found.map_or_else(
            || Some(State::empty(unit)),
            |bytes| state::decode(bytes, unit),
        );
        *slot = state.map_or(Slot::Foreign, Slot::Live);
    }
    match slot {
        Slot::Live(state) => Some(state),
        Slot::Found(_) | Slot::Foreign => None,
    }
}

fn foreign_state() -> BackendError {
    BackendError::new(
        FailureKind::ForeignState,
        "a value that Tollgate did not write stands under one of its keys",
    )
}

/// A time in decimals with a state behind it, or the part of MessagePack that whole numbers and a list of texts need.
struct ReplyReader<'a>(&'a [u8]);

impl<'a> ReplyReader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// A decimal number and the byte behind it.
    fn decimal(&mut self) -> Option<(u64, u8)> {
        let number = self.digits()?;
        let behind = self.take(1)?;
        Some((number, *behind.first()?))
    }

    fn digits(&mut self) -> Option<u64> {
        let is_digit = |byte: &u8| byte.is_ascii_digit();
        let end = (self.0.iter().position(|byte| !is_digit(byte))).unwrap_or(self.0.len());
        let digits = self.take(end)?;
        std::str::from_utf8(digits).ok()?.parse().ok()
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
