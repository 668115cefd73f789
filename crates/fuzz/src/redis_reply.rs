//! Answers of Redis, or of a server in its place.

use tollgate::Quota;
use tollgate_redis::forged::decided;

/// The first line is a quota, and the reply follows. A reply that is accepted is a decision that makes sense.
pub fn redis_reply(data: &[u8]) {
    let mut lines = data.splitn(2, |byte| *byte == b'\n');
    let quota = lines
        .next()
        .and_then(|line| str::from_utf8(line).ok()?.parse().ok());
    let quota = quota.unwrap_or(Quota::per_second(10));
    let reply = lines.next().unwrap_or_default();
    for decision in decided(&quota, reply.to_vec())
        .into_iter()
        .flatten()
        .flatten()
    {
        for verdict in decision.verdicts() {
            assert_eq!(verdict.limit(), quota.capacity());
            assert!(verdict.remaining() <= verdict.limit(), "{verdict:?}");
            assert_eq!(
                verdict.retry_after().is_some(),
                !decision.is_admitted(),
                "{verdict:?}"
            );
        }
    }
}
