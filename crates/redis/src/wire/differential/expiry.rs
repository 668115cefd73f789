//! When states end.

use redis::Connection;
use tollgate_core::Unit;

use crate::wire::numbers::Reader;

/// When a key ends. Before Redis 7 one can only ask how long that is, and has to do so within one millisecond.
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

fn server_ms(redis: &mut Connection) -> i64 {
    let (seconds, micros): (i64, i64) = redis::cmd("TIME").query(redis).unwrap();
    seconds * 1_000 + micros / 1_000
}

/// When a GCRA state without credits ends, as the contract says: at the end of its cell, in whole milliseconds.
pub(super) fn stated_end(found: &[u8], unit: Unit) -> Option<u64> {
    let [tag, at @ ..] = found else { return None };
    let (at, rest) = at.split_first_chunk::<8>()?;
    let is_gcra = matches!(unit, Unit::Gcra) && matches!(rest.len(), 0 | 4);
    let at = Reader(at).whole()? + u64::from(!rest.is_empty());
    let cell = 1 << (tag & 63);
    is_gcra.then(|| ((at / cell + 1) * cell / 1_000 + 1) * 1_000)
}
