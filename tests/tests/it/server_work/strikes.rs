//! The time for which strikes hold the server, in instructions, as in `calls.rs`.

use std::time::Duration;

use tollgate_core::{Backend, Ban, Call, Charge, Key, Mode, Quota, Scope};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;

/// The stated exception: a call of 64 requests that are strikes, of callers that have struck as often as may
/// be.
const MOST: u64 = 28_500_000;

/// The callers of one call, and the strikes that ban them.
const CALLERS: u64 = 64;
const STRIKES: u64 = 64;

#[tokio::test]
async fn strikes_of_many_callers_in_one_call_cost_what_is_stated() {
    let server = Standalone::start_counted();
    let patient = Duration::from_secs(60);
    let builder = RedisBackend::builder(&server.url())
        .connections(1)
        .deadline(patient);
    let backend = builder.connect_deadline(patient).connect().await.unwrap();
    let day = Duration::from_secs(86_400);
    let (quota, ban) = (Quota::per_day(1), Quota::from(Ban::after(STRIKES, day)));
    let keys: Vec<_> = (0..CALLERS).map(Key::from).collect();
    let charge = |quota, key, cost| Charge {
        scope: Scope::of("login", 0, quota),
        quota,
        key,
        cost,
        mode: Mode::Enforce,
    };
    let requests: Vec<_> = keys
        .iter()
        .map(|key| [charge(&quota, key, 1), charge(&ban, key, 0)])
        .collect();
    let mut most = 0;
    // The first is admitted.
    for round in 0..=STRIKES {
        let (_so_far, before) = (server.instructions(), backend.stats().calls);
        let asked: Vec<_> = requests
            .iter()
            .map(|charges| backend.decide(Call::of(charges)))
            .collect();
        for decision in asked {
            assert_eq!(decision.await.unwrap().is_admitted(), round == 0);
        }
        assert_eq!(backend.stats().calls - before, 1);
        most = most.max(server.instructions());
    }

    println!("{most} instructions");
    assert!(most <= MOST, "{most}");
}
