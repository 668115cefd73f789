//! The feelings of callers while policies are replaced, for each row of `docs/operating/changes.md`, in memory and in Redis.
//!
//! All quotas refill so slowly that a test sees none of it, except for the time that it measures.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::common::{Strict, at_a_standstill, from};
use tokio::task::JoinSet;
use tollgate::key::Global;
use tollgate::{Algorithm, Backend, Cause, Event, Key, Limiter, Policy, Quota, RateLimitLayer};
use tower::{Layer, ServiceExt};

const DAY: Duration = Duration::from_secs(86_400);

/// Windows that have just begun, so that none ends during a test.
fn just_now() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Duration::from_secs(now.as_secs() % DAY.as_secs())
}

fn fixed_window() -> Algorithm {
    Algorithm::FixedWindow { offset: just_now() }
}

fn algorithms() -> [Algorithm; 6] {
    [
        Algorithm::Gcra,
        fixed_window(),
        Algorithm::SlidingWindow,
        Algorithm::RollingWindow { buckets: 24 },
        Algorithm::SlidingLog,
        Algorithm::IntervalRefill { offset: just_now() },
    ]
}

fn per_day(limit: u64) -> Quota {
    Quota::per_day(limit)
}

/// The fate of a budget.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// Used units stay used.
    Kept,
    /// One full new budget at most.
    Fresh,
}

struct Change {
    row: &'static str,
    before: Policy,
    after: Policy,
    /// The quotas that are compared, of before and after.
    quotas: [Quota; 2],
    fate: Fate,
}

/// The rows of the table, some of them for each algorithm.
fn changes() -> Vec<Change> {
    let mut changes = Vec::new();
    let api = |quota: Quota| Policy::new("api", quota);
    let mut add = |row, [before, after]: [Policy; 2], quotas, fate| {
        changes.push(Change {
            row,
            before,
            after,
            quotas,
            fate,
        });
    };
    let mut change = |row, from: Quota, to: Quota, fate| {
        add(row, [api(from), api(to)], [from, to], fate);
    };
    for algorithm in algorithms() {
        let (few, many) = (per_day(20).using(algorithm), per_day(120).using(algorithm));
        change("limit raised", few, many, Fate::Kept);
        change("limit lowered", many, few, Fate::Kept);
    }
    let burst = |burst| per_day(30).burst(burst);
    change("larger burst", burst(20), burst(120), Fate::Kept);
    change("smaller burst", burst(120), burst(20), Fate::Kept);
    let month = |limit| Quota::new(limit, DAY * 30);
    let row = "other period of a bucket";
    change(row, per_day(40), month(50), Fate::Kept);
    change(row, month(50), per_day(40), Fate::Kept);
    let row = "other period of a window";
    for algorithm in [
        fixed_window(),
        Algorithm::SlidingWindow,
        Algorithm::RollingWindow { buckets: 24 },
        Algorithm::SlidingLog,
    ] {
        let (day, month) = (per_day(40).using(algorithm), month(50).using(algorithm));
        change(row, day, month, Fate::Fresh);
    }
    let row = "other algorithm";
    let next = algorithms().into_iter().cycle().skip(1);
    for (from, to) in algorithms().into_iter().zip(next) {
        let (from, to) = (per_day(40).using(from), per_day(50).using(to));
        change(row, from, to, Fate::Fresh);
    }
    // Its price is another, and what was used drains as it did.
    let warm = |limit| per_day(limit).warm_up(Duration::from_secs(3_600));
    let row = "other warm-up";
    change(row, per_day(200), warm(300), Fate::Kept);
    change(row, warm(300), per_day(200), Fate::Kept);
    // No year ends during a test, but on one night.
    #[cfg(feature = "calendar")]
    {
        let year = |limit: u64, zone: &str| -> Quota {
            format!("{limit}/year in {zone}").parse().unwrap()
        };
        let (few, many) = (year(20, "UTC"), year(120, "UTC"));
        change("limit raised", few, many, Fate::Kept);
        change("limit lowered", many, few, Fate::Kept);
        change("other algorithm", per_day(40), many, Fate::Fresh);
        change(
            "other zone of a calendar",
            few,
            year(30, "Asia/Tokyo"),
            Fate::Fresh,
        );
    }
    let day = per_day(40);
    let (trial, enforced) = (api(day).shadow(), api(day));
    add("trial to enforced", [trial, enforced], [day; 2], Fate::Kept);
    let many = per_day(50);
    let all = api(many).key(Global);
    add("other key", [api(day), all], [day, many], Fate::Fresh);
    // The hour is never the tighter one.
    let (first, hour) = (("day", day), ("hour", Quota::per_hour(4_000)));
    let orders = [[first, hour], [hour, first]].map(|quotas| Policy::new("api", quotas));
    add("named quotas reordered", orders, [day; 2], Fate::Kept);
    let orders = [[day, many], [many, day]].map(|quotas| Policy::new("api", quotas));
    let row = "quotas without names reordered";
    add(row, orders, [day, many], Fate::Kept);
    let row = "policy removed and back";
    add(row, [api(day), api(day)], [day; 2], Fate::Kept);
    changes
}

/// The time in which this many of a bucket drain.
fn drain(quota: &Quota, amount: u64) -> Duration {
    quota.period() * u32::try_from(amount).unwrap() / u32::try_from(quota.limit()).unwrap()
}

/// The longest time for which a budget can be used up.
fn longest(quota: &Quota) -> Duration {
    let windows = match quota.algorithm() {
        Algorithm::Gcra | Algorithm::IntervalRefill { .. } => {
            return drain(quota, quota.capacity());
        }
        Algorithm::SlidingWindow => 2,
        _ => 1,
    };
    quota.period() * windows
}

/// A decision about the quota that is looked at: its limit, and whether it was enforced.
type Asked = (u64, bool);

/// Everything that observers hear.
#[derive(Clone, Default)]
struct Ear(Arc<Mutex<Heard>>);

#[derive(Default)]
struct Heard {
    allowed: BTreeMap<Asked, u64>,
    denied: BTreeMap<Asked, u64>,
    longest_wait: Duration,
    undecided: Vec<Cause>,
}

impl Ear {
    fn hears(&self, event: &Event<'_>) {
        let mut heard = self.0.lock().unwrap();
        let (Cause::Backend | Cause::Known, Some(verdict)) = (event.cause(), event.verdict())
        else {
            return heard.undecided.push(event.cause());
        };
        if matches!(event.quota(), Some("api-hour" | "api-2")) {
            return;
        }
        let asked = (verdict.limit(), event.is_enforced());
        // A denial by another quota of the policy takes nothing.
        let is_denied = verdict.taken() == 0;
        let wait = verdict.retry_after().unwrap_or_default();
        heard.longest_wait = heard.longest_wait.max(wait);
        let counted = match is_denied {
            true => &mut heard.denied,
            false => &mut heard.allowed,
        };
        *counted.entry(asked).or_default() += 1;
    }

    fn layer(&self, backend: &Arc<dyn Backend>, policy: &Policy) -> (Limiter, RateLimitLayer) {
        let ear = self.clone();
        let builder = Limiter::builder().policy(policy.clone());
        let builder = builder.backend(Arc::clone(backend)).allow_no_policies();
        let observed = builder.observe(move |event: &Event<'_>| ear.hears(event));
        let limiter = observed.build().unwrap();
        (limiter.clone(), RateLimitLayer::new(limiter))
    }

    fn counts(&self, of: impl Fn(&Heard) -> &BTreeMap<Asked, u64>, asked: Asked) -> u64 {
        let heard = self.0.lock().unwrap();
        of(&heard).get(&asked).copied().unwrap_or_default()
    }

    fn allowed(&self, asked: Asked) -> u64 {
        self.counts(|heard| &heard.allowed, asked)
    }

    fn denied(&self, asked: Asked) -> u64 {
        self.counts(|heard| &heard.denied, asked)
    }

    fn all(&self) -> u64 {
        let heard = self.0.lock().unwrap();
        let counts = heard.allowed.values().chain(heard.denied.values());
        counts.sum()
    }
}

async fn send(layer: &RateLimitLayer) -> u16 {
    let service = layer.layer(Strict::default());
    let answer = service.oneshot(from("10.0.0.1")).await.unwrap();
    answer.status().as_u16()
}

/// Requests that come all the time, until they are told to stop.
struct Crowd {
    tasks: JoinSet<()>,
    is_over: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
}

impl Crowd {
    fn of(layers: &[RateLimitLayer]) -> Self {
        let crowd = Self {
            tasks: JoinSet::new(),
            is_over: Arc::default(),
            asked: Arc::default(),
        };
        let mut tasks = JoinSet::new();
        for layer in layers {
            let layer = layer.clone();
            let (is_over, asked) = (Arc::clone(&crowd.is_over), Arc::clone(&crowd.asked));
            tasks.spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let status = send(&layer).await;
                    // Each is let in or refused by a quota, and none fails.
                    assert!(matches!(status, 200 | 429), "{status}");
                    asked.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            });
        }
        Self { tasks, ..crowd }
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Waits until this holds, with a patience that no machine needs.
    async fn goes_on_until(&self, is_so: impl Fn() -> bool) {
        let waited = async {
            while !is_so() {
                assert!(!self.tasks.is_empty());
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(120), waited).await;
        waited.unwrap();
    }

    async fn stops(mut self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        self.asked()
    }
}

/// The order in which two quotas were asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// One after the other, so that all that the first has let in was used by then.
    InTurn,
    Mixed,
}

/// Holds what was let in by two quotas to the bound of the row, after a trial that took this long.
fn judge(change: &Change, ear: &Ear, order: Order, took: Duration) {
    let [from, to] = &change.quotas;
    let is_enforced = change.row != "trial to enforced";
    let before = ear.allowed((from.capacity(), is_enforced));
    let is_same = from == to && is_enforced;
    let after = match is_same {
        true => 0,
        false => ear.allowed((to.capacity(), true)),
    };
    let what = format!("{} ({from} to {to}): {before} and {after}", change.row);
    match (change.fate, to.algorithm()) {
        (Fate::Fresh, _) => {
            assert!(
                before <= from.capacity() && after <= to.capacity(),
                "{what}"
            );
        }
        (Fate::Kept, Algorithm::Gcra) => {
            let used_before = drain(from, before);
            let larger = longest(to).max(match order {
                Order::InTurn => used_before,
                Order::Mixed => longest(from),
            });
            let used = used_before + drain(to, after);
            assert!(used <= larger + took, "{what}");
        }
        (Fate::Kept, _) => {
            let larger = to.capacity().max(match order {
                Order::InTurn => before,
                Order::Mixed => from.capacity(),
            });
            assert!(before + after <= larger, "{what}");
        }
    }
    let heard = ear.0.lock().unwrap();
    assert_eq!(heard.undecided, [], "{what}");
    // No lockout is longer than a full drain of the larger quota.
    let larger = longest(from).max(longest(to));
    assert!(
        heard.longest_wait <= larger,
        "{what}: {:?}",
        heard.longest_wait
    );
}

/// The policies are replaced while requests come: half of the old budget is used by then, and more.
async fn is_felt_as_stated(change: &Change, backend: Arc<dyn Backend>) {
    // given
    let began = Instant::now();
    let ear = Ear::default();
    let (limiter, layer) = ear.layer(&backend, &change.before);
    let half = change.quotas[0].capacity() / 2;
    for _ in 0..half {
        assert_eq!(send(&layer).await, 200, "{}", change.row);
    }
    let crowd = Crowd::of(&[layer.clone(), layer.clone(), layer.clone()]);
    crowd.goes_on_until(|| crowd.asked() >= 5).await;

    // when
    if change.row == "policy removed and back" {
        limiter.replace([]).unwrap();
        let so_far = crowd.asked();
        crowd.goes_on_until(|| crowd.asked() > so_far + 10).await;
    }
    limiter.replace([change.after.clone()]).unwrap();

    // then
    let asked = (change.quotas[1].capacity(), true);
    crowd.goes_on_until(|| ear.denied(asked) > 10).await;
    let asked = crowd.stops().await + half;
    judge(change, &ear, Order::InTurn, began.elapsed());
    if change.row != "policy removed and back" {
        assert_eq!(
            ear.all(),
            asked,
            "{}: each request is decided once",
            change.row
        );
    }
}

/// Half of a fleet has the old policies, and half the new ones, and both are asked until they are spent.
async fn holds_in_a_mixed_fleet(change: &Change, backend: Arc<dyn Backend>) {
    let began = Instant::now();
    let ear = Ear::default();
    let (_old, old) = ear.layer(&backend, &change.before);
    let (_new, new) = ear.layer(&backend, &change.after);

    let crowd = Crowd::of(&[old.clone(), new.clone(), new, old]);
    let is_enforced = change.row != "trial to enforced";
    let [from, to] = change.quotas.map(|quota| quota.capacity());
    let are_spent = || ear.denied((from, is_enforced)) > 10 && ear.denied((to, true)) > 10;
    crowd.goes_on_until(are_spent).await;

    let asked = crowd.stops().await;
    judge(change, &ear, Order::Mixed, began.elapsed());
    assert_eq!(
        ear.all(),
        asked,
        "{}: each request is decided once",
        change.row
    );
}

fn memory() -> Arc<dyn Backend> {
    Arc::new(at_a_standstill().0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_change_is_felt_as_the_table_says_in_memory() {
    for change in changes() {
        is_felt_as_stated(&change, memory()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_half_of_the_callers_ask_by_the_old_policies_the_table_holds_in_memory() {
    for change in changes() {
        holds_in_a_mixed_fleet(&change, memory()).await;
    }
}

#[cfg(feature = "redis")]
mod redis {
    use tollgate::RedisBackend;
    use tollgate_testkit::Standalone;

    use super::*;

    /// A process of a fleet has a connection of its own, and each trial names of its own.
    async fn connect(server: &Standalone, trial: usize) -> Arc<dyn Backend> {
        let builder = RedisBackend::builder(&server.url()).prefix(format!("trial-{trial}"));
        let builder = builder.deadline(Duration::from_secs(60));
        Arc::new(builder.connect().await.unwrap())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn each_change_is_felt_as_the_table_says_in_redis() {
        let server = Standalone::start();
        for (trial, change) in changes().iter().enumerate() {
            is_felt_as_stated(change, connect(&server, trial).await).await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn in_a_fleet_that_is_half_old_and_half_new_the_table_holds() {
        let server = Standalone::start();
        for (trial, change) in changes().iter().enumerate() {
            holds_in_a_mixed_fleet(change, connect(&server, trial).await).await;
        }
    }
}

/// The wait of a caller that has spent all, after the change, and how long the page and the log say that it is.
#[tokio::test]
async fn a_spent_caller_waits_as_long_as_is_stated_and_passes_then() {
    let burst = |burst| Quota::per_hour(60).burst(burst);
    let seconds = Duration::from_secs;
    for (from, to, wait) in [
        // As long as the new quota says: the old one has drained by then.
        (Quota::per_minute(10), Quota::per_minute(20), seconds(3)),
        (Quota::per_minute(20), Quota::per_minute(10), seconds(6)),
        // Longer: 100 minutes' worth of the old one have to drain until 10 minutes' worth are owed, but for one.
        (burst(100), burst(10), seconds(91 * 60)),
        (Quota::per_day(24), Quota::per_minute(60), seconds(86_341)),
        (Quota::per_hour(60), Quota::per_minute(60), seconds(3_541)),
        // A hundred times the rate, and the burst stays: all of the new budget drains in 0.6 s, and a minute is owed.
        (
            Quota::per_minute(10),
            Quota::per_minute(1_000).burst(10),
            Duration::from_millis(59_460),
        ),
    ] {
        let (backend, clock) = at_a_standstill();
        let limiter = Limiter::builder().policy(Policy::new("api", from));
        let limiter = limiter.backend(backend).build().unwrap();
        let check = async |cost| {
            limiter
                .check("api", Key::global())
                .cost(cost)
                .await
                .unwrap()
        };
        assert!(check(from.capacity()).await.is_allowed());

        limiter.replace([Policy::new("api", to)]).unwrap();

        assert_eq!(check(1).await.retry_after(), Some(wait), "{from} to {to}");
        assert!(wait <= longest(&from).max(longest(&to)), "{from} to {to}");
        clock.advance(wait - Duration::from_micros(1));
        assert!(!check(1).await.is_allowed(), "{from} to {to}");
        clock.advance(Duration::from_micros(1));
        assert!(check(1).await.is_allowed(), "{from} to {to}");
    }
}

#[tokio::test]
async fn a_reset_ends_the_wait_of_a_spent_caller() {
    let limiter = Limiter::from(Policy::new("api", Quota::per_hour(100)));
    let check = async |cost| limiter.check("api", "alice").cost(cost).await.unwrap();
    assert!(check(100).await.is_allowed());
    limiter
        .replace([Policy::new("api", Quota::per_minute(10))])
        .unwrap();
    assert!(!check(1).await.is_allowed());

    limiter.reset("api", "alice").await.unwrap();

    assert!(check(10).await.is_allowed());
}

#[tokio::test]
async fn used_units_take_as_long_to_drain_under_the_next_quota() {
    for (from, to, left) in [
        (per_day(20), per_day(120), 60),
        (per_day(120), per_day(20), 10),
        // Ten of twenty take as long to drain as ten of 120 that drain as fast.
        (per_day(30).burst(20), per_day(30).burst(120), 110),
        (Quota::per_hour(60), Quota::per_day(240), 235),
        // Where the burst does not grow with the rate, half of the time is more than all of the next budget.
        (Quota::per_minute(10), Quota::per_minute(1_000).burst(10), 0),
    ] {
        let limiter = Limiter::builder().policy(Policy::new("api", from));
        let limiter = limiter.backend(at_a_standstill().0).build().unwrap();
        let check = async |cost| {
            limiter
                .check("api", Key::global())
                .cost(cost)
                .await
                .unwrap()
        };
        assert!(check(from.capacity() / 2).await.is_allowed());

        limiter.replace([Policy::new("api", to)]).unwrap();

        assert_eq!(check(0).await.remaining(), left, "{from} to {to}");
    }
}

/// The first cells of a table's rows, below a heading that begins like this.
fn rows_of(page: &str, heading: &str) -> Vec<String> {
    let (_, table) = page.split_once(heading).unwrap();
    let lines = table.lines().skip(2);
    let rows = lines.take_while(|line| line.starts_with("| "));
    rows.map(|row| row.split('|').nth(1).unwrap().trim().to_owned())
        .collect()
}

#[test]
fn each_row_of_the_table_is_tried() {
    let page = include_str!("../../../../docs/operating/changes.md");
    let mut tried: Vec<_> = changes().iter().map(|change| change.row).collect();
    tried.sort_unstable();
    tried.dedup();
    let mut stated = rows_of(page, "| change | what a caller feels | bound |");
    stated.sort_unstable();
    assert_eq!(stated, tried);
}

/// The row about a fleet that is half old and half new; none for a change that has no old and new at one time.
fn row_of_a_fleet(row: &str) -> Option<&str> {
    match row {
        "limit raised"
        | "limit lowered"
        | "larger burst"
        | "smaller burst"
        | "other period of a bucket"
        | "other warm-up" => Some("limit, burst, period of a bucket, warm-up"),
        "other algorithm"
        | "other period of a window"
        | "other zone of a calendar"
        | "other key" => Some("other algorithm, period of a window, zone or key"),
        "policy removed and back" => None,
        row => Some(row),
    }
}

#[test]
fn each_row_about_a_mixed_fleet_is_tried() {
    let page = include_str!("../../../../docs/operating/changes.md");
    let changes = changes();
    let rows = changes
        .iter()
        .filter_map(|change| row_of_a_fleet(change.row));
    let mut tried: Vec<_> = rows.collect();
    tried.sort_unstable();
    tried.dedup();
    let mut stated = rows_of(page, "| change | what holds meanwhile |");
    stated.sort_unstable();
    assert_eq!(stated, tried);
}
