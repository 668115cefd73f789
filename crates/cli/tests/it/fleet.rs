//! The verbs for a running fleet, on real servers of each kind: they tell what the fleet knows, and change what they say.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tollgate::config::{LimiterConfig, Registry};
use tollgate::{Limiter, RedisBackend, RedisBackendBuilder};
use tollgate_testkit::{Cluster, Sentinels, Standalone};

use crate::support::program::{Ran, tollgate};
use crate::support::state::state;

/// Quotas so slow that no time of a test gives a unit back.
const LIMITS: &str = r#"
[[policies]]
name = "api"
quotas = { soon = "1/day burst 50", later = "1/day burst 1000" }
key = { header = "x-api-key" }
tiers = { by = { gold-key = "gold" }, quotas = { gold = { soon = "1/day burst 100" } } }

[[policies]]
name = "login"
quotas = "1/day burst 5"
ban = { after = "3 in 1h for 1h" }

[[policies]]
name = "export"
quotas = "5 at once"
key = { header = "x-api-key" }
"#;

/// A fleet as a service has it, and the arguments by which the program finds it.
struct Fleet {
    folder: TempDir,
    runtime: Runtime,
    limiter: Limiter,
    redis: Vec<String>,
}

impl Fleet {
    fn of(
        builder: RedisBackendBuilder,
        redis: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // As `tollgate serve` has it.
        let served = format!("{LIMITS}\n[forward_auth]\n");
        fs::write(folder.path().join("limits.toml"), served).unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let patient = Duration::from_secs(20);
        let builder = builder.deadline(patient).connect_deadline(patient);
        let backend = runtime.block_on(builder.connect()).unwrap();
        let config: LimiterConfig = toml::from_str(LIMITS).unwrap();
        let limiter = config.build(&Registry::new()).unwrap().backend(backend);
        Self {
            folder,
            runtime,
            limiter: limiter.build().unwrap(),
            redis: redis.into_iter().map(Into::into).collect(),
        }
    }

    fn on(server: &Standalone) -> Self {
        let url = server.url();
        Self::of(RedisBackend::builder(&url), ["--redis", &url])
    }

    fn spend(&self, policy: &str, key: &str, cost: u64) {
        let check = self.limiter.check(policy, key).cost(cost);
        let checked = self.runtime.block_on(check.into_future());
        assert!(checked.unwrap().is_allowed(), "{policy} {key}");
    }

    /// The units that a service sees left.
    fn left(&self, policy: &str, key: &str) -> u64 {
        let check = self.limiter.check(policy, key).probe().into_future();
        self.runtime.block_on(check).unwrap().remaining()
    }

    fn is_banned(&self, address: &str) -> bool {
        let key = self.limiter.client_key(address.parse().unwrap());
        let banned = self.limiter.banned("login", key);
        self.runtime.block_on(banned).unwrap().is_some()
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        let redis = self.redis.iter().map(String::as_str);
        let arguments: Vec<_> = arguments.iter().copied().chain(redis).collect();
        tollgate(self.folder.path(), &arguments)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let ran = self.run(&[arguments, &["--json"]].concat());
        serde_json::from_str(ran.words()).unwrap()
    }
}

/// The callers in the rows of a table.
fn callers(words: &str) -> Vec<&str> {
    let rows = words.lines().skip_while(|line| !line.contains("caller  "));
    let cells = rows
        .skip(1)
        .map(|row| row.split_whitespace().next().unwrap());
    cells.collect()
}

/// The body that holds whatever the servers are.
fn is_told_and_steered(fleet: &Fleet) {
    fleet.spend("api", "abc", 10);
    fleet.spend("api", "xyz", 45);
    fleet.spend("api", "gold-key", 60);
    let held = fleet.limiter.check("export", "alice").cost(2);
    let held = fleet.runtime.block_on(held.into_future()).unwrap();
    assert!(held.is_allowed());

    let of_caller = fleet.run(&["inspect", "api", "abc"]);
    let words = of_caller.words();
    assert!(words.contains("policy api, caller =abc"), "{words}");
    assert!(
        words.contains("1/day burst 50: passes; 40 of 50 left"),
        "{words}"
    );
    assert!(words.contains("990 of 1,000 left"), "{words}");
    let of_gold = fleet.run(&["inspect", "api", "=gold-key"]);
    assert!(of_gold.words().contains("40 of 100 left"), "{of_gold:?}");
    let of_export = fleet.run(&["inspect", "export", "alice"]);
    let words = of_export.words();
    assert!(words.contains("3 of 5 left"), "{words}");
    assert!(words.contains("  held       2 by process "), "{words}");

    // Each budget is listed, those of which the least is left first. Nine tenths of one are spent, six tenths of another.
    let top = fleet.run(&["top", "api", "--most", "3"]);
    let words = top.words();
    assert_eq!(callers(words), ["=xyz", "=gold-key", "=abc"], "{words}");
    assert!(
        words.contains("5 budgets are in use; 3 of them are listed"),
        "{words}"
    );
    assert!(words.contains("1/day burst 100  40 of 100 left"), "{words}");
    // By the policy's own quota nothing would be left of the tier's budget.
    let first = fleet.run(&["top", "api", "--most", "1"]);
    assert_eq!(callers(first.words()), ["=xyz"], "{first:?}");
    let keys = fleet.run(&["keys", "api"]);
    // A tier without the second quota is limited by the first alone.
    let expected = ["=abc", "=abc", "=gold-key", "=xyz", "=xyz"];
    assert_eq!(callers(keys.words()), expected, "{keys:?}");

    let ban = fleet.run(&["ban", "login", "192.0.2.7", "15m"]);
    assert!(ban.words().contains("it is banned for 15 min"), "{ban:?}");
    assert!(
        ban.err
            .contains(" verb=ban policy=login caller=192.0.2.7 for=\"15 min\" "),
        "{ban:?}"
    );
    assert!(ban.err.trim_end().ends_with("outcome=done"), "{ban:?}");
    assert!(fleet.is_banned("192.0.2.7") && !fleet.is_banned("192.0.2.8"));
    let of_banned = fleet.run(&["inspect", "login", "192.0.2.7"]);
    assert!(
        of_banned.words().contains("  banned     for 1"),
        "{of_banned:?}"
    );
    let banned = fleet.run(&["banned"]);
    assert_eq!(callers(banned.words()), ["192.0.2.7"], "{banned:?}");

    let unban = fleet.run(&["unban", "login", "192.0.2.7"]);
    assert!(unban.words().contains("its ban is over"), "{unban:?}");
    assert!(!fleet.is_banned("192.0.2.7"));

    let reset = fleet.run(&["reset", "api", "xyz"]);
    assert!(reset.words().contains("5 of 50 left"), "{reset:?}");
    assert!(
        reset.words().contains("its budgets are full again"),
        "{reset:?}"
    );
    assert_eq!(
        (fleet.left("api", "xyz"), fleet.left("api", "abc")),
        (50, 40)
    );
    drop(held);
}

#[test]
fn a_fleet_on_one_server_is_told_and_steered() {
    is_told_and_steered(&Fleet::on(&Standalone::start()));
}

#[test]
fn a_fleet_behind_sentinels_is_told_and_steered() {
    let sentinels = Sentinels::start();
    let urls = sentinels.urls();
    let master = sentinels.master_name();
    let redis = urls.iter().flat_map(|url| ["--redis", url]);
    let redis = redis.chain(["--sentinel", master]);
    is_told_and_steered(&Fleet::of(
        RedisBackend::sentinel(master, urls.clone()),
        redis,
    ));
}

#[test]
fn a_fleet_on_a_cluster_is_told_and_steered() {
    let cluster = Cluster::start();
    let urls = cluster.urls();
    let redis = urls.iter().flat_map(|url| ["--redis", url.as_str()]);
    let redis = redis.chain(["--cluster"]);
    is_told_and_steered(&Fleet::of(RedisBackend::cluster(urls.clone()), redis));
}

#[test]
fn a_look_and_a_dry_run_change_nothing() {
    let server = Standalone::start();
    let fleet = Fleet::on(&server);
    fleet.spend("api", "abc", 10);
    let key = fleet.limiter.client_key("192.0.2.9".parse().unwrap());
    let hour = Duration::from_secs(3_600);
    let ban = fleet.limiter.ban("login", key, hour);
    fleet.runtime.block_on(ban).unwrap();
    let before = state(&server);
    let _reset = server.command(&["CONFIG", "RESETSTAT"]);

    let audit = fleet.folder.path().join("audit.log");
    let audit = audit.to_str().unwrap();
    for (arguments, says) in [
        (&["inspect", "api", "abc"][..], "40 of 50 left"),
        (&["keys", "api"], "2 budgets are in use"),
        (&["top", "api"], "2 budgets are in use"),
        (&["banned", "login"], "1 caller is banned"),
        (&["reset", "api", "abc", "--dry-run"], "a dry run"),
        (
            &["ban", "login", "192.0.2.8", "2h", "--dry-run"],
            "would be banned for 2 h",
        ),
        (
            &["unban", "login", "192.0.2.9", "--dry-run", "--audit", audit],
            "a dry run",
        ),
    ] {
        let ran = fleet.run(arguments);
        assert!(ran.words().contains(says), "{ran:?}");
        assert_eq!(
            ran.err.contains("outcome=dry-run"),
            says.contains("dry") || says.contains("would")
        );
    }

    // Names are walked through, and never asked for all at once.
    let told = server.command(&["INFO", "commandstats"]);
    assert!(told.contains("cmdstat_scan:"), "{told}");
    assert!(!told.contains("cmdstat_keys:"), "{told}");
    assert_eq!(state(&server), before);
    let line = fs::read_to_string(audit).unwrap();
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(
        line.contains("verb=unban policy=login caller=192.0.2.9 "),
        "{line}"
    );
}

#[test]
fn a_ban_that_lasts_longer_stays_and_one_without_audit_is_not_made() {
    let server = Standalone::start();
    let fleet = Fleet::on(&server);
    let _first = fleet.run(&["ban", "login", "192.0.2.7", "2h"]);

    let tried = fleet.run(&["ban", "login", "192.0.2.7", "15m", "--dry-run"]);
    let shorter = fleet.run(&["ban", "login", "192.0.2.7", "15m"]);
    let unseen = fleet.run(&[
        "ban",
        "login",
        "192.0.2.8",
        "15m",
        "--audit",
        "nowhere/audit.log",
    ]);

    let would = "it is banned for longer already, and would stay so for";
    assert!(tried.words().contains(would), "{tried:?}");
    assert!(
        shorter.words().contains("it was banned for longer already"),
        "{shorter:?}"
    );
    assert_eq!(unseen.code, Some(1), "{unseen:?}");
    assert!(!fleet.is_banned("192.0.2.8"));
}

/// A port before a server, behind which this many pieces of answers arrive, and nothing more.
fn port_with_answers(server: u16, answers: usize) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let _detached = thread::spawn(move || {
        let mut left = answers;
        for client in listener.incoming() {
            let (mut client, server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", server)));
            let mut server = server.unwrap();
            let (mut asks, mut asked) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let _there = thread::spawn(move || std::io::copy(&mut asks, &mut asked));
            let mut buffer = vec![0; 1 << 16];
            while let Ok(length @ 1..) = server.read(&mut buffer) {
                if left == 0 || client.write_all(&buffer[..length]).is_err() {
                    break;
                }
                left -= 1;
            }
            let _closed = client.shutdown(Shutdown::Both);
        }
    });
    port
}

#[test]
fn an_audit_never_says_of_a_change_what_is_not_so_wherever_an_answer_is_lost() {
    let server = Standalone::start();
    let fleet = Fleet::on(&server);
    let (mut outcomes, mut was_done) = (Vec::new(), false);
    for answers in 0..40 {
        let caller = format!("198.51.100.{answers}");
        let port = port_with_answers(server.port(), answers);
        let url = format!("redis://127.0.0.1:{port}");
        let audit = format!("audit-{answers}.log");
        let ban = ["ban", "login", &caller, "15m", "--audit", &audit];
        let ran = tollgate(
            fleet.folder.path(),
            &[&ban[..], &["--redis", &url]].concat(),
        );

        let lines = fs::read_to_string(fleet.folder.path().join(&audit)).unwrap_or_default();
        let is_banned = fleet.is_banned(&caller);
        assert!(!is_banned || lines.contains("outcome=begun"), "{ran:?}");
        let outcome = lines
            .lines()
            .last()
            .map(|line| line.split("outcome=").last());
        let outcome = outcome.flatten().unwrap_or("none");
        match outcome {
            "none" | "failed" => assert!(!is_banned, "{ran:?}"),
            "done" => assert!(is_banned, "{ran:?}"),
            other => assert_eq!(other, "unknown", "{ran:?}"),
        }
        if outcome == "done" && ran.code != Some(0) {
            assert!(
                ran.err.contains("error: the change is made, and"),
                "{ran:?}"
            );
        }
        outcomes.push(outcome.to_owned());
        was_done = ran.code == Some(0);
        if was_done {
            break;
        }
    }
    assert!(was_done, "{outcomes:?}");
    let has = |outcome: &str| outcomes.iter().any(|known| known == outcome);
    assert!(has("none") && has("unknown") && has("done"), "{outcomes:?}");
}

#[test]
fn a_ban_that_would_be_refused_is_refused_in_a_dry_run_too() {
    let server = Standalone::start();
    let fleet = Fleet::on(&server);
    for more in [&["--dry-run"][..], &[]] {
        let ban = ["ban", "login", "192.0.2.7", "400d", "--audit", "audit.log"];
        let ran = fleet.run(&[&ban[..], more].concat());

        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains("366 days"), "{ran:?}");
        assert!(!ran.err.contains("audit:"), "{ran:?}");
    }
}

#[test]
fn identities_are_hashed_as_the_fleet_does_it_and_stand_in_no_audit() {
    let server = Standalone::start();
    let url = server.url();
    let builder = RedisBackend::builder(&url).hash_identities("s3cret");
    let fleet = Fleet::of(builder, ["--redis", &url, "--hash-key", "hash.key"]);
    fs::write(fleet.folder.path().join("hash.key"), "s3cret\n").unwrap();
    fleet.spend("api", "mallory", 10);

    let inspected = fleet.json(&["inspect", "api", "mallory"]);
    let listed = fleet.json(&["keys", "api"]);
    let reset = fleet.run(&["reset", "api", "mallory"]);

    let hash = inspected["caller"].as_str().unwrap();
    assert!(hash.starts_with('h') && hash.len() == 33, "{hash}");
    assert_eq!(inspected["budgets"][1]["remaining"], 40, "{inspected}");
    assert_eq!(listed["budgets"][0]["caller"], hash, "{listed}");
    assert!(
        reset.err.contains(hash) && !reset.err.contains("mallory"),
        "{reset:?}"
    );
    assert_eq!(fleet.left("api", "mallory"), 50);
    let by_hash = fleet.run(&["inspect", "login", hash]);
    assert_eq!(by_hash.code, Some(2), "{by_hash:?}");
    assert!(
        by_hash.err.contains("the identity itself is needed"),
        "{by_hash:?}"
    );
}

#[test]
fn answers_for_machines_have_what_the_words_have() {
    let server = Standalone::start();
    let fleet = Fleet::on(&server);
    fleet.spend("api", "abc", 10);

    let ban = fleet.json(&["ban", "login", "192.0.2.7", "15m"]);
    let inspected = fleet.json(&["inspect", "login", "192.0.2.7"]);
    let top = fleet.json(&["top", "api"]);
    let banned = fleet.json(&["banned"]);

    assert_eq!(
        (&ban["verb"], &ban["dry_run"]),
        (&"ban".into(), &false.into())
    );
    let near = |left: &Value| (890_000..=900_000).contains(&left.as_u64().unwrap());
    assert!(near(&ban["banned_for_ms"]), "{ban}");
    assert!(ban["was_banned_for_ms"].is_null(), "{ban}");
    assert!(near(&inspected["banned_for_ms"]), "{inspected}");
    assert_eq!(inspected["passes"], false);
    assert_eq!(
        (&top["in_use"], &top["complete"]),
        (&2.into(), &true.into())
    );
    assert_eq!(top["budgets"][0]["remaining"], 40);
    assert!(
        near(&banned["policies"][0]["banned"][0]["left_ms"]),
        "{banned}"
    );
}

#[test]
fn quotas_that_only_the_service_knows_are_no_facts() {
    let server = Standalone::start();
    let fleet = Fleet::on(&server);
    let limits = r#"
        [[policies]]
        name = "api"
        quotas = "1/day burst 50"
        key = { header = "x-api-key" }
        tiers = { by = "plans", quotas = { gold = "1/day burst 100" } }

        [[policies]]
        name = "own"
        quotas = "1/day burst 50"
        key = { header = "x-api-key" }
        quotas_by = "customers"
    "#;
    fs::write(fleet.folder.path().join("limits.toml"), limits).unwrap();
    for (policy, assumed) in [
        (
            "api",
            "of the tiers \"plans\" of policy api: that the caller is in none",
        ),
        (
            "own",
            "of the lookup of quotas \"customers\" of policy own: that it states no quotas of its own",
        ),
    ] {
        for asked in [
            &["inspect", policy, "abc"][..],
            &["top", policy],
            &["keys", policy],
            &["reset", policy, "abc", "--dry-run"],
        ] {
            let ran = fleet.run(asked);
            let line = format!("  assumed    {assumed}, and only the service knows");
            assert!(ran.words().contains(&line), "{ran:?}");
            assert_eq!(fleet.json(asked)["assumed"][0], assumed);
        }
    }
}

/// Such a ban stops no client, and the operator would take it for done.
#[test]
fn an_address_with_a_slip_is_told_to_be_a_text() {
    let server = Standalone::start();
    let fleet = Fleet::on(&server);
    let told = "  assumed    that code of the service checks login for this text, since requests are told apart by their addresses, and only the service knows\n";

    for asked in [
        &["ban", "login", "192.0.2.300", "15m", "--dry-run"][..],
        &["inspect", "login", "192.0.2.300"],
    ] {
        assert!(fleet.run(asked).words().contains(told), "{asked:?}");
    }
    for asked in [
        ["inspect", "login", "192.0.2.30"],
        ["inspect", "login", "2001:db8::/64"],
        ["inspect", "api", "192.0.2.300"],
    ] {
        assert!(!fleet.run(&asked).words().contains("assumed"), "{asked:?}");
    }
}

#[test]
fn a_password_stands_in_no_answer_and_no_audit() {
    let server = Standalone::start();
    let _set = server.command(&["CONFIG", "SET", "requirepass", "s3cret"]);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("limits.toml"), LIMITS).unwrap();
    let port = server.port();
    for (password, code) in [("s3cret", 0), ("wr0ng", 1)] {
        let url = format!("redis://:{password}@127.0.0.1:{port}/");
        for arguments in [
            &["ban", "login", "192.0.2.7", "15m"][..],
            &["inspect", "api", "abc"],
            &["top", "api"],
        ] {
            let ran = tollgate(folder.path(), &[arguments, &["--redis", &url]].concat());

            assert_eq!(ran.code, Some(code), "{ran:?}");
            assert!(
                !format!("{}{}", ran.out, ran.err).contains(password),
                "{ran:?}"
            );
        }
    }
}
