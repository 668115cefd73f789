//! The format of states in Redis, one rule each. The `.lua` files describe them.

use tollgate_core::{CreditMark, GapMark, QueueMark, Snapshot, State, Unit};

use super::numbers::{EXACT, Reader};

/// 2^48 µs is the largest power of two that a full drain may reach.
const GCRA_TAGS: std::ops::RangeInclusive<u8> = 128..=176;
/// The length of a GCRA state without and with a rest or debt, the length of the part before its credits, and that of each
/// credit.
const GCRA_SHORT: usize = 9;
const GCRA_LONG: usize = 16;
const GCRA_HEAD: usize = 23;
const GCRA_CREDIT: usize = 28;
/// A GCRA state in whose queue requests wait: the length of its head, and of each free place.
const GCRA_QUEUED: u8 = 177;
const QUEUED_HEAD: usize = 27;
const QUEUED_GAP: usize = 22;
/// A GCRA state of a quota that warms up: the length of what stands before the rest, and the number of ticks in a microsecond.
const GCRA_WARMED: u8 = 178;
const WARMED_HEAD: usize = 13;
const TICKS: u32 = 1 << 20;
const FIXED_WINDOW: u8 = 248;
const SLIDING_WINDOW: u8 = 249;
const ROLLING_WINDOW: u8 = 250;
const SLIDING_LOG: u8 = 251;
/// The length of a log's entry, and the most entries: one for each unit of the largest limit, and one for debts.
const LOG_ENTRY: usize = 12;
const LOG_ENTRIES: usize = 1_025;

const ONCE: u8 = 247;
const HELD: u8 = 252;
const BAN: u8 = 253;
const INTERVAL_REFILL: u8 = 254;
const CALENDAR: u8 = 255;
/// The most strikes of a ban, and the most doublings.
const BAN_STRIKES: usize = 64;
const BAN_LEVELS: u8 = 63;

/// The length of its head, and of each entry.
const HELD_HEAD: usize = 21;
const HELD_ENTRY: usize = 32;

/// The digest of what is held under a key, which a reply has in place of up to 1,024 entries: the head, and behind it the entry of
/// the process that called, and its number if the state is long. It is one byte if the process has no entry, and empty if the call
/// is void. At the end stand the units that the call reclaimed, if there are any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldDigest {
    /// All that is held.
    pub(super) total: u64,
    pub(super) own: OwnEntry,
    /// The units of other processes whose leases had run out.
    pub(super) reclaimed: u64,
}

/// The part of a key's answer that is about the process that called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnEntry {
    /// It holds so many units. Below 0 while a release has come and the telling of its acquire has not.
    Holds {
        units: i64,
        /// The part of them by calls of earlier generations than the newest.
        earlier: i64,
        /// The newest generation of which a call came.
        generation: u64,
        /// True if it was told in that generation.
        is_told: bool,
        /// The number of the entry, from 1; 0 in a short state.
        place: u16,
    },
    /// It has none.
    Missing,
    /// There is no room for one.
    NoRoom,
    /// The call is of a generation whose calls have all been answered or given up.
    Void,
}

impl HeldDigest {
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        const WITH_BYTE: usize = HELD_HEAD + 1;
        const WITH_ENTRY: usize = HELD_HEAD + HELD_ENTRY;
        const WITH_PLACE: usize = WITH_ENTRY + 2;
        const RECLAIMED: usize = 6;
        let (bytes, reclaimed) = match bytes.len().checked_sub(RECLAIMED) {
            Some(length @ (HELD_HEAD | WITH_BYTE | WITH_ENTRY | WITH_PLACE)) => {
                let (digest, reclaimed) = bytes.split_at(length);
                (digest, Reader(reclaimed).u48()?)
            }
            _ => (bytes, 0),
        };
        let (head, mut entry) = (bytes.get(..HELD_HEAD)?, Reader(bytes.get(HELD_HEAD..)?));
        let mut reader = Reader(head);
        let (tag, total) = (reader.byte()?, reader.whole()?);
        let own = match bytes.len() {
            HELD_HEAD => OwnEntry::Void,
            WITH_ENTRY | WITH_PLACE => {
                let _holder = (entry.u32()?, entry.u32()?);
                let (old, new) = (entry.i48()?, entry.i48()?);
                let mark = entry.u48()?;
                let _expires = entry.u48()?;
                OwnEntry::Holds {
                    units: old + new,
                    earlier: old,
                    generation: mark >> 8,
                    is_told: mark & 0xff == 0,
                    place: entry.u16().unwrap_or(0),
                }
            }
            _ => match entry.byte()? {
                _ if !entry.0.is_empty() => return None,
                0 => OwnEntry::Missing,
                1 => OwnEntry::NoRoom,
                _ => return None,
            },
        };
        (tag == HELD).then_some(Self {
            total,
            own,
            reclaimed,
        })
    }
}

/// All entries of what is held under a key, as the state has them.
#[derive(Debug)]
pub(crate) struct HeldEntries {
    /// All that is held.
    pub(crate) total: u64,
    pub(crate) entries: Vec<HeldEntry>,
}

/// The entry of one process.
#[derive(Debug)]
pub(crate) struct HeldEntry {
    pub(crate) process: [u8; 8],
    pub(crate) units: u64,
    pub(crate) expires_ms: u64,
}

impl HeldEntries {
    /// Reads a whole state, and not the digest that the script sends.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (head, entries) = bytes.split_at_checked(HELD_HEAD)?;
        let mut head = Reader(head);
        let (tag, total) = (head.byte()?, head.whole()?);
        let entries = entries.chunks(HELD_ENTRY).map(|entry| {
            let (process, numbers) = entry.split_first_chunk::<8>()?;
            let mut numbers = Reader(numbers);
            let (old, new, _mark) = (numbers.i48()?, numbers.i48()?, numbers.u48()?);
            Some(HeldEntry {
                process: *process,
                units: (old + new).max(0).cast_unsigned(),
                expires_ms: numbers.u48()?,
            })
        });
        let entries = entries.collect::<Option<_>>()?;
        (tag == HELD).then_some(Self { total, entries })
    }
}

/// Reads a state; `None` if it is not one of ours. Refuses the values that the script refuses, and no others: a state that only
/// this side accepts would give a decision that the script did not take.
pub(crate) fn decode(bytes: &[u8], unit: Unit) -> Option<State> {
    let mut reader = Reader(bytes);
    let tag = reader.byte()?;
    let snapshot = match unit {
        Unit::Gcra if tag == GCRA_WARMED => warmed(bytes.len(), reader),
        Unit::Gcra => bucket(tag, bytes.len(), reader),
        Unit::FixedWindow { .. } => {
            let (window, count) = (reader.whole()?, reader.whole()?);
            (tag == FIXED_WINDOW && reader.0.is_empty())
                .then_some(Snapshot::FixedWindow { window, count })
        }
        Unit::SlidingWindow { .. } => {
            let (window, previous, current) = (reader.whole()?, reader.whole()?, reader.whole()?);
            (tag == SLIDING_WINDOW && reader.0.is_empty()).then_some(Snapshot::SlidingWindow {
                window,
                previous,
                current,
            })
        }
        Unit::RollingWindow { buckets, .. } => {
            let newest = reader.whole()?;
            let counts: Option<Vec<_>> = (0..buckets).map(|_| reader.whole()).collect();
            let counts = counts?;
            (tag == ROLLING_WINDOW && reader.0.is_empty())
                .then_some(Snapshot::RollingWindow { newest, counts })
        }
        Unit::SlidingLog { .. } => log(tag, reader),
        Unit::IntervalRefill { period_us, .. } => interval_refill(tag, reader, period_us),
        Unit::Calendar(_) => calendar(tag, reader),
        // The script does not send these, but a digest: see `HeldDigest`.
        Unit::Held => None,
        Unit::Once => once(tag, reader),
        Unit::Ban => ban(tag, reader),
    };
    snapshot.map(State::from)
}

/// A state of a quota that warms up: see `lua/warming.lua`.
fn warmed(length: usize, mut reader: Reader<'_>) -> Option<Snapshot> {
    let (us, ticks) = (reader.whole()?, reader.u32()?);
    let tag = reader.byte()?;
    let mut state = bucket(tag, length.checked_sub(WARMED_HEAD)?, reader)?;
    if let Snapshot::Gcra {
        cold_at_us,
        cold_at_ticks,
        ..
    } = &mut state
    {
        (*cold_at_us, *cold_at_ticks) = (us, ticks);
    }
    (ticks < TICKS).then_some(state)
}

fn bucket(tag: u8, length: usize, reader: Reader<'_>) -> Option<Snapshot> {
    if tag == GCRA_QUEUED {
        queued(length, reader)
    } else {
        gcra(tag, length, reader)
    }
}

fn gcra(tag: u8, length: usize, mut reader: Reader<'_>) -> Option<Snapshot> {
    let credits = length.saturating_sub(GCRA_HEAD);
    let is_one = matches!(length, GCRA_SHORT | GCRA_LONG)
        || credits > 0 && credits.is_multiple_of(GCRA_CREDIT) && credits <= 32 * GCRA_CREDIT;
    if !GCRA_TAGS.contains(&tag) || !is_one {
        return None;
    }
    let full_at_us = reader.whole()?;
    let (mut rest, mut rest_of, mut thirty_seconds) = (0, 0, 0);
    if length > GCRA_SHORT {
        (rest, rest_of, thirty_seconds) = (reader.u32()?, reader.u16()?, reader.byte()?);
    }
    if thirty_seconds >= 32 {
        return None;
    }
    if rest == 0 {
        rest_of = 0;
    }
    if credits > 0 {
        // The end of the last of them; a decision of the script need not work it out.
        reader.u56().filter(|last_us| *last_us < EXACT)?;
    }
    Some(Snapshot::Gcra {
        full_at_us,
        rest,
        rest_of,
        exponent: tag - GCRA_TAGS.start(),
        thirty_seconds,
        credits: credit_marks(reader)?,
        queue: QueueMark::default(),
        cold_at_us: 0,
        cold_at_ticks: 0,
    })
}

/// All credits that are left.
fn credit_marks(mut reader: Reader<'_>) -> Option<Vec<CreditMark>> {
    let mut credits = Vec::new();
    while !reader.0.is_empty() {
        credits.push(CreditMark {
            at_us: reader.u56()?,
            from_us: reader.u56()?,
            length_us: reader.u56()?,
            last_us: reader.u56()?,
        });
    }
    Some(credits)
}

/// A state in whose queue requests wait: see `lua/waiting.lua`.
fn queued(length: usize, mut reader: Reader<'_>) -> Option<Snapshot> {
    let tag = reader.byte()?;
    let full_at_us = reader.whole()?;
    let (rest, rest_of, thirty_seconds) = (reader.u32()?, reader.u16()?, reader.byte()?);
    let (until_us, rests_of, count) = (reader.u56()?, reader.u16()?, reader.byte()?.into());
    let behind = length.checked_sub(QUEUED_HEAD + count * QUEUED_GAP)?;
    let credits = behind.saturating_sub(GCRA_HEAD - GCRA_LONG);
    let has_credits = behind > 0;
    let is_one = !has_credits
        || credits > 0 && credits.is_multiple_of(GCRA_CREDIT) && credits <= 32 * GCRA_CREDIT;
    let is_known = GCRA_TAGS.contains(&tag) && thirty_seconds < 32 && count <= 32;
    if !is_one || !is_known || until_us >= EXACT {
        return None;
    }
    let (mut gaps, mut before) = (Vec::with_capacity(count), None);
    for _ in 0..count {
        let gap = GapMark {
            start_us: reader.u56()?,
            start_rest: reader.u32()?,
            end_us: reader.u56()?,
            end_rest: reader.u32()?,
        };
        let (start, end) = ((gap.start_us, gap.start_rest), (gap.end_us, gap.end_rest));
        if before.is_some_and(|before| before >= start) || start >= end || gap.end_us >= EXACT {
            return None;
        }
        before = Some(end);
        gaps.push(gap);
    }
    if has_credits {
        reader.u56().filter(|last_us| *last_us < EXACT)?;
    }
    Some(Snapshot::Gcra {
        full_at_us,
        rest,
        rest_of: if rest == 0 { 0 } else { rest_of },
        exponent: tag - GCRA_TAGS.start(),
        thirty_seconds,
        credits: credit_marks(reader)?,
        queue: QueueMark {
            until_us,
            rests_of: if gaps.is_empty() { 0 } else { rests_of },
            gaps,
        },
        cold_at_us: 0,
        cold_at_ticks: 0,
    })
}

fn ban(tag: u8, mut reader: Reader<'_>) -> Option<Snapshot> {
    let level = reader.byte()?;
    let (since_us, until_us, kept_until_us) = (reader.whole()?, reader.whole()?, reader.whole()?);
    let mut strikes_us = Vec::new();
    while !reader.0.is_empty() {
        strikes_us.push(reader.whole()?);
    }
    let is_one = tag == BAN && level <= BAN_LEVELS && since_us <= until_us;
    let is_log = strikes_us.len() <= BAN_STRIKES && strikes_us.is_sorted();
    (is_one && is_log).then_some(Snapshot::Ban {
        since_us,
        until_us,
        level,
        strikes_us,
        kept_until_us,
    })
}

fn once(tag: u8, mut reader: Reader<'_>) -> Option<Snapshot> {
    let (replays, since_us, until_us) = (reader.byte()?, reader.whole()?, reader.whole()?);
    let is_one = tag == ONCE && reader.0.is_empty() && since_us < until_us;
    is_one.then_some(Snapshot::Once {
        since_us,
        until_us,
        replays,
    })
}

fn interval_refill(tag: u8, mut reader: Reader<'_>, period_us: u64) -> Option<Snapshot> {
    let (window, ahead, count) = (reader.whole()?, reader.whole()?, reader.whole()?);
    // No debt takes longer to refill than exact numbers reach.
    let refill_us = ahead.checked_mul(period_us).filter(|us| *us < EXACT);
    let is_one = ahead == 0 || count > 0 && refill_us.is_some();
    (tag == INTERVAL_REFILL && reader.0.is_empty() && is_one).then_some(Snapshot::IntervalRefill {
        window,
        ahead,
        count,
    })
}

fn calendar(tag: u8, mut reader: Reader<'_>) -> Option<Snapshot> {
    let (start_us, end_us, count) = (reader.whole()?, reader.whole()?, reader.whole()?);
    let is_one = tag == CALENDAR && reader.0.is_empty() && start_us < end_us;
    is_one.then_some(Snapshot::Calendar {
        start_us,
        end_us,
        count,
    })
}

/// Each entry's count is its running total less that of the one before, modulo 2^32.
fn log(tag: u8, mut reader: Reader<'_>) -> Option<Snapshot> {
    let mut before = reader.u32()?;
    let entries = reader.0.len() / LOG_ENTRY;
    let is_one = (1..=LOG_ENTRIES).contains(&entries) && reader.0.len().is_multiple_of(LOG_ENTRY);
    if tag != SLIDING_LOG || !is_one {
        return None;
    }
    let mut entries = Vec::with_capacity(entries);
    while !reader.0.is_empty() {
        let (at, total) = (reader.whole()?, reader.u32()?);
        entries.push((at, u64::from(total.wrapping_sub(before))));
        before = total;
    }
    entries
        .is_sorted_by_key(|entry| entry.0)
        .then_some(Snapshot::SlidingLog { entries })
}
