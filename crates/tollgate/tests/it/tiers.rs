//! Quotas that depend on the caller, and callers whose tier has to be looked up.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::common::{Body, Strict, at_a_standstill, from, header};
use http::{Request, Response};
use tokio::sync::Semaphore;
use tollgate::key::{Header, KeyList, from_async_fn};
use tollgate::{
    Algorithm, Block, Key, Limiter, OnMissing, OnUnknown, Policy, Quota, Quotas, RateLimitLayer,
    Tiers,
};
use tollgate_testkit::Log;
use tower::{Layer, Service, ServiceExt};

fn limiter(policy: Policy) -> Limiter {
    let (backend, _) = at_a_standstill();
    Limiter::builder()
        .policy(policy)
        .backend(backend)
        .build()
        .unwrap()
}

fn by(key: &str) -> Request<Body> {
    let mut request = from("10.0.0.1");
    request
        .headers_mut()
        .insert("x-api-key", key.parse().unwrap());
    request
}

async fn send(limiter: &Limiter, request: Request<Body>) -> Response<Body> {
    let service = RateLimitLayer::new(limiter).layer(Strict::default());
    service.oneshot(request).await.unwrap()
}

async fn statuses(limiter: &Limiter, key: &str, n: usize) -> Vec<u16> {
    let mut all = Vec::new();
    for _ in 0..n {
        all.push(send(limiter, by(key)).await.status().as_u16());
    }
    all
}

fn api() -> Policy {
    Policy::new("api", Quota::per_hour(2)).key(Header::new("x-api-key"))
}

fn gold() -> Tiers {
    Tiers::by_key([("a", "gold"), ("b", "gold"), ("staff", "free")])
        .tier("gold", Quota::per_hour(4))
        .unlimited("free")
}

#[tokio::test]
async fn an_identity_has_the_quotas_of_its_tier() {
    let limiter = limiter(api().tiers(gold()));

    assert_eq!(statuses(&limiter, "nobody", 3).await, [200, 200, 429]);
    assert_eq!(statuses(&limiter, "a", 5).await, [200, 200, 200, 200, 429]);
    assert_eq!(statuses(&limiter, "staff", 9).await, [200; 9]);

    // Each tier says its own limits, and an unlimited caller is told nothing.
    let policy_of =
        async |key| header(&send(&limiter, by(key)).await, "ratelimit-policy").to_owned();
    assert_eq!(policy_of("b").await, "\"api\";q=4;w=3600");
    assert_eq!(policy_of("somebody").await, "\"api\";q=2;w=3600");
    assert_eq!(policy_of("staff").await, "");
}

#[tokio::test]
async fn a_check_knows_tiers_too() {
    let limiter = limiter(api().tiers(gold()));

    let allowed = async |key: &str| {
        limiter
            .check("api", key)
            .cost(4)
            .await
            .unwrap()
            .is_allowed()
    };
    assert!(allowed("a").await && !allowed("nobody").await && allowed("staff").await);
    assert_eq!(
        limiter.check("api", "staff").await.unwrap().remaining(),
        u64::MAX
    );
    assert_eq!(statuses(&limiter, "a", 1).await, [429]);
}

/// The policy `api` in two tiers of four and eight an hour, by this algorithm; and a switch between them, and none.
fn switched(algorithm: Algorithm) -> (Limiter, Arc<AtomicUsize>) {
    let tier = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&tier);
    let names = move |_: &Key, _: Option<&tollgate::RequestView<'_>>| {
        Some(["small", "large", "free"][asked.load(Ordering::SeqCst)])
    };
    let tiers = Tiers::by(names)
        .tier("small", Quota::per_hour(4).using(algorithm))
        .tier("large", Quota::per_hour(8).using(algorithm))
        .unlimited("free");
    (limiter(api().tiers(tiers)), tier)
}

#[tokio::test]
async fn changing_tier_hands_out_no_fresh_budget() {
    let hours = Algorithm::FixedWindow {
        offset: Duration::ZERO,
    };
    let refills = Algorithm::IntervalRefill {
        offset: Duration::ZERO,
    };
    // Of a bucket the half that is spent is spent of the larger one, too; elsewhere what is spent is a number.
    let cases = [
        (Algorithm::Gcra, 4),
        (hours, 6),
        (Algorithm::SlidingWindow, 6),
        (Algorithm::RollingWindow { buckets: 6 }, 6),
        (Algorithm::SlidingLog, 6),
        (refills, 6),
    ];
    for (algorithm, left) in cases {
        // given a caller that has spent half of the small tier
        let (limiter, tier) = switched(algorithm);
        let to = |place| tier.store(place, Ordering::SeqCst);
        assert_eq!(statuses(&limiter, "a", 2).await, [200, 200]);

        // when they are moved to one twice as large, and back again by way of one without limits
        to(1);
        let large = statuses(&limiter, "a", 8).await;
        to(2);
        assert_eq!(statuses(&limiter, "a", 2).await, [200, 200]);
        to(0);
        let small = statuses(&limiter, "a", 2).await;

        // then what they had spent is spent everywhere
        let passed = large.iter().filter(|status| **status == 200).count();
        assert_eq!((passed, small), (left, vec![429, 429]), "{algorithm:?}");
    }
}

#[tokio::test]
async fn who_has_nothing_left_in_one_tier_has_nothing_left_in_another_bucket() {
    let (limiter, tier) = switched(Algorithm::Gcra);
    assert_eq!(statuses(&limiter, "a", 5).await, [200, 200, 200, 200, 429]);
    tier.store(1, Ordering::SeqCst);
    assert_eq!(statuses(&limiter, "a", 1).await, [429]);
}

#[tokio::test]
async fn a_tier_can_be_what_an_outer_layer_found_out() {
    #[derive(Clone)]
    struct Plan(&'static str);
    let tiers = Tiers::by(|_, request| Some(request?.extensions().get::<Plan>()?.0));
    let limiter = limiter(api().tiers(tiers.tier("gold", Quota::per_hour(3))));

    let mut passed = 0;
    for _ in 0..5 {
        let mut request = by("a");
        request.extensions_mut().insert(Plan("gold"));
        passed += usize::from(send(&limiter, request).await.status() == 200);
    }

    assert_eq!(passed, 3);
    assert_eq!(statuses(&limiter, "b", 3).await, [200, 200, 429]);
}

/// The policy `api`, whose key is this, in whose tier `gold` are the identities for which `is_gold` holds; by a closure and by
/// one that is awaited.
fn golden(policy: impl Fn() -> Policy, is_gold: fn(&Key) -> bool) -> [Limiter; 2] {
    let gold = move |key: &Key| is_gold(key).then_some("gold");
    let now = Tiers::by(move |key, _| gold(key));
    let later = Tiers::by_async(Duration::from_secs(60), move |key: Key| async move {
        Ok::<_, String>(gold(&key))
    });
    [now, later].map(|tiers| limiter(policy().tiers(tiers.tier("gold", Quota::per_hour(3)))))
}

#[tokio::test]
async fn a_tier_is_named_by_the_identity_that_the_caller_sent_whatever_its_length() {
    for len in [1, 100, 127, 128, 800, 8_000] {
        // given tokens that end in a plan
        let token = |plan: &str| format!("{}.{plan}", "t".repeat(len));
        for limiter in golden(api, |key| key.content().ends_with(b".gold")) {
            // then each has the quota of the plan
            assert_eq!(
                statuses(&limiter, &token("gold"), 4).await,
                [200, 200, 200, 429]
            );
            assert_eq!(statuses(&limiter, &token("free"), 3).await, [200, 200, 429]);
            // A check finds the same tier.
            let check = limiter.check("api", token("gold")).cost(3).probe();
            assert!(check.await.unwrap().retry_after().is_some());
        }
    }
}

#[tokio::test]
async fn a_tier_is_named_by_the_parts_of_an_identity_by_position() {
    for len in [1, 50, 100, 500] {
        // given callers of a tenant, whose tokens are short or long
        let policy = || api().key((Header::new("x-tenant"), Header::new("x-api-key")));
        let is_gold = |key: &Key| {
            let parts: Vec<_> = key.parts().collect();
            parts[0].text() == Some("gold") && parts[1].text().unwrap().starts_with("t")
        };
        for limiter in golden(policy, is_gold) {
            let mut passed = [0, 0];
            for (passed, tenant) in passed.iter_mut().zip(["gold", "free"]) {
                for _ in 0..5 {
                    let mut request = by(&"t".repeat(len));
                    request
                        .headers_mut()
                        .insert("x-tenant", tenant.parse().unwrap());
                    *passed += usize::from(send(&limiter, request).await.status() == 200);
                }
            }
            assert_eq!(passed, [3, 2], "{len}");
        }
    }
}

#[tokio::test]
async fn lists_and_maps_know_identities_of_any_length() {
    for len in [1, 127, 128, 5_000] {
        let token = |who: &str| format!("{}{who}", "t".repeat(len));
        let (exempt, blocked) = (KeyList::new(), KeyList::new());
        let tiers = Tiers::by_key([(token("gold"), "gold")]).tier("gold", Quota::per_hour(3));
        let policy = api().tiers(tiers).exempt_keys(&exempt);
        let limiter = limiter(policy.block_keys(&blocked, Block::Forbidden));
        exempt.insert(token("ours"));
        blocked.insert(token("leaked"));

        assert_eq!(statuses(&limiter, &token("ours"), 3).await, [200; 3]);
        assert_eq!(statuses(&limiter, &token("leaked"), 1).await, [403]);
        assert_eq!(
            statuses(&limiter, &token("gold"), 4).await,
            [200, 200, 200, 429]
        );
        assert_eq!(
            statuses(&limiter, &token("other"), 3).await,
            [200, 200, 429]
        );
        exempt.remove(token("ours"));
        assert_eq!(statuses(&limiter, &token("ours"), 3).await, [200, 200, 429]);
    }
}

#[tokio::test]
async fn a_tier_that_there_is_none_of_gets_nobody_more() {
    let log = Log::default();
    let _guard = log.listen();
    let limiter = limiter(api().tiers(Tiers::by(|_, _| Some("diamond")).unlimited("gold")));

    assert_eq!(statuses(&limiter, "a", 3).await, [200, 200, 429]);
    assert_eq!(log.text().matches("there is no such tier").count(), 1);
}

#[test]
fn tiers_that_are_not_sound_are_refused() {
    let refusal = |tiers| api().try_tiers(tiers).unwrap_err().to_string();
    let quota = Quota::per_second(1);

    assert_eq!(
        refusal(Tiers::by_key([("a", "gold")]).tier("silver", quota)),
        "policy \"api\": tier \"gold\": an identity is in it, but there is no tier of this name"
    );
    assert_eq!(
        refusal(gold().tier("gold", quota)),
        "policy \"api\": tier \"gold\": two tiers have this name"
    );
    assert_eq!(
        refusal(gold().tier("silver", Vec::<Quota>::new())),
        "policy \"api\": tier \"silver\": no quota"
    );
}

#[test]
fn a_tier_without_a_name_is_called_by_what_it_is() {
    let quota = Quota::per_second(1);
    let unknown = |tier: &str| {
        let asked = Tiers::by_async(Duration::ZERO, async |_| Ok::<_, String>(None::<String>));
        asked.on_unknown(OnUnknown::Tier(tier.to_owned()))
    };
    for tiers in [
        gold().tier("", quota),
        gold().unlimited(""),
        gold().tier("", Quotas::none()),
        Tiers::by_key([("a", "")]).tier("gold", quota),
        unknown("").tier("gold", quota),
    ] {
        assert_eq!(
            api().try_tiers(tiers).unwrap_err().to_string(),
            "policy \"api\": tier \"\": a tier needs a name: the policy's own quotas are those of identities that are in no \
             tier; state them in the policy, and leave the identities out of the tiers"
        );
    }
}

#[test]
fn a_text_that_is_no_quota_of_a_tier_is_refused_with_policy_tier_and_text() {
    for (text, reason) in [
        ("10/minit", "did you mean \"10/min\""),
        ("0/day", "\"none\" refuses every request"),
        ("unlimited", "Tiers::unlimited"),
    ] {
        let refused = api().try_tiers(gold().tier("silver", text));
        let refused = refused.unwrap_err().to_string();
        let begins = format!("policy \"api\": tier \"silver\": quota \"{text}\": ");
        assert!(refused.starts_with(&begins), "{refused}");
        assert!(refused.contains(reason), "{refused}");
    }
}

#[tokio::test]
async fn a_tier_that_somebody_is_asked_for_is_remembered() {
    // given a store that answers when it is let
    let (asked, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let (asks, opens) = (Arc::clone(&asked), Arc::clone(&gate));
    let tiers = Tiers::by_async(Duration::from_secs(600), move |key: Key| {
        let opens = Arc::clone(&opens);
        asks.fetch_add(1, Ordering::SeqCst);
        async move {
            opens.acquire().await.unwrap().forget();
            Ok::<_, String>((key.content() == b"a").then_some("gold"))
        }
    });
    let limiter = limiter(api().tiers(tiers.tier("gold", Quota::per_hour(4))));

    // when a request comes, it waits, and the service that was found ready with it
    let inner = Strict::default();
    let mut service = RateLimitLayer::new(&limiter).layer(inner.clone());
    let mut waiting = Box::pin(service.ready().await.unwrap().call(by("a")));
    assert!(poll_once(&mut waiting).is_none());
    assert_eq!(inner.calls(), 0);
    gate.add_permits(2);
    assert_eq!(waiting.await.unwrap().status(), 200);

    // then no other caller waits
    assert_eq!(statuses(&limiter, "a", 4).await, [200, 200, 200, 429]);
    assert_eq!(statuses(&limiter, "b", 3).await, [200, 200, 429]);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert!(
        limiter
            .check("api", "a")
            .cost(0)
            .await
            .unwrap()
            .is_allowed()
    );
}

#[tokio::test]
async fn what_is_not_to_be_remembered_is_asked_for_each_time() {
    let asked = Arc::new(AtomicUsize::new(0));
    let asks = Arc::clone(&asked);
    let tiers = Tiers::by_async(Duration::ZERO, move |_: Key| {
        let times = asks.fetch_add(1, Ordering::SeqCst);
        async move { Ok::<_, String>((times < 3).then_some("gold")) }
    });
    let limiter = limiter(api().tiers(tiers.unlimited("gold")));

    assert_eq!(
        statuses(&limiter, "a", 6).await,
        [200, 200, 200, 200, 200, 429]
    );
    assert_eq!(asked.load(Ordering::SeqCst), 6);
}

#[tokio::test]
async fn policies_that_ask_the_same_function_remember_its_tiers_for_themselves() {
    // given two policies that have the same tiers in another order
    let (gold, silver) = (Quota::per_hour(4), Quota::per_hour(3));
    let source = Tiers::by_async(Duration::from_secs(600), async |_: Key| {
        Ok::<_, String>(Some("gold"))
    });
    let one = source.clone().tier("gold", gold).tier("silver", silver);
    let other = source.tier("silver", silver).tier("gold", gold);
    let one = limiter(api().tiers(one));
    let other = limiter(api().tiers(other));

    // when both have been asked for the same identity
    let passed = [statuses(&one, "a", 5).await, statuses(&other, "a", 5).await];

    // then it is gold in both
    assert_eq!(passed, [[200, 200, 200, 200, 429]; 2]);
}

#[tokio::test]
async fn an_identity_that_somebody_is_asked_for_obeys_the_policy() {
    // given sessions that a store knows, and two that it does not
    let by_session = || {
        from_async_fn(|request| {
            let session = request.headers().get("x-api-key").cloned();
            async move {
                tokio::task::yield_now().await;
                let session = session?;
                session
                    .as_bytes()
                    .strip_prefix(b"session-of-")
                    .map(Key::bytes)
            }
        })
    };
    let policy = |rule| {
        let policy = Policy::new("api", Quota::per_hour(2)).key_async(by_session());
        policy
            .on_missing(rule)
            .exempt_keys(KeyList::from_iter(["root"]))
    };

    // then each identity has a budget, exempt ones none, and the rule holds for those without
    for (rule, unknown) in [
        (OnMissing::Share, [200, 200, 429]),
        (OnMissing::Pass, [200, 200, 200]),
        (OnMissing::Deny, [403, 403, 403]),
    ] {
        let limiter = limiter(policy(rule));
        assert_eq!(statuses(&limiter, "session-of-a", 3).await, [200, 200, 429]);
        assert_eq!(statuses(&limiter, "session-of-b", 1).await, [200]);
        assert_eq!(statuses(&limiter, "session-of-root", 4).await, [200; 4]);
        assert_eq!(statuses(&limiter, "stolen", 3).await, unknown, "{rule:?}");
    }
}

#[tokio::test]
async fn whoever_leaves_while_somebody_is_asked_has_spent_nothing() {
    let gate = Arc::new(Semaphore::new(0));
    let opens = Arc::clone(&gate);
    let key = from_async_fn(move |_| {
        let opens = Arc::clone(&opens);
        async move {
            opens.acquire().await.unwrap().forget();
            Some("a")
        }
    });
    let limiter = limiter(Policy::new("api", Quota::per_hour(2)).key_async(key));
    let mut service = RateLimitLayer::new(&limiter).layer(Strict::default());

    let mut leaving = Box::pin(service.ready().await.unwrap().call(by("a")));
    assert!(poll_once(&mut leaving).is_none());
    drop(leaving);
    gate.add_permits(10);

    assert_eq!(statuses(&limiter, "a", 3).await, [200, 200, 429]);
}

/// The result of a future that is polled once.
fn poll_once<F: Future>(future: &mut Pin<Box<F>>) -> Option<F::Output> {
    let mut cx = Context::from_waker(Waker::noop());
    match future.as_mut().poll(&mut cx) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
