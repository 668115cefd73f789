//! Requests that wait as they do elsewhere: when each comes and when it passes, by the rules of nginx, Guava, Sentinel and
//! governor. The rules of the first three are written down here as their sources have them (nginx 1.22, Guava 31.1, Sentinel
//! 1.8.6); governor itself is asked. Each is held to a table, and Tollgate to both.

use std::iter::repeat_n;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::common::tokio_clock::in_tokio_time;
use governor::RateLimiter;
use governor::clock::{Clock, FakeRelativeClock};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep_until};
use tollgate::{Limiter, Policy, Quota};

/// When something happens, in milliseconds.
type Millis = u64;

/// All rules here let ten a second pass.
const INTERVAL: Millis = 100;

const SECOND: Millis = 1_000;

/// When a request passes that comes now. `None`: it is refused.
trait Elsewhere {
    fn passes(&mut self, now: Millis) -> Option<Millis>;
}

/// nginx's `limit_req zone=z burst=B delay=D` with `rate=10r/s`: `ngx_http_limit_req_lookup` and `ngx_http_limit_req_account`.
struct Nginx {
    burst: u64,
    delay: u64,
    last: Option<(u64, Millis)>,
}

impl Nginx {
    /// Requests, and requests per second, are counted in thousandths.
    const RATE: u64 = 10_000;

    const fn new(burst: u64, delay: u64) -> Self {
        Self {
            burst: burst * 1_000,
            delay: delay * 1_000,
            last: None,
        }
    }
}

impl Elsewhere for Nginx {
    fn passes(&mut self, now: Millis) -> Option<Millis> {
        let excess = self.last.map_or(0, |(excess, last)| {
            (excess + 1_000).saturating_sub(Self::RATE * (now - last) / 1_000)
        });
        if excess > self.burst {
            return None;
        }
        self.last = Some((excess, now));
        Some(now + excess.saturating_sub(self.delay) * 1_000 / Self::RATE)
    }
}

/// Guava's `RateLimiter.create(10)` after a second without requests, which it has saved, and `tryAcquire` with this timeout:
/// `SmoothRateLimiter.reserveEarliestAvailable`.
struct Guava {
    timeout: Millis,
    stored: Millis,
    next_free: Millis,
}

impl Guava {
    const fn new(timeout: Millis) -> Self {
        Self {
            timeout,
            stored: SECOND,
            next_free: 0,
        }
    }
}

impl Elsewhere for Guava {
    fn passes(&mut self, now: Millis) -> Option<Millis> {
        if self.next_free.saturating_sub(self.timeout) > now {
            return None;
        }
        if now > self.next_free {
            self.stored = SECOND.min(self.stored + now - self.next_free);
            self.next_free = now;
        }
        let passes = self.next_free;
        let spent = self.stored.min(INTERVAL);
        self.stored -= spent;
        self.next_free += INTERVAL - spent;
        Some(passes)
    }
}

/// Sentinel's `RateLimiterController` with a count of ten: `canPass`, whose bound on the wait is included.
struct Sentinel {
    max_queueing_time: Millis,
    latest_passed: Option<Millis>,
}

impl Sentinel {
    const fn new(max_queueing_time: Millis) -> Self {
        Self {
            max_queueing_time,
            latest_passed: None,
        }
    }
}

impl Elsewhere for Sentinel {
    fn passes(&mut self, now: Millis) -> Option<Millis> {
        let expected = self.latest_passed.map_or(0, |latest| latest + INTERVAL);
        if expected.saturating_sub(now) > self.max_queueing_time {
            return None;
        }
        let passes = expected.max(now);
        self.latest_passed = Some(passes);
        Some(passes)
    }
}

/// governor's `RateLimiter`, whose callers sleep for as long as `check` tells them and then ask again, as `until_ready` does.
struct Governor {
    limiter: RateLimiter<NotKeyed, InMemoryState, FakeRelativeClock, NoOpMiddleware<Nanos>>,
    clock: FakeRelativeClock,
    now: Millis,
}

impl Governor {
    fn new(burst: u32) -> Self {
        let burst = NonZeroU32::new(burst).unwrap();
        let interval = governor::Quota::with_period(Duration::from_millis(INTERVAL));
        let clock = FakeRelativeClock::default();
        Self {
            limiter: RateLimiter::direct_with_clock(
                interval.unwrap().allow_burst(burst),
                clock.clone(),
            ),
            clock,
            now: 0,
        }
    }

    /// A caller that comes while another sleeps finds as little as that one did.
    fn sleep_until(&mut self, later: Millis) {
        let by = later.saturating_sub(self.now);
        self.clock.advance(Duration::from_millis(by));
        self.now += by;
    }
}

impl Elsewhere for Governor {
    fn passes(&mut self, now: Millis) -> Option<Millis> {
        self.sleep_until(now);
        while let Err(refused) = self.limiter.check() {
            let wait = refused.wait_time_from(self.clock.now());
            self.sleep_until(self.now + u64::try_from(wait.as_millis()).unwrap());
        }
        Some(self.now)
    }
}

/// The times at which requests pass, by their times of arrival.
fn elsewhere(rule: &mut dyn Elsewhere, arrivals: &[Millis]) -> Vec<Option<Millis>> {
    arrivals.iter().map(|now| rule.passes(*now)).collect()
}

/// The times at which the same requests pass under this quota.
async fn here(quota: &str, arrivals: &[Millis]) -> Vec<Option<Millis>> {
    let quota: Quota = quota.parse().unwrap();
    let limiter = Limiter::builder().policy(Policy::new("api", quota));
    let limiter = limiter.backend(in_tokio_time()).build().unwrap();
    let began = Instant::now();
    let mut requests = JoinSet::new();
    for (number, now) in arrivals.iter().enumerate() {
        sleep_until(began + Duration::from_millis(*now)).await;
        let limiter = limiter.clone();
        requests.spawn(async move {
            let asked = if quota.waits() {
                limiter.acquire("api", "alice").await
            } else {
                limiter.check("api", "alice").await
            };
            let passed = asked.unwrap().is_allowed();
            let at = u64::try_from(began.elapsed().as_millis()).unwrap();
            (number, passed.then_some(at))
        });
        // Until it has been decided.
        yield_now().await;
    }
    let mut passed = requests.join_all().await;
    passed.sort_unstable();
    passed.into_iter().map(|(_, at)| at).collect()
}

/// One request for each of these turns.
fn turns(first: Millis, last: Millis) -> Vec<Option<Millis>> {
    (first..=last).step_by(100).map(Some).collect()
}

fn refused(requests: usize) -> Vec<Option<Millis>> {
    vec![None; requests]
}

fn at_once(requests: usize, now: Millis) -> Vec<Option<Millis>> {
    vec![Some(now); requests]
}

async fn each_passes(
    mut rule: impl Elsewhere,
    quota: &str,
    arrivals: &[Millis],
    expected: Vec<Vec<Option<Millis>>>,
) {
    let expected = expected.concat();
    assert_eq!(elsewhere(&mut rule, arrivals), expected, "{quota}: there");
    assert_eq!(here(quota, arrivals).await, expected, "{quota}: here");
}

/// Requests at each of these moments, as many as stand beside it.
fn groups(groups: &[(usize, Millis)]) -> Vec<Millis> {
    let groups = groups.iter();
    groups
        .flat_map(|(requests, now)| repeat_n(*now, *requests))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn requests_pass_as_in_nginx() {
    let rush = groups(&[(25, 0)]);
    let again = groups(&[(25, 0), (1, 130), (2, 250), (1, 5_000), (2, 5_050)]);

    // burst=20
    let wait = "10/s burst 1 wait 2s";
    each_passes(
        Nginx::new(20, 0),
        wait,
        &rush,
        vec![turns(0, 2_000), refused(4)],
    )
    .await;
    let later = vec![
        Some(2_100),
        Some(2_200),
        None,
        Some(5_000),
        Some(5_100),
        Some(5_200),
    ];
    let expected = vec![turns(0, 2_000), refused(4), later];
    each_passes(Nginx::new(20, 0), wait, &again, expected).await;

    // burst=20 nodelay
    let nodelay = "10/s burst 21";
    let expected = vec![at_once(21, 0), refused(4)];
    each_passes(Nginx::new(20, 20), nodelay, &rush, expected).await;
    let later = vec![
        Some(130),
        Some(250),
        None,
        Some(5_000),
        Some(5_050),
        Some(5_050),
    ];
    let expected = vec![at_once(21, 0), refused(4), later];
    each_passes(Nginx::new(20, 20), nodelay, &again, expected).await;

    // burst=20 delay=8
    let delay = "10/s burst 9 wait 1200ms";
    let expected = vec![at_once(9, 0), turns(100, 1_200), refused(4)];
    each_passes(Nginx::new(20, 8), delay, &rush, expected).await;
    let later = vec![
        Some(1_300),
        Some(1_400),
        None,
        Some(5_000),
        Some(5_050),
        Some(5_050),
    ];
    let expected = vec![at_once(9, 0), turns(100, 1_200), refused(4), later];
    each_passes(Nginx::new(20, 8), delay, &again, expected).await;

    // Neither.
    let arrivals = [0, 0, 99, 100, 150, 250];
    let expected = vec![Some(0), None, None, Some(100), None, Some(250)];
    each_passes(Nginx::new(0, 0), "10/s burst 1", &arrivals, vec![expected]).await;
}

#[tokio::test(start_paused = true)]
async fn requests_pass_as_with_guavas_rate_limiter() {
    let arrivals = groups(&[(14, 0), (1, 350), (3, 2_000)]);

    // acquire(): as long as it takes.
    let later = vec![Some(400), Some(2_000), Some(2_000), Some(2_000)];
    let expected = vec![at_once(11, 0), turns(100, 300), later];
    each_passes(
        Guava::new(100_000),
        "10/s burst 11 wait 100s",
        &arrivals,
        expected,
    )
    .await;

    // tryAcquire(200 ms)
    let later = vec![Some(350), Some(2_000), Some(2_000), Some(2_000)];
    let expected = vec![at_once(11, 0), turns(100, 200), refused(1), later];
    each_passes(
        Guava::new(200),
        "10/s burst 11 wait 200ms",
        &arrivals,
        expected,
    )
    .await;

    // tryAcquire()
    let expected = vec![
        at_once(11, 0),
        refused(3),
        at_once(1, 350),
        at_once(3, 2_000),
    ];
    each_passes(Guava::new(0), "10/s burst 11", &arrivals, expected).await;
}

#[tokio::test(start_paused = true)]
async fn requests_pass_as_in_sentinels_queue() {
    let arrivals = groups(&[(8, 0), (1, 40), (1, 120), (2, 3_030)]);

    let later = vec![None, Some(600), Some(3_030), Some(3_130)];
    let expected = vec![turns(0, 500), refused(2), later];
    each_passes(
        Sentinel::new(500),
        "10/s burst 1 wait 500ms",
        &arrivals,
        expected,
    )
    .await;

    let expected = vec![Some(0), None, None, None, None, None, None, None];
    let later = vec![None, Some(120), Some(3_030), None];
    each_passes(
        Sentinel::new(0),
        "10/s burst 1",
        &arrivals,
        vec![expected, later],
    )
    .await;
}

/// Its callers have no turns: the moments are those at which some caller passes.
#[tokio::test(start_paused = true)]
async fn requests_pass_as_with_governors_until_ready() {
    let arrivals = groups(&[(6, 0), (1, 130), (1, 350), (3, 2_000)]);

    let later = vec![Some(2_000), Some(2_000), Some(2_000)];
    let expected = vec![at_once(4, 0), turns(100, 400), later];
    each_passes(
        Governor::new(4),
        "10/s burst 4 wait 100s",
        &arrivals,
        expected,
    )
    .await;
}

/// Requests that come at random moments, several at some of them.
fn random_arrivals(random: &mut fastrand::Rng) -> Vec<Millis> {
    let mut now = 0;
    let mut arrivals = Vec::new();
    for _ in 0..60 {
        match random.u8(..) {
            0..128 => {}
            128..250 => now += random.u64(1..=250),
            250.. => now += random.u64(250..=4_000),
        }
        arrivals.push(now);
    }
    arrivals
}

#[tokio::test(start_paused = true)]
async fn whenever_requests_come_they_pass_as_elsewhere() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..300 {
        let arrivals = random_arrivals(&mut random);
        let text = |burst: u64, wait: Millis| match wait {
            0 => format!("10/s burst {burst}"),
            _ => format!("10/s burst {burst} wait {wait}ms"),
        };
        let (mut rule, quota): (Box<dyn Elsewhere>, _) = match random.u8(..4) {
            0 => {
                let burst = random.u64(..=20);
                let delay = random.u64(..=burst);
                // B requests beyond the first, of which D are not delayed.
                let quota = text(delay + 1, (burst - delay) * INTERVAL);
                (Box::new(Nginx::new(burst, delay)), quota)
            }
            1 => {
                let timeout = random.u64(..=2_000);
                (Box::new(Guava::new(timeout)), text(11, timeout))
            }
            2 => {
                let burst = random.u32(1..=20);
                let quota = text(burst.into(), 100_000);
                (Box::new(Governor::new(burst)), quota)
            }
            _ => {
                let most = random.u64(..=2_000);
                (Box::new(Sentinel::new(most)), text(1, most))
            }
        };
        let there = elsewhere(&mut *rule, &arrivals);
        let here = here(&quota, &arrivals).await;
        assert_eq!(here, there, "seed {seed}: {quota}, {arrivals:?}");
    }
}
