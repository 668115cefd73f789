//! Requests that leave together, and their cost to the server.

use crate::common::{Budget, HOUR, Patience, every_algorithm};
use tollgate_core::{Backend, Call, Key, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;

/// The most requests of one call, by the order of the algorithms: of the more expensive ones it takes fewer.
const TOGETHER: [usize; 5] = [64, 64, 64, 40, 4];

async fn over_one_connection(server: &Standalone) -> RedisBackend {
    let builder = RedisBackend::builder(&server.url()).connections(1);
    builder.patient().connect().await.unwrap()
}

/// The number of times that the server has run a command, in scripts or outside.
fn times(server: &Standalone, command: &str) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let name = format!("cmdstat_{command}:calls=");
    let calls = stats.lines().find_map(|line| line.strip_prefix(&name));
    calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn a_call_reads_each_state_once_and_writes_it_once_however_many_ask_for_it() {
    let server = Standalone::start();
    let backend = over_one_connection(&server).await;
    let quotas = every_algorithm(1_000, HOUR * 24 * 300);
    for (n, (quota, together)) in quotas.into_iter().zip(TOGETHER).enumerate() {
        let budgets = [1_u64, 2, 3].map(|caller| Budget {
            key: Key::from(caller),
            ..Budget::of(&format!("once-{n}"), quota)
        });
        let lone = Budget::of(&format!("lone-{n}"), quota);
        let commands = ["evalsha", "get", "mget", "set", "setrange"];
        let counts = || commands.map(|command| times(&server, command));
        let mut before = [0; 5];

        // At the second time the server has the scripts.
        for _ in 0..2 {
            before = counts();
            // The first leaves at once if no call is under way; the others find one, and leave together.
            let first = backend.decide(Call::of(&[lone.charge(1)]));
            let others: Vec<_> = (budgets.iter().cycle().take(together - 1))
                .map(|budget| backend.decide(Call::of(&[budget.charge(1)])))
                .collect();
            assert!(first.await.unwrap().is_admitted());
            for other in others {
                assert!(other.await.unwrap().is_admitted());
            }
        }

        let after = counts();
        let [calls, gets, mgets, sets, setranges] = [0, 1, 2, 3, 4].map(|n| after[n] - before[n]);
        assert!((1..=2).contains(&calls), "{quota}: {calls}");
        assert_eq!(gets + mgets, calls, "{quota}");
        assert_eq!(sets + setranges, 1 + 3, "{quota}");
    }
}

#[tokio::test]
async fn who_comes_first_is_served_first() {
    let server = Standalone::start();
    let backend = over_one_connection(&server).await;
    for (n, quota) in every_algorithm(10, HOUR).into_iter().enumerate() {
        let budget = Budget::of(&format!("first-{n}"), quota);
        // Costs that differ, so that the requests are not one count.
        let calls: Vec<_> = (0..TOGETHER[0])
            .map(|place| backend.decide(Call::of(&[budget.charge(1 + place as u64 % 2)])))
            .collect();
        let mut admitted = Vec::new();
        for call in calls {
            admitted.push(call.await.unwrap().is_admitted());
        }

        // 1 + 2 + 1 + 2 + 1 + 2, then 1, and nothing is left.
        let expected: Vec<_> = (0..TOGETHER[0]).map(|place| place < 7).collect();
        assert_eq!(admitted, expected, "{quota}");
    }
}

/// A bucket, two kinds of windows and both with one another are four shapes, and a refund needs no answer of theirs.
#[tokio::test]
async fn a_batch_leaves_as_one_call_for_each_shape_with_its_refunds_ahead() {
    let server = Standalone::start();
    let backend = over_one_connection(&server).await;
    let [bucket, fixed, sliding, ..] = every_algorithm(4, HOUR);
    let budgets = [("bucket", bucket), ("fixed", fixed), ("sliding", sliding)];
    let [bucket, fixed, sliding] = budgets.map(|(name, quota)| Budget::of(name, quota));
    let lone = Budget::of("lone", Quota::per_hour(1_000));
    let spent = [bucket.charge(4)];
    let spent = backend.decide(Call::of(&spent)).await.unwrap();
    let receipt = spent.receipts(&[bucket.charge(4)]).next().unwrap();

    // The first leaves at once; the others find it under way, and leave together.
    let mut before = 0;
    for is_warm in [false, true] {
        before = times(&server, "evalsha");
        let first = backend.decide(Call::of(&[lone.charge(1)]));
        let shapes: [&[_]; 4] = [
            &[bucket.charge(1)],
            &[fixed.charge(1)],
            &[sliding.charge(1)],
            &[fixed.charge(1), sliding.charge(1)],
        ];
        let others = shapes.map(|charges| backend.decide(Call::of(charges)));
        if is_warm {
            backend.refund(receipt.copy(), 4);
        }
        assert!(first.await.unwrap().is_admitted());
        // The bucket has units only if the refund is ahead, though it came last.
        let mut admitted = Vec::new();
        for other in others {
            admitted.push(other.await.unwrap().is_admitted());
        }
        assert_eq!(admitted, [is_warm, true, true, true]);
    }

    let calls = times(&server, "evalsha") - before;
    assert!((5..=6).contains(&calls), "{calls}");
}

#[tokio::test]
async fn one_request_at_a_time_is_one_call_each() {
    let server = Standalone::start();
    let backend = over_one_connection(&server).await;
    let budget = Budget::of("alone", Quota::per_hour(1_000));
    budget.take(&backend, 1).await.unwrap();
    let before = times(&server, "evalsha");

    for _ in 0..50 {
        budget.take(&backend, 1).await.unwrap();
    }

    assert_eq!(times(&server, "evalsha") - before, 50);
}
