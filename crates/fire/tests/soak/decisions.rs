//! Many callers at once, and for long: nothing grows, no caller waits for ever, and an outage is one outage.

use std::time::Duration;

use tokio::time::sleep;
use tollgate_core::{Backend, Call, Quota};
use tollgate_fire::{AskedCharge, Budget, Held, Manner, Population, Soak};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;

use crate::alone;
use crate::leftovers::leaves_nothing_behind;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_at_once_are_all_answered_and_leave_nothing_behind() {
    let _alone = alone().await;
    leaves_nothing_behind(Soak {
        decisions: 120_000,
        in_flight: 10_000,
        identities: 50_000,
        over_http: false,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_one_outage_and_forty_leave_nothing_behind() {
    let _alone = alone().await;
    let mut server = Standalone::start();
    let builder = RedisBackend::builder(&server.url()).deadline(Duration::from_secs(1));
    let backend = builder.connect().await.unwrap();
    let population = Population::with(0, vec![Quota::per_day(1_000_000)]);
    let budget = Budget {
        policy: 0,
        caller: 0,
    };
    let asked = [AskedCharge {
        budget,
        cost: 1,
        manner: Manner::Enforce,
    }];
    let keys = population.keys(&asked);
    let decides = async || {
        let charges = population.charges(&asked, &keys);
        backend.decide(Call::of(&charges)).await.is_ok()
    };

    // One outage in detail: from well to not, and from not to well, once each.
    server.stall();
    while decides().await {}
    for _ in 0..100 {
        assert!(!decides().await, "a server that stands still has decided");
    }
    server.go_on();
    while !decides().await {}
    let mut turns = 2;
    let mut was_well = true;
    for _ in 0..500 {
        let is_well = decides().await;
        turns += u32::from(is_well != was_well);
        was_well = is_well;
    }
    assert!(was_well, "it decides again");
    assert!((2..=4).contains(&turns), "{turns}");

    // Forty outages without that detail.
    let outage = async |server: &mut Standalone| {
        server.restart();
        while !decides().await {
            sleep(Duration::from_millis(1)).await;
        }
    };
    for _ in 0..10 {
        outage(&mut server).await;
    }
    let early = Held::now().unwrap();
    for _ in 0..30 {
        outage(&mut server).await;
    }
    let late = Held::now().unwrap();
    assert!(late.tasks <= early.tasks + 2, "{early:?} {late:?}");
    assert!(
        late.descriptors <= early.descriptors + 4,
        "{early:?} {late:?}"
    );
    assert!(
        late.memory_kib < early.memory_kib + 8 * 1_024,
        "{early:?} {late:?}"
    );
}
