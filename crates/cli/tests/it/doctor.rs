//! `tollgate doctor` on real servers with good and with bad settings.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tollgate::{Backend, Call, Charge, Key, Mode, Quota, Scope};
use tollgate_testkit::{Cluster, Sentinels, Standalone, Tls};

use crate::support::patient;
use crate::support::program::{Ran, tollgate};

/// A server as docs/redis.md wants it.
const GOOD: [&str; 4] = ["--maxmemory", "64mb", "--maxmemory-policy", "noeviction"];

fn doctor(redis: &[&str]) -> Ran {
    tollgate(Path::new("."), &[&["doctor"], redis].concat())
}

/// One finding of the program.
#[derive(Debug)]
struct Found {
    place: String,
    subject: String,
    grade: String,
    was: String,
    means: String,
    change: Option<String>,
}

/// The exit code, and the findings of all parts. A busy machine may hold a call up; then it looks again.
fn findings(redis: &[&str]) -> (Option<i32>, Vec<Found>) {
    loop {
        let ran = doctor(&[redis, &["--json"]].concat());
        let report: Value = serde_json::from_str(&ran.out).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let parts = report["parts"].as_array().unwrap().iter();
        let findings = parts.flat_map(|part| {
            let findings = part["findings"].as_array().unwrap().iter();
            findings.map(|it| Found {
                place: text(&part["place"]),
                subject: text(&it["subject"]),
                grade: text(&it["grade"]),
                was: text(&it["was"]),
                means: text(&it["means"]),
                change: it["change"].as_str().map(str::to_owned),
            })
        });
        let findings: Vec<_> = findings.collect();
        if !(findings.iter()).any(|it| it.subject == "latency" && it.grade != "fine") {
            return (ran.code, findings);
        }
    }
}

/// The subjects of this grade.
fn of_grade<'a>(findings: &'a [Found], grade: &str) -> Vec<&'a str> {
    let findings = findings.iter().filter(|it| it.grade == grade);
    findings.map(|it| &*it.subject).collect()
}

fn finding<'a>(findings: &'a [Found], subject: &str) -> &'a Found {
    let mut findings = findings.iter();
    findings.find(|it| it.subject == subject).unwrap()
}

#[test]
fn a_good_server_is_fine_and_each_fact_says_what_it_means() {
    let server = Standalone::start_with(&GOOD);
    let url = server.url();

    let ran = doctor(&["--redis", &url]);
    let (code, found) = findings(&["--redis", &url]);

    let words = ran.words();
    assert!(!words.contains("wrong  "), "{words}");
    assert_eq!(code, Some(0));
    // A single server is the operator's choice.
    assert_eq!(of_grade(&found, "advice"), ["replication"], "{found:#?}");
    assert_eq!(found.len(), 11);
    assert_eq!(found[0].place, format!("127.0.0.1:{}", server.port()));
    assert_eq!(of_grade(&found, "fine").len(), 10, "{found:#?}");
    for subject in [
        "version",
        "decisions",
        "rights",
        "eviction",
        "persistence",
        "clock",
        "script",
        "latency",
        "memory",
        "clients",
    ] {
        assert!(
            ran.out.contains(&format!("  fine    {subject} ")),
            "{subject}: {}",
            ran.out
        );
        let means = &finding(&found, subject).means;
        assert!(!means.is_empty());
    }
    // The first of the two loaded the script.
    assert!(ran.out.contains("was not loaded"), "{}", ran.out);
    assert_eq!(finding(&found, "script").was, "was loaded");
    assert!(
        ran.out.ends_with("0 wrong, 1 to consider, 0 not seen\n"),
        "{}",
        ran.out
    );
    let states = server.command(&["DBSIZE"]);
    assert_eq!(states, ":0\r\n");
}

#[test]
fn each_bad_setting_is_named_with_what_to_change() {
    let server = Standalone::start_with(&GOOD);
    let url = server.url();
    for (setting, bad, good, subject, says) in [
        (
            "maxmemory-policy",
            "allkeys-lru",
            "noeviction",
            "eviction",
            "evicts live budgets",
        ),
        (
            "maxmemory-policy",
            "volatile-ttl",
            "noeviction",
            "eviction",
            "all of which have an expiry",
        ),
        (
            "maxmemory",
            "1",
            "64mb",
            "eviction",
            "decides nothing (OOM)",
        ),
        (
            "min-replicas-to-write",
            "1",
            "0",
            "replication",
            "NOREPLICAS",
        ),
        (
            "maxclients",
            "1",
            "10000",
            "clients",
            "finds no connection free",
        ),
    ] {
        let set = server.command(&["CONFIG", "SET", setting, bad]);
        assert_eq!(set, "+OK\r\n");

        let (code, found) = findings(&["--redis", &url]);

        assert_eq!(code, Some(3), "{setting} {bad}: {found:#?}");
        let found = finding(&found, subject);
        assert_eq!(found.grade, "wrong", "{setting} {bad}");
        assert!(found.means.contains(says), "{found:?}");
        assert!(found.change.is_some(), "{found:?}");
        let set = server.command(&["CONFIG", "SET", setting, good]);
        assert_eq!(set, "+OK\r\n");
    }
    let _set = server.command(&["CONFIG", "SET", "appendfsync", "always"]);
    let _set = server.command(&["CONFIG", "SET", "appendonly", "yes"]);
    let (code, found) = findings(&["--redis", &url]);
    assert_eq!(code, Some(3));
    assert_eq!(of_grade(&found, "wrong"), ["persistence"], "{found:#?}");
}

#[test]
fn a_setting_to_change_has_its_place_on_a_managed_service_in_one_line() {
    let server = Standalone::start_with(&GOOD);
    let place = "where CONFIG SET is forbidden: set it in a parameter group (ElastiCache, MemoryDB) or in the instance's configuration \
                 (Memorystore)";
    let told = || {
        let ran = doctor(&["--redis", &server.url()]);
        let lines = ran.out.lines().filter(|line| *line == place).count();
        let ran = doctor(&["--redis", &server.url(), "--json"]);
        let report: Value = serde_json::from_str(&ran.out).unwrap();
        (lines, report["managed"].clone())
    };
    assert_eq!(told(), (0, Value::Null));
    for (setting, bad) in [
        ("maxmemory-policy", "volatile-lru"),
        ("appendonly", "yes"),
        ("appendfsync", "always"),
    ] {
        assert_eq!(server.command(&["CONFIG", "SET", setting, bad]), "+OK\r\n");
    }
    assert_eq!(told(), (1, Value::from(place)));
}

#[test]
fn choices_are_advice_and_no_error() {
    let server = Standalone::start_with(&["--save", "60 1000"]);

    let (code, found) = findings(&["--redis", &server.url()]);

    assert_eq!(code, Some(0), "{found:#?}");
    assert_eq!(
        of_grade(&found, "advice"),
        ["eviction", "persistence", "replication"]
    );
}

#[test]
fn a_failed_save_matters_where_the_server_saves_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap().to_owned();
    let server = Standalone::start_with(&[&GOOD[..], &["--dir", &path]].concat());
    drop(folder);
    let begin = Instant::now();
    while !server
        .command(&["INFO", "persistence"])
        .contains("rdb_last_bgsave_status:err")
    {
        assert!(begin.elapsed() < Duration::from_secs(30), "no save fails");
        let _begun = server.command(&["BGSAVE"]);
        thread::sleep(Duration::from_millis(50));
    }

    let (_, found) = findings(&["--redis", &server.url()]);
    assert!(found.iter().all(|it| it.subject != "disk"), "{found:#?}");

    let _set = server.command(&["CONFIG", "SET", "save", "3600 1"]);
    let (code, found) = findings(&["--redis", &server.url()]);
    assert_eq!(code, Some(3));
    assert_eq!(finding(&found, "disk").was, "the last save failed");
}

#[test]
fn a_clock_that_is_far_off_is_told() {
    let server = Standalone::start_ahead(3_600, &GOOD);

    let (code, found) = findings(&["--redis", &server.url()]);

    assert_eq!(code, Some(3));
    assert_eq!(of_grade(&found, "wrong"), ["clock"], "{found:#?}");
    let was = &finding(&found, "clock").was;
    assert!(was.starts_with("3,6") || was.starts_with("3,59"), "{was}");
}

#[test]
fn each_right_that_decisions_need_is_named_if_it_is_missing_and_passwords_are_not_echoed() {
    const RIGHTS: &str =
        "~tollgate:* +evalsha +script|load +time +get +mget +exists +set +setrange +del";
    let server = Standalone::start_with(&GOOD);
    let url = server.url().replace("redis://", "redis://gate:s3cret@");
    for missing in RIGHTS.split(' ') {
        let mut words = vec!["ACL", "SETUSER", "gate", "reset", "on", ">s3cret", "-@all"];
        words.extend(RIGHTS.split(' ').filter(|right| *right != missing));
        let _set = server.command(&words);

        let (code, found) = findings(&["--redis", &url]);

        assert_eq!(code, Some(3), "{missing}");
        let rights = finding(&found, "rights");
        assert_eq!(rights.was, format!("the user lacks {missing}"));
        assert!(rights.change.as_ref().unwrap().ends_with(missing));
        let decides = finding(&found, "decisions");
        assert_eq!(decides.grade, "wrong", "{missing}: {decides:?}");
        let ran = doctor(&["--redis", &url]);
        assert!(
            !format!("{}{}", ran.out, ran.err).contains("s3cret"),
            "{ran:?}"
        );
    }
    // With all of them the rest is unseen, which is not an error.
    let mut words = vec!["ACL", "SETUSER", "gate", "reset", "on", ">s3cret", "-@all"];
    words.extend(RIGHTS.split(' '));
    let _set = server.command(&words);
    let (code, found) = findings(&["--redis", &url]);
    assert_eq!(code, Some(0), "{found:#?}");
    assert_eq!(
        of_grade(&found, "unseen"),
        [
            "version",
            "eviction",
            "persistence",
            "replication",
            "memory"
        ]
    );
    // That writes are refused is tried, not read.
    for (setting, bad, good, says) in [
        ("maxmemory", "1", "64mb", "(OOM)"),
        ("min-replicas-to-write", "1", "0", "(NOREPLICAS)"),
    ] {
        let _set = server.command(&["CONFIG", "SET", setting, bad]);
        let (code, found) = findings(&["--redis", &url]);
        assert_eq!(code, Some(3), "{found:#?}");
        let decides = finding(&found, "decisions");
        assert!(decides.was.contains(says), "{decides:?}");
        let _set = server.command(&["CONFIG", "SET", setting, good]);
    }
    // With those that the help names nothing is.
    words.extend(["+info", "+config|get", "+scan", "+memory|usage"]);
    let _set = server.command(&words);
    let (code, found) = findings(&["--redis", &url]);
    assert_eq!(
        (code, of_grade(&found, "unseen")),
        (Some(0), Vec::new()),
        "{found:#?}"
    );
}

#[test]
fn the_memory_of_a_key_is_measured_and_lost_keys_are_told() {
    let server = Standalone::start_with(&GOOD);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let backend = patient::connect(&server.url()).await;
        let quota = Quota::per_day(1).burst(50);
        for caller in 0..20 {
            let charge = Charge {
                scope: Scope::of("login", 0, &quota),
                quota: &quota,
                key: &Key::from(&*format!("caller-{caller}")),
                cost: 1,
                mode: Mode::Enforce,
            };
            assert!(
                backend
                    .decide(Call::of(&[charge]))
                    .await
                    .unwrap()
                    .is_admitted()
            );
        }
    });

    let (_, found) = findings(&["--redis", &server.url()]);

    let was = &finding(&found, "memory").was;
    let (bytes, rest) = was
        .split_once(" bytes for a key, of 20 that were looked at")
        .unwrap();
    assert!(
        (80..400).contains(&bytes.parse::<u64>().unwrap()) && !rest.is_empty(),
        "{was}"
    );
}

#[test]
fn a_replica_is_told_as_one_that_does_not_decide() {
    let master = Standalone::start_with(&GOOD);
    let port = master.port().to_string();
    let replica = Standalone::start_with(&["--replicaof", "127.0.0.1", &port]);

    let (code, found) = findings(&["--redis", &replica.url()]);

    assert_eq!(code, Some(3));
    assert_eq!(
        finding(&found, "decisions").was,
        "the backend cannot be written to: the server is a replica"
    );
    let replication = finding(&found, "replication");
    assert_eq!(replication.grade, "wrong");
    let named = format!("a replica of 127.0.0.1, port {port}; the link to it is ");
    assert!(replication.was.starts_with(&named), "{}", replication.was);

    let _no_longer = replica.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let (_, found) = findings(&["--redis", &replica.url()]);
    let change = finding(&found, "replication").change.as_deref();
    assert!(
        change.is_some_and(|it| it.contains("REPLICAOF NO ONE")),
        "{change:?}"
    );
}

/// The arguments for a cluster.
fn of_cluster(urls: &[String]) -> Vec<&str> {
    let nodes = urls.iter().flat_map(|url| ["--redis", url.as_str()]);
    nodes.chain(["--cluster"]).collect()
}

/// Waits until these servers have so many replicas together.
fn until_linked(masters: &[&Standalone], replicas: usize) {
    let begin = Instant::now();
    let linked = || {
        let told = masters
            .iter()
            .map(|it| it.command(&["INFO", "replication"]));
        told.map(|told| told.matches("state=online").count())
            .sum::<usize>()
    };
    while linked() < replicas {
        assert!(begin.elapsed() < Duration::from_secs(30), "no replication");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn replicas_are_examined_too_since_they_decide_after_a_failover() {
    let master = Standalone::start_with(&GOOD);
    let port = master.port().to_string();
    let options = [&GOOD[..], &["--replicaof", "127.0.0.1", &port]].concat();
    let good = Standalone::start_with(&options);
    let ahead = Standalone::start_ahead(3_600, &options);
    let url = master.url();
    let of = |found: Vec<Found>, server: &Standalone| -> Vec<Found> {
        let place = format!("127.0.0.1:{}, a replica", server.port());
        found.into_iter().filter(|it| it.place == place).collect()
    };
    until_linked(&[&master], 2);

    let (code, found) = findings(&["--redis", &url]);
    assert_eq!(code, Some(3), "{found:#?}");
    let of_ahead = of(found, &ahead);
    assert_eq!(of_grade(&of_ahead, "wrong"), ["clock"], "{of_ahead:#?}");

    let (_, found) = findings(&["--redis", &url]);
    let of_good = of(found, &good);
    let subjects: Vec<_> = of_good.iter().map(|it| &*it.subject).collect();
    let expected = [
        "version",
        "rights",
        "eviction",
        "persistence",
        "link",
        "clock",
    ];
    assert_eq!(subjects, expected);
    assert_eq!(of_grade(&of_good, "fine"), expected, "{of_good:#?}");

    let set = good.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    assert_eq!(set, "+OK\r\n");
    let (_, found) = findings(&["--redis", &url]);
    let of_good = of(found, &good);
    assert_eq!(of_grade(&of_good, "wrong"), ["eviction"], "{of_good:#?}");

    // A user that the master alone has.
    let words = ["ACL", "SETUSER", "gate", "on", ">s3cret", "~*", "+@all"];
    assert_eq!(master.command(&words), "+OK\r\n");
    let as_user = url.replace("redis://", "redis://gate:s3cret@");
    let (code, found) = findings(&["--redis", &as_user]);
    assert_eq!(code, Some(3));
    let of_good = of(found, &good);
    assert_eq!(of_grade(&of_good, "wrong"), ["standby"], "{of_good:#?}");
    assert!(of_good[0].means.contains("users and passwords"));
    assert!(!format!("{of_good:?}").contains("s3cret"));
}

#[test]
fn replicas_of_a_cluster_are_examined_too() {
    let cluster = Cluster::start_with_replicas(2);
    let nodes: Vec<_> = cluster.nodes().iter().collect();
    until_linked(&nodes, 2);
    let urls = cluster.urls();
    let redis = of_cluster(&urls);

    let (_, found) = findings(&redis);

    let links = found.iter().filter(|it| it.subject == "link");
    let grades: Vec<_> = links.map(|it| &*it.grade).collect();
    assert_eq!(grades, ["fine"; 2], "{found:#?}");
}

#[test]
fn sentinels_are_asked_and_the_master_that_they_name_is_examined() {
    let sentinels = Sentinels::start();
    let urls = sentinels.urls();
    let mut redis: Vec<_> = urls.iter().flat_map(|url| ["--redis", url]).collect();
    redis.extend(["--sentinel", sentinels.master_name()]);
    let (code, found) = findings(&redis);
    assert_eq!(code, Some(0), "{found:#?}");
    assert!(
        finding(&found, "master")
            .was
            .starts_with("3 of 3 name 127.0.0.1:")
    );
    assert_eq!(finding(&found, "replication").was, "master, 1 replica");
    let link = finding(&found, "link");
    assert!(link.place.ends_with(", a replica"), "{link:?}");

    // A master that they do not know.
    let mut unknown = redis.clone();
    *unknown.last_mut().unwrap() = "no-such-master";
    let ran = doctor(&unknown);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let says = "the Sentinels watch no master of this name";
    assert!(ran.err.contains(says), "{ran:?}");

    // One that watches nothing.
    let stranger = Standalone::start();
    let other = stranger.url();
    redis.extend(["--redis", &other]);
    let (code, found) = findings(&redis);
    assert_eq!(code, Some(3));
    assert!(
        finding(&found, "sentinel")
            .was
            .contains("the server is not a Sentinel"),
        "{found:#?}"
    );
}

#[test]
fn a_cluster_is_examined_as_a_whole_and_node_by_node() {
    let mut cluster = Cluster::start();
    for node in cluster.nodes() {
        let _set = node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "yes"]);
    }
    let urls = cluster.urls();
    let redis = of_cluster(&urls);

    let (code, found) = findings(&redis);
    assert_eq!(code, Some(3));
    assert_eq!(
        finding(&found, "slots").was,
        "16,384 of 16,384, on 3 masters"
    );
    assert_eq!(finding(&found, "coverage").grade, "wrong");
    // No node has a replica.
    let wrong = of_grade(&found, "wrong");
    assert_eq!(
        wrong,
        ["coverage", "replication", "replication", "replication"],
        "{found:#?}"
    );

    // A lost shard stops the others, unless that is set otherwise.
    cluster.node_mut(2).unwrap().kill();
    let (_, found) = findings(&redis);
    assert_eq!(finding(&found, "slots").was, "1 of 3 masters do not answer");
    let stopped = (found.iter()).filter(|it| it.was == "it refuses (CLUSTERDOWN)");
    assert_eq!(stopped.count(), 2, "{found:#?}");
    for node in &cluster.nodes()[..2] {
        let _set = node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let (code, found) = findings(&redis);
    assert_eq!(code, Some(3));
    assert_eq!(finding(&found, "coverage").grade, "fine");
    let decides = found.iter().filter(|it| it.was == "it decides");
    assert_eq!(decides.count(), 2, "{found:#?}");
    let away = found
        .iter()
        .filter(|it| it.subject == "decisions" && it.was.contains("nothing listens there"));
    assert_eq!(away.count(), 1, "{found:#?}");

    // If half of the masters are lost, the others stop whatever is set.
    cluster.node_mut(1).unwrap().kill();
    let down = |found: &[Found]| {
        let mut stopped = found
            .iter()
            .filter(|it| it.was == "it refuses (CLUSTERDOWN)");
        stopped.any(|it| it.change.as_ref().is_some_and(|it| it.contains("TAKEOVER")))
    };
    let (_, found) = findings(&redis);
    assert!(down(&found), "{found:#?}");
    assert!(!found.iter().any(|it| it.grade == "unseen"), "{found:#?}");
}

#[test]
fn servers_that_speak_tls_are_examined_over_it() {
    let (server, watched, cluster) = (Tls::start_mutual(), Tls::start(), Tls::start_cluster());
    let (_sentinel, of_sentinel) = watched.sentinel("mymaster");
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (certificate, key) = server.client();
    let (certificate, key) = (file("client.pem", certificate), file("client.key", key));
    let of_client = ["--cert", &certificate, "--cert-key", &key];
    for (tls, url, more, wrong) in [
        (&server, server.url(), &of_client[..], &[][..]),
        // Neither of these has a replica.
        (
            &watched,
            of_sentinel,
            &["--sentinel", "mymaster"],
            &["replication"],
        ),
        (
            &cluster,
            cluster.url(),
            &["--cluster"],
            &["coverage", "replication"],
        ),
    ] {
        let authority = file("authority.pem", tls.authority());
        let redis = ["--redis", &url, "--ca", &authority];

        let (_, found) = findings(&[&redis[..], more].concat());

        assert_eq!(of_grade(&found, "wrong"), wrong, "{url}: {found:#?}");
        assert_eq!(finding(&found, "decisions").was, "it decides");
        assert!(of_grade(&found, "unseen").is_empty(), "{found:#?}");
    }
    // Without its certificate no client is heard, and without the authority no server is trusted.
    let (url, authority) = (server.url(), file("authority.pem", server.authority()));
    for redis in [
        &["--redis", &url, "--ca", &authority][..],
        &["--redis", &url],
    ] {
        let ran = doctor(redis);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.err.contains("certificate"), "{ran:?}");
    }
}

/// The doctor waits for longer than a service does; the rest of its words lead to the table of errors.
#[test]
fn a_mixed_up_port_is_told_in_the_words_of_its_row_in_the_table_of_errors() {
    let tls = Tls::start();
    let plain = tls.server.url().replace("redis://", "rediss://");
    let encrypted = tls.url().replace("rediss://", "redis://");
    let page = include_str!("../../../../docs/redis.md").replace("within 2s", "within 5s");
    for (url, way, mix_up) in [
        (
            plain,
            "redis:// or rediss://",
            "`rediss://` to a plain port",
        ),
        (encrypted, "(rediss://)", "`redis://` to a TLS port"),
    ] {
        let ran = doctor(&["--redis", &url]);

        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.err.contains(way), "{ran:?}");
        let is_told = |row: &&str| {
            let mut cells = row.trim_start_matches("| ").split(" | ");
            row.starts_with("| ") && cells.next().is_some_and(|cause| ran.err.contains(cause))
        };
        let rows: Vec<_> = page.lines().filter(is_told).collect();
        assert!(
            rows.iter().any(|row| row.contains(mix_up)),
            "{ran:?}: {rows:#?}"
        );
    }
}

#[test]
fn a_server_that_asks_for_a_password_says_so() {
    let server = Standalone::start();
    let url = server.url();
    let _set = server.command(&["CONFIG", "SET", "requirepass", "s3cret"]);

    let (code, found) = findings(&["--redis", &url]);

    assert_eq!(code, Some(3));
    let was = &finding(&found, "decisions").was;
    assert!(was.contains("the server asks for a password"), "{was}");
}

#[test]
fn a_server_without_memory_does_not_decide() {
    let server = Standalone::start_with(&["--maxmemory", "1mb"]);
    let (code, found) = findings(&["--redis", &server.url()]);
    assert_eq!(code, Some(3));
    assert_eq!(finding(&found, "decisions").was, "it refuses (OOM)");
}
