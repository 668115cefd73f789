//! Customers whose quota a database states and changes, in memory and in a real Redis.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::key::Header;
use tollgate::{Key, Limiter, ManualClock, MemoryBackend, Policy, QuotaLookup, RedisBackend};
use tollgate_conformance::FAR_AHEAD_US;
use tollgate_testkit::Standalone;

/// A limiter whose time stands still, and the quota that is stated for every customer.
struct Stated {
    limiter: Limiter,
    quota: Arc<Mutex<String>>,
    /// A server lives as long as its handle.
    _server: Option<Standalone>,
}

impl Stated {
    /// In time that stands still, or in real time.
    fn of(server: Option<(Standalone, RedisBackend)>, is_still: bool) -> Self {
        let quota = Arc::new(Mutex::new(String::new()));
        let row = Arc::clone(&quota);
        let lookup = QuotaLookup::new(Duration::ZERO, move |_: Key| {
            let quota = row.lock().unwrap().clone();
            async move { Ok::<_, String>(quota) }
        });
        let policy = Policy::new("api", "1/min").key(Header::new("x-user"));
        let builder = Limiter::builder().policy(policy.quota_by_async(lookup));
        let (builder, server) = match server {
            Some((server, backend)) => (builder.backend(backend), Some(server)),
            None if is_still => {
                let backend = MemoryBackend::builder().clock(ManualClock::new()).build();
                (builder.backend(backend), None)
            }
            None => (builder.backend(MemoryBackend::new()), None),
        };
        Self {
            limiter: builder.build().unwrap(),
            quota,
            _server: server,
        }
    }

    async fn on_both_backends() -> [Self; 2] {
        let server = Standalone::start();
        let answer = server.command(&["SET", "clock", &FAR_AHEAD_US.to_string()]);
        assert_eq!(answer, "+OK\r\n");
        let backend = RedisBackend::builder(&server.url())
            .clock("clock")
            .deadline(Duration::from_secs(20));
        let backend = backend.connect().await.unwrap();
        [
            Self::of(None, true),
            Self::of(Some((server, backend)), true),
        ]
    }

    /// For windows of a calendar, which this process works out by its own clock.
    async fn on_both_backends_today() -> [Self; 2] {
        let server = Standalone::start();
        let backend = RedisBackend::builder(&server.url()).deadline(Duration::from_secs(20));
        let backend = backend.connect().await.unwrap();
        [
            Self::of(None, false),
            Self::of(Some((server, backend)), false),
        ]
    }

    /// The amount that is left once the database states this quota.
    async fn left_of(&self, quota: &str) -> u64 {
        quota.clone_into(&mut self.quota.lock().unwrap());
        let checked = self.limiter.check("api", "4711").cost(0).await;
        checked.unwrap().remaining()
    }

    async fn spends(&self, cost: u64) -> bool {
        let checked = self.limiter.check("api", "4711").cost(cost).await;
        checked.unwrap().is_allowed()
    }
}

#[tokio::test]
async fn a_stated_quota_that_changes_keeps_what_was_used() {
    for stated in Stated::on_both_backends().await {
        for (algorithm, of_larger) in [
            ("", 300),
            (" sliding-window", 400),
            (" sliding-log", 400),
            (" fixed-window", 400),
            (" rolling-window", 400),
            (" interval-refill", 400),
        ] {
            let quota = |limit: u64| format!("{limit}/min{algorithm}");
            assert_eq!(stated.left_of(&quota(250)).await, 250, "{algorithm}");
            assert!(stated.spends(100).await);

            let mut left = Vec::new();
            for limit in [500, 250, 125, 250] {
                left.push(stated.left_of(&quota(limit)).await);
            }
            let of_smaller = if algorithm.is_empty() { 75 } else { 25 };
            assert_eq!(left, [of_larger, 150, of_smaller, 150], "{algorithm}");

            // All of it is spent, and no change gives more.
            assert!(stated.spends(150).await);
            for limit in [125, 250] {
                assert_eq!(stated.left_of(&quota(limit)).await, 0, "{algorithm}");
                assert!(!stated.spends(1).await);
            }
        }
    }
}

#[tokio::test]
async fn another_algorithm_or_window_of_a_stated_quota_gives_one_full_budget_at_most() {
    let quotas = ["3/h", "5/h sliding-window", "7/day sliding-window"];
    for stated in Stated::on_both_backends().await {
        let mut left = Vec::new();
        for quota in quotas.iter().chain(&quotas) {
            let budget = stated.left_of(quota).await;
            assert!(stated.spends(budget).await);
            left.push(budget);
        }
        assert_eq!(left, [3, 5, 7, 0, 0, 0]);
    }
}

#[tokio::test]
async fn a_stated_quota_of_a_calendar_that_changes_keeps_what_was_used_in_its_window() {
    for stated in Stated::on_both_backends_today().await {
        let quota = |limit: u64| format!("{limit}/year in Europe/Berlin");
        assert_eq!(stated.left_of(&quota(250)).await, 250);
        assert!(stated.spends(100).await);

        let mut left = Vec::new();
        for limit in [500, 250, 125, 250] {
            left.push(stated.left_of(&quota(limit)).await);
        }
        assert_eq!(left, [400, 150, 25, 150]);

        assert!(stated.spends(150).await);
        for limit in [125, 250] {
            assert_eq!(stated.left_of(&quota(limit)).await, 0);
            assert!(!stated.spends(1).await);
        }

        // The year of another zone is another calendar: one full budget, and the old state on return.
        assert_eq!(stated.left_of("250/year in UTC").await, 250);
        assert_eq!(stated.left_of(&quota(250)).await, 0);
    }
}

#[tokio::test]
async fn a_stated_quota_that_warms_up_keeps_what_was_used_and_how_cold_it_is() {
    let mut told = Vec::new();
    for stated in Stated::on_both_backends().await {
        let quota = |limit: u64| format!("{limit}/min warm up 30s");
        assert_eq!(stated.left_of(&quota(250)).await, 250);
        // Cold units take more room than one each.
        assert!(stated.spends(50).await);
        let after = stated.left_of(&quota(250)).await;
        assert!(after < 200, "{after}");

        // Neither another limit nor a quota without a warm-up in between makes it any warmer or fuller.
        let mut left = Vec::new();
        for quota in [quota(500), quota(250), "250/min".to_owned(), quota(250)] {
            left.push(stated.left_of(&quota).await);
        }
        assert_eq!([left[1], left[2], left[3]], [after; 3]);
        // The bucket keeps the time until it is full again, of which twice the rate makes twice the units.
        assert!((2 * after..=2 * after + 1).contains(&left[0]), "{left:?}");

        assert!(stated.spends(after).await);
        for limit in [125, 250, 500] {
            assert_eq!(stated.left_of(&quota(limit)).await, 0, "{limit}");
            assert!(!stated.spends(1).await);
        }
        told.push(left);
    }
    assert_eq!(told[0], told[1]);
}

/// Two processes of a fleet. The database has changed the quota, and only one of them has asked since.
#[tokio::test]
async fn two_processes_that_know_different_quotas_of_one_identity_charge_one_budget() {
    const HOUR: Duration = Duration::from_secs(3_600);

    let server = Standalone::start();
    let answer = server.command(&["SET", "clock", &FAR_AHEAD_US.to_string()]);
    assert_eq!(answer, "+OK\r\n");
    let process = async |row: &Arc<Mutex<String>>, remember_for| {
        let row = Arc::clone(row);
        let lookup = QuotaLookup::new(remember_for, move |_: Key| {
            let quota = row.lock().unwrap().clone();
            async move { Ok::<_, String>(quota) }
        });
        let backend = RedisBackend::builder(&server.url()).clock("clock");
        let backend = backend.deadline(Duration::from_secs(20)).connect().await;
        let policy = Policy::new("api", "1/min").key(Header::new("x-user"));
        let builder = Limiter::builder().policy(policy.quota_by_async(lookup));
        builder.backend(backend.unwrap()).build().unwrap()
    };
    let spends = async |limiter: &Limiter, user: &str, cost: u64| {
        let checked = limiter.check("api", user).cost(cost).await.unwrap();
        assert!(checked.undecided().is_none(), "{:?}", checked.undecided());
        checked.is_allowed()
    };
    for (algorithm, old, new) in [
        ("", 4, 8),
        ("", 8, 4),
        (" sliding-window", 4, 8),
        (" sliding-log", 8, 4),
        (" fixed-window", 4, 8),
        (" rolling-window", 8, 4),
        (" interval-refill", 4, 8),
    ] {
        // given two processes, of which one knows the old quota, and the other the new one
        let quota = |limit: u64| format!("{limit}/h{algorithm}");
        let row = Arc::new(Mutex::new(quota(old)));
        let knows_old = process(&row, HOUR).await;
        let knows_new = process(&row, Duration::ZERO).await;
        for turns in 0..3 {
            let user = format!("{old} to {new}{algorithm}, {turns}");
            *row.lock().unwrap() = quota(old);
            for limiter in [&knows_old, &knows_new] {
                assert!(spends(limiter, &user, 0).await);
            }
            *row.lock().unwrap() = quota(new);
            let asked = knows_new.check("api", &*user).cost(0).await.unwrap();
            assert_eq!(asked.verdicts()[0].limit(), new);

            // when both take all that they get, in turns or one after the other
            let mut passed = [0, 0];
            for turn in 0..40 {
                let which = match turns {
                    0 => turn % 2,
                    first => (first + turn / 20) % 2,
                };
                let limiter = [&knows_old, &knows_new][which];
                passed[which] += u64::from(spends(limiter, &user, 1).await);
            }

            // then a bucket has admitted as long as it takes to refill, and a window as many as the larger quota allows
            if algorithm.is_empty() {
                assert_eq!(passed[0] * new + passed[1] * old, old * new, "{user}");
            } else {
                assert_eq!(passed[0] + passed[1], old.max(new), "{user}");
            }
            for limiter in [&knows_old, &knows_new] {
                assert!(!spends(limiter, &user, 1).await, "{user}");
            }
        }
    }
}
