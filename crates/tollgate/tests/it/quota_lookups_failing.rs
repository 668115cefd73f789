//! Quotas that a database is asked for: one that is slow, fails, or has changed its mind.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Strict, at_a_standstill, from, header};
use tokio::time::{Instant, advance, sleep};
use tollgate::key::Header;
use tollgate::{Allowance, Key, Limiter, OnUnknown, Policy, Quota, QuotaLookup, RateLimitLayer};
use tollgate_testkit::Log;
use tower::{Layer, ServiceExt};

/// The capacity of the policy's own quota, and of the one that is stated.
const OWN: u64 = 2;
const STATED: u64 = 250;
const REMEMBERED: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

type Answer = Result<Option<u64>, &'static str>;

/// The service that is asked for quotas. Time is virtual: it advances when nothing else can.
#[derive(Clone, Default)]
struct Database(Arc<State>);

#[derive(Default)]
struct State {
    takes_ms: AtomicU64,
    asked: AtomicUsize,
    /// Its answer: so many an hour, nothing stated, an error, or none at all.
    says: Mutex<Option<Answer>>,
}

impl Database {
    fn that_says(answer: Answer) -> Self {
        let database = Self::default();
        database.now_says(answer);
        database
    }

    fn now_says(&self, answer: Answer) {
        *self.0.says.lock().unwrap() = Some(answer);
    }

    fn takes(&self, takes: Duration) {
        let takes = u64::try_from(takes.as_millis()).unwrap();
        self.0.takes_ms.store(takes, Ordering::SeqCst);
    }

    fn asked(&self) -> usize {
        self.0.asked.load(Ordering::SeqCst)
    }

    async fn quota(self) -> Result<Option<Quota>, &'static str> {
        self.0.asked.fetch_add(1, Ordering::SeqCst);
        let says = *self.0.says.lock().unwrap();
        let takes = self.0.takes_ms.load(Ordering::SeqCst);
        sleep(Duration::from_millis(takes)).await;
        match says {
            Some(answer) => Ok(answer?.map(Quota::per_hour)),
            None => panic!("a defect in the closure"),
        }
    }

    fn lookup(&self) -> QuotaLookup {
        let database = self.clone();
        QuotaLookup::new(REMEMBERED, move |_: Key| {
            let quota = database.clone().quota();
            // As one that cannot be reached.
            async move { quota.await.map_err(std::io::Error::other) }
        })
    }
}

fn limiter(lookup: QuotaLookup) -> Limiter {
    let (backend, _) = at_a_standstill();
    let policy = Policy::new("api", Quota::per_hour(OWN)).key(Header::new("x-api-key"));
    let builder = Limiter::builder().policy(policy.quota_by_async(lookup));
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
async fn while_the_database_fails_the_known_quota_holds() {
    let database = Database::that_says(Ok(Some(STATED)));
    let limiter = limiter(database.lookup());
    assert_eq!(quota_of(&limiter, "a").await, STATED);

    database.now_says(Err("connection refused"));
    for _ in 0..60 {
        advance(REMEMBERED).await;
        assert_eq!(quota_of(&limiter, "a").await, STATED);
        settled().await;
    }
    assert!(database.asked() > 2);

    database.now_says(Ok(None));
    advance(REMEMBERED).await;
    assert_eq!(quota_of(&limiter, "a").await, STATED);
    settled().await;
    assert_eq!(quota_of(&limiter, "a").await, OWN);
}

#[tokio::test(start_paused = true)]
async fn an_old_quota_is_served_while_one_task_asks_again() {
    let database = Database::that_says(Ok(Some(STATED)));
    let limiter = limiter(database.lookup());
    assert_eq!(quota_of(&limiter, "a").await, STATED);

    database.now_says(Ok(Some(500)));
    database.takes(Duration::from_millis(200));
    advance(REMEMBERED).await;
    let start = Instant::now();
    for _ in 0..50 {
        assert_eq!(quota_of(&limiter, "a").await, STATED);
    }
    assert_eq!(start.elapsed(), Duration::ZERO);

    sleep(Duration::from_millis(201)).await;
    assert_eq!(quota_of(&limiter, "a").await, 500);
    assert_eq!(database.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_slow_database_holds_a_request_no_longer_than_the_deadline_and_a_late_answer_counts() {
    for (deadline, waits) in [(None, 250), (Some(40), 40)] {
        let database = Database::that_says(Ok(Some(STATED)));
        database.takes(Duration::from_millis(300));
        let lookup = match deadline {
            None => database.lookup(),
            Some(ms) => database.lookup().deadline(Duration::from_millis(ms)),
        };
        let limiter = limiter(lookup);

        let start = Instant::now();
        assert_eq!(quota_of(&limiter, "a").await, OWN);
        assert_eq!(quota_of(&limiter, "a").await, OWN);
        assert_eq!(start.elapsed(), Duration::from_millis(waits));

        sleep(Duration::from_millis(300)).await;
        assert_eq!(quota_of(&limiter, "a").await, STATED);
        assert_eq!(database.asked(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn many_who_wait_for_one_quota_ask_once_whichever_of_them_leaves() {
    let database = Database::that_says(Ok(Some(STATED)));
    database.takes(Duration::from_millis(100));
    let limiter = limiter(database.lookup());

    let ask = |limiter: Limiter| async move { quota_of(&limiter, "a").await };
    let waiting: Vec<_> = (0..100)
        .map(|_| tokio::spawn(ask(limiter.clone())))
        .collect();
    settled().await;
    waiting[0].abort();

    for one in waiting.into_iter().skip(1) {
        assert_eq!(one.await.unwrap(), STATED);
    }
    assert_eq!(database.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_identity_whose_quota_was_never_known_obeys_the_rule() {
    // Errors, a database that hangs, and a closure that panics are all the same to a caller.
    let broken = || {
        let hangs = Database::that_says(Ok(Some(STATED)));
        hangs.takes(Duration::from_secs(3600));
        [Database::that_says(Err("no")), hangs, Database::default()]
    };
    for (rule, expected) in [
        (None, [200, 200, 429]),
        (Some(OnUnknown::OwnQuotas), [200, 200, 429]),
        (Some(OnUnknown::Deny), [503, 503, 503]),
    ] {
        for database in broken() {
            let lookup = match rule.clone() {
                None => database.lookup(),
                Some(rule) => database.lookup().on_unknown(rule),
            };
            let limiter = limiter(lookup);
            let mut statuses = Vec::new();
            for _ in 0..3 {
                let mut request = from("10.0.0.1");
                let headers = request.headers_mut();
                headers.insert("x-api-key", "a".parse().unwrap());
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
async fn a_dead_database_is_asked_for_a_few_quotas_a_second() {
    let database = Database::that_says(Err("no"));
    let limiter = limiter(database.lookup());

    for _ in 0..10 {
        for customer in 0..1_000 {
            quota_of(&limiter, &customer.to_string()).await;
        }
        sleep(Duration::from_secs(1)).await;
    }
    assert!((5..=45).contains(&database.asked()), "{}", database.asked());

    database.now_says(Ok(Some(STATED)));
    for customer in 0..100 {
        assert_eq!(quota_of(&limiter, &customer.to_string()).await, STATED);
    }
}

/// Identities that the lookup cannot take, such as text where it wants a number, are errors of their own.
#[tokio::test(start_paused = true)]
async fn identities_that_cannot_be_asked_for_stop_no_other_question() {
    let limiter = limiter(QuotaLookup::new(REMEMBERED, |key: Key| async move {
        let number: u64 = key.text().unwrap_or_default().parse()?;
        Ok::<_, std::num::ParseIntError>(Some(Quota::per_hour(number)))
    }));
    for customer in 1_000..1_500_u64 {
        for bad in 0..20 {
            let bad = format!("bad-{}", bad % 5 + customer);
            assert_eq!(quota_of(&limiter, &bad).await, OWN);
        }
        assert_eq!(quota_of(&limiter, &customer.to_string()).await, customer);
        sleep(Duration::from_millis(50)).await;
    }
}

/// Identities for which the lookup hangs, ten times as many as those that it answers.
#[tokio::test(start_paused = true)]
async fn identities_whose_lookup_hangs_stop_no_other_question() {
    let limiter = limiter(QuotaLookup::new(REMEMBERED, |key: Key| async move {
        if key.text().unwrap_or_default().starts_with("hangs") {
            std::future::pending::<()>().await;
        }
        Ok::<_, std::convert::Infallible>(Some(Quota::per_hour(STATED)))
    }));
    for customer in 0..100 {
        for hung in 0..10 {
            let hung = format!("hangs-{customer}-{hung}");
            let limiter = limiter.clone();
            tokio::spawn(async move { quota_of(&limiter, &hung).await });
        }
        sleep(Duration::from_millis(500)).await;
        assert_eq!(quota_of(&limiter, &customer.to_string()).await, STATED);
    }
}

/// However many hang, the callers that were known once end the outage.
#[tokio::test(start_paused = true)]
async fn callers_that_come_again_are_asked_for_beside_any_number_that_hangs() {
    let limiter = limiter(QuotaLookup::new(SECOND, |key: Key| async move {
        if key.text().unwrap_or_default().starts_with("hangs") {
            std::future::pending::<()>().await;
        }
        Ok::<_, std::convert::Infallible>(Some(Quota::per_hour(STATED)))
    }));
    assert_eq!(quota_of(&limiter, "regular").await, STATED);
    for second in 0..20 {
        for hung in 0..100 {
            let hung = format!("hangs-{second}-{hung}");
            let limiter = limiter.clone();
            tokio::spawn(async move { quota_of(&limiter, &hung).await });
        }
        sleep(2 * SECOND).await;
        assert_eq!(quota_of(&limiter, "regular").await, STATED);
        settled().await;
        let new = format!("new-{second}");
        assert_eq!(quota_of(&limiter, &new).await, STATED);
    }
}

/// Callers that come again are remembered, however many others have come once.
#[tokio::test(start_paused = true)]
async fn a_flood_of_identities_that_come_once_makes_the_others_unknown_only_once() {
    let database = Database::that_says(Ok(Some(STATED)));
    let limiter = limiter(database.lookup());
    for number in 0..30_000 {
        quota_of(&limiter, &format!("once-{number}")).await;
    }
    for round in 0..3 {
        let before = database.asked();
        for customer in 0..5_000 {
            quota_of(&limiter, &customer.to_string()).await;
        }
        let expected = if round == 0 { 5_000 } else { 0 };
        assert_eq!(database.asked() - before, expected, "round {round}");
    }
    // Nor does a flood that goes on.
    let before = database.asked();
    for number in 0..30_000 {
        quota_of(&limiter, &format!("again-{number}")).await;
        quota_of(&limiter, &(number % 5_000).to_string()).await;
    }
    let asked = database.asked() - before;
    assert!((30_000..30_300).contains(&asked), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_has_changed_holds_from_the_next_request_on_if_the_limiter_is_told() {
    let database = Database::that_says(Ok(None));
    let limiter = limiter(database.lookup());
    assert_eq!(quota_of(&limiter, "a").await, OWN);

    database.now_says(Ok(Some(STATED)));
    assert_eq!(quota_of(&limiter, "a").await, OWN);
    limiter.forget_quota("api", "a").unwrap();
    assert_eq!(quota_of(&limiter, "a").await, STATED);
    assert_eq!(database.asked(), 2);

    // An answer from before the change, which is still under way, is not remembered.
    limiter.forget_quota("api", "a").unwrap();
    database.takes(Duration::from_millis(100));
    let asks = tokio::spawn({
        let limiter = limiter.clone();
        async move { quota_of(&limiter, "a").await }
    });
    settled().await;
    database.now_says(Ok(Some(500)));
    limiter.forget_quota("api", "a").unwrap();
    assert_eq!(quota_of(&limiter, "a").await, 500);
    assert_eq!(asks.await.unwrap(), STATED);
    assert_eq!(quota_of(&limiter, "a").await, 500);
    assert!(limiter.forget_quota("apu", "a").is_err());
}

#[tokio::test(start_paused = true)]
async fn the_log_hears_once_of_a_database_that_fails_and_of_no_identity() {
    let log = Log::default();
    let _guard = log.listen();
    let database = Database::that_says(Err("connection refused"));
    let limiter = limiter(database.lookup());

    for customer in 0..20 {
        quota_of(&limiter, &format!("s3cret-{customer}")).await;
        sleep(Duration::from_millis(300)).await;
    }
    database.now_says(Ok(None));
    sleep(Duration::from_secs(2)).await;
    quota_of(&limiter, "s3cret").await;

    let text = log.text();
    for line in [
        "quotas cannot be asked for",
        "connection refused",
        "quotas can be asked for again",
    ] {
        assert_eq!(text.matches(line).count(), 1, "{line}: {text}");
    }
    assert!(text.contains("api") && !text.contains("s3cret"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_means_nothing_ends_a_spell_of_failures_if_it_is_in_time() {
    for (takes_ms, ends) in [(0, 1), (300, 0)] {
        let log = Log::default();
        let _guard = log.listen();
        let database = Database::that_says(Err("connection refused"));
        let api = Policy::new("api", Quota::per_hour(OWN)).key(Header::new("x-api-key"));
        let limiter = Limiter::from(api.cost(OWN).quota_by_async(database.lookup()));
        quota_of(&limiter, "a").await;

        database.now_says(Ok(Some(1)));
        database.takes(Duration::from_millis(takes_ms));
        sleep(Duration::from_secs(1)).await;
        quota_of(&limiter, "a").await;
        sleep(Duration::from_secs(1)).await;

        let text = log.text();
        assert!(text.contains("a cost of 2 never passes"), "{text}");
        let told = text.matches("quotas can be asked for again").count();
        assert_eq!(told, ends, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn so_many_quotas_are_asked_for_at_a_time_and_so_many_are_remembered() {
    let database = Database::that_says(Ok(Some(STATED)));
    database.takes(Duration::from_millis(100));
    let limiter = limiter(database.lookup());
    let mut waiting = Vec::new();
    for customer in 0..1_500 {
        let limiter = limiter.clone();
        let ask = async move { quota_of(&limiter, &customer.to_string()).await };
        waiting.push(tokio::spawn(ask));
    }
    let mut stated = 0;
    for one in waiting {
        stated += usize::from(one.await.unwrap() == STATED);
    }
    assert_eq!((stated, database.asked()), (1_024, 1_024));

    database.takes(Duration::ZERO);
    for customer in 0..11_000 {
        assert_eq!(quota_of(&limiter, &customer.to_string()).await, STATED);
    }
    let asked = database.asked();
    for customer in 0..11_000 {
        assert_eq!(quota_of(&limiter, &customer.to_string()).await, STATED);
    }
    let again = database.asked() - asked;
    assert!(again >= 1_000, "{again}");
}

#[test]
fn without_a_runtime_no_quota_is_asked_for_and_nothing_panics() {
    let limiter = limiter(Database::that_says(Ok(Some(STATED))).lookup());
    let mut check = Box::pin(limiter.check("api", "a").cost(0).into_future());
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match check.as_mut().poll(&mut cx) {
        std::task::Poll::Ready(checked) => assert_eq!(checked.unwrap().remaining(), OWN),
        std::task::Poll::Pending => panic!("it waits for a runtime"),
    }
}

/// The lines about budgets that begin full.
fn fresh(log: &Log) -> Vec<String> {
    let text = log.text();
    let lines = text
        .lines()
        .filter(|line| line.contains("begins with a full budget"));
    lines.map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn the_log_tells_of_a_quota_with_another_algorithm_or_window_once_a_minute() {
    for forgets in [false, true] {
        // given identities whose quotas were stated, and one that has the policy's own, two an hour
        let log = Log::default();
        let _guard = log.listen();
        let stated = Arc::new(Mutex::new("9/min"));
        let answers = Arc::clone(&stated);
        let lookup = QuotaLookup::new(Duration::from_secs(1), move |_: Key| {
            let answer = *answers.lock().unwrap();
            let answer = match answer {
                "own" => Allowance::OwnQuotas,
                text => Allowance::from(text),
            };
            async move { Ok::<_, String>(answer) }
        });
        let own = Policy::new("api", Quota::per_hour(2)).key(Header::new("x-customer"));
        let limiter = Limiter::from(own.quota_by_async(lookup));
        let asks = async |customer: &str, quota| {
            *stated.lock().unwrap() = quota;
            if forgets {
                limiter.forget_quota("api", customer).unwrap();
            }
            // The first request has the old answer, unless that was forgotten.
            for _ in 0..2 {
                sleep(Duration::from_secs(2)).await;
                limiter.check("api", customer).cost(0).await.unwrap();
            }
            sleep(Duration::from_millis(1)).await;
        };
        for customer in ["s3cret", "other"] {
            asks(customer, "9/min").await;
        }

        // when a quota has another rate or burst, is the policy's own, or is new
        for quota in [
            "90/min burst 5",
            "7/day",
            "own",
            "unlimited",
            "9/min; 5/h",
            "9/min",
        ] {
            asks("s3cret", quota).await;
            assert_eq!(fresh(&log), [""; 0], "{quota}");
        }

        // when it has another algorithm
        asks("s3cret", "9/min sliding-log").await;
        let told = fresh(&log);
        assert_eq!(told.len(), 1, "{told:?}");
        for part in ["WARN", "api", "before=9/min ", "after=9/min sliding-log"] {
            assert!(told[0].contains(part), "{part}: {told:?}");
        }
        assert!(!told[0].contains("s3cret"), "{told:?}");

        // then the next minute hears of no other, and the one after of a window
        asks("other", "9/min fixed-window").await;
        assert_eq!(fresh(&log).len(), 1);
        sleep(Duration::from_secs(61)).await;
        asks("other", "9/h fixed-window").await;
        let told = fresh(&log);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[1].contains("after=9/h fixed-window"), "{told:?}");
        sleep(Duration::from_secs(61)).await;
        asks("other", "own").await;
        assert_eq!(fresh(&log).len(), 3);
    }
}
