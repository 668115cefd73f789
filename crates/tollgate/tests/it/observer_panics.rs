//! An observer harms no request, whatever it does and whatever it hears of: it may panic, or use the limiter itself, which would
//! never end if a lock were held while it is told.

#![cfg(feature = "axum")]

use std::cell::Cell;
use std::collections::HashSet;
use std::convert::Infallible;
use std::future::IntoFuture;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::task::{Context, Waker};
use std::time::Duration;

use crate::common::failing::Failing;
use crate::common::tokio_clock::in_tokio_time;
use crate::common::{Body, PATIENT, Strict, from};
use http::{Request, Response};
use tokio::task::yield_now;
use tollgate::key::{Header, KeyList};
use tollgate::{
    Ban, Block, Cause, Concurrent, Event, Key, Limiter, LimiterBuilder, OnFailure, OnMissing,
    OnUnknown, Once, Policy, PressureGauge, Quota, RateLimitLayer, Share, Switch, Tiers,
};
use tower::{Layer, ServiceExt, service_fn};

const MINUTE: Duration = Duration::from_secs(60);

/// All that an observer may hear of whose backend is in memory: that knows no denial beside its decisions.
const CAUSES: [Cause; 19] = [
    Cause::Backend,
    Cause::Local,
    Cause::PassedUndecided,
    Cause::RefusedUndecided,
    Cause::Blocked,
    Cause::Exempt,
    Cause::Off,
    Cause::Unidentified,
    Cause::PassedUnidentified,
    Cause::TierUnknown,
    Cause::Shed,
    Cause::Settled,
    Cause::NoPlace,
    Cause::Left,
    Cause::Replayed,
    Cause::Unasked,
    Cause::Released,
    Cause::Credited,
    Cause::Debited,
];

fn policies() -> Vec<Policy> {
    let once = Quota::per_hour(1);
    let on_demand = |name: &str| Policy::new(name, once).on_demand();
    let at = |path: &str| Policy::new(path.trim_matches('/'), once).route(path);
    let fails = |_: Key| async { Err::<Option<String>, _>("a database that is away") };
    let tiers = Tiers::by_async(MINUTE, fails).tier("gold", once);
    let list = |key: &str| [key].into_iter().collect::<KeyList>();
    let many = Concurrent::at_most(1).wait_up_to(Duration::from_secs(1));
    vec![
        on_demand("api"),
        on_demand("spare"),
        on_demand("switched"),
        on_demand("guarded").ban(Ban::after(1, MINUTE)),
        on_demand("listed")
            .exempt_keys(list("friend"))
            .block_keys(list("foe"), Block::Forbidden),
        on_demand("trial").shadow(),
        on_demand("orders").once(Once::default()),
        on_demand("tiered").tiers(tiers.on_unknown(OnUnknown::Deny)),
        on_demand("open"),
        on_demand("closed").on_failure(OnFailure::Deny),
        on_demand("local").on_failure(OnFailure::Local(Share::WHOLE)),
        Policy::new("slow", Quota::per_minute(1).wait_up_to(MINUTE)).on_demand(),
        Policy::new("places", many).on_demand(),
        at("/keyed")
            .key(Header::new("x-key"))
            .on_missing(OnMissing::Deny),
        at("/passed")
            .key(Header::new("x-key"))
            .on_missing(OnMissing::Pass),
        at("/settled").count_if(|response| response.status().is_client_error()),
    ]
}

/// Something of each kind happens to a limiter, and this is what its callers feel.
async fn felt(
    observed: impl FnOnce(LimiterBuilder) -> LimiterBuilder,
    enter: impl FnOnce(&Limiter),
) -> Vec<String> {
    let (gauge, fails) = (PressureGauge::new(), Arc::new(AtomicBool::new(false)));
    let builder = Limiter::builder()
        .policies(policies())
        .backend(Failing(in_tokio_time(), Arc::clone(&fails)))
        .classes(["normal", "batch"], Header::new("x-class"))
        .shed(&gauge, [("batch", 0.5)])
        .track_offenders();
    let limiter = observed(builder).build().unwrap();
    enter(&limiter);
    let mut felt = Vec::new();
    let mut feel = |what: &str, said: String| felt.push(format!("{what}: {said}"));
    let check = async |policy: &str, key: &str| match limiter.check(policy, key).await {
        Ok(ruled) => ruled.is_allowed().to_string(),
        Err(error) => error.to_string(),
    };

    limiter.switch("switched", Switch::Off).unwrap();
    for (policy, key) in [
        ("api", "alice"),
        ("api", "alice"),
        ("switched", "alice"),
        ("switched", "alice"),
        ("guarded", "alice"),
        ("guarded", "alice"),
        ("guarded", "alice"),
        ("listed", "friend"),
        ("listed", "foe"),
        ("trial", "alice"),
        ("trial", "alice"),
        ("tiered", "alice"),
    ] {
        feel(policy, check(policy, key).await);
    }
    for _ in 0..2 {
        let order = limiter.check("orders", "alice").id("7").await.unwrap();
        feel("orders", order.is_allowed().to_string());
    }
    let both = ["listed", "trial"].map(|policy| limiter.check(policy, "foe"));
    let both = limiter.check_all(both).await.unwrap();
    feel("both", both.is_allowed().to_string());
    let mut receipts = limiter
        .check("spare", "alice")
        .await
        .unwrap()
        .into_receipts();
    limiter.debit(&receipts[0], 1);
    limiter.refund(receipts.remove(0), 1);

    // Turns and places: one that is let in, one that waits, one that leaves, and one that waits in vain.
    for policy in ["slow", "places"] {
        let first = limiter.acquire(policy, "alice").await.unwrap();
        feel(policy, first.is_allowed().to_string());
        let asking = limiter.clone();
        let leaves = tokio::spawn(async move { asking.acquire(policy, "alice").await.map(drop) });
        yield_now().await;
        leaves.abort();
        feel(policy, leaves.await.unwrap_err().is_cancelled().to_string());
        let second = limiter.acquire(policy, "alice").await.unwrap();
        feel(policy, second.is_allowed().to_string());
    }

    let layer = RateLimitLayer::new(&limiter);
    for (path, class) in [
        ("/keyed", "normal"),
        ("/passed", "normal"),
        ("/settled", "normal"),
        ("/settled", "normal"),
        ("/else", "batch"),
    ] {
        gauge.set(if class == "batch" { 0.9 } else { 0.0 });
        let mut request = from("10.0.0.1");
        *request.uri_mut() = path.parse().unwrap();
        request
            .headers_mut()
            .insert("x-class", class.parse().unwrap());
        let answer = layer
            .layer(Strict::default())
            .oneshot(request)
            .await
            .unwrap();
        feel(path, answer.status().to_string());
    }

    gauge.set(0.0);
    fails.store(true, Ordering::Relaxed);
    for policy in ["open", "closed", "local", "local"] {
        feel(policy, check(policy, "alice").await);
    }
    felt
}

/// Runs this on a runtime whose time is paused, in a thread of its own, and gives up if it never ends.
fn within_patience<T: Send + 'static>(story: impl AsyncFnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        tell.send(runtime.block_on(story())).unwrap();
    });
    told.recv_timeout(PATIENT).unwrap()
}

fn felt_without_an_observer() -> Vec<String> {
    within_patience(async || felt(|builder| builder, |_| ()).await)
}

#[test]
fn an_observer_that_panics_whatever_it_hears_of_changes_nothing_for_callers() {
    let heard = Arc::new(Mutex::new(HashSet::new()));
    let ear = Arc::clone(&heard);

    let felt = within_patience(async move || {
        let panics = move |event: &Event<'_>| {
            ear.lock().unwrap().insert(event.cause());
            // Without the message of a panic in the output of the test.
            resume_unwind(Box::new("a defect"));
        };
        felt(|builder| builder.observe(panics), |_| ()).await
    });

    assert_eq!(felt, felt_without_an_observer());
    assert_eq!(*heard.lock().unwrap(), HashSet::from(CAUSES));
}

#[test]
fn an_observer_that_uses_the_limiter_whatever_it_hears_of_changes_nothing_for_callers() {
    thread_local! {
        static IS_TOLD: Cell<bool> = const { Cell::new(false) };
    }
    let heard = Arc::new(Mutex::new(HashSet::new()));
    let ear = Arc::clone(&heard);

    let felt = within_patience(async move || {
        let own = Arc::new(OnceLock::<Limiter>::new());
        let limiter = Arc::clone(&own);
        let uses = move |event: &Event<'_>| {
            // It is told of its own questions as well.
            if IS_TOLD.replace(true) {
                return;
            }
            ear.lock().unwrap().insert(event.cause());
            let limiter = limiter.get().unwrap();
            let mut context = Context::from_waker(Waker::noop());
            let check = pin!(limiter.check("spare", "observer").into_future());
            assert!(check.poll(&mut context).is_ready());
            let acquire = pin!(limiter.acquire("places", "observer").into_future());
            assert!(acquire.poll(&mut context).is_ready());
            limiter.offenders("api").unwrap();
            #[cfg(feature = "metrics")]
            limiter.publish_metrics();
            limiter.switch("api", Switch::On).unwrap();
            let policies = limiter.policies();
            let same = policies.iter().map(|policy| Policy::clone(policy));
            limiter.replace(same).unwrap();
            IS_TOLD.set(false);
        };
        let enter = |limiter: &Limiter| own.set(limiter.clone()).unwrap();
        felt(|builder| builder.observe(uses), enter).await
    });

    assert_eq!(felt, felt_without_an_observer());
    assert_eq!(*heard.lock().unwrap(), HashSet::from(CAUSES));
}

/// A held place is given back while the panic unwinds, and its observer panics then.
#[tokio::test]
async fn an_observer_that_panics_while_a_handler_s_panic_unwinds_ends_no_process() {
    let observed = Limiter::builder().observe(|_: &Event<'_>| resume_unwind(Box::new("a defect")));
    let limiter = observed.policy(Policy::new("places", Concurrent::at_most(1)));
    let limiter = limiter.build().unwrap();
    let layer = RateLimitLayer::new(&limiter);
    let handler = async |_: Request<Body>| -> Result<Response<Body>, Infallible> {
        resume_unwind(Box::new("a defect of the handler"))
    };

    for _ in 0..3 {
        let service = layer.layer(service_fn(handler));
        let answered = tokio::spawn(service.oneshot(from("10.0.0.1"))).await;
        assert!(answered.unwrap_err().is_panic());
    }
}

#[tokio::test]
async fn the_observer_that_is_set_last_is_told() {
    let [first, last] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let tells = |told: &Arc<AtomicBool>| {
        let told = Arc::clone(told);
        move |_: &Event<'_>| told.store(true, Ordering::Relaxed)
    };
    let builder = Limiter::builder().observe(tells(&first));
    let builder = builder.observe(tells(&last));
    let limiter = builder.policy(Policy::new("api", Quota::per_hour(1)));

    let limiter = limiter.build().unwrap();
    assert!(limiter.check("api", "alice").await.unwrap().is_allowed());

    let told = [first, last].map(|told| told.load(Ordering::Relaxed));
    assert_eq!(told, [false, true]);
}
