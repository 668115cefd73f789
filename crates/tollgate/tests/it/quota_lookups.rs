//! Quotas that a database states, one identity at a time: behind a real axum server and in code without requests.

#![cfg(feature = "axum")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::served::{Served, Whole};
use crate::common::{Waiting, at_a_standstill, header};
use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;
use tollgate::key::Header;
use tollgate::{
    Allowance, Ban, CheckError, Concurrent, FailureKind, Key, Limiter, ManualClock, OnFailure,
    OnUnknown, Policy, Quota, QuotaLookup, Quotas, RateLimitLayer, Share, Tiers,
};
use tollgate_testkit::Log;

const MINUTE: Duration = Duration::from_secs(60);

/// The quotas of customers, as a database states them. It answers at once.
#[derive(Clone, Default)]
struct Database(Arc<Rows>);

#[derive(Default)]
struct Rows {
    stated: Mutex<HashMap<String, Allowance>>,
    asked: AtomicUsize,
}

impl Database {
    fn with<A: Into<Allowance>>(self, customer: &str, quotas: A) -> Self {
        self.states(customer, quotas);
        self
    }

    fn states<A: Into<Allowance>>(&self, customer: &str, quotas: A) {
        let mut stated = self.0.stated.lock().unwrap();
        stated.insert(customer.to_owned(), quotas.into());
    }

    fn asked(&self) -> usize {
        self.0.asked.load(Ordering::SeqCst)
    }

    /// Stated quotas are remembered for no time, so that each request hears of a change.
    fn lookup(&self) -> QuotaLookup {
        self.remembered_for(Duration::ZERO)
    }

    fn remembered_for(&self, time: Duration) -> QuotaLookup {
        let database = self.clone();
        QuotaLookup::new(time, move |customer: Key| {
            database.0.asked.fetch_add(1, Ordering::SeqCst);
            let stated = database.0.stated.lock().unwrap();
            let customer = String::from_utf8(customer.content().to_vec()).unwrap();
            let answer = stated.get(&customer).cloned();
            async move { Ok::<_, String>(answer.unwrap_or(Allowance::OwnQuotas)) }
        })
    }
}

/// Two an hour for each customer of which the database states nothing.
fn api() -> Policy {
    with_own(Quota::per_hour(2))
}

fn with_own(quota: Quota) -> Policy {
    Policy::new("api", quota).key(Header::new("x-customer"))
}

fn limiter(policy: Policy) -> (Limiter, ManualClock) {
    let (backend, clock) = at_a_standstill();
    let builder = Limiter::builder().policy(policy).backend(backend);
    (builder.build().unwrap(), clock)
}

/// The most that a customer may spend at once now.
async fn left(limiter: &Limiter, customer: &str) -> u64 {
    let checked = limiter.check("api", customer).cost(0).await.unwrap();
    checked.remaining()
}

async fn spends(limiter: &Limiter, customer: &str, cost: u64) -> bool {
    let checked = limiter.check("api", customer).cost(cost).await.unwrap();
    checked.is_allowed()
}

async fn serve(limiter: &Limiter) -> Served {
    let app = Router::new().route("/", get(async || "fine"));
    Served::new(app.layer(RateLimitLayer::new(limiter))).await
}

async fn send(served: Served, customer: &str) -> Whole {
    let request = Request::get(format!("http://{}/", served.0)).header("x-customer", customer);
    served.request(request.body(Body::empty()).unwrap()).await
}

async fn statuses<const N: usize>(served: Served, customer: &str) -> [u16; N] {
    let mut statuses = [0; N];
    for status in &mut statuses {
        *status = send(served, customer).await.status().as_u16();
    }
    statuses
}

#[tokio::test]
async fn each_customer_has_the_quota_that_the_database_states_and_headers_say_so() {
    // given a customer with four an hour, one with several quotas as text, a closed one, and one that nothing limits
    let database = Database::default()
        .with("4711", Quota::per_hour(4))
        .with("text", "3/h; 9/day")
        .with("closed", Quotas::none())
        .with("free", Allowance::Unlimited)
        .with("free too", "unlimited");
    let (limiter, _) = limiter(api().quota_by_async(database.remembered_for(MINUTE)));
    let served = serve(&limiter).await;

    let first = send(served, "4711").await;
    assert_eq!(header(&first, "ratelimit-policy"), "\"api\";q=4;w=3600");
    assert_eq!(header(&first, "ratelimit"), "\"api\";r=3;t=900");
    assert_eq!(statuses(served, "4711").await, [200, 200, 200, 429]);
    let refused = send(served, "4711").await;
    assert_eq!(header(&refused, "retry-after"), "900");
    assert_eq!(header(&refused, "ratelimit-policy"), "\"api\";q=4;w=3600");

    let several = send(served, "text").await;
    assert_eq!(
        header(&several, "ratelimit-policy"),
        "\"api\";q=3;w=3600, \"api-2\";q=9;w=86400"
    );
    assert_eq!(statuses(served, "text").await, [200, 200, 429]);

    assert_eq!(statuses(served, "closed").await, [403, 403]);
    for free in ["free", "free too"] {
        assert_eq!(statuses(served, free).await, [200; 9]);
        assert_eq!(header(&send(served, free).await, "ratelimit-policy"), "");
    }

    // Nothing is stated for the others, and the policy's own quota is theirs.
    let other = send(served, "other").await;
    assert_eq!(header(&other, "ratelimit-policy"), "\"api\";q=2;w=3600");
    assert_eq!(statuses(served, "other").await, [200, 429]);

    // Each was asked for once.
    assert_eq!(database.asked(), 6);
}

#[tokio::test]
async fn a_check_knows_what_is_stated_too() {
    let database = Database::default()
        .with("4711", Quota::per_hour(4))
        .with("closed", "none")
        .with("free", Allowance::Unlimited);
    let (limiter, _) = limiter(api().quota_by_async(database.lookup()));

    assert!(spends(&limiter, "4711", 4).await);
    assert!(!spends(&limiter, "4711", 1).await);
    assert!(!spends(&limiter, "closed", 1).await);
    assert_eq!(left(&limiter, "free").await, u64::MAX);
    assert_eq!(left(&limiter, "other").await, 2);
}

#[tokio::test]
async fn a_changed_quota_keeps_what_was_used() {
    for algorithm in [
        "",
        " sliding-window",
        " sliding-log",
        " fixed-window",
        " interval-refill",
    ] {
        let quota = |limit: u64| format!("{limit}/min{algorithm}");
        let database = Database::default().with("4711", quota(250));
        let (limiter, _) = limiter(api().quota_by_async(database.lookup()));
        assert!(spends(&limiter, "4711", 100).await);

        // A bucket keeps the share that was used, and a window the number.
        let is_bucket = algorithm.is_empty();
        database.states("4711", quota(500));
        let expected = if is_bucket { 300 } else { 400 };
        assert_eq!(left(&limiter, "4711").await, expected, "{algorithm}");
        database.states("4711", quota(250));
        assert_eq!(left(&limiter, "4711").await, 150, "{algorithm}");

        // Spent to the end, it is spent whatever the quota was or becomes.
        assert!(spends(&limiter, "4711", 150).await);
        for limit in [250, 125, 250] {
            database.states("4711", quota(limit));
            assert_eq!(left(&limiter, "4711").await, 0, "{algorithm} {limit}");
        }
    }
}

#[tokio::test]
async fn another_burst_or_rate_and_the_quota_of_the_policy_find_the_same_bucket() {
    let database = Database::default().with("4711", "1000/day");
    let policy = Policy::new("api", Quota::per_minute(60)).key(Header::new("x-customer"));
    let (limiter, _) = limiter(policy.quota_by_async(database.lookup()));
    assert!(spends(&limiter, "4711", 1_000).await);

    for quota in ["10/s", "250/min burst 1", "100/s burst 5000", "1000/day"] {
        database.states("4711", quota);
        assert_eq!(left(&limiter, "4711").await, 0, "{quota}");
    }
    database.states("4711", Allowance::OwnQuotas);
    assert_eq!(left(&limiter, "4711").await, 0);

    // The support desk forgives.
    limiter.reset("api", "4711").await.unwrap();
    assert_eq!(left(&limiter, "4711").await, 60);
}

#[tokio::test]
async fn another_algorithm_or_window_has_one_full_budget_and_the_old_state_on_return() {
    let quotas = [
        "5/h sliding-window",
        "7/day sliding-window",
        "3/h",
        "4/h sliding-log",
    ];
    let database = Database::default();
    let (limiter, _) = limiter(api().quota_by_async(database.lookup()));
    for (round, expected) in [[5, 7, 3, 4], [0; 4]].into_iter().enumerate() {
        for (quota, expected) in quotas.into_iter().zip(expected) {
            database.states("4711", quota);
            assert_eq!(left(&limiter, "4711").await, expected, "{quota}, {round}");
            assert!(spends(&limiter, "4711", expected).await);
        }
    }

    // A reset fills the budgets of all of them.
    limiter.reset("api", "4711").await.unwrap();
    for (quota, expected) in quotas.into_iter().zip([5, 7, 3, 4]) {
        database.states("4711", quota);
        assert_eq!(left(&limiter, "4711").await, expected, "{quota}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_the_policy_could_not_have_is_an_error_of_that_answer_alone() {
    let many = vec![Quota::per_hour(5); 5];
    let flawed: [(Allowance, &str); 10] = [
        (
            Quota::from(Concurrent::at_most(5)).into(),
            "limits how many at once",
        ),
        ("10/s wait 2s".into(), "lets requests wait for their turn"),
        (many.into(), "5 quotas are more than the 4 that fit"),
        (
            vec![Quota::per_hour(5); 40].into(),
            "40 quotas are more than the 4 that fit",
        ),
        (Quota::per_hour(1).into(), "a cost of 2 never passes"),
        ("0/min".into(), "a limit of 0 admits nothing"),
        ("many".into(), "expected LIMIT/PERIOD"),
        (Vec::new().into(), "no quota"),
        (
            Quotas::from([("day", Quota::per_day(9)), ("hour", Quota::per_hour(9))]).into(),
            "no quota of the policy has that name",
        ),
        (
            ["1024/h sliding-log", "2/h sliding-log"].into(),
            "sliding logs of 1026 entries are more than the 1024 that fit",
        ),
    ];
    for (answer, reason) in flawed {
        let log = Log::default();
        let _guard = log.listen();
        let database = Database::default()
            .with("new", answer.clone())
            .with("known", Quota::per_hour(8))
            .with("s3cret", Quota::per_hour(9));
        let policy = || {
            api()
                .cost(2)
                .quota_by_async(database.remembered_for(MINUTE))
        };
        let (limiter, _) = limiter(policy());
        assert_eq!(left(&limiter, "known").await, 8);

        // The policy's own quota holds for one that was never known, and the old answer for another.
        assert_eq!(left(&limiter, "new").await, 2, "{reason}");
        database.states("known", answer);
        for _ in 0..5 {
            tokio::time::advance(MINUTE).await;
            assert_eq!(left(&limiter, "known").await, 8);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }

        // Others are asked for: this is not an outage.
        assert_eq!(left(&limiter, "s3cret").await, 9);
        let text = log.text();
        assert!(text.contains(reason), "{reason}: {text}");
        assert!(text.contains("api") && !text.contains("s3cret"), "{text}");
        assert!(!text.contains("cannot be asked for"), "{text}");

        // When the answer makes sense again, it holds.
        database.states("known", Quota::per_hour(6));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(left(&limiter, "known").await, 8);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(left(&limiter, "known").await, 6);
    }
}

#[tokio::test]
async fn an_answer_has_as_many_quotas_and_log_entries_as_fit() {
    let states = async |own: usize, answer: Allowance| {
        let database = Database::default().with("a", answer);
        let policy = Policy::new("api", vec![Quota::per_hour(2); own]);
        let policy = policy.key(Header::new("x-customer"));
        left(&limiter(policy.quota_by_async(database.lookup())).0, "a").await
    };
    let quotas = |number| vec![Quota::per_hour(9); number].into();

    assert_eq!(states(1, quotas(4)).await, 9);
    // As many as the policy's own, if these are more.
    assert_eq!(states(5, quotas(5)).await, 9);
    assert_eq!(states(5, quotas(6)).await, 2);
    let logs = ["1000/h sliding-log", "24/h sliding-log"];
    assert_eq!(states(1, logs.into()).await, 24);
}

#[tokio::test]
async fn windows_of_ever_other_lengths_are_refused_and_take_no_memory_for_good() {
    let database = Database::default();
    let policy = Policy::new("windows", Quota::per_hour(2)).key(Header::new("x-customer"));
    let (limiter, _) = limiter(policy.quota_by_async(database.lookup()));
    let capacity = async |seconds: u64| {
        database.states("a", format!("9/{seconds}s sliding-window"));
        let checked = limiter.check("windows", "a").cost(0).await.unwrap();
        tokio::task::yield_now().await;
        limiter.forget_quota("windows", "a").unwrap();
        checked.remaining()
    };

    // One scope is the policy's own.
    for seconds in 1..=63 {
        assert_eq!(capacity(seconds).await, 9, "{seconds}");
    }
    assert_eq!(capacity(64).await, 2);
    assert_eq!(capacity(65).await, 2);
    assert_eq!(capacity(7).await, 9);
}

#[test]
fn what_makes_no_sense_beside_a_lookup_is_refused_when_the_limiter_is_built() {
    let lookup = || Database::default().lookup();
    let refusal = |policies: Vec<Policy>| {
        let built = Limiter::builder().policies(policies).build();
        built.unwrap_err().to_string()
    };
    let asks = |policy: Policy, lookup| vec![policy.quota_by_async(lookup)];
    let of_api = |reason: &str| format!("policy \"api\": quota_by_async: {reason}");
    let tiers = || Tiers::by_key([("a", "gold")]).tier("gold", Quota::per_hour(9));
    let two_places = of_api(
        "the policy has tiers as well, and an identity has its quotas from one place: let the answer state those of its tier",
    );

    assert_eq!(refusal(asks(api().tiers(tiers()), lookup())), two_places);
    let other_way = vec![api().quota_by_async(lookup()).tiers(tiers())];
    assert_eq!(refusal(other_way), two_places);
    let held = Policy::new("api", (Quota::per_hour(2), Concurrent::at_most(5)))
        .key(Header::new("x-customer"));
    assert_eq!(
        refusal(asks(held, lookup())),
        of_api(
            "the policy limits how many at once, which no answer states: give that limit a policy of its own"
        )
    );
    let waiting = Policy::new("api", "10/s wait 2s").key(Header::new("x-customer"));
    assert_eq!(
        refusal(asks(waiting, lookup())),
        of_api(
            "the policy lets requests wait for their turn, which no answer states: give that quota a policy of its own"
        )
    );
    assert_eq!(
        refusal(asks(api(), lookup().deadline(Duration::ZERO))),
        of_api("a deadline of 0 waits for no answer")
    );
    let to_tier = lookup().on_unknown(OnUnknown::Tier("gold".into()));
    assert_eq!(
        refusal(asks(api(), to_tier)),
        of_api("`OnUnknown::Tier` names a tier, and the policy has none")
    );

    // An answer may have four quotas, which take their names and count among the quotas that meet.
    let beside = Policy::new("api-4", Quota::per_hour(1));
    assert_eq!(
        refusal(vec![api().quota_by_async(lookup()), beside]),
        "policies \"api\" and \"api-4\": headers call a quota of both \"api-4\"; give one of them another name"
    );
    let asking = |n| {
        let policy = Policy::new(&format!("p{n}"), Quota::per_hour(1));
        policy
            .key(Header::new("x-customer"))
            .quota_by_async(lookup())
    };
    assert_eq!(
        refusal((0..9).map(asking).collect()),
        "36 quotas could meet in one request, and at most 32 are decided together"
    );
    // A ban of the policy is beside each answer.
    let banning = |n| asking(n).ban(Ban::after(2, MINUTE).lasting(MINUTE));
    assert_eq!(
        refusal((0..7).map(banning).collect()),
        "35 quotas could meet in one request, and at most 32 are decided together"
    );
}

#[tokio::test]
async fn classes_a_ban_and_the_cost_hold_as_they_do_for_the_own_quotas() {
    let database = Database::default().with("4711", Quota::per_hour(10));
    let ban = Ban::after(2, MINUTE).lasting(MINUTE);
    let keeps = |policy: Policy| {
        let policy = policy.class_by(Header::new("x-class"));
        policy.keep_for("critical", Share::percent(50))
    };
    let of_any_order = [
        keeps(
            with_own(Quota::per_hour(20))
                .cost(2)
                .ban(ban)
                .quota_by_async(database.lookup()),
        ),
        keeps(
            with_own(Quota::per_hour(20))
                .quota_by_async(database.lookup())
                .ban(ban),
        )
        .cost(2),
    ];
    for policy in of_any_order {
        let (limiter, clock) = limiter(policy.clone());

        // Half of ten is kept for the critical.
        let check = |class| limiter.check("api", "4711").class(class);
        assert!(spends(&limiter, "4711", 5).await);
        assert!(check("critical").cost(3).await.unwrap().is_allowed());

        // Two denials ban, the critical as well.
        assert!(!spends(&limiter, "4711", 1).await);
        assert!(!spends(&limiter, "4711", 1).await);
        assert!(!check("critical").await.unwrap().is_allowed());
        let banned = limiter.banned("api", "4711").await.unwrap();
        assert!(banned.is_some());
        clock.advance(MINUTE);
        assert!(check("critical").await.unwrap().is_allowed());
    }

    // A share of less than one unit is an error of the answer, and so is one of a quota that warms up.
    let warming = Quota::per_hour(20).warm_up(60 * MINUTE);
    for stated in [Quota::per_hour(1), warming] {
        let database = Database::default().with("4711", stated);
        let policy = keeps(with_own(Quota::per_hour(10)));
        let (limiter, _) = limiter(policy.quota_by_async(database.lookup()));
        assert_eq!(left(&limiter, "4711").await, 5);
    }
}

#[tokio::test]
async fn a_response_corrects_the_charge_of_a_stated_quota() {
    let database = Database::default().with("4711", "2/h sliding-log");
    let policy = with_own(Quota::per_hour(9)).count_if(|response| response.status() == 401);
    let (limiter, _) = limiter(policy.quota_by_async(database.remembered_for(MINUTE)));
    let fails = Router::new().route("/", get(async || http::StatusCode::UNAUTHORIZED));
    let fails = Served::new(fails.layer(RateLimitLayer::new(&limiter))).await;

    assert_eq!(statuses(serve(&limiter).await, "4711").await, [200; 5]);
    assert_eq!(statuses(fails, "4711").await, [401, 401, 429]);
}

#[cfg(feature = "macros")]
#[tokio::test]
async fn an_annotation_that_names_the_policy_charges_the_stated_quota() {
    #[tollgate::rate_limit(policy = "api")]
    async fn once() -> &'static str {
        "fine"
    }

    #[tollgate::rate_limit(policy = "api", cost = 2)]
    async fn twice() -> &'static str {
        "fine"
    }

    // given customers with four and with five an hour
    let database = Database::default()
        .with("four", Quota::per_hour(4))
        .with("five", Quota::per_hour(5));
    let policy = api()
        .on_demand()
        .quota_by_async(database.remembered_for(MINUTE));
    let (limiter, _) = limiter(policy);
    let router = |handler| Router::new().route("/", handler);
    let layer = RateLimitLayer::new(&limiter);
    let once = Served::new(router(get(once)).layer(layer.clone())).await;
    let twice = Served::new(router(get(twice)).layer(layer)).await;

    assert_eq!(statuses(once, "four").await, [200, 200, 200, 200, 429]);
    assert_eq!(statuses(twice, "five").await, [200, 200, 429]);
    assert_eq!(statuses(once, "five").await, [200, 429]);
}

#[tokio::test]
async fn on_trial_the_stated_quota_is_decided_and_keeps_nobody_out() {
    let database = Database::default()
        .with("4711", Quota::per_hour(1))
        .with("closed", Quotas::none());
    let (limiter, _) = limiter(api().shadow().quota_by_async(database.lookup()));
    for denied in [false, true] {
        let checked = limiter.check("api", "4711").await.unwrap();
        assert!(checked.is_allowed());
        assert_eq!(checked.verdicts()[0].is_denied(), denied);
    }
    assert!(spends(&limiter, "closed", 1).await);
}

#[tokio::test]
async fn while_the_backend_fails_the_process_decides_by_the_stated_quota() {
    let database = Database::default().with("4711", Quota::per_hour(8));
    let backend = Waiting::new(at_a_standstill().0);
    backend.gate.add_permits(1_000);
    backend.fail_with(Some(FailureKind::Unreachable));
    let policy = api().on_failure(OnFailure::Local(Share::one_in(2)));
    let builder = Limiter::builder().policy(policy.quota_by_async(database.lookup()));
    let limiter = builder.backend(backend).build().unwrap();

    let mut allowed = Vec::new();
    for _ in 0..5 {
        allowed.push(spends(&limiter, "4711", 1).await);
    }
    assert_eq!(allowed, [true, true, true, true, false]);
}

#[tokio::test]
async fn a_policy_in_two_limiters_remembers_for_each_what_is_right_there() {
    let database = Database::default().with("4711", Quota::per_hour(10));
    let policy = with_own(Quota::per_hour(5)).quota_by_async(database.remembered_for(MINUTE));
    let (one, _) = limiter(policy.clone());
    let (other, _) = limiter(
        policy
            .class_by(Header::new("x-class"))
            .keep_for("critical", Share::percent(20)),
    );

    assert_eq!(left(&one, "4711").await, 10);
    assert_eq!(left(&other, "4711").await, 8);
    assert_eq!(database.asked(), 2);

    // So it is after the policies were replaced.
    let replaced = Policy::new("api", Quota::per_hour(2))
        .key(Header::new("x-customer"))
        .cost(3);
    let replaced = replaced.quota_by_async(database.remembered_for(MINUTE));
    assert!(one.replace([replaced]).is_err());
    assert_eq!(left(&one, "4711").await, 10);
}

#[tokio::test]
async fn a_refusal_for_want_of_an_answer_names_the_policy() {
    let lookup = QuotaLookup::new(MINUTE, async |_: Key| Err::<Option<Quota>, _>("no"));
    let (limiter, _) = limiter(api().quota_by_async(lookup.on_unknown(OnUnknown::Deny)));

    let refused = limiter.check("api", "4711").await.unwrap_err();

    assert!(matches!(refused, CheckError::TierUnknown { .. }));
    assert_eq!(
        refused.to_string(),
        "policy \"api\": the tier or quota of the identity is not known"
    );
    assert_eq!(statuses(serve(&limiter).await, "4711").await, [503]);
}
