//! Callers that move between tiers of any pace, in memory and in a real Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tollgate::key::Header;
use tollgate::{
    Algorithm, Limiter, ManualClock, MemoryBackend, Policy, Quota, RedisBackend, Tiers,
};
use tollgate_conformance::FAR_AHEAD_US;
use tollgate_testkit::Standalone;

/// A limiter whose time stands still, and a switch between its policy's own quota (0) and its tiers.
struct Switched {
    limiter: Limiter,
    tier: Arc<AtomicUsize>,
    /// A server lives as long as its handle.
    _server: Option<Standalone>,
}

impl Switched {
    fn of(own: Quota, tiers: &[Quota], server: Option<(Standalone, RedisBackend)>) -> Self {
        let tier = Arc::new(AtomicUsize::new(0));
        let switch = Arc::clone(&tier);
        let place = move || switch.load(Ordering::SeqCst).checked_sub(1);
        let mut all = Tiers::by(move |_, _| place().map(|place| format!("t{place}")));
        for (place, quota) in tiers.iter().enumerate() {
            all = all.tier(format!("t{place}"), *quota);
        }
        let policy = Policy::new("api", own)
            .key(Header::new("x-user"))
            .tiers(all);
        let builder = Limiter::builder().policy(policy);
        let (builder, server) = match server {
            Some((server, backend)) => (builder.backend(backend), Some(server)),
            None => {
                let backend = MemoryBackend::builder().clock(ManualClock::new()).build();
                (builder.backend(backend), None)
            }
        };
        Self {
            limiter: builder.build().unwrap(),
            tier,
            _server: server,
        }
    }

    async fn on_both_backends(own: Quota, tiers: &[Quota]) -> [Self; 2] {
        let server = Standalone::start();
        let answer = server.command(&["SET", "clock", &FAR_AHEAD_US.to_string()]);
        assert_eq!(answer, "+OK\r\n");
        let backend = RedisBackend::builder(&server.url())
            .clock("clock")
            .deadline(Duration::from_secs(20));
        let backend = backend.connect().await.unwrap();
        let on_server = Self::of(own, tiers, Some((server, backend)));
        [Self::of(own, tiers, None), on_server]
    }

    /// The amount that the caller gets in a tier before it is denied.
    async fn all_that_is_left_in(&self, tier: usize) -> u64 {
        self.tier.store(tier, Ordering::SeqCst);
        let check = || self.limiter.check("api", "alice");
        let left = check().cost(0).await.unwrap().remaining();
        for cost in [left, 1] {
            let taken = check().cost(cost).await.unwrap();
            assert_eq!(taken.is_allowed(), cost == left, "{cost} of {left}");
        }
        left
    }
}

#[tokio::test]
async fn a_caller_who_moves_between_tiers_of_any_pace_gets_one_full_budget_of_each_at_most() {
    let per_second = Quota::per_second;
    let cases = [
        (Quota::per_minute(60), per_second(100)),
        (per_second(5).burst(10), per_second(50).burst(1000)),
        (per_second(100), Quota::per_day(10)),
        (Quota::per_day(50_000), per_second(1_000)),
    ];
    for (own, tier) in cases {
        for switched in Switched::on_both_backends(own, &[tier]).await {
            // when the caller spends its budget, is moved, and moved back
            let mut got = Vec::new();
            for place in [0, 1, 0, 1, 0] {
                got.push(switched.all_that_is_left_in(place).await);
            }

            // then it has had each budget once, and finds the old states
            let expected = [own.capacity(), tier.capacity(), 0, 0, 0];
            assert_eq!(got, expected, "{own} and {tier}");
        }
    }
}

#[tokio::test]
async fn tiers_within_a_factor_of_eight_are_one_budget_and_a_chain_of_them_is_not() {
    // given full budgets that refill in 60, 8, 1 and half a second
    let own = Quota::per_minute(60);
    let tiers = [
        Quota::per_second(10).burst(80),
        Quota::per_second(100),
        Quota::per_second(100).burst(50),
    ];
    for switched in Switched::on_both_backends(own, &tiers).await {
        // when a caller has spent half a minute
        switched
            .limiter
            .check("api", "alice")
            .cost(30)
            .await
            .unwrap();

        // then 30 seconds are more than the second budget holds, and the other two share another state
        let mut got = Vec::new();
        for place in [1, 2, 3, 0] {
            got.push(switched.all_that_is_left_in(place).await);
        }
        assert_eq!(got, [0, 100, 0, 30]);
    }
}

#[tokio::test]
async fn a_reset_fills_the_budgets_of_every_tier() {
    let windows = Quota::per_hour(7).using(Algorithm::SlidingWindow);
    let tiers = [Quota::per_second(100), windows];
    for switched in Switched::on_both_backends(Quota::per_minute(60), &tiers).await {
        let all = async || {
            let mut got = Vec::new();
            for place in [0, 1, 2] {
                got.push(switched.all_that_is_left_in(place).await);
            }
            got
        };
        assert_eq!(all().await, [60, 100, 7]);
        assert_eq!(all().await, [0, 0, 0]);

        switched.limiter.reset("api", "alice").await.unwrap();

        assert_eq!(all().await, [60, 100, 7]);
    }
}
