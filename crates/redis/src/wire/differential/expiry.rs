//! The expiry of states.

use redis::Connection;
use tollgate_core::Unit;

use crate::wire::numbers::Reader;

/// The time at which a key expires. Before Redis 7 a client can only ask for the remaining time, and has to do so within one
/// millisecond.
pub(super) fn ends_ms(redis: &mut Connection, key: &[u8]) -> i64 {
    let ask = |redis: &mut Connection, word| redis::cmd(word).arg(key).query::<i64>(redis);
    if let Ok(ends) = ask(redis, "PEXPIRETIME") {
        return ends;
    }
    loop {
        let (before, left, after) = (
            server_ms(redis),
            ask(redis, "PTTL").unwrap(),
            server_ms(redis),
        );
        if left < 0 {
            return left;
        }
        if before == after {
            return before + left;
        }
    }
}

/// A state and the time at which it expires, asked for at once: a trip of its own for each is half the time of a test.
pub(super) fn stored(redis: &mut Connection, key: &[u8]) -> Option<(Vec<u8>, i64)> {
    let mut both = redis::pipe();
    both.cmd("GET").arg(key).cmd("PEXPIRETIME").arg(key);
    let answers: redis::RedisResult<(Option<Vec<u8>>, i64)> = both.query(redis);
    if let Ok((found, ends)) = answers {
        return found.map(|state| (state, ends));
    }
    let found: Option<Vec<u8>> = redis::cmd("GET").arg(key).query(redis).unwrap();
    found.map(|state| (state, ends_ms(redis, key)))
}

fn server_ms(redis: &mut Connection) -> i64 {
    let (seconds, micros): (i64, i64) = redis::cmd("TIME").query(redis).unwrap();
    seconds * 1_000 + micros / 1_000
}

/// The end of a state by the contract, in whole milliseconds.
pub(super) fn stated_end_us(found: &[u8], unit: Unit) -> u64 {
    let mut reader = Reader(found);
    let mut tag = reader.byte().unwrap();
    let whole = |reader: &mut Reader<'_>| reader.whole().unwrap();
    let mut cold_at = 0;
    if unit == Unit::Gcra && tag == 178 {
        cold_at = whole(&mut reader);
        cold_at += u64::from(reader.u32().unwrap() > 0);
        tag = reader.byte().unwrap();
    }
    let ends = match unit {
        Unit::Gcra if tag == 177 => {
            let tag = reader.byte().unwrap();
            let at = whole(&mut reader) + 1;
            // The rest, its mark and the thirty-seconds of a debt, the last turn, the mark of the gaps, and the gaps.
            reader.u56().unwrap();
            reader.u56().unwrap();
            reader.u16().unwrap();
            let gaps = usize::from(reader.byte().unwrap());
            let mut behind = Reader(&reader.0[22 * gaps..]);
            let last = behind.u56().unwrap_or(0);
            let cell = 1 << (tag & 63).max(10);
            (at.max(last).max(cold_at) / cell + 1) * cell
        }
        Unit::Gcra => {
            let at = whole(&mut reader);
            let at = at + u64::from(!reader.0.is_empty());
            let last = if reader.0.len() > 7 {
                // The rest, its mark and the thirty-seconds of a debt.
                reader.u56().unwrap();
                reader.u56().unwrap()
            } else {
                0
            };
            let cell = 1 << (tag & 63).max(10);
            (at.max(last).max(cold_at) / cell + 1) * cell
        }
        Unit::FixedWindow {
            period_us,
            offset_us,
        } => (whole(&mut reader) + 1) * period_us + offset_us,
        Unit::SlidingWindow { period_us } => (whole(&mut reader) + 3) * period_us,
        Unit::RollingWindow { period_us, buckets } => {
            let buckets = u64::from(buckets);
            (whole(&mut reader) + 2 * buckets) * (period_us / buckets)
        }
        Unit::SlidingLog { period_us } => {
            let mut newest = Reader(&found[found.len() - 12..]);
            whole(&mut newest) + 2 * period_us
        }
        Unit::IntervalRefill {
            period_us,
            offset_us,
        } => (whole(&mut reader) + whole(&mut reader) + 1) * period_us + offset_us,
        Unit::Calendar(_) => {
            let (start, end) = (whole(&mut reader), whole(&mut reader));
            2 * end - start
        }
        Unit::Ban => {
            reader.byte().unwrap();
            whole(&mut reader);
            whole(&mut reader);
            whole(&mut reader)
        }
        Unit::Once => {
            reader.byte().unwrap();
            whole(&mut reader);
            whole(&mut reader)
        }
        Unit::Held => unreachable!("no state of Redis is of this unit"),
    };
    (ends / 1_000 + 1) * 1_000
}
