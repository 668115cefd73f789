//! States as they stand in Redis. The formats are in the `.lua` files, one rule each.

use tollgate_core::{CreditMark, Snapshot, State, Unit};

use super::numbers::{EXACT, Reader};

const GCRA_TAGS: std::ops::Range<u8> = 128..192;
/// What stands before the credits of a GCRA state, and how long each is.
const GCRA_HEAD: usize = 20;
const GCRA_CREDIT: usize = 28;
const FIXED_WINDOW: u8 = 248;
const SLIDING_WINDOW: u8 = 249;
const ROLLING_WINDOW: u8 = 250;
const SLIDING_LOG: u8 = 251;

/// The state that stands there, or `None` if it is none of ours. Refuses what the script refuses, and nothing else:
/// what passes here and not there would be a decision that nobody took.
pub(super) fn decode(bytes: &[u8], unit: Unit) -> Option<State> {
    let mut reader = Reader(bytes);
    let tag = reader.byte()?;
    let snapshot = match unit {
        Unit::Gcra => gcra(tag, bytes.len(), reader),
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
        _ => None,
    };
    snapshot.map(State::from)
}

fn gcra(tag: u8, length: usize, mut reader: Reader<'_>) -> Option<Snapshot> {
    let credits = length.saturating_sub(GCRA_HEAD);
    let is_one = matches!(length, 9 | 13)
        || credits > 0 && credits.is_multiple_of(GCRA_CREDIT) && credits <= 32 * GCRA_CREDIT;
    if !GCRA_TAGS.contains(&tag) || !is_one {
        return None;
    }
    let full_at_us = reader.whole()?;
    let rest = if length > 9 { reader.u32()? } else { 0 };
    if credits > 0 {
        // When the last of them ends, which a decision of the script's need not work out.
        reader.u56().filter(|last_us| *last_us < EXACT)?;
    }
    let mut credits = Vec::new();
    while !reader.0.is_empty() {
        credits.push(CreditMark {
            at_us: reader.u56()?,
            from_us: reader.u56()?,
            length_us: reader.u56()?,
            last_us: reader.u56()?,
        });
    }
    Some(Snapshot::Gcra {
        full_at_us,
        rest,
        credits,
    })
}

/// Each entry's count is its running total less that of the one before, modulo 2^32.
fn log(tag: u8, mut reader: Reader<'_>) -> Option<Snapshot> {
    let mut before = reader.u32()?;
    if tag != SLIDING_LOG || reader.0.is_empty() || !reader.0.len().is_multiple_of(12) {
        return None;
    }
    let mut entries = Vec::with_capacity(reader.0.len() / 12);
    while !reader.0.is_empty() {
        let (at, total) = (reader.whole()?, reader.u32()?);
        entries.push((at, u64::from(total.wrapping_sub(before))));
        before = total;
    }
    entries
        .is_sorted_by_key(|entry| entry.0)
        .then_some(Snapshot::SlidingLog { entries })
}
