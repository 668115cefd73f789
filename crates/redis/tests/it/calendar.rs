//! Quotas by the calendar on a real server, by its own clock and this process's.

use crate::common::{Budget, connect};
use tollgate_core::{Backend, Call};
use tollgate_redis::StateName;
use tollgate_testkit::Standalone;

#[tokio::test]
async fn the_windows_of_a_calendar_are_those_of_its_zone() {
    // given
    let server = Standalone::start();
    let backend = connect(&server).await;
    let calendar = "year in Asia/Tokyo from 04-01";
    let quota = format!("3/{calendar}").parse().unwrap();
    let budget = Budget::of("calendar", quota);

    // when all of a year is spent at once
    for left in [2, 1, 0] {
        let decision = backend.decide(Call::of(&[budget.charge(1)])).await.unwrap();
        assert_eq!(decision.verdicts()[0].remaining(), left);
    }
    let denied = backend.decide(Call::of(&[budget.charge(1)])).await.unwrap();

    // then the next passes on 1 April in Tokyo, and nothing else stands in Redis
    let now = denied.at().as_micros();
    let next = quota.unit().calendar().unwrap().bounds_around(now)[3];
    let wait = denied.retry_after().unwrap();
    assert_eq!(now + u64::try_from(wait.as_micros()).unwrap(), next);
    let url = format!("redis+unix://{}", server.socket().display());
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_connection().unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    let [key] = &keys[..] else {
        panic!("{keys:?}");
    };
    assert_eq!(key, "tollgate:calendar:0/cyear4-1@Asia/Tokyo:=alice");
    assert_eq!(StateName::read(key).unwrap().unit(), quota.unit());
}
