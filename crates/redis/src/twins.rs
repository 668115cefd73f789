//! Two processes with one name: a process that was copied with its memory, and the child of a fork.

use std::slice;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tollgate_core::{
    Backend, BackendError, Call, Charge, Concurrent, Decision, FailureKind, Key, Mode, Receipt,
    Scope,
};
use tollgate_testkit::Standalone;

use crate::RedisBackend;

const LEASE: Duration = Duration::from_secs(2);
const PATIENT: Duration = Duration::from_secs(20);

async fn connect(server: &Standalone) -> RedisBackend {
    let builder = RedisBackend::builder(&server.url())
        .held_lease(LEASE)
        .deadline(PATIENT);
    builder.connect().await.unwrap()
}

/// Lets one process write in another's name, as its copy does.
fn copy_name(from: &RedisBackend, to: &RedisBackend) {
    let id = from.fleet.holder().identity().id;
    to.fleet.holder().identity().id = id;
}

/// The only limit here: ten at once.
fn with_charge<T>(cost: u64, then: impl FnOnce(&Charge<'_>) -> T) -> T {
    let quota = Concurrent::at_most(10).into();
    let charge = Charge {
        scope: Scope::of("uploads", 0, &quota),
        quota: &quota,
        key: &Key::from("alice"),
        cost,
        mode: Mode::Enforce,
    };
    then(&charge)
}

async fn ask(backend: &RedisBackend, cost: u64) -> Result<Decision, BackendError> {
    with_charge(cost, |charge| {
        backend.decide(Call::of(slice::from_ref(charge)))
    })
    .await
}

/// Holds so much. The receipt may be made again, as a copy of the memory has it.
async fn hold(backend: &RedisBackend, cost: u64) -> impl Fn() -> Receipt {
    let decision = ask(backend, cost).await.unwrap();
    move || {
        let receipt = |charge: &Charge<'_>| decision.receipts(slice::from_ref(charge)).next();
        with_charge(cost, receipt).unwrap()
    }
}

/// Waits until as much is held, and until it has stayed so for two leases.
async fn stays(observer: &RedisBackend, held: u64) {
    let settling = async {
        let mut calm = 0;
        while calm < 40 {
            let free = ask(observer, 0).await.unwrap().verdicts()[0].remaining();
            calm = if 10 - free == held { calm + 1 } else { 0 };
            sleep(LEASE / 20).await;
        }
    };
    let settled = timeout(PATIENT, settling).await;
    settled.unwrap_or_else(|_| panic!("it does not stay at {held}"));
}

/// The number of times that each has found that it is not alone.
fn twins(both: [&RedisBackend; 2]) -> u64 {
    both.map(|one| one.stats().twins).iter().sum()
}

#[tokio::test]
async fn a_copy_that_was_behind_for_long_goes_on_under_another_name_and_both_are_counted() {
    let server = Standalone::start();
    let (original, observer) = (connect(&server).await, connect(&server).await);
    let _held = hold(&original, 2).await;
    // It has told its key several times when a copy of an earlier moment goes on.
    sleep(LEASE * 2).await;
    let copy = connect(&server).await;
    copy_name(&original, &copy);

    // The first call may fail, and takes nothing then: it is taken for one that its process has given up.
    let first = ask(&copy, 1).await;
    let expected = if let Err(error) = &first {
        assert_eq!(error.kind(), FailureKind::Unreachable);
        2
    } else {
        3
    };
    let more = hold(&copy, 3).await;

    stays(&observer, expected + 3).await;
    assert_eq!((twins([&original, &copy]), original.stats().twins), (1, 0));
    copy.refund(more(), 3);
    stays(&observer, expected).await;
    assert_eq!(
        (original.stats().held, copy.stats().held),
        (2, expected - 2)
    );
}

#[tokio::test]
async fn copies_that_only_tell_what_they_hold_are_both_counted() {
    let server = Standalone::start();
    let (original, observer) = (connect(&server).await, connect(&server).await);
    let _held = hold(&original, 2).await;
    for ahead in [Duration::ZERO, LEASE * 2] {
        sleep(ahead).await;
        let copy = connect(&server).await;
        let more = hold(&copy, 1).await;
        copy_name(&original, &copy);

        stays(&observer, 3).await;
        assert!(twins([&original, &copy]) >= 1);
        copy.refund(more(), 1);
        stays(&observer, 2).await;
    }
}

/// There is no fork here, because its child's runtime would have no threads. The child has the parent's name under
/// another process's number.
#[tokio::test]
async fn a_child_of_a_fork_takes_another_name_and_holds_nothing_of_its_parent() {
    let server = Standalone::start();
    let (parent, observer) = (connect(&server).await, connect(&server).await);
    let held = hold(&parent, 2).await;
    let child = connect(&server).await;
    copy_name(&parent, &child);
    // The memory of another process.
    child.fleet.holder().identity().process = 0;

    let own = hold(&child, 3).await;

    stays(&observer, 5).await;
    assert_eq!(twins([&parent, &child]), 0);
    child.refund(own(), 3);
    parent.refund(held(), 2);
    stays(&observer, 0).await;
    assert_eq!((parent.stats().held, child.stats().held), (0, 0));
}
