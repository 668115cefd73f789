//! Bans, warm-ups, classes and stated quotas, while a deploy runs two versions of the library: one that knows them, and one from
//! before.

use std::time::Duration;

use crate::common::line::{NOW_US, set_clock};
use crate::common::{Patience, harness_name, older};
use tollgate::key::Header;
use tollgate::{Ban, Key, Limiter, Policy, QuotaLookup, Share};
use tollgate_redis::{RedisBackend, RedisBackendBuilder};
use tollgate_testkit::Standalone;

const MINUTE: Duration = Duration::from_secs(60);

/// The policies of the older version.
fn login() -> Policy {
    Policy::new("login", "2/day")
}

fn api() -> Policy {
    Policy::new("api", "4/day")
}

fn search() -> Policy {
    Policy::new("search", "4/hour")
}

async fn process(url: &str, policy: Policy) -> Limiter {
    process_by(RedisBackend::builder(url), policy).await
}

async fn process_by(builder: RedisBackendBuilder, policy: Policy) -> Limiter {
    let backend = builder.patient().connect().await.unwrap();
    let limiter = Limiter::builder().policy(policy).backend(backend);
    limiter.build().unwrap()
}

#[tokio::test]
async fn a_version_without_bans_enforces_none_strikes_none_and_removes_none() {
    const TEST: &str = "a_version_without_bans_enforces_none_strikes_none_and_removes_none";

    if let Some((url, caller)) = older::question() {
        let builder = RedisBackend::builder(&url).patient();
        return older::ask(builder, login(), &caller).await;
    }
    let server = Standalone::start();
    let older = |caller: &str| older::answer(&server, &harness_name(module_path!(), TEST), caller);
    let ban = Ban::after(3, 10 * MINUTE).lasting(15 * MINUTE);
    let newer = process(&server.url(), login().ban(ban)).await;
    let ban_of = |caller: &str| {
        let key = format!("tollgate:login:0/b:={caller}");
        let script = "return redis.sha1hex(redis.call('GET', KEYS[1]) or '')";
        server.command(&["EVAL", script, "1", &key])
    };
    let nothing = ban_of("nobody");
    let newer_says = async |caller: &str| {
        let checked = newer.check("login", caller).await.unwrap();
        assert!(checked.undecided().is_none(), "{:?}", checked.undecided());
        checked.is_allowed()
    };

    // The newer finds what the older has charged, and strikes are its own.
    for expected in ["true", "true", "false", "false", "false", "false"] {
        assert_eq!(older("carol"), expected);
    }
    assert_eq!(ban_of("carol"), nothing);
    assert!(!newer_says("carol").await);
    assert_eq!(newer.banned("login", "carol").await.unwrap(), None);
    let one_strike = ban_of("carol");
    assert_ne!(one_strike, nothing);
    assert_eq!(older("carol"), "false");
    assert_eq!(ban_of("carol"), one_strike);

    // A banned caller passes at the older, by the budget alone, which both count.
    newer.ban("login", "mallory", 15 * MINUTE).await.unwrap();
    let banned = ban_of("mallory");
    assert!(!newer_says("mallory").await);
    for expected in ["true", "true", "false"] {
        assert_eq!(older("mallory"), expected);
    }
    assert_eq!(ban_of("mallory"), banned);
    assert!(!newer_says("mallory").await);
    newer.unban("login", "mallory").await.unwrap();
    // Charged by the older while the ban was in force.
    assert!(!newer_says("mallory").await);
    assert!(newer_says("alice").await);
}

#[tokio::test]
async fn a_version_without_warm_ups_cannot_read_a_budget_that_warms_up_and_leaves_it_as_it_is() {
    const TEST: &str =
        "a_version_without_warm_ups_cannot_read_a_budget_that_warms_up_and_leaves_it_as_it_is";

    if let Some((url, caller)) = older::question() {
        let builder = RedisBackend::builder(&url).patient();
        return older::ask(builder, search(), &caller).await;
    }
    let server = Standalone::start();
    let older = |caller: &str| older::answer(&server, &harness_name(module_path!(), TEST), caller);
    let warm = Policy::new("search", "4/hour warm up 1h");
    let newer = process(&server.url(), warm).await;
    let newer_says = async |caller: &str| {
        let checked = newer.check("search", caller).await.unwrap();
        assert!(checked.undecided().is_none(), "{:?}", checked.undecided());
        checked.is_allowed()
    };
    let state = || server.command(&["GET", "tollgate:search:0/g:=carol"]);

    assert!(newer_says("carol").await);
    let warmed = state();
    assert_eq!(older("carol"), "true, undecided: ForeignState");
    assert_eq!(state(), warmed);

    // The newer goes on with what the older has charged.
    assert_eq!(older("alice"), "true");
    assert!(newer_says("alice").await);
}

#[tokio::test]
async fn a_version_without_classes_spends_what_is_kept_and_leaves_a_state_in_which_shares_hold() {
    const TEST: &str =
        "a_version_without_classes_spends_what_is_kept_and_leaves_a_state_in_which_shares_hold";

    if let Some((url, caller)) = older::question() {
        let builder = RedisBackend::builder(&url).patient();
        return older::ask(builder, api(), &caller).await;
    }
    let server = Standalone::start();
    let older = |caller: &str| older::answer(&server, &harness_name(module_path!(), TEST), caller);
    let classed = api()
        .class_by(Header::new("x-class"))
        .keep_for("premium", Share::percent(50));
    let newer = process(&server.url(), classed).await;
    let newer_says = async |caller: &str, is_premium: bool| {
        let check = newer.check("api", caller);
        let check = if is_premium {
            check.class("premium")
        } else {
            check
        };
        let checked = check.await.unwrap();
        assert!(checked.undecided().is_none(), "{:?}", checked.undecided());
        checked.is_allowed()
    };

    // The older reads what the newer has charged, and spends the two units that it keeps.
    assert!(newer_says("carol", false).await);
    assert!(newer_says("carol", false).await);
    assert!(!newer_says("carol", false).await);
    assert_eq!(older("carol"), "true");
    assert!(newer_says("carol", true).await);
    assert_eq!(older("carol"), "false");
    assert!(!newer_says("carol", true).await);

    // The newer reads what the older has charged, and keeps its share of the rest.
    assert_eq!(older("alice"), "true");
    assert!(newer_says("alice", false).await);
    assert!(!newer_says("alice", false).await);
    assert!(newer_says("alice", true).await);
    assert!(newer_says("alice", true).await);
    assert!(!newer_says("alice", true).await);
}

/// The older has the policy's own quota for each customer. The newer has the one that the database states. Windows and logs are
/// in `crates/tollgate/tests/it/quota_lookups_redis.rs`: the script of then has only its buckets here.
#[tokio::test]
async fn a_version_without_stated_quotas_decides_by_its_own_quota_and_both_charge_one_budget() {
    const TEST: &str =
        "a_version_without_stated_quotas_decides_by_its_own_quota_and_both_charge_one_budget";

    if let Some((url, question)) = older::question() {
        let (own, customer) = question.split_once(" of ").unwrap();
        let builder = RedisBackend::builder(&url).clock("clock").patient();
        return older::ask(builder, Policy::new("api", own), customer).await;
    }
    let server = Standalone::start();
    set_clock(&server, NOW_US);
    for (own, stated, spent_before, at_older, at_newer) in [
        // A bucket keeps how long it takes until it is full again: half a day, a quarter of one, and a whole one.
        ("4/day", "8/day", 4, 2, 0),
        ("4/day", "2/day", 1, 2, 0),
        ("4/day", "4/day", 3, 1, 0),
        // A debt of a day is more than the older's budget of an hour can have, and stays all the same.
        ("4/h", "8/day", 8, 0, 0),
        // The older's four take an hour, which is less than one of the newer's eight.
        ("4/h", "8/day", 0, 4, 7),
        // Another algorithm has a state of its own.
        ("2/day", "3/day sliding-log", 3, 2, 0),
    ] {
        let customer = format!("{own} {stated} {spent_before}").replace([' ', '/'], "-");
        let lookup = QuotaLookup::new(MINUTE, move |_: Key| async move { Ok::<_, String>(stated) });
        let policy = Policy::new("api", own).key(Header::new("x-customer"));
        let builder = RedisBackend::builder(&server.url()).clock("clock");
        let newer = process_by(builder, policy.quota_by_async(lookup)).await;
        let newer_passes = async |most: usize| {
            for passed in 0..most {
                let checked = newer.check("api", &*customer).await.unwrap();
                assert!(checked.undecided().is_none(), "{:?}", checked.undecided());
                if !checked.is_allowed() {
                    return passed;
                }
            }
            most
        };
        assert_eq!(newer_passes(spent_before).await, spent_before, "{customer}");

        let question = format!("{own} of {customer}");
        for passes in (0..=at_older).map(|passed| passed < at_older) {
            let said = older::answer(&server, &harness_name(module_path!(), TEST), &question);
            assert_eq!(said, passes.to_string(), "{customer}");
        }

        assert_eq!(newer_passes(100).await, at_newer, "{customer}");
        assert_eq!(
            older::answer(&server, &harness_name(module_path!(), TEST), &question),
            "false"
        );
    }
}
