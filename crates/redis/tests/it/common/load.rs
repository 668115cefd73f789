//! Requests that keep coming, whatever the outcome of those before them.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::interval;
use tollgate_core::{Backend, Call};
use tollgate_redis::RedisBackend;

use super::Budget;
use super::watch::Watch;

/// The number of requests that come together, and their interval: far less than a server decides, far more than one deadline
/// lets through.
const TOGETHER: usize = 10;
const EVERY: Duration = Duration::from_millis(10);

/// One request. Its times are those of the watch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) at: Duration,
    pub(crate) took: Duration,
    pub(crate) is_decided: bool,
}

/// Asks for these budgets in turn until `is_over` is true of the answers so far.
pub(crate) async fn ask_on(
    backend: &RedisBackend,
    watch: &Arc<Watch>,
    budgets: &[&Budget],
    mut is_over: impl FnMut(&[Asked]) -> bool,
) -> Vec<Asked> {
    let mut all = Vec::new();
    let mut asking = JoinSet::new();
    let mut clock = interval(EVERY);
    let mut turns = budgets.iter().cycle();
    while !is_over(&all) {
        clock.tick().await;
        for budget in turns.by_ref().take(TOGETHER) {
            let (watch, at) = (Arc::clone(watch), watch.elapsed());
            let call = backend.decide(Call::of(&[budget.charge(1)]));
            asking.spawn(async move {
                let is_decided = call.await.is_ok();
                let took = watch.elapsed() - at;
                Asked {
                    at,
                    took,
                    is_decided,
                }
            });
        }
        while let Some(asked) = asking.try_join_next() {
            all.push(asked.unwrap());
        }
    }
    while let Some(asked) = asking.join_next().await {
        all.push(asked.unwrap());
    }
    all
}

/// Holds requests to the promise while a server is gone from `gone_at` on: each is answered within its deadline, and only those
/// wait for it that came before the outage could be known, or while another connection was tried for one deadline more.
pub(crate) fn waited_only_until_known(all: &[Asked], gone_at: Duration, deadline: Duration) {
    let slowest = all.iter().map(|asked| asked.took).max();
    assert!(slowest.unwrap() < deadline * 2, "{slowest:?}");
    let known_at = gone_at + deadline;
    let waited = all.iter().filter(|asked| asked.took > deadline / 2);
    let (mut before, mut after) = (0, 0);
    for asked in waited {
        if asked.at < known_at + deadline {
            before += 1;
        } else {
            after += 1;
        }
    }
    let bound = TOGETHER * (2 * deadline.as_millis() / EVERY.as_millis() + 1) as usize * 3 / 2;
    assert!(before <= bound, "{before} of {bound} waited");
    assert_eq!(after, 0, "waited for a server that was known to be gone");
}
