//! Replies that no script has sent: for the fuzz targets.

use redis::Value;
use smallvec::smallvec;
use tollgate_core::{Call, Charge, Decision, Key, Mode, Quota, Scope};

use super::{Plan, Reply, Request, Work, replay};

/// The outcomes of a reply to two requests, each of one charge under this quota, for two callers; `None` if it is refused.
#[must_use]
pub fn decided(quota: &Quota, reply: Vec<u8>) -> Option<Vec<Option<Decision>>> {
    let requests = ["a", "b"].map(|caller| Request {
        work: Work::decide(Call::of(&[Charge {
            scope: Scope::of("p", 0, quota),
            quota,
            key: &Key::from(caller),
            cost: 1,
            mode: Mode::Enforce,
        }])),
        names: smallvec![caller.as_bytes().into()],
        owed: None,
        known: None,
    });
    let (plan, call) = Plan::of(&requests);
    let reply = Reply::parse(Value::BulkString(reply))?;
    let outcomes = replay(
        &reply,
        &plan,
        call.keys.len(),
        |position| &requests[position],
        |_, _, _| {},
    )
    .ok()?;
    Some(
        outcomes
            .into_iter()
            .map(|(_, outcome)| outcome.ok().flatten())
            .collect(),
    )
}
