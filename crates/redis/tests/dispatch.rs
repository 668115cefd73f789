//! Requests, connections and nodes in orders drawn at random: requests come, go away or have to wait, and nodes stall, die and
//! are replaced.
//!
//! The modules are the backend's own, on a runtime, a clock and servers of the model's. shuttle prints the order of a run that
//! failed, and how to have it again.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::drop_non_drop,
    clippy::needless_pass_by_value,
    clippy::let_unit_value,
    clippy::unused_self,
    clippy::unused_async,
    reason = "a model is a part of the whole, and fails by panicking"
)]

mod model;

#[path = "../src"]
mod product {
    pub(crate) mod cluster;
    pub(crate) mod dispatch;
    pub(crate) mod inline_call;
    pub(crate) mod job;
    pub(crate) mod queue;
    pub(crate) mod redirect;
    pub(crate) mod server;
    pub(crate) mod slots;
}

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use shuttle::future::{block_on, spawn, yield_now};
use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, Runner};

use cluster::Cluster;
use dispatch::{Dispatch, Limits, Peers};
use job::{Job, gone, outcome_of};
use link::{Handshake, Link};
use model::clock::{self, Instant};
use model::world::{Mood, WORLD};
use model::{
    connection, departure, error, hello, holder, known, link, script, slot, stats, sync, wire,
};
use product::{cluster, dispatch, inline_call, job, queue, redirect, server, slots};
use redirect::Redirect;
use slots::{Prospect, Slots};
use sync::Handle;
use wire::{Outcome, Request};

const LIMITS: Limits = Limits {
    deadline: Duration::from_millis(100),
    waiting: 64,
    connections: 2,
};

/// With this many connections to the first server.
fn dispatch(runtime: &Handle, lanes: usize) -> Arc<Dispatch> {
    let (link, runtime) = (Link::to(0), runtime.clone());
    let dispatch = Dispatch::new(
        link,
        runtime,
        LIMITS,
        None,
        Arc::default(),
        Arc::default(),
        Arc::default(),
    );
    for wire in 0..lanes {
        dispatch.connected(wire, Handshake::to(0));
    }
    dispatch
}

fn connected(runtime: &Handle) -> Arc<Dispatch> {
    dispatch(runtime, LIMITS.connections)
}

async fn take_one(dispatch: &Arc<Dispatch>) -> Outcome {
    let deadline = dispatch.deadline();
    outcome_of(dispatch.ask(Request::take_one(), deadline).await)
}

/// Says whether a unit was taken. The caller gets an answer in any case.
fn admitted(said: &Outcome) -> bool {
    if let Err(error) = said {
        assert_ne!(error.detail(), gone().detail(), "nobody was told");
    }
    said.is_ok()
}

/// Lets time pass now and then.
fn time_passes() -> impl FnOnce() {
    let is_over = Arc::new(AtomicBool::new(false));
    let passing = Arc::clone(&is_over);
    let _detached = spawn(async move {
        while !passing.load(Ordering::SeqCst) {
            clock::pass();
            yield_now().await;
        }
    });
    move || is_over.store(true, Ordering::SeqCst)
}

fn in_many_orders(times: usize, play: impl AsyncFn() + Send + Sync + 'static) {
    let mut config = Config::new();
    // Each task has a stack of its own. A task that panics writes a backtrace from it.
    config.stack_size = 256 * 1024;
    let runner = Runner::new(RandomScheduler::new(times), config);
    runner.run(move || block_on(play()));
}

#[test]
fn everybody_who_asks_is_answered() {
    in_many_orders(600, async || {
        let runtime = Handle::default();
        let dispatch = connected(&runtime);

        let asking = [(); 4].map(|()| {
            let dispatch = Arc::clone(&dispatch);
            spawn(async move {
                for _ in 0..2 {
                    assert!(admitted(&take_one(&dispatch).await));
                }
            })
        });
        for asking in asking {
            asking.await.unwrap();
        }

        runtime.ended().await;
        assert_eq!((WORLD.taken(), WORLD.given_back()), (8, 0));
    });
}

#[test]
fn whoever_goes_away_pays_nothing_and_keeps_nobody() {
    in_many_orders(600, async || {
        let runtime = Handle::default();
        let dispatch = connected(&runtime);

        let going = [0, 1, 2].map(|patience| {
            let dispatch = Arc::clone(&dispatch);
            spawn(async move {
                let deadline = dispatch.deadline();
                let mut waiting = dispatch.ask(Request::take_one(), deadline);
                let mut said = None;
                for _ in 0..patience {
                    yield_now().await;
                    let once = poll_fn(|cx| Poll::Ready(Pin::new(&mut waiting).poll(cx)));
                    if let Poll::Ready(heard) = once.await {
                        said = heard.ok();
                        break;
                    }
                }
                said.is_some_and(|said| admitted(&outcome_of(Ok(said))))
            })
        });
        let staying = take_one(&dispatch).await;
        assert!(admitted(&staying));
        let mut stayed = 1;
        for going in going {
            stayed += usize::from(going.await.unwrap());
        }

        runtime.ended().await;
        assert_eq!(WORLD.taken() - WORLD.given_back(), stayed);
    });
}

#[test]
fn nobody_depends_on_whether_another_one_is_polled() {
    for (lanes, slow, polls) in [(1, 1, 1), (1, 2, 0), (1, 2, 1), (2, 1, 1), (2, 2, 0)] {
        in_many_orders(150, async move || {
            let runtime = Handle::default();
            let dispatch = dispatch(&runtime, lanes);

            // given one or two callers that may poll once, and then do something else for long
            let deadline = dispatch.deadline();
            let slow = (0..slow).map(|_| dispatch.ask(Request::take_one(), deadline));
            let mut slow: Vec<_> = slow.collect();
            for _ in 0..polls {
                let once = poll_fn(|cx| Poll::Ready(Pin::new(&mut slow[0]).poll(cx)));
                drop(once.await);
            }

            // when others come
            let asking = [(); 3].map(|()| {
                let dispatch = Arc::clone(&dispatch);
                spawn(async move { admitted(&take_one(&dispatch).await) })
            });

            // then they are answered
            for asking in asking {
                assert!(asking.await.unwrap());
            }
            drop(slow);
            runtime.ended().await;
            assert_eq!(WORLD.taken() - WORLD.given_back(), 3);
        });
    }
}

#[test]
fn a_server_that_stalls_or_dies_and_comes_back_leaves_nobody_without_an_answer() {
    for mood in [Mood::Silent, Mood::Gone] {
        in_many_orders(300, async move || {
            let runtime = Handle::default();
            let dispatch = connected(&runtime);
            let over = time_passes();

            let asking = [(); 4].map(|()| {
                let dispatch = Arc::clone(&dispatch);
                spawn(async move {
                    let mut passed = 0;
                    for _ in 0..2 {
                        passed += usize::from(admitted(&take_one(&dispatch).await));
                    }
                    passed
                })
            });
            WORLD.set(0, mood);
            dispatch.tell(Request::give_back());
            yield_now().await;
            WORLD.set(0, Mood::Answers);
            let mut passed = 0;
            for asking in asking {
                passed += asking.await.unwrap();
            }
            // Jobs without a caller are done when the server is back.
            runtime.ended().await;

            // A charge with an unknown outcome may have been taken, and never the reverse.
            assert!((passed..=8).contains(&WORLD.taken()));
            assert!(WORLD.given_back() + dispatch.counters.lost_so_far() > 0);
            assert!(dispatch.connection().is_some());
            over();
        });
    }
}

fn cluster(runtime: &Handle) -> Arc<Cluster> {
    let seeds = vec![connection::info(0), connection::info(1)];
    Cluster::new(
        seeds,
        Link::to(0),
        runtime.clone(),
        LIMITS,
        Arc::default(),
        Arc::default(),
    )
}

#[test]
fn a_node_that_is_replaced_takes_nobody_along() {
    for mood in [Mood::Answers, Mood::Silent, Mood::Gone] {
        in_many_orders(150, async move || {
            let runtime = Handle::default();
            let cluster = cluster(&runtime);
            let over = time_passes();
            while cluster.open_now().await.is_err() {}

            // when its slots go to the other one while requests come
            let asking = [(); 3].map(|()| {
                let cluster = Arc::clone(&cluster);
                spawn(async move {
                    let deadline = Instant::now() + LIMITS.deadline;
                    let said = cluster.ask(Request::take_one(), deadline).await;
                    cluster.push(Job::unattended(Request::give_back(), &cluster.counters));
                    usize::from(admitted(&said))
                })
            });
            WORLD.set(0, mood);
            WORLD.promote(1);
            cluster.refresh();
            let mut passed = 0;
            for asking in asking {
                passed += asking.await.unwrap();
            }
            runtime.ended().await;

            // then every caller has been told, and jobs without a caller were done or are known to be lost
            assert!((passed..=3).contains(&WORLD.taken()));
            let lost = cluster.counters.lost_so_far();
            let done = WORLD.given_back() + lost;
            assert!(done >= 3, "{done} of 3, {lost} lost");
            over();
        });
    }
}

/// A node that has not heard of the replacement names the old one again, and may be asked next.
#[test]
fn who_was_replaced_while_silent_is_not_waited_for_when_named_again() {
    for (first, hope) in [
        (Mood::Silent, Prospect::None),
        (Mood::Answers, Prospect::Some),
    ] {
        in_many_orders(1, async move || {
            let runtime = Handle::default();
            let (mut slots, mut hopes) = (Slots::default(), Vec::new());
            for named in [0, 1, 0] {
                WORLD.promote(named);
                let said = WORLD.slots(1).await.unwrap();
                let ranges = slots::parse(said, "").unwrap();
                drop(slots.replace(ranges, |_address, hope| {
                    hopes.push(hope);
                    let connects = named == 1 || first == Mood::Answers;
                    dispatch(&runtime, if connects { LIMITS.connections } else { 0 })
                }));
            }
            assert_eq!(hopes, [Prospect::Some, Prospect::Some, hope]);
        });
    }
}

#[test]
fn a_credit_that_found_nobody_for_too_long_is_counted_as_lost() {
    in_many_orders(10, async || {
        let cluster = cluster(&Handle::default());
        let credit = || Job::unattended(Request::give_back(), &cluster.counters);

        cluster.send_on(vec![credit()], &Redirect::Wait);
        assert_eq!(cluster.counters.lost_so_far(), 0);
        let mut late = credit();
        late.deadline = Instant::now();
        cluster.send_on(vec![late], &Redirect::Wait);
        assert_eq!(cluster.counters.lost_so_far(), 1);
    });
}
