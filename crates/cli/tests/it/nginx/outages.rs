//! Redis that is stopped, restarted, flushed or too slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tollgate_testkit::{Standalone, Tls};

use crate::nginx::client::{Ask, status};
use crate::nginx::served::{Gate, PATIENCE, PATIENT};

const LIMITS: &str = "
policies = [
    { name = 'open', quotas = '3/h', routes = ['/open'] },
    { name = 'closed', quotas = '3/h', routes = ['/closed'], on_failure = 'deny' },
]
";

fn lines(gate: &Gate, words: &str) -> usize {
    gate.nginx
        .log()
        .lines()
        .filter(|line| line.contains(words))
        .count()
}

const AWAY: &str = "cannot decide, and each policy's on_failure acts";
const BACK: &str = "decides again";

async fn start(redis: &Standalone) -> Gate {
    // One worker, so that its lines can be counted.
    let words = [
        ("worker_processes 2", "worker_processes 1"),
        ("deadline_ms = 250", "deadline_ms = 5000"),
    ];
    Gate::start_with(LIMITS, redis, &words).await
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_is_away_the_rules_for_failures_act_and_the_log_has_one_line() {
    let mut redis = Standalone::start();
    let gate = start(&redis).await;
    assert_eq!(status(gate.address(), "GET /closed").await, 200);
    gate.reached.take();

    redis.kill();
    for _ in 0..5 {
        assert_eq!(status(gate.address(), "GET /open").await, 200);
    }
    assert_eq!(gate.reached.count(), 5);
    for _ in 0..5 {
        let refused = Ask::new("GET /closed").send(gate.address()).await;
        assert_eq!(
            (refused.status, refused.field("cache-control")),
            (503, vec!["no-store"])
        );
        assert!(
            refused.body.contains("temporary-reduced-capacity"),
            "{refused:?}"
        );
        assert!(refused.field("retry-after").is_empty() && refused.field("ratelimit").is_empty());
    }
    assert_eq!(gate.reached.count(), 0);
    assert_eq!(
        (lines(&gate, AWAY), lines(&gate, BACK)),
        (1, 0),
        "{}",
        gate.nginx.log()
    );

    // It comes back without its scripts and states.
    redis.restart();
    gate.until("GET /closed", 200).await;
    gate.until("GET /closed", 429).await;
    assert_eq!(
        (lines(&gate, AWAY), lines(&gate, BACK)),
        (1, 1),
        "{}",
        gate.nginx.log()
    );
    assert!(
        !gate.nginx.log().contains("connect() failed"),
        "{}",
        gate.nginx.log()
    );

    let place = format!("tollgate: Redis at 127.0.0.1:{} ", redis.port());
    assert_eq!(lines(&gate, &place), 2, "{}", gate.nginx.log());

    // The next spell has lines of its own, if some time has passed.
    redis.kill();
    let start = Instant::now();
    while lines(&gate, AWAY) < 2 {
        assert!(start.elapsed() < PATIENCE, "{}", gate.nginx.log());
        assert_eq!(status(gate.address(), "GET /closed").await, 503);
    }
    redis.restart();
    gate.until("GET /open", 429).await;
    assert_eq!(
        (lines(&gate, AWAY), lines(&gate, BACK)),
        (2, 2),
        "{}",
        gate.nginx.log()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn spells_that_follow_each_other_have_lines_only_from_time_to_time() {
    let redis = Standalone::start();
    let gate = start(&redis).await;
    let start = Instant::now();
    for _ in 0..20 {
        let _said = redis.command(&["ACL", "SETUSER", "default", "-evalsha"]);
        assert_eq!(status(gate.address(), "GET /closed").await, 503);
        let _said = redis.command(&["ACL", "SETUSER", "default", "+evalsha"]);
        assert_ne!(status(gate.address(), "GET /closed").await, 503);
    }
    let seconds = usize::try_from(start.elapsed().as_secs()).unwrap();
    let pairs = 1..=1 + seconds / 10;
    let (away, back) = (lines(&gate, AWAY), lines(&gate, BACK));
    assert!(
        away == back && pairs.contains(&away),
        "{}",
        gate.nginx.log()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_is_gone_is_loaded_again_and_no_request_notices() {
    let redis = Standalone::start();
    let gate = start(&redis).await;
    for expected in [200, 200, 200, 429] {
        let _said = redis.command(&["SCRIPT", "FLUSH"]);
        assert_eq!(status(gate.address(), "GET /closed").await, expected);
    }
    // Without its states the budget is full again.
    let _said = redis.command(&["FLUSHALL"]);
    assert_eq!(status(gate.address(), "GET /closed").await, 200);
    assert_eq!(lines(&gate, "[lua]"), 0, "{}", gate.nginx.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_answer_costs_no_more_than_the_deadline() {
    let redis = Standalone::start();
    let words = [
        ("worker_processes 2", "worker_processes 1"),
        ("deadline_ms = 250", "deadline_ms = 200"),
    ];
    let gate = Gate::start_with(LIMITS, &redis, &words).await;
    gate.until("GET /closed", 200).await;
    redis.stall();
    let start = Instant::now();
    assert_eq!(status(gate.address(), "GET /closed").await, 503);
    assert!(start.elapsed() < PATIENCE);
    redis.go_on();
    // A late reply answers no other request.
    gate.until("GET /closed", 429).await;
    let passed = Ask::new("GET /open").send(gate.address()).await;
    assert!(
        passed
            .field("ratelimit")
            .iter()
            .all(|state| state.starts_with("\"open\";r=2")),
        "{passed:?}"
    );
}

/// A server that takes connections, counts them, and never answers.
async fn hung() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok(accepted) = listener.accept().await {
            kept.push(accepted);
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (port, count)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_names_the_server_and_the_step_that_failed_and_no_password() {
    let (port, _asked) = hung().await;
    let redis = Standalone::start();
    let of_page = format!("host = \"127.0.0.1\", port = {}", redis.port());
    let hanging = format!("127.0.0.1:{port}");
    let to = |options: &str| format!("host = \"127.0.0.1\", port = {port}{options}");
    let cases = [
        (to(""), &*hanging, "question: timeout"),
        (to(", tls = true"), &hanging, "TLS handshake: timeout"),
        (to(", password = \"secret\""), &hanging, "AUTH: timeout"),
        (to(", db = 3"), &hanging, "SELECT: timeout"),
        (
            "host = \"127.0.0.1\", port = 1".to_owned(),
            "127.0.0.1:1",
            "connection: connection refused",
        ),
        (
            "socket = \"/nowhere/redis\"".to_owned(),
            "unix:/nowhere/redis",
            "connection: no such file or directory",
        ),
    ];
    for (options, place, step) in cases {
        let words = [
            ("deadline_ms = 250", "deadline_ms = 50"),
            (&*of_page, &*options),
        ];
        let gate = Gate::start_with(LIMITS, &redis, &words).await;
        assert_eq!(status(gate.address(), "GET /closed").await, 503);
        let line = format!(
            "tollgate: Redis at {place} cannot decide, and each policy's on_failure acts until it can: {step}"
        );
        let log = gate.nginx.log();
        assert!(log.contains(&line) && !log.contains("secret"), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_three_questions_without_an_answer_requests_do_not_wait_for_a_server_that_hangs() {
    let (port, asked) = hung().await;
    let redis = Standalone::start();
    let words = [
        ("worker_processes 2", "worker_processes 1"),
        ("deadline_ms = 250", "deadline_ms = 50"),
        (
            &*format!("port = {}", redis.port()),
            &format!("port = {port}"),
        ),
    ];
    let gate = Gate::start_with(LIMITS, &redis, &words).await;
    let start = Instant::now();
    for _ in 0..50 {
        assert_eq!(status(gate.address(), "GET /open").await, 200);
        assert_eq!(status(gate.address(), "GET /closed").await, 503);
    }
    // Then one question in each second, and no more.
    let seconds = usize::try_from(start.elapsed().as_secs()).unwrap();
    let count = asked.load(Ordering::SeqCst);
    assert!((3..=4 + seconds).contains(&count), "{count} in {seconds} s");
    assert_eq!(gate.reached.count(), 50);
    assert_eq!(lines(&gate, AWAY), 1, "{}", gate.nginx.log());

    // The next question is that of one request, and of none of many others.
    let start = Instant::now();
    while asked.load(Ordering::SeqCst) == count {
        assert!(start.elapsed() < PATIENCE);
        assert_eq!(status(gate.address(), "GET /closed").await, 503);
    }
    let (count, start) = (asked.load(Ordering::SeqCst), Instant::now());
    let mut all = JoinSet::new();
    for _ in 0..50 {
        let address = gate.address();
        all.spawn(async move { status(address, "GET /closed").await });
    }
    assert!(all.join_all().await.iter().all(|status| *status == 503));
    let seconds = usize::try_from(start.elapsed().as_secs()).unwrap();
    let more = asked.load(Ordering::SeqCst) - count;
    assert!(more <= 1 + seconds, "{more} in {seconds} s");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_decides_again_without_a_reload() {
    let mut redis = Standalone::start();
    let gate = start(&redis).await;
    redis.kill();
    for _ in 0..20 {
        assert_eq!(status(gate.address(), "GET /closed").await, 503);
    }
    redis.restart();
    gate.until("GET /closed", 200).await;
    for _ in 0..2 {
        assert_eq!(status(gate.address(), "GET /closed").await, 200);
    }
    assert_eq!(status(gate.address(), "GET /closed").await, 429);
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_asked_over_a_socket_of_its_host() {
    let redis = Standalone::start();
    let socket = format!("socket = \"{}\"", redis.socket().display());
    let words = [
        (
            &*format!("host = \"127.0.0.1\", port = {}", redis.port()),
            &*socket,
        ),
        PATIENT,
    ];
    let gate = Gate::start_with(LIMITS, &redis, &words).await;
    for expected in [200, 200, 200, 429] {
        assert_eq!(status(gate.address(), "GET /closed").await, expected);
    }
    let clients = redis.command(&["CLIENT", "LIST"]);
    assert!(!clients.contains(" laddr=127.0.0.1:"), "{clients}");
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_asked_over_tls_and_only_if_its_certificate_is_right() {
    let tls = Tls::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("authority.pem");
    std::fs::write(&file, tls.authority()).unwrap();
    let server = &tls.server;
    let plain = format!("host = \"127.0.0.1\", port = {}", server.port());
    let url = tls.url();
    let port = url.trim_end_matches('/').rsplit(':').next().unwrap();
    let ask = |options: &str| format!("host = \"127.0.0.1\", port = {port}, tls = true, {options}");
    let trusted = format!(
        "lua_ssl_trusted_certificate {};\n    lua_socket_log_errors off;",
        file.display()
    );
    let name = "server_name = \"localhost\"";
    let cases = [
        (name, true, 200),
        (name, false, 503),
        ("server_name = \"other.example\"", true, 503),
        ("tls_verify = false", false, 200),
    ];
    for (options, is_trusted, expected) in cases {
        let mut words = vec![
            (&*plain, ask(options)),
            ("deadline_ms = 250", "deadline_ms = 10000".to_owned()),
        ];
        if is_trusted {
            words.push(("lua_socket_log_errors off;", trusted.clone()));
        }
        let words: Vec<_> = words.iter().map(|(page, word)| (*page, &**word)).collect();
        let gate = Gate::start_with(LIMITS, server, &words).await;
        let found = status(gate.address(), "GET /closed").await;
        assert_eq!(found, expected, "{options}: {}", gate.nginx.log());
        let _said = server.command(&["FLUSHALL"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_is_not_one_of_ours_is_a_failure_and_stays() {
    let redis = Standalone::start();
    let gate = start(&redis).await;
    let _said = redis.command(&["LPUSH", "tollgate:closed:0/g:127.0.0.1", "x"]);
    assert_eq!(status(gate.address(), "GET /closed").await, 503);
    assert_eq!(status(gate.address(), "GET /open").await, 200);
    let kind = redis.command(&["TYPE", "tollgate:closed:0/g:127.0.0.1"]);
    assert_eq!(kind, "+list\r\n");
    // Requests that are decided in between end no spell: one line says it.
    for _ in 0..3 {
        assert_eq!(status(gate.address(), "GET /closed").await, 503);
        let _decided = status(gate.address(), "GET /open").await;
    }
    let stranger = format!(
        "the state tollgate:closed:0/g:127.0.0.1 in Redis at 127.0.0.1:{} is not one of Tollgate's",
        redis.port()
    );
    assert_eq!(
        (
            lines(&gate, &stranger),
            lines(&gate, AWAY),
            lines(&gate, BACK)
        ),
        (1, 0, 0),
        "{}",
        gate.nginx.log()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_a_user_and_a_database_are_those_of_the_configuration() {
    let redis = Standalone::start();
    let _said = redis.command(&[
        "ACL",
        "SETUSER",
        "gate",
        "on",
        ">secret",
        "~tollgate:*",
        "+evalsha",
        "+script|load",
        "+select",
        "+time",
        "+get",
        "+mget",
        "+exists",
        "+set",
        "+setrange",
        "+del",
        "+auth",
    ]);
    let options = "deadline_ms = 10000, username = \"gate\", password = \"secret\", db = 3";
    let gate = Gate::start_with(LIMITS, &redis, &[("deadline_ms = 250", options)]).await;
    assert_eq!(status(gate.address(), "GET /closed").await, 200);
    let kept = redis.command(&["INFO", "keyspace"]);
    assert!(
        kept.contains("db3:keys=1") && !kept.contains("db0:"),
        "{kept}"
    );
    let wrong = "deadline_ms = 10000, username = \"gate\", password = \"other\"";
    let gate = Gate::start_with(LIMITS, &redis, &[("deadline_ms = 250", wrong)]).await;
    assert_eq!(status(gate.address(), "GET /closed").await, 503);
    assert!(
        gate.nginx.log().contains("WRONGPASS"),
        "{}",
        gate.nginx.log()
    );
}
