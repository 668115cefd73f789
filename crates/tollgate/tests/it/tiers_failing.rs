//! Tiers that a database is asked for: one that is slow, fails, or has changed its mind.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Strict, at_a_standstill, from, header};
use tokio::time::{Instant, advance, sleep};
use tollgate::key::Header;
use tollgate::{Key, Limiter, OnUnknown, Policy, Quota, RateLimitLayer, Tiers};
use tollgate_testkit::Log;
use tower::{Layer, ServiceExt};

/// The capacities of the policy's own quota and of the tier `gold`.
const OWN: u64 = 2;
const GOLD: u64 = 4;
const REMEMBERED: Duration = Duration::from_secs(60);

/// The service that is asked for tiers. Time is virtual: it advances when nothing else can.
#[derive(Clone, Default)]
struct Database(Arc<State>);

#[derive(Default)]
struct State {
    takes_ms: AtomicU64,
    asked: AtomicUsize,
    /// Its answer: a plan, no plan, an error, or none at all.
    says: Mutex<Option<Result<Option<&'static str>, &'static str>>>,
}

impl Database {
    fn that_says(answer: Result<Option<&'static str>, &'static str>) -> Self {
        let database = Self::default();
        database.now_says(answer);
        database
    }

    fn now_says(&self, answer: Result<Option<&'static str>, &'static str>) {
        *self.0.says.lock().unwrap() = Some(answer);
    }

    fn takes(&self, takes: Duration) {
        let takes = u64::try_from(takes.as_millis()).unwrap();
        self.0.takes_ms.store(takes, Ordering::SeqCst);
    }

    fn asked(&self) -> usize {
        self.0.asked.load(Ordering::SeqCst)
    }

    async fn plan(self) -> Result<Option<&'static str>, &'static str> {
        self.0.asked.fetch_add(1, Ordering::SeqCst);
        let says = *self.0.says.lock().unwrap();
        sleep(Duration::from_millis(
            self.0.takes_ms.load(Ordering::SeqCst),
        ))
        .await;
        match says {
            Some(answer) => answer,
            None => panic!("a defect in the closure"),
        }
    }

    fn tiers(&self) -> Tiers {
        let database = self.clone();
        let plan = move |_: Key| {
            let plan = database.clone().plan();
            // As one that cannot be reached.
            async move { plan.await.map_err(std::io::Error::other) }
        };
        Tiers::by_async(REMEMBERED, plan)
            .tier("gold", Quota::per_hour(GOLD))
            .tier("guest", Quota::per_hour(1))
    }
}

fn limiter(tiers: Tiers) -> Limiter {
    let (backend, _) = at_a_standstill();
    let policy = Policy::new("api", Quota::per_hour(OWN)).key(Header::new("x-api-key"));
    let builder = Limiter::builder().policy(policy.tiers(tiers));
    builder.backend(backend).build().unwrap()
}

/// The capacity of an identity's quota now: its budget is full, because nothing of it is spent.
async fn quota_of(limiter: &Limiter, key: &str) -> u64 {
    limiter.check("api", key).cost(0).await.unwrap().remaining()
}

/// The tasks that are ready have run.
async fn settled() {
    sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_hiccup_of_the_database_downgrades_no_customer() {
    // given a customer whose plan is known
    let database = Database::that_says(Ok(Some("gold")));
    let limiter = limiter(database.tiers());
    assert_eq!(quota_of(&limiter, "a").await, GOLD);

    // when the answer is old and the database fails, for an hour
    database.now_says(Err("connection refused"));
    for _ in 0..60 {
        advance(REMEMBERED).await;
        assert_eq!(quota_of(&limiter, "a").await, GOLD);
        settled().await;
    }
    assert!(database.asked() > 2);

    // then its later answer holds
    database.now_says(Ok(None));
    advance(REMEMBERED).await;
    assert_eq!(quota_of(&limiter, "a").await, GOLD);
    settled().await;
    assert_eq!(quota_of(&limiter, "a").await, OWN);
}

#[tokio::test(start_paused = true)]
async fn an_old_answer_is_served_while_one_task_asks_again() {
    let database = Database::that_says(Ok(Some("gold")));
    let limiter = limiter(database.tiers());
    assert_eq!(quota_of(&limiter, "a").await, GOLD);

    database.now_says(Ok(Some("guest")));
    database.takes(Duration::from_millis(200));
    advance(REMEMBERED).await;
    let start = Instant::now();
    for _ in 0..50 {
        assert_eq!(quota_of(&limiter, "a").await, GOLD);
    }
    assert_eq!(start.elapsed(), Duration::ZERO);

    sleep(Duration::from_millis(201)).await;
    assert_eq!(quota_of(&limiter, "a").await, 1);
    assert_eq!(database.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_slow_database_holds_a_request_no_longer_than_the_deadline() {
    for (deadline, waits) in [(None, 250), (Some(40), 40)] {
        let database = Database::that_says(Ok(Some("gold")));
        database.takes(Duration::from_secs(8));
        let tiers = match deadline {
            None => database.tiers(),
            Some(ms) => database.tiers().deadline(Duration::from_millis(ms)),
        };
        let limiter = limiter(tiers);

        let start = Instant::now();
        assert_eq!(quota_of(&limiter, "a").await, OWN);
        assert_eq!(start.elapsed(), Duration::from_millis(waits));

        // No later request waits for this answer.
        assert_eq!(quota_of(&limiter, "a").await, OWN);
        assert_eq!(start.elapsed(), Duration::from_millis(waits));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_late_is_known_to_the_next_request() {
    // It may take ten deadlines of a quarter of a second.
    for (takes_ms, known) in [(2_499, GOLD), (2_501, OWN)] {
        let database = Database::that_says(Ok(Some("gold")));
        let takes = Duration::from_millis(takes_ms);
        database.takes(takes);
        let limiter = limiter(database.tiers());

        assert_eq!(quota_of(&limiter, "a").await, OWN);
        sleep(takes).await;
        assert_eq!(quota_of(&limiter, "a").await, known);
        assert_eq!(database.asked(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn many_requests_that_wait_for_one_identity_ask_once_whichever_of_them_leaves() {
    let database = Database::that_says(Ok(Some("gold")));
    database.takes(Duration::from_millis(100));
    let limiter = limiter(database.tiers());

    // given a hundred requests that wait, and the first of them, which asked, leaves
    let ask = |limiter: Limiter| async move { quota_of(&limiter, "a").await };
    let waiting: Vec<_> = (0..100)
        .map(|_| tokio::spawn(ask(limiter.clone())))
        .collect();
    settled().await;
    waiting[0].abort();

    let mut answers = Vec::new();
    for one in waiting.into_iter().skip(1) {
        answers.push(one.await.unwrap());
    }
    assert_eq!(answers, [GOLD; 99]);
    assert_eq!(database.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_identity_that_was_never_known_and_cannot_be_asked_for_obeys_the_rule() {
    // Errors, a database that hangs, and a closure that panics are all the same to a caller.
    let broken = || {
        let hangs = Database::that_says(Ok(Some("gold")));
        hangs.takes(Duration::from_secs(3600));
        [Database::that_says(Err("no")), hangs, Database::default()]
    };
    let guest = OnUnknown::Tier("guest".to_owned());
    for (rule, expected) in [
        (None, [200, 200, 429]),
        (Some(OnUnknown::OwnQuotas), [200, 200, 429]),
        (Some(guest), [200, 429, 429]),
        (Some(OnUnknown::Deny), [503, 503, 503]),
    ] {
        for database in broken() {
            let tiers = match rule.clone() {
                None => database.tiers(),
                Some(rule) => database.tiers().on_unknown(rule),
            };
            let limiter = limiter(tiers);
            let mut statuses = Vec::new();
            for _ in 0..3 {
                let mut request = from("10.0.0.1");
                request
                    .headers_mut()
                    .insert("x-api-key", "a".parse().unwrap());
                let service = RateLimitLayer::new(&limiter).layer(Strict::default());
                let response = service.oneshot(request).await.unwrap();
                statuses.push(response.status().as_u16());
                if response.status() == 503 {
                    assert_eq!(header(&response, "retry-after"), "");
                }
            }
            assert_eq!(statuses, expected, "{rule:?}");
            let checked = limiter.check("api", "a").await;
            assert_eq!(checked.is_err(), rule == Some(OnUnknown::Deny));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_on_trial_refuses_nobody_whose_tier_is_not_known() {
    let database = Database::that_says(Err("no"));
    let policy = Policy::new("trial", Quota::per_hour(1)).shadow();
    let limiter = Limiter::from(policy.tiers(database.tiers().on_unknown(OnUnknown::Deny)));
    for _ in 0..3 {
        assert!(
            limiter
                .check("trial", limiter.client_key([10, 0, 0, 1].into()))
                .await
                .unwrap()
                .is_allowed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_remembered_for_a_second_and_not_as_no_tier() {
    let database = Database::that_says(Err("no"));
    let limiter = limiter(database.tiers());
    assert_eq!(quota_of(&limiter, "a").await, OWN);

    database.now_says(Ok(Some("gold")));
    sleep(Duration::from_millis(999)).await;
    assert_eq!(quota_of(&limiter, "a").await, OWN);
    assert_eq!(database.asked(), 1);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(quota_of(&limiter, "a").await, GOLD);
    assert_eq!(database.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_dead_database_is_asked_a_few_times_a_second_and_not_by_every_request() {
    let database = Database::that_says(Err("no"));
    let limiter = limiter(database.tiers());

    // given a thousand customers that ask ten times in ten seconds
    for _ in 0..10 {
        for customer in 0..1_000 {
            quota_of(&limiter, &customer.to_string()).await;
        }
        sleep(Duration::from_secs(1)).await;
    }

    // then the first five were asked for, and four in each second
    assert!((5..=45).contains(&database.asked()), "{}", database.asked());

    // and all are known when it is back, the probe's answer first.
    database.now_says(Ok(Some("gold")));
    assert_eq!(quota_of(&limiter, "0").await, GOLD);
    for customer in 0..100 {
        assert_eq!(quota_of(&limiter, &customer.to_string()).await, GOLD);
    }
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_has_changed_holds_from_the_next_request_on_if_the_limiter_is_told() {
    let database = Database::that_says(Ok(None));
    let limiter = limiter(database.tiers());
    assert_eq!(quota_of(&limiter, "a").await, OWN);

    database.now_says(Ok(Some("gold")));
    assert_eq!(quota_of(&limiter, "a").await, OWN);
    limiter.forget_tier("api", "a").unwrap();
    assert_eq!(quota_of(&limiter, "a").await, GOLD);

    // An answer from before the change, which is still under way, is not remembered.
    limiter.forget_tier("api", "a").unwrap();
    database.takes(Duration::from_millis(100));
    let asks = tokio::spawn({
        let limiter = limiter.clone();
        async move { quota_of(&limiter, "a").await }
    });
    settled().await;
    database.now_says(Ok(Some("guest")));
    limiter.forget_tier("api", "a").unwrap();
    assert_eq!(quota_of(&limiter, "a").await, 1);
    assert_eq!(asks.await.unwrap(), GOLD);
    assert_eq!(quota_of(&limiter, "a").await, 1);
    assert!(limiter.forget_tier("apu", "a").is_err());
}

#[tokio::test(start_paused = true)]
async fn the_log_hears_once_of_a_spell_of_failures_and_of_no_identity() {
    let log = Log::default();
    let _guard = log.listen();
    let database = Database::that_says(Err("connection refused"));
    let limiter = limiter(database.tiers());

    for customer in 0..20 {
        quota_of(&limiter, &format!("s3cret-{customer}")).await;
        sleep(Duration::from_millis(300)).await;
    }
    database.now_says(Ok(None));
    sleep(Duration::from_secs(2)).await;
    quota_of(&limiter, "s3cret").await;

    let text = log.text();
    assert_eq!(
        text.matches("tiers cannot be asked for").count(),
        1,
        "{text}"
    );
    assert_eq!(text.matches("connection refused").count(), 1, "{text}");
    assert_eq!(
        text.matches("tiers can be asked for again").count(),
        1,
        "{text}"
    );
    assert!(text.contains("api") && !text.contains("s3cret"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_and_who_is_asked_for_at_a_time_are_bounded() {
    // given more identities than are asked for at a time
    let database = Database::that_says(Ok(Some("gold")));
    database.takes(Duration::from_millis(100));
    let limiter = limiter(database.tiers());
    let mut waiting = Vec::new();
    for customer in 0..1_500 {
        let limiter = limiter.clone();
        let ask = async move { quota_of(&limiter, &customer.to_string()).await };
        waiting.push(tokio::spawn(ask));
    }
    let mut gold = 0;
    for one in waiting {
        gold += usize::from(one.await.unwrap() == GOLD);
    }
    assert_eq!((gold, database.asked()), (1_024, 1_024));

    // when more come than are remembered, one after the other
    database.takes(Duration::ZERO);
    for customer in 0..11_000 {
        assert_eq!(quota_of(&limiter, &customer.to_string()).await, GOLD);
    }

    // then a thousand and more of them have to be asked for again
    let asked = database.asked();
    for customer in 0..11_000 {
        assert_eq!(quota_of(&limiter, &customer.to_string()).await, GOLD);
    }
    assert!(
        database.asked() - asked >= 1_000,
        "{}",
        database.asked() - asked
    );
}

#[test]
fn without_a_runtime_nobody_is_asked_and_nothing_panics() {
    let database = Database::that_says(Ok(Some("gold")));
    let limiter = limiter(database.tiers());
    let mut check = Box::pin(limiter.check("api", "a").cost(0).into_future());
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match check.as_mut().poll(&mut cx) {
        std::task::Poll::Ready(checked) => assert_eq!(checked.unwrap().remaining(), OWN),
        std::task::Poll::Pending => panic!("it waits for a runtime"),
    }
}

#[test]
fn rules_for_asking_that_make_no_sense_are_refused() {
    let refusal = |tiers: Tiers| {
        let policy = Policy::new("api", Quota::per_hour(1));
        policy.try_tiers(tiers).unwrap_err().to_string()
    };
    let database = Database::default();
    let by_map = || Tiers::by_key([("a", "gold")]).tier("gold", Quota::per_hour(2));
    let in_vain =
        "policy \"api\": tiers: they are not asked for, so a deadline and `unknown` mean nothing";

    assert_eq!(refusal(by_map().deadline(Duration::from_secs(1))), in_vain);
    assert_eq!(refusal(by_map().on_unknown(OnUnknown::Deny)), in_vain);
    assert_eq!(
        refusal(database.tiers().deadline(Duration::ZERO)),
        "policy \"api\": tiers: a deadline of 0 waits for no answer"
    );
    assert_eq!(
        refusal(
            database
                .tiers()
                .on_unknown(OnUnknown::Tier("silver".into()))
        ),
        "policy \"api\": tier \"silver\": identities of no known tier are in it, but there is no tier of this name"
    );
}
