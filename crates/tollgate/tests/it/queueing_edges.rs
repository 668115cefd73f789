//! Requests that wait, at the edges: those that come while the line is full or closes, that leave at the head of a queue, and
//! that are refused when their turn has come. Told by tokio's clock, which stands still while any task works and jumps to the
//! next timer.

use std::future::{Future, IntoFuture};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::common::Waiting;
use crate::common::failing::Failing;
use crate::common::late::Late;
use crate::common::tokio_clock::in_tokio_time;
use tokio::task::{JoinHandle, JoinSet, yield_now};
use tokio::time::{Instant, advance, sleep};
use tollgate::{
    Cause, CheckError, CheckOutcome, Concurrent, Event, Key, Limiter, LimiterBuilder, OnFailure,
    Policy, Quota, Share, Tiers, Verdict,
};
use tollgate_testkit::Log;

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Ten a second, one at a time.
const SMOOTH: Quota = Quota::per_second(10).burst(1).wait_up_to(millis(2_000));

/// Two at once, and a wait of a second for a place.
const PLACES: Concurrent = Concurrent::at_most(2).wait_up_to(millis(1_000));

fn limiter_of(policy: Policy) -> LimiterBuilder {
    Limiter::builder().policy(policy).backend(in_tokio_time())
}

/// The policy of these tests is called `it`.
fn limiter(policy: Policy) -> Limiter {
    limiter_of(policy).build().unwrap()
}

type Asked = JoinHandle<Result<CheckOutcome, CheckError>>;

/// A request that has got as far as it can for now.
async fn ask(limiter: &Limiter, cost: u64) -> Asked {
    let limiter = limiter.clone();
    let asked = tokio::spawn(async move { limiter.acquire("it", "a").cost(cost).await });
    yield_now().await;
    asked
}

async fn acquire(limiter: &Limiter) -> CheckOutcome {
    limiter.acquire("it", "a").await.unwrap()
}

/// The remaining units of each quota.
async fn remaining(limiter: &Limiter) -> Vec<u64> {
    let probe = limiter.check("it", "a").probe().await.unwrap();
    probe.verdicts().iter().map(Verdict::remaining).collect()
}

/// The line closes while the backend is asked. Its answer is to wait, which no request may any longer.
#[tokio::test(start_paused = true)]
async fn a_line_that_closes_while_the_backend_is_asked_lets_nobody_wait() {
    let backend = Waiting::new(in_tokio_time());
    let limiter = Limiter::builder()
        .policy(Policy::new("it", SMOOTH))
        .backend(backend.clone());
    let limiter = limiter.build().unwrap();
    backend.gate.add_permits(1);
    assert!(acquire(&limiter).await.is_allowed());
    let began = Instant::now();
    let asked = ask(&limiter, 1).await;
    assert_eq!((backend.pending(), limiter.waiting()), (1, 1));

    limiter.stop_waiting();
    backend.gate.add_permits(1);

    let refused = asked.await.unwrap();
    assert!(matches!(refused, Err(CheckError::Unavailable(_))));
    assert_eq!((began.elapsed(), limiter.waiting()), (millis(0), 0));
    // The turn was given back.
    sleep(millis(100)).await;
    backend.gate.add_permits(1);
    assert!(acquire(&limiter).await.is_allowed());
}

/// A request that leaves while the backend is asked leaves the line as well.
#[tokio::test(start_paused = true)]
async fn who_leaves_while_the_backend_is_asked_has_no_place_in_line_any_more() {
    let backend = Waiting::new(in_tokio_time());
    let limiter = Limiter::builder().policy(Policy::new("it", SMOOTH));
    let limiter = limiter.max_waiting(1).backend(backend.clone());
    let limiter = limiter.build().unwrap();
    let asked = ask(&limiter, 1).await;
    assert_eq!(limiter.waiting(), 1);

    asked.abort();
    assert!(asked.await.is_err());

    assert_eq!(limiter.waiting(), 0);
    backend.gate.add_permits(2);
    assert!(acquire(&limiter).await.is_allowed());
    assert_eq!(acquire(&limiter).await.waited(), millis(100));
}

/// The turn has come, and the future was not polled since. Its charge comes back, which lets no request pass earlier while
/// others wait.
#[tokio::test(start_paused = true)]
async fn a_future_that_is_dropped_once_its_turn_has_come_gives_back_as_one_that_has_passed() {
    for (another_waits, next) in [(false, millis(0)), (true, millis(200))] {
        let limiter = limiter(Policy::new("it", SMOOTH));
        assert!(acquire(&limiter).await.is_allowed());
        let mut turn = Box::pin(limiter.acquire("it", "a").into_future());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(turn.as_mut().poll(&mut cx).is_pending());
        let behind = if another_waits {
            Some(ask(&limiter, 1).await)
        } else {
            None
        };

        advance(millis(100)).await;
        drop(turn);

        assert_eq!(limiter.waiting(), usize::from(another_waits));
        assert_eq!(acquire(&limiter).await.waited(), next, "{another_waits}");
        if let Some(behind) = behind {
            assert_eq!(behind.await.unwrap().unwrap().waited(), millis(200));
        }
    }
}

/// The answer takes some of the caller's time, and the wait that it tells counts from its arrival.
#[tokio::test(start_paused = true)]
async fn a_turn_that_comes_after_the_callers_deadline_because_the_answer_was_late_is_refused() {
    for (patience, passes) in [(120, true), (119, false)] {
        let limiter = Limiter::builder()
            .policy(Policy::new("it", [SMOOTH, Quota::per_hour(5)]))
            .backend(Late(in_tokio_time(), millis(20)));
        let limiter = limiter.build().unwrap();
        assert!(acquire(&limiter).await.is_allowed());
        // The first has passed 20 ms ago, and half of its interval is over when the second comes.
        sleep(millis(30)).await;
        let began = Instant::now();

        let second = limiter.acquire("it", "a").up_to(millis(patience - 50));
        let second = second.await.unwrap();

        if passes {
            assert!(second.is_allowed());
            assert_eq!((second.waited(), began.elapsed()), (millis(50), millis(70)));
        } else {
            assert!(!second.is_allowed());
            assert_eq!((second.waited(), began.elapsed()), (millis(0), millis(20)));
            assert_eq!(second.retry_after(), Some(millis(1)));
        }
        assert_eq!(limiter.waiting(), 0);
        // Refused, it has taken nothing: neither the hour's quota nor the turn.
        assert_eq!(remaining(&limiter).await[1], if passes { 3 } else { 4 });
        let next = acquire(&limiter).await;
        assert_eq!(next.waited(), millis(if passes { 60 } else { 10 }));
    }
}

/// A runtime without a timer could tell no turn: each request is decided as if it could not wait, and none panics.
#[test]
fn in_a_runtime_without_a_timer_nobody_waits() {
    let log = Log::default();
    let _guard = log.listen();
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(async {
        for policy in [Policy::new("it", SMOOTH), Policy::new("it", PLACES)] {
            let limiter = Limiter::from(policy);
            let mut passed = Vec::new();
            for _ in 0..5 {
                passed.push(acquire(&limiter).await);
            }
            assert_eq!(limiter.waiting(), 0);
            assert!(passed[0].is_allowed());
            assert!(!passed[4].is_allowed());
        }
    });
    let text = log.text();
    assert!(text.contains("the runtime has no timer"), "{text}");
}

/// A place is asked for again when the turn has come, and belongs to no request until then.
#[tokio::test(start_paused = true)]
async fn who_leaves_before_the_turn_frees_no_place_of_others() {
    let limiter = limiter(Policy::new("it", (SMOOTH, Concurrent::at_most(3))));
    let first = acquire(&limiter).await;
    let (second, third) = (ask(&limiter, 1).await, ask(&limiter, 1).await);
    let second = second.await.unwrap().unwrap();
    assert!(first.is_allowed() && second.is_allowed());
    sleep(millis(50)).await;

    third.abort();
    assert!(third.await.is_err());

    assert_eq!(remaining(&limiter).await[1], 1);
    drop((first, second));
    assert_eq!(remaining(&limiter).await[1], 3);
}

/// Verdicts stand in the order of the policy's quotas, wherever the held one stands.
#[tokio::test(start_paused = true)]
async fn a_request_that_holds_when_its_turn_has_come_is_told_of_each_quota() {
    let places = Concurrent::at_most(3);
    for (policy, limits, held) in [
        (Policy::new("it", (SMOOTH, places)), [1, 3], 1),
        (Policy::new("it", (places, SMOOTH)), [3, 1], 0),
    ] {
        let limiter = limiter(policy);
        let first = acquire(&limiter).await;
        let second = acquire(&limiter).await;

        let told: Vec<_> = second.verdicts().iter().map(Verdict::limit).collect();
        assert_eq!(told, limits);
        assert_eq!(second.verdicts()[held].remaining(), 1);
        assert_eq!(second.waited(), millis(100));
        drop((first, second));
        assert_eq!(remaining(&limiter).await[held], 3);
    }
}

/// The backend fails when the turn has come and a place is asked for: a request that passes all the same has had the turn.
#[tokio::test(start_paused = true)]
async fn a_request_that_passes_undecided_keeps_its_turn() {
    let fails = Arc::new(AtomicBool::new(false));
    let policy = Policy::new("it", (SMOOTH, Concurrent::at_most(1)));
    let limiter = Limiter::builder()
        .policy(policy.on_failure(OnFailure::Allow))
        .backend(Failing(in_tokio_time(), Arc::clone(&fails)))
        .build()
        .unwrap();
    drop(acquire(&limiter).await);
    let asked = ask(&limiter, 1).await;
    fails.store(true, Ordering::Relaxed);
    let passed = asked.await.unwrap().unwrap();
    assert!(passed.is_allowed() && passed.undecided().is_some());
    fails.store(false, Ordering::Relaxed);

    let next = acquire(&limiter).await;
    assert_eq!(next.waited(), millis(100));
}

#[tokio::test(start_paused = true)]
async fn the_observer_hears_that_the_place_was_gone_when_the_turn_had_come() {
    let heard: Arc<Mutex<Vec<(Cause, bool)>>> = Arc::default();
    let ear = Arc::clone(&heard);
    let policy = Policy::new("it", (SMOOTH, Concurrent::at_most(1)));
    let limiter = limiter_of(policy).observe(move |event: &Event<'_>| {
        let is_denied = event.verdict().is_some_and(Verdict::is_denied);
        ear.lock().unwrap().push((event.cause(), is_denied));
    });
    let limiter = limiter.build().unwrap();
    drop(acquire(&limiter).await);
    let (second, third) = (ask(&limiter, 1).await, ask(&limiter, 1).await);
    let holds = second.await.unwrap().unwrap();
    heard.lock().unwrap().clear();

    assert!(!third.await.unwrap().unwrap().is_allowed());

    // It heard of the turn before, and of the place that is gone now.
    assert_eq!(
        *heard.lock().unwrap(),
        [(Cause::Backend, true), (Cause::Left, false)]
    );
    drop(holds);
}

#[tokio::test(start_paused = true)]
async fn the_observer_hears_of_each_quota_once_though_a_place_is_asked_for_later() {
    let heard: Arc<Mutex<Vec<(String, Cause, bool)>>> = Arc::default();
    let ear = Arc::clone(&heard);
    let policy = Policy::new("it", (SMOOTH, Concurrent::at_most(2)));
    let limiter = limiter_of(policy).observe(move |event: &Event<'_>| {
        let quota = event.quota().unwrap_or_default().to_owned();
        let is_denied = event.verdict().is_some_and(Verdict::is_denied);
        ear.lock().unwrap().push((quota, event.cause(), is_denied));
    });
    let limiter = limiter.build().unwrap();
    let first = acquire(&limiter).await;
    heard.lock().unwrap().clear();

    let second = acquire(&limiter).await;

    assert_eq!(second.waited(), millis(100));
    let heard = std::mem::take(&mut *heard.lock().unwrap());
    let [
        (turn, Cause::Backend, false),
        (place, Cause::Backend, false),
    ] = &heard[..]
    else {
        panic!("{heard:?}");
    };
    assert_ne!(turn, place);
    drop((first, second));
}

/// Its turn was charged to the backend, and the share of this process decides in the end.
#[tokio::test(start_paused = true)]
async fn a_request_that_a_share_lets_in_is_not_charged_to_the_backend_as_well() {
    let fails = Arc::new(AtomicBool::new(false));
    let policy = Policy::new("it", (SMOOTH, Concurrent::at_most(1)));
    let limiter = Limiter::builder()
        .policy(policy.on_failure(OnFailure::Local(Share::WHOLE)))
        .backend(Failing(in_tokio_time(), Arc::clone(&fails)))
        .build()
        .unwrap();
    drop(acquire(&limiter).await);
    let asked = ask(&limiter, 1).await;
    fails.store(true, Ordering::Relaxed);
    let passed = asked.await.unwrap().unwrap();
    assert!(passed.is_allowed() && passed.waited() == millis(100));
    drop(passed);
    fails.store(false, Ordering::Relaxed);

    // The next has the turn of that one.
    let next = acquire(&limiter).await;
    assert_eq!(next.waited(), Duration::ZERO);
}

/// It would overtake the request that waits, so the backend is not asked about it.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_no_backend_made_does_not_end_an_outage() {
    let (fails, log) = (Arc::new(AtomicBool::new(false)), Log::default());
    let _guard = log.listen();
    let heard: Arc<Mutex<Vec<Cause>>> = Arc::default();
    let ear = Arc::clone(&heard);
    let limiter = Limiter::builder()
        .policy(Policy::new("it", PLACES))
        .backend(Failing(in_tokio_time(), Arc::clone(&fails)))
        .observe(move |event: &Event<'_>| ear.lock().unwrap().push(event.cause()))
        .build()
        .unwrap();
    let holds = limiter.check("it", "a").cost(2).await.unwrap();
    let waits = ask(&limiter, 1).await;
    fails.store(true, Ordering::Relaxed);
    let other = limiter.check("it", "b").await.unwrap();
    assert!(other.undecided().is_some());
    heard.lock().unwrap().clear();

    let refused = limiter.check("it", "a").await.unwrap();

    assert!(!refused.is_allowed() && refused.undecided().is_none());
    assert_eq!(*heard.lock().unwrap(), [Cause::NoPlace]);
    let text = log.text();
    assert!(text.contains("the backend cannot decide"), "{text}");
    assert!(!text.contains("decides again"), "{text}");
    drop((waits, holds));
}

/// The request that waited is refused by what it heard last, and the backend may have failed since.
#[tokio::test(start_paused = true)]
async fn a_wait_for_a_place_that_ends_without_one_is_heard_of_as_that() {
    let heard: Arc<Mutex<Vec<(Cause, bool)>>> = Arc::default();
    let ear = Arc::clone(&heard);
    let limiter = limiter_of(Policy::new("it", PLACES)).observe(move |event: &Event<'_>| {
        let is_denied = event.verdict().is_some_and(Verdict::is_denied);
        ear.lock().unwrap().push((event.cause(), is_denied));
    });
    let limiter = limiter.build().unwrap();
    let holds = limiter.check("it", "a").cost(2).await.unwrap();
    heard.lock().unwrap().clear();

    assert!(!acquire(&limiter).await.is_allowed());

    assert_eq!(*heard.lock().unwrap(), [(Cause::NoPlace, true)]);
    drop(holds);
}

/// A heavy request at the head keeps those behind it waiting, until it leaves or its time is over.
#[tokio::test(start_paused = true)]
async fn when_the_head_of_a_queue_leaves_the_next_asks_at_once() {
    for leaves in [true, false] {
        let limiter = limiter(Policy::new("it", PLACES));
        let held = limiter.check("it", "a").await.unwrap();
        let began = Instant::now();
        let heavy = ask(&limiter, 2).await;
        sleep(millis(10)).await;
        let light = ask(&limiter, 1).await;
        sleep(millis(20)).await;
        assert_eq!(limiter.waiting(), 2);
        if leaves {
            heavy.abort();
        }

        assert!(light.await.unwrap().unwrap().is_allowed());

        let free = if leaves { 30 } else { 1_000 };
        assert_eq!(began.elapsed(), millis(free));
        assert_eq!(limiter.waiting(), 0);
        drop(held);
    }
}

/// A request that no place helps is refused at once, and stands in no other's way.
#[tokio::test(start_paused = true)]
async fn a_request_that_no_place_would_help_does_not_wait_for_one() {
    let began = Instant::now();
    let places = limiter(Policy::new("it", PLACES));
    let heavy = places.acquire("it", "a").cost(3).await.unwrap();
    assert!(!heavy.is_allowed());
    assert_eq!((began.elapsed(), places.waiting()), (millis(0), 0));

    let limiter = limiter(Policy::new("it", (Quota::per_hour(2), PLACES)));
    let held = limiter.check("it", "a").cost(2).await.unwrap();
    assert!(held.is_allowed());
    // Neither a place nor a unit of the quota is left.
    let refused = acquire(&limiter).await;
    assert!(!refused.is_allowed());
    assert_eq!((began.elapsed(), limiter.waiting()), (millis(0), 0));
    // A probe asks for now.
    let probe = limiter.check("it", "a").probe().await.unwrap();
    assert!(!probe.is_allowed());
    assert_eq!(began.elapsed(), millis(0));
}

/// Not even until the next tick of the timer, which has milliseconds.
#[tokio::test(start_paused = true)]
async fn a_check_that_finds_no_place_is_answered_at_once() {
    let limiter = limiter(Policy::new("it", PLACES));
    let _held = limiter.check("it", "a").cost(2).await.unwrap();
    advance(Duration::from_micros(500)).await;
    for others_wait in [false, true] {
        let waits = if others_wait {
            Some(ask(&limiter, 1).await)
        } else {
            None
        };
        let mut checks = Box::pin(limiter.check("it", "a").into_future());
        let checked = checks
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        let is_refused = |checked: Result<CheckOutcome, _>| !checked.unwrap().is_allowed();
        assert!(
            checked.map(is_refused) == Poll::Ready(true),
            "{others_wait}"
        );
        drop(waits);
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_waits_for_places_the_shorter_ends_it() {
    let own = Concurrent::at_most(1).wait_up_to(millis(200));
    let policy = Policy::new("it", (PLACES, own));
    let limiter = limiter(policy);
    let held = limiter.check("it", "a").await.unwrap();
    let began = Instant::now();
    assert!(!acquire(&limiter).await.is_allowed());
    assert_eq!(began.elapsed(), millis(200));
    drop(held);
}

/// A request without a place in line is refused, and overtakes no request that has one.
#[tokio::test(start_paused = true)]
async fn no_more_wait_for_a_place_than_the_limiter_lets() {
    let limiter = limiter_of(Policy::new("it", PLACES)).max_waiting(1);
    let limiter = limiter.build().unwrap();
    let held = limiter.check("it", "a").cost(2).await.unwrap();
    let began = Instant::now();
    let first = ask(&limiter, 1).await;
    assert!(!acquire(&limiter).await.is_allowed());
    assert_eq!((began.elapsed(), limiter.waiting()), (millis(0), 1));

    drop(held);
    let refused = acquire(&limiter).await;
    assert_eq!((refused.is_allowed(), refused.waited()), (false, millis(0)));
    assert!(first.await.unwrap().unwrap().is_allowed());
    assert_eq!(began.elapsed(), millis(0));

    let nobody = limiter_of(Policy::new("it", PLACES)).max_waiting(0);
    let nobody = nobody.build().unwrap();
    let held = nobody.check("it", "a").cost(2).await.unwrap();
    assert!(!acquire(&nobody).await.is_allowed());
    assert_eq!(began.elapsed(), millis(0));
    drop(held);
}

/// In the queue for a turn as in the queue for a place.
#[tokio::test(start_paused = true)]
async fn one_caller_takes_no_more_than_its_part_of_the_queue() {
    for (quota, admitted) in [(SMOOTH, 1), (PLACES.into(), 2)] {
        for (stated, most) in [(Some(3), 3), (None, 1_000)] {
            let quota = quota.wait_up_to(Duration::from_secs(100));
            let mut limiter = limiter_of(Policy::new("it", quota));
            if let Some(stated) = stated {
                limiter = limiter.max_waiting_per_key(stated);
            }
            let limiter = limiter.build().unwrap();
            let mut held = Vec::new();
            for _ in 0..admitted {
                held.push(acquire(&limiter).await);
            }
            let mut asked = Vec::new();
            for _ in 0..most + 500 {
                asked.push(ask(&limiter, 1).await);
            }
            assert_eq!(limiter.waiting(), most);
            let refused = asked.iter().filter(|asked| asked.is_finished());
            assert_eq!(refused.count(), 500);

            // Others wait as ever.
            for _ in 0..admitted {
                held.push(limiter.acquire("it", "b").await.unwrap());
            }
            let other = limiter.clone();
            let other = tokio::spawn(async move { other.acquire("it", "b").await });
            yield_now().await;
            assert_eq!(limiter.waiting(), most + 1);

            // What leaves makes room for the caller's next.
            asked.retain(|asked| !asked.is_finished());
            asked.pop().unwrap().abort();
            yield_now().await;
            assert_eq!(limiter.waiting(), most);
            let next = ask(&limiter, 1).await;
            assert!(!next.is_finished());
            assert_eq!(limiter.waiting(), most + 1);
            other.abort();
        }
    }
}

/// The tier of a request is looked up first. Then it waits as others do, and its deadline has gone on meanwhile.
#[tokio::test(start_paused = true)]
async fn a_request_whose_tier_is_asked_for_waits_for_its_turn() {
    let asked = |_: Key| async {
        sleep(millis(10)).await;
        Ok::<_, &'static str>(Some("paying"))
    };
    // The second turn comes 110 ms after both have asked, whichever of the two has it.
    for (patience, passed) in [(109, vec![0]), (110, vec![0, 100])] {
        let tiers = Tiers::by_async(Duration::from_secs(60), asked).tier("paying", SMOOTH);
        let policy = Policy::new("it", Quota::per_second(10).burst(1)).tiers(tiers);
        let limiter = limiter(policy);
        let began = Instant::now();
        let mut asking = JoinSet::new();
        for _ in 0..2 {
            let limiter = limiter.clone();
            drop(asking.spawn(async move {
                let acquired = limiter.acquire("it", "a").up_to(millis(patience)).await;
                acquired.unwrap()
            }));
        }
        let answers = asking.join_all().await;

        let answers = answers.iter().filter(|answer| answer.is_allowed());
        let mut waited: Vec<_> = answers.map(CheckOutcome::waited).collect();
        waited.sort_unstable();
        let last = passed.last().map(|last| millis(10 + last));
        assert_eq!(waited, passed.into_iter().map(millis).collect::<Vec<_>>());
        assert_eq!(Some(began.elapsed()), last);
    }
}
