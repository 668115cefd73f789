//! Connections that end, or are forgotten on the way, while nobody uses them: no request is undecided because of that.

use std::time::Duration;

use crate::common::{Budget, HOUR, Patience, cluster, connect};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tollgate::{Ban, Limiter, Policy};
use tollgate_core::{FailureKind, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::{Cluster, Fault, Proxy, Sentinels, Standalone};

const PATIENCE: Duration = Duration::from_secs(30);

/// Closes all connections of clients, and returns when the server knows none of them any more.
fn close_all(server: &Standalone) {
    let ours = || -> Vec<String> {
        let list = server.command(&["CLIENT", "LIST"]);
        let ours = list.lines().filter(|line| line.contains("name=tollgate"));
        let ids = ours.filter_map(|line| line.split(' ').next());
        ids.map(str::to_owned).collect()
    };
    let before = ours();
    let _killed = server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    while ours().iter().any(|id| before.contains(id)) {}
}

#[tokio::test]
async fn a_request_after_its_connections_were_closed_is_decided() {
    let server = Standalone::start();
    let proxy = Proxy::before(server.port());
    let builder = RedisBackend::builder(&proxy.url()).patient();
    let backend = builder.connect().await.unwrap();
    let budget = Budget::of("closed", Quota::per_day(100));
    for silence_ms in [20, 50, 100, 200].repeat(4) {
        sleep(Duration::from_millis(silence_ms)).await;
        proxy.cut();
        budget.take(&backend, 1).await.unwrap();
    }
    // Without the proxy, which takes its time to pass on that the server has closed a connection.
    let builder = RedisBackend::builder(&server.url()).patient();
    let backend = builder.connect().await.unwrap();
    for silence_ms in [2, 10, 50, 200].repeat(4) {
        close_all(&server);
        sleep(Duration::from_millis(silence_ms)).await;
        budget.take(&backend, 1).await.unwrap();
    }
    assert_eq!(budget.remaining(&backend).await, 68);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_after_a_pause_pass_no_spent_budget() {
    let server = Standalone::start();
    let backend = connect(&server).await;
    let budget = Budget::of("spent", Quota::per_day(5));
    budget.take(&backend, 5).await.unwrap();
    close_all(&server);
    sleep(Duration::from_millis(20)).await;

    let mut all = JoinSet::new();
    for _ in 0..64 {
        let (backend, budget) = (backend.clone(), budget.clone());
        all.spawn(async move { budget.take(&backend, 1).await.unwrap().is_admitted() });
    }

    assert_eq!(all.join_all().await, [false; 64]);
}

#[tokio::test]
async fn a_server_that_closes_idle_connections_costs_no_request() {
    let server = Standalone::start();
    let _set = server.command(&["CONFIG", "SET", "timeout", "1"]);
    let backend = connect(&server).await;
    let budget = Budget::of("idle", Quota::per_day(100));
    for _ in 0..3 {
        budget.take(&backend, 1).await.unwrap();
        sleep(Duration::from_millis(2_500)).await;
    }
    assert_eq!(budget.remaining(&backend).await, 97);
}

/// By a process that has not asked for them before, and so knows nothing of their bans.
#[tokio::test]
async fn callers_who_are_banned_are_refused_after_any_silence() {
    let server = Standalone::start();
    let limiter = |backend| {
        let ban = Ban::after(3, HOUR).lasting(HOUR);
        let policy = Policy::new("login", Quota::per_day(100)).ban(ban);
        Limiter::builder().policy(policy).backend(backend).build()
    };
    let operators = limiter(connect(&server).await).unwrap();
    let services = limiter(connect(&server).await).unwrap();
    let banned: Vec<String> = (0..14).map(|n| format!("mallory-{n}")).collect();
    for caller in &banned {
        operators.ban("login", caller, HOUR).await.unwrap();
    }
    let is_refused = async |caller: &String| {
        let checked = services.check("login", caller).await.unwrap();
        !checked.is_allowed() && checked.undecided().is_none()
    };

    let (killed, idle) = banned.split_at(12);
    for (caller, silence_ms) in killed.iter().zip([2, 10, 50, 200].repeat(3)) {
        close_all(&server);
        sleep(Duration::from_millis(silence_ms)).await;
        assert!(is_refused(caller).await, "{caller}");
    }
    let _set = server.command(&["CONFIG", "SET", "timeout", "1"]);
    for caller in idle {
        sleep(Duration::from_millis(2_500)).await;
        assert!(is_refused(caller).await, "{caller}");
    }
}

#[tokio::test]
async fn a_server_that_was_restarted_is_connected_to_before_anybody_asks() {
    let mut server = Standalone::start();
    let backend = connect(&server).await;
    let budget = Budget::of("restarted", Quota::per_day(10));
    budget.take(&backend, 1).await.unwrap();

    server.kill();
    server.restart();
    let connected = async {
        // The last command of those that introduce us.
        while !server.command(&["CLIENT", "LIST"]).contains("cmd=evalsha") {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, connected).await.unwrap();
    sleep(Duration::from_millis(200)).await;

    budget.take(&backend, 1).await.unwrap();
}

#[tokio::test]
async fn connections_behind_sentinels_and_in_a_cluster_are_made_again_likewise() {
    let sentinels = Sentinels::start();
    let backend = RedisBackend::sentinel(sentinels.master_name(), sentinels.urls());
    let behind = backend.patient().connect().await.unwrap();
    let cluster = Cluster::start();
    let across = cluster::connect(&cluster).await;
    let of_nodes = cluster::on_each_node(&cluster, "quiet", Quota::per_day(100));
    let budget = Budget::of("quiet", Quota::per_day(100));
    // The connections to all nodes are there.
    budget.take(&behind, 1).await.unwrap();
    for budget in &of_nodes {
        budget.take(&across, 1).await.unwrap();
    }
    for _ in 0..4 {
        sentinels.servers().iter().for_each(close_all);
        cluster.nodes().iter().for_each(close_all);
        sleep(Duration::from_millis(20)).await;

        budget.take(&behind, 1).await.unwrap();
        for budget in &of_nodes {
            budget.take(&across, 1).await.unwrap();
        }
    }

    // when the servers close idle connections, and many ask after that for what is spent
    let servers = || sentinels.servers().iter().chain(cluster.nodes());
    let set = |timeout: &str| {
        for server in servers() {
            let _set = server.command(&["CONFIG", "SET", "timeout", timeout]);
        }
    };
    budget.take(&behind, 96 - 1).await.unwrap();
    for budget in &of_nodes {
        budget.take(&across, 95).await.unwrap();
    }
    set("1");
    sleep(Duration::from_millis(2_500)).await;
    let mut all = JoinSet::new();
    for number in 0..64 {
        let (behind, across) = (behind.clone(), across.clone());
        let (budget, of_node) = (budget.clone(), of_nodes[number % 3].clone());
        all.spawn(async move {
            let one = budget.take(&behind, 1).await.unwrap();
            let other = of_node.take(&across, 1).await.unwrap();
            one.is_admitted() || other.is_admitted()
        });
    }
    assert_eq!(all.join_all().await, [false; 64]);
    set("0");
}

/// The kernel asks the other end, too: between two processes of ours nothing else may be sent for a while.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_kernel_keeps_connections_alive() {
    let server = Standalone::start();
    let backend = connect(&server).await;
    Budget::of("kept", Quota::per_day(1))
        .take(&backend, 1)
        .await
        .unwrap();
    sleep(Duration::from_millis(300)).await;

    let to_server = format!("0100007F:{:04X}", server.port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table
        .lines()
        .map(|row| row.split_whitespace().collect::<Vec<_>>());
    // Established, and the timer is that of keepalive.
    let ours: Vec<_> = rows
        .filter(|row| row[2] == to_server && row[3] == "01")
        .collect();
    assert!(!ours.is_empty(), "{table}");
    assert!(ours.iter().all(|row| row[5].starts_with("02:")), "{ours:?}");
}

/// A firewall that forgets a flow drops its packets and says nothing. New flows pass. `src/timing/lost_connections.rs` tells the times.
#[tokio::test]
async fn a_flow_that_was_forgotten_costs_one_deadline() {
    let server = Standalone::start();
    let proxy = Proxy::before(server.port());
    let builder = RedisBackend::builder(&proxy.url()).patient();
    let builder = builder.deadline(Duration::from_secs(2));
    let backend = builder.connect().await.unwrap();
    let budget = Budget::of("forgotten", Quota::per_day(100));
    budget.take(&backend, 1).await.unwrap();

    proxy.forget();
    let error = budget.take(&backend, 1).await.unwrap_err();
    assert!(
        matches!(error.kind(), FailureKind::TimedOut { .. }),
        "{error}"
    );
    for _ in 0..20 {
        budget.take(&backend, 1).await.unwrap();
    }
}

/// The answers to a connection's first commands come in two round trips.
#[tokio::test]
async fn a_server_whose_round_trip_is_a_fifth_of_the_deadline_is_connected_to_again_within_one() {
    let server = Standalone::start();
    let proxy = Proxy::before(server.port());
    proxy.fail_with(Fault::Delay(Duration::from_millis(400)));
    let builder = RedisBackend::builder(&proxy.url()).patient();
    let builder = builder.deadline(Duration::from_secs(2));
    let backend = builder.connect().await.unwrap();
    let budget = Budget::of("far", Quota::per_day(100));
    budget.take(&backend, 1).await.unwrap();

    proxy.cut();
    sleep(Duration::from_millis(20)).await;
    budget.take(&backend, 1).await.unwrap();

    proxy.forget();
    let _timed_out = budget.take(&backend, 1).await.unwrap_err();
    budget.take(&backend, 1).await.unwrap();
}
