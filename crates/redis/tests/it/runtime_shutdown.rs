//! Callers that outlive the runtime on which the backend was built: they are told at once.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::common::{Budget, Patience};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};
use tollgate_core::{Backend, BackendError, Call, FailureKind, Quota};
use tollgate_redis::{RedisBackend, RedisBackendBuilder};
use tollgate_testkit::{Cluster, Sentinels, Standalone};

/// A deadline that no caller should reach here: an answer at the deadline would fail the test.
const FAR_OFF: Duration = Duration::from_secs(3_600);

/// The time in which a busy machine ends a runtime, on threads of its own.
const TO_END: Duration = Duration::from_secs(60);

/// Polls a call once: its answer needs neither a timer nor another thread.
fn at_once<T>(call: impl Future<Output = T>) -> T {
    let mut call = pin!(call);
    match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(said) => said,
        Poll::Pending => panic!("it waits"),
    }
}

fn runtimes() -> [Runtime; 2] {
    let one = Builder::new_current_thread().enable_all().build();
    let many = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    [one.unwrap(), many.unwrap()]
}

fn is_told(error: &BackendError) {
    assert_eq!(error.kind(), FailureKind::Unreachable, "{error}");
    assert!(error.detail().contains("runtime"), "{error}");
}

/// Builds the backend on a runtime that then ends, and asks on another one, more than once: before and after, alone and
/// together.
fn outlives(builder: &RedisBackendBuilder, stall: impl Fn(), go_on: impl Fn()) {
    for first in runtimes() {
        // given a caller elsewhere that the server keeps waiting
        let builder = builder.clone().deadline(FAR_OFF);
        let backend = first.block_on(builder.connect()).unwrap();
        let second = Runtime::new().unwrap();
        let budget = Budget::of("outlived", Quota::per_hour(1_000));
        first.block_on(budget.take(&backend, 1)).unwrap();
        stall();
        let waiting: Vec<_> = (0..5)
            .map(|_| second.spawn(backend.decide(Call::of(&[budget.charge(1)]))))
            .collect();
        first.block_on(async { sleep(Duration::from_millis(50)).await });

        // when the runtime of the backend ends, and all of its tasks with it
        first.shutdown_timeout(TO_END);

        // then it is told, and so are all later callers
        second.block_on(async {
            for waiting in waiting {
                let said = timeout(TO_END, waiting).await.expect("an answer");
                // A call on its way may hear of its connection first, which ended with the runtime.
                let error = said.unwrap().unwrap_err();
                assert_eq!(error.kind(), FailureKind::Unreachable, "{error}");
            }
            for _ in 0..3 {
                is_told(&at_once(budget.take(&backend, 1)).unwrap_err());
                let both = [budget.charge(1), budget.charge(1)]
                    .map(|charge| backend.decide(Call::of(&[charge])));
                for call in both {
                    is_told(&at_once(call).unwrap_err());
                }
            }
            is_told(&at_once(backend.admin().reset(budget.scope, &budget.key)).unwrap_err());
        });
        go_on();
    }
}

#[test]
fn whoever_asks_one_server_through_a_runtime_that_has_ended_is_told_at_once() {
    let server = Standalone::start();
    let builder = RedisBackend::builder(&server.url());
    outlives(&builder, || server.stall(), || server.go_on());
}

#[test]
fn whoever_asks_behind_sentinels_through_a_runtime_that_has_ended_is_told_at_once() {
    let fleet = Sentinels::start();
    let builder = RedisBackend::sentinel(fleet.master_name(), fleet.urls());
    let all = |act: fn(&Standalone)| fleet.servers().iter().for_each(act);
    outlives(
        &builder,
        || all(Standalone::stall),
        || all(Standalone::go_on),
    );
}

#[test]
fn whoever_asks_a_cluster_through_a_runtime_that_has_ended_is_told_at_once() {
    let cluster = Cluster::start();
    let builder = RedisBackend::cluster(cluster.urls());
    let all = |act: fn(&Standalone)| cluster.nodes().iter().for_each(act);
    outlives(
        &builder,
        || all(Standalone::stall),
        || all(Standalone::go_on),
    );
}

/// A credit is a bounded enqueue that is called from `Drop`: with the runtime it is lost, and counted.
#[test]
fn what_is_given_back_through_a_runtime_that_has_ended_is_counted_as_lost() {
    let server = Standalone::start();
    for first in runtimes() {
        let builder = RedisBackend::builder(&server.url()).patient();
        let backend = first.block_on(builder.connect()).unwrap();
        let budget = Budget::of("lost", Quota::per_hour(1_000));
        let charges = [budget.charge(1)];
        let decision = first.block_on(backend.decide(Call::of(&charges))).unwrap();
        drop(first);

        for receipt in decision.receipts(&charges) {
            backend.refund(receipt, 1);
        }

        assert_eq!(backend.stats().lost_give_backs, 1);
    }
}
