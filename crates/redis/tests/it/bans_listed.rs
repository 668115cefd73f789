//! The list of bans: what it reads of a server, and when it is not complete.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::common::{PATIENT, Patience};
use tokio::task::JoinSet;
use tollgate::{
    Ban, BanList, BannedCaller, CheckError, FailureKind, Key, Limiter, Policy, Quota, StateName,
};
use tollgate_redis::{RedisBackend, RedisBackendBuilder};
use tollgate_testkit::{Cluster, Sentinels, Standalone};

const HOUR: Duration = Duration::from_secs(3_600);

async fn limiter(builder: RedisBackendBuilder) -> Limiter {
    let backend = builder.patient();
    let ban = Ban::after(3, HOUR);
    let login = Policy::new("login", Quota::per_day(2)).ban(ban);
    let login_too = Policy::new("login-too", Quota::per_day(2)).ban(ban);
    let builder = Limiter::builder().policies([login, login_too]);
    let builder = builder.backend(backend.connect().await.unwrap());
    builder.build().unwrap()
}

async fn on(server: &Standalone) -> Limiter {
    limiter(RedisBackend::builder(&server.url())).await
}

/// The identities of a list, in the order of their texts.
fn identities(list: &BanList) -> Vec<&str> {
    let mut identities: Vec<_> = list.into_iter().map(BannedCaller::identity).collect();
    identities.sort_unstable();
    identities
}

/// The number of calls of a command, by clients and scripts.
fn calls(server: &Standalone, command: &str) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let begin = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&begin));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

/// Puts this many other names into a server, in parts that keep it busy for a moment each.
fn fill(server: &Standalone, names: u64) {
    let script = "for n = ARGV[1], ARGV[2] do redis.call('SET', 'other:' .. n, '') end return 'OK'";
    for first in (0..names).step_by(100_000) {
        let last = names.min(first + 100_000) - 1;
        let done = server.command(&["EVAL", script, "0", &first.to_string(), &last.to_string()]);
        assert!(done.contains("OK"), "{done}");
    }
}

#[tokio::test]
async fn a_list_is_read_page_by_page_and_writes_nothing() {
    let server = Standalone::start();
    let limiter = on(&server).await;
    fill(&server, 20_000);
    for n in 0..100_u64 {
        limiter.ban("login", n, HOUR).await.unwrap();
        limiter.check("login-too", n).await.unwrap();
    }
    limiter.ban("login-too", "mallory", HOUR).await.unwrap();
    let counts = || ["scan", "keys", "set", "del"].map(|command| calls(&server, command));
    let before = counts();

    let list = limiter.bans("login").await.unwrap();

    let [scans, keys, sets, deletes] = counts();
    assert_eq!((list.callers().len(), list.is_complete()), (100, true));
    let is_rest = |left: Duration| left <= HOUR && left > HOUR - PATIENT * 12;
    assert!(list.into_iter().all(|caller| is_rest(caller.left())));
    // Some 500 names at a time; a table has more places than names.
    assert!((30..200).contains(&(scans - before[0])), "{scans}");
    assert_eq!([keys, sets, deletes], before[1..]);
    let other = limiter.bans("login-too").await.unwrap();
    assert_eq!(identities(&other), ["=mallory"]);
}

#[tokio::test]
async fn an_identity_is_told_as_it_stands_in_the_name_and_can_be_unbanned_by_its_key() {
    let server = Standalone::start();
    let limiter = on(&server).await;
    let address = Key::address("2001:db8::1".parse().unwrap(), 64);
    let v4 = Key::from(Ipv4Addr::new(203, 0, 113, 7));
    let keys = [
        Key::from("a b%\u{e9}"),
        Key::from("x".repeat(500)),
        Key::tuple([
            &v4,
            &address,
            &Key::tuple([&Key::from("alice"), &Key::from("bob")]),
        ]),
        Key::bytes(b"{17}\0*"),
        Key::from(7_u64),
    ];
    for key in &keys {
        limiter.ban("login", key.clone(), HOUR).await.unwrap();
    }

    let list = limiter.bans("login").await.unwrap();

    let names = server.command(&["KEYS", "tollgate:login:0/b:*"]);
    let names = names.lines().filter_map(StateName::read);
    let mut in_names: Vec<_> = names.map(|name| name.identity().to_owned()).collect();
    in_names.sort_unstable();
    assert_eq!(identities(&list), in_names);
    for caller in list {
        let key = caller.key().unwrap().clone();
        assert!(keys.contains(&key));
        limiter.unban("login", key).await.unwrap();
    }
    let list = limiter.bans("login").await.unwrap();
    assert!(list.is_complete() && list.callers().is_empty());
}

#[tokio::test]
async fn hashed_identities_are_told_as_hashes() {
    let server = Standalone::start();
    let readable = on(&server).await;
    let hashing = RedisBackend::builder(&server.url()).hash_identities("s3cret");
    let hashing = limiter(hashing).await;
    readable.ban("login", "alice", HOUR).await.unwrap();
    hashing.ban("login", "mallory", HOUR).await.unwrap();

    // Each lists the states that it asks for.
    let (hashed, read) = (hashing.bans("login").await, readable.bans("login").await);

    let (hashed, read) = (hashed.unwrap(), read.unwrap());
    assert_eq!(identities(&read), ["=alice"]);
    let [caller] = hashed.callers() else {
        unreachable!("{hashed:?}")
    };
    let name = format!("tollgate:login:0/b:{}", caller.identity());
    assert_eq!(caller.key(), None);
    assert!(
        server.command(&["EXISTS", &name]).starts_with(":1"),
        "{name}"
    );
}

#[tokio::test]
async fn a_value_that_is_no_state_of_ours_makes_a_list_incomplete() {
    let server = Standalone::start();
    let limiter = on(&server).await;
    limiter.ban("login", "mallory", HOUR).await.unwrap();
    for foreign in [
        ["SET", "tollgate:login:0/b:=foreign", "something else"],
        ["SADD", "tollgate:login:0/b:=foreign", "else"],
    ] {
        let _done = server.command(&["DEL", foreign[1]]);
        let _done = server.command(&foreign);
        let list = limiter.bans("login").await.unwrap();
        assert_eq!(identities(&list), ["=mallory"]);
        assert!(!list.is_complete(), "{foreign:?}");
    }
}

#[tokio::test]
async fn a_list_is_bounded_and_says_so() {
    let server = Standalone::start();
    let limiter = on(&server).await;
    let mut banning = JoinSet::new();
    for n in 0..BanList::MOST as u64 {
        let limiter = limiter.clone();
        banning.spawn(async move { limiter.ban("login", n, HOUR).await });
        if n % 1_000 == 999 {
            while let Some(banned) = banning.join_next().await {
                banned.unwrap().unwrap();
            }
        }
    }
    let list = limiter.bans("login").await.unwrap();
    assert_eq!(
        (list.callers().len(), list.is_complete()),
        (BanList::MOST, true)
    );

    limiter.ban("login", "one more", HOUR).await.unwrap();

    let list = limiter.bans("login").await.unwrap();
    assert_eq!(
        (list.callers().len(), list.is_complete()),
        (BanList::MOST, false)
    );
}

#[tokio::test]
async fn a_list_looks_at_no_more_than_a_million_names_of_a_server() {
    // given more names than that, and a table with a place for each
    let server = Standalone::start();
    fill(&server, 1_300_000);
    let limiter = on(&server).await;
    let before = calls(&server, "scan");

    // when
    let list = limiter.bans("login").await.unwrap();

    // then it ended before it had seen all of them
    assert!(!list.is_complete());
    assert_eq!(calls(&server, "scan") - before, 2_000);
}

#[tokio::test]
async fn a_list_of_a_cluster_has_the_bans_of_every_node_and_fails_without_one() {
    let mut cluster = Cluster::start();
    let over = |partitions| {
        let builder = RedisBackend::cluster(cluster.urls());
        limiter(builder.partitions(partitions))
    };
    let (one, other) = (over(64).await, over(16).await);
    let mut banned: Vec<_> = (0..60).map(|n| format!("=caller-{n}")).collect();
    banned.sort_unstable();
    for caller in &banned {
        one.ban("login", &caller[1..], HOUR).await.unwrap();
    }
    other.ban("login", "mallory", HOUR).await.unwrap();
    for node in cluster.nodes() {
        assert_ne!(node.command(&["DBSIZE"]), ":0\r\n");
    }

    let list = one.bans("login").await.unwrap();

    assert!(list.is_complete());
    assert_eq!(identities(&list), banned);
    // Of names with other hash tags this backend asks for none.
    let others = other.bans("login").await.unwrap();
    assert!(identities(&others).contains(&"=mallory"));

    cluster.node_mut(1).unwrap().kill();
    let failed = one.bans("login").await;
    assert!(
        matches!(failed, Err(CheckError::Unlisted { .. })),
        "{failed:?}"
    );
}

#[tokio::test]
async fn a_ban_on_its_way_to_another_node_is_listed_or_the_list_is_incomplete() {
    let cluster = Cluster::start();
    let limiter = limiter(RedisBackend::cluster(cluster.urls()).partitions(1)).await;
    limiter.ban("login", "mallory", HOUR).await.unwrap();
    let slot = cluster.slot_of("{0}");
    let from = cluster.owner_of(slot).unwrap();
    let to = (from + 1) % 3;
    cluster.begin_move(slot, from, to);
    cluster.move_keys(slot, from, to, 10);

    let list = limiter.bans("login").await.unwrap();

    assert!(
        identities(&list) == ["=mallory"] || !list.is_complete(),
        "{list:?}"
    );
    cluster.end_move(slot, to);
    let list = limiter.bans("login").await.unwrap();
    assert_eq!(
        (identities(&list), list.is_complete()),
        (vec!["=mallory"], true)
    );
}

#[tokio::test]
async fn a_master_that_sentinels_name_lists_its_bans() {
    let sentinels = Sentinels::start();
    let builder = RedisBackend::sentinel(sentinels.master_name(), sentinels.urls());
    let limiter = limiter(builder).await;
    limiter.ban("login", "mallory", HOUR).await.unwrap();
    let list = limiter.bans("login").await.unwrap();
    assert_eq!(
        (identities(&list), list.is_complete()),
        (vec!["=mallory"], true)
    );
}

#[tokio::test]
async fn a_user_needs_the_right_to_scan_and_is_told_so() {
    let server = Standalone::start();
    let page = include_str!("../../../../docs/redis.md");
    let shown = |begin: &str| page.lines().find(|line| line.starts_with(begin)).unwrap();
    let allow = |line: &str| {
        let line = line.split('#').next().unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        let answer = server.command(&words);
        assert!(answer.starts_with("+OK"), "{answer}");
    };
    allow(shown("ACL SETUSER gate on >password ~tollgate"));
    let url = server.url().replace("redis://", "redis://gate:password@");
    let limiter = limiter(RedisBackend::builder(&url)).await;
    limiter.ban("login", "mallory", HOUR).await.unwrap();

    let error = limiter.bans("login").await.unwrap_err();

    assert_eq!(
        error.to_string(),
        "policy \"login\": the bans cannot be listed: forbidden by the backend's access rules: our user may not run SCAN: \
         add +scan (NOPERM)"
    );
    assert!(
        matches!(error, CheckError::Unlisted { error, .. } if error.kind() == FailureKind::Forbidden)
    );
    allow(shown("ACL SETUSER gate +scan"));
    let list = limiter.bans("login").await.unwrap();
    assert_eq!(identities(&list), ["=mallory"]);
}

#[tokio::test]
async fn a_flushed_script_is_loaded_again() {
    let server = Standalone::start();
    let limiter = on(&server).await;
    limiter.ban("login", "mallory", HOUR).await.unwrap();
    let _flushed = server.command(&["SCRIPT", "FLUSH"]);
    let list = limiter.bans("login").await.unwrap();
    assert_eq!(identities(&list), ["=mallory"]);
}

#[test]
fn a_list_needs_nothing_of_the_runtime_of_its_caller() {
    let server = Standalone::start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let limiter = runtime.block_on(on(&server));
    runtime
        .block_on(limiter.ban("login", "mallory", HOUR))
        .unwrap();
    // One without timers and sockets.
    let other = tokio::runtime::Builder::new_current_thread().build();
    let other = other.unwrap();
    let list = other.block_on(limiter.bans("login")).unwrap();
    assert_eq!(identities(&list), ["=mallory"]);
}
