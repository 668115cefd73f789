//! The access rules that docs/redis.md shows: they suffice, and nothing less does.

use std::time::Duration;

use crate::common::{Budget, HOUR, Patience, every_algorithm};
use tokio::time::timeout;
use tollgate_core::{Backend, Call, Key, Quota};
use tollgate_redis::{RedisBackend, RedisBackendBuilder};
use tollgate_testkit::{Cluster, Sentinels, Standalone};

/// The rights on every server that decides.
const DECIDING: &str =
    "~tollgate:* +evalsha +script|load +time +get +mget +exists +set +setrange +del";

/// The further rights on a node of a cluster.
const NODE: &str = "+cluster|slots +asking";

/// The rights on a Sentinel.
const SENTINEL: &str = "resetchannels &+switch-master +subscribe +sentinel|get-master-addr-by-name";

fn allow<'a>(server: &Standalone, rights: impl IntoIterator<Item = &'a str>) {
    let mut words = vec!["ACL", "SETUSER", "gate", "reset", "on", ">pw", "-@all"];
    words.extend(rights);
    let answer = server.command(&words);
    assert!(answer.starts_with("+OK"), "{answer}");
}

fn as_gate(url: &str) -> String {
    url.replace("redis://", "redis://gate:pw@")
}

/// Every list that lacks one of these.
fn fewer<'a>(rights: &'a [&'a str]) -> impl Iterator<Item = (&'a str, Vec<&'a str>)> {
    rights.iter().enumerate().map(|(n, missing)| {
        let (before, behind) = (&rights[..n], &rights[n + 1..]);
        (*missing, [before, behind].concat())
    })
}

#[test]
fn the_rules_that_are_shown_are_those_that_are_tried() {
    let rules = [
        format!(
            "ACL SETUSER gate on >password {}\n",
            DECIDING.replacen(' ', " -@all ", 1)
        ),
        format!("ACL SETUSER gate {NODE}"),
        format!("ACL SETUSER gate on >password -@all {SENTINEL}"),
    ];
    let pages = [
        include_str!("../../../../docs/redis.md"),
        include_str!("../../src/lib.rs"),
    ];
    for page in pages {
        for rule in &rules {
            assert!(page.contains(rule), "{rule}");
        }
    }
}

/// From Redis 7 on, as the page says: the server tells beforehand what a user may not do.
#[test]
fn the_server_tells_of_a_right_that_is_missing_before_anybody_asks() {
    let page = include_str!("../../../../docs/redis.md");
    let server = Standalone::start();
    if server
        .command(&["INFO", "server"])
        .contains("redis_version:6.")
    {
        return;
    }
    let shown = page.lines().find(|line| line.starts_with("ACL DRYRUN "));
    let words: Vec<_> = shown.unwrap().split(' ').take(5).collect();
    let dry = |rights: &[&str]| {
        allow(&server, rights.iter().copied());
        server.command(&words)
    };

    let rights: Vec<_> = DECIDING.split(' ').collect();
    let fewer: Vec<_> = (rights.iter().copied())
        .filter(|right| *right != "+get")
        .collect();

    assert_eq!(words[2..], ["gate", "GET", "tollgate:x"]);
    assert_eq!(dry(&rights), "+OK\r\n");
    let told = dry(&fewer);
    assert!(
        told.contains("no permissions to run the 'get' command"),
        "{told}"
    );
}

#[tokio::test]
async fn least_rights_on_one_server() {
    let server = Standalone::start();
    let builder = RedisBackend::builder(&as_gate(&server.url()));
    let rights: Vec<_> = DECIDING.split(' ').collect();
    allow(&server, rights.iter().copied());
    assert_eq!(everything(&builder, "all").await, Ok(()));
    for (n, (missing, fewer)) in fewer(&rights).enumerate() {
        allow(&server, fewer);
        let result = everything(&builder, &format!("without-{n}")).await;
        assert!(result.is_err(), "{missing} is not needed");
    }
}

#[tokio::test]
async fn another_database_takes_one_right_more() {
    let server = Standalone::start();
    let builder = RedisBackend::builder(&as_gate(&server.url())).database(3);
    allow(&server, DECIDING.split(' '));
    assert!(everything(&builder, "without").await.is_err());
    allow(&server, DECIDING.split(' ').chain(["+select"]));
    assert_eq!(everything(&builder, "with").await, Ok(()));
}

#[tokio::test]
async fn least_rights_on_a_sentinel() {
    let all = Sentinels::start();
    let urls = all.urls().map(|url| as_gate(&url));
    let builder = RedisBackend::sentinel(all.master_name(), urls)
        .username("gate")
        .password("pw");
    for server in all.servers() {
        allow(server, DECIDING.split(' '));
    }
    for sentinel in all.sentinels() {
        allow(sentinel, SENTINEL.split(' '));
    }
    assert_eq!(everything(&builder, "all").await, Ok(()));
    for sentinel in all.sentinels() {
        allow(sentinel, []);
    }
    assert!(everything(&builder, "none").await.is_err());
}

#[tokio::test]
async fn least_rights_in_a_cluster() {
    let cluster = Cluster::start();
    let urls: Vec<_> = cluster.urls().iter().map(|url| as_gate(url)).collect();
    let builder = RedisBackend::cluster(urls);
    let rights: Vec<_> = DECIDING.split(' ').chain(NODE.split(' ')).collect();
    let allow_all = |rights: &[&str]| {
        for node in cluster.nodes() {
            allow(node, rights.iter().copied());
        }
    };

    allow_all(&rights);
    assert_eq!(everything(&builder, "all").await, Ok(()));
    assert_eq!(moving(&cluster, &builder, 0, || {}).await, Ok(()));
    // Without any one of them something fails: where slots stay, or where they migrate.
    for (n, (missing, fewer)) in (1..).zip(fewer(&rights)) {
        allow_all(&fewer);
        let standing = everything(&builder, &format!("without-{n}")).await;
        allow_all(&rights);
        let moving = moving(&cluster, &builder, n, || allow_all(&fewer)).await;
        allow_all(&rights);
        assert!(
            standing.is_err() || moving.is_err(),
            "{missing} is not needed"
        );
        let is_for_moving = missing == "+asking";
        assert_eq!(standing.is_ok(), is_for_moving, "{missing}: {standing:?}");
    }
}

/// Migrates the slot of two budgets under load, from a server with the rights that `restrict` leaves.
async fn moving(
    cluster: &Cluster,
    builder: &RedisBackendBuilder,
    number: u64,
    restrict: impl Fn(),
) -> Result<(), String> {
    let builder = builder.clone().partitions(1).patient();
    let backend = builder.connect().await.map_err(|error| error.to_string())?;
    let quota = Quota::per_hour(10);
    let budget = |key: u64| Budget {
        key: Key::from(key),
        ..Budget::of(&format!("moving-{number}"), quota)
    };
    let (first, second) = (budget(1), budget(2));
    let take = |_step| async {
        let charges = [first.charge(1), second.charge(1)];
        let decision = backend.decide(Call::of(&charges[..1])).await;
        decision.map_err(|error| error.to_string())?;
        let decision = backend.decide(Call::of(&charges[1..])).await;
        decision.map_err(|error| error.to_string())
    };

    take("before").await?;
    restrict();
    let slot = cluster.slot_of("{0}");
    let from = cluster.owner_of(slot).unwrap();
    let to = (from + 1) % 3;
    cluster.begin_move(slot, from, to);
    cluster.move_keys(slot, from, to, 1);
    let halfway = take("halfway").await;
    cluster.move_keys(slot, from, to, 1_000);
    let gone = take("gone").await;
    cluster.end_move(slot, to);
    let after = take("after").await;

    halfway.and(gone).and(after)?;
    for budget in [&first, &second] {
        assert_eq!(budget.remaining(&backend).await, 6);
    }
    Ok(())
}

/// Every command that the backend ever sends while no slot migrates.
async fn everything(builder: &RedisBackendBuilder, policy: &str) -> Result<(), String> {
    let builder = builder.clone().patient().connections(1);
    let connecting = timeout(Duration::from_secs(10), builder.connect()).await;
    let backend = connecting
        .map_err(|_| "no connection".to_owned())?
        .map_err(|error| error.to_string())?;
    for (n, quota) in every_algorithm(10, HOUR).into_iter().enumerate() {
        let budget = Budget::of(&format!("{policy}-{n}"), quota);
        let other = Budget::of(&format!("{policy}-other-{n}"), quota);
        let charges = [budget.charge(1), other.charge(1)];
        for charges in [&charges[..1], &charges[..1], &charges, &charges] {
            let decision = backend
                .decide(Call::of(charges))
                .await
                .map_err(|error| error.to_string())?;
            for receipt in decision.receipts(charges) {
                backend.refund(receipt, 1);
            }
        }
        let reset = backend.admin().reset(budget.scope, &budget.key).await;
        reset.map_err(|error| error.to_string())?;
    }
    Ok(())
}
