//! The servers of the testkit behave as their docs say.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tollgate_testkit::{Cluster, Fault, Network, Proxy, Sentinels, Standalone, Tls, Weather};

#[test]
fn sentinels_make_the_replica_a_master_when_the_master_is_gone() {
    let mut all = Sentinels::start();
    assert!(all.command(&["SET", "key", "value"]).starts_with("+OK"));

    all.kill_master();

    assert!(all.command(&["ROLE"]).contains("master"));
}

/// On a busy machine the Sentinels may replace the master again while a test waits for a server to follow it.
#[test]
fn a_server_that_has_become_the_master_of_a_whole_fleet_is_not_waited_for_any_more() {
    // given a replica that follows
    let all = Sentinels::start();
    let is_master = |number: usize| all.servers()[number].command(&["ROLE"]).contains("master");
    assert!(is_master(0) && !is_master(1));
    assert!(all.has_place(1));

    // when it takes over
    all.be_patient();
    all.plan_failover();
    let began = Instant::now();
    while all.named() != Some(1) {
        assert!(began.elapsed() < Duration::from_secs(60));
        all.insist_on_failover(0);
        std::thread::sleep(Duration::from_millis(20));
    }
    // Some ten seconds pass before the Sentinels make the old master a replica.
    let has_none_yet = !all.has_place(1) || !is_master(0);
    all.follow(0, 1);
    while !all.is_whole() {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }

    // then it has its place once the other follows
    assert!(is_master(1) && has_none_yet);
    assert!(all.has_place(1) && all.has_place(0));
}

#[test]
fn a_slot_of_a_cluster_moves_with_its_keys() {
    let cluster = Cluster::start_with_replicas(1);
    let slot = cluster.slot_of("{key}");
    let from = cluster.owner_of(slot).unwrap();
    let to = (from + 1) % 3;
    let set = |node: usize| cluster.nodes()[node].command(&["SET", "{key}", "value"]);
    assert!(set(from).starts_with("+OK"));
    assert!(set(to).starts_with("-MOVED"));

    cluster.begin_move(slot, from, to);
    assert!(set(to).starts_with("-MOVED"));
    cluster.move_keys(slot, from, to, 10);
    assert!(set(from).starts_with("-ASK"));
    cluster.end_move(slot, to);

    assert!(set(to).starts_with("+OK"));
    assert_eq!(cluster.owner_of(slot), Some(to));
}

#[test]
fn a_server_behind_tls_is_not_understood_in_the_clear() {
    let tls = Tls::start_mutual();
    let address = tls.url().replace("rediss://", "").replace('/', "");
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"PING\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    // It closes, with or without a word.
    let _closed = stream.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"+PONG"));
    assert!(tls.server.command(&["PING"]).starts_with("+PONG"));
}

#[test]
fn a_proxy_fails_as_it_is_told_to() {
    let server = Standalone::start();
    let proxy = Proxy::before(server.port());
    let ask = |fault| {
        let address = proxy.url().replace("redis://", "").replace('/', "");
        let mut stream = TcpStream::connect(address).unwrap();
        proxy.fail_with(fault);
        stream.write_all(b"PING\r\n").unwrap();
        let mut answer = [0; 16];
        let length = stream.read(&mut answer).unwrap_or(0);
        String::from_utf8_lossy(&answer[..length]).into_owned()
    };
    assert_eq!(ask(Fault::None), "+PONG\r\n");
    assert_eq!(ask(Fault::Truncate), "+PO");
    assert_eq!(ask(Fault::Drop), "");
    assert_eq!(ask(Fault::HalfClose), "");
}

/// Sends a command through a network, and returns the answer of the next moments.
fn ask(network: &Network, within: Duration) -> Option<Duration> {
    let started_at = Instant::now();
    let mut stream = TcpStream::connect(("127.0.0.1", network.port())).unwrap();
    stream.set_read_timeout(Some(within)).unwrap();
    stream.write_all(b"INCR asked\r\n").unwrap();
    let mut answer = [0];
    let came = stream.read(&mut answer).is_ok_and(|length| length > 0);
    came.then(|| started_at.elapsed())
}

fn asked(server: &Standalone) -> String {
    server.command(&["GET", "asked"])
}

#[test]
fn what_nobody_reads_is_done_all_the_same_and_what_is_parted_is_not() {
    let server = Standalone::start();
    let network = Network::before(server.port());
    let short = Duration::from_millis(300);
    assert!(ask(&network, Duration::from_secs(10)).is_some());

    network.set(Weather {
        is_deaf: true,
        ..Weather::default()
    });
    assert_eq!(ask(&network, short), None);
    while asked(&server) != "$1\r\n2\r\n" {
        std::thread::sleep(Duration::from_millis(5));
    }

    network.set(Weather {
        is_parted: true,
        ..Weather::default()
    });
    assert_eq!(ask(&network, short), None);
    assert_eq!(asked(&server), "$1\r\n2\r\n");
}

#[test]
fn what_is_lost_comes_when_it_is_sent_again() {
    let server = Standalone::start();
    let network = Network::before(server.port());
    network.set(Weather {
        loss_percent: 50,
        ..Weather::default()
    });

    // Bytes that are lost nine times in a row, as happens to one packet in 512, take minutes: the test does not wait for such
    // an answer.
    let patience = Duration::from_secs(10);
    let mut answers = (0..60).map(|_| ask(&network, patience));
    let is_late = |took: Duration| took >= Duration::from_millis(200);

    // Two packets in a row both pass once in four times, and sixty times in a row never.
    assert!(answers.any(|came| came.is_some_and(is_late)));
}

#[test]
fn a_replica_that_is_parted_hears_of_nothing_until_it_is_not() {
    let all = Sentinels::start_behind_networks([0; 2]);
    let [master, replica] = all.servers() else {
        panic!("two servers");
    };
    let heard = |value: &str| {
        let wanted = format!("\r\n{value}\r\n");
        let started_at = Instant::now();
        while started_at.elapsed() < Duration::from_secs(10) {
            if replica.command(&["GET", "key"]).ends_with(&wanted) {
                return started_at.elapsed();
            }
        }
        panic!("the replica never heard of {value}");
    };
    let _set = master.command(&["SET", "key", "one"]);
    heard("one");

    for network in all.networks() {
        network.part(&[b"REPLCONF"]);
    }
    let _set = master.command(&["SET", "key", "two"]);
    std::thread::sleep(Duration::from_millis(500));
    assert!(replica.command(&["GET", "key"]).ends_with("one\r\n"));
    for network in all.networks() {
        network.part(&[]);
    }

    heard("two");
}

#[test]
fn a_node_that_is_isolated_is_replaced_and_still_answers_clients() {
    let cluster = Cluster::start_behind_networks(&[0; 4]);
    let role = |node: usize| cluster.nodes()[node].command(&["ROLE"]);
    let is_so = |what: &str, is_so: &dyn Fn() -> bool| {
        let started_at = Instant::now();
        while !is_so() {
            assert!(started_at.elapsed() < Duration::from_secs(30), "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };

    cluster.isolate(0);

    is_so("the replica takes over", &|| role(3).contains("master"));
    assert!(role(0).contains("master"), "nobody has told it");
    let network = cluster.networks().next().unwrap();
    assert!(ask(network, Duration::from_secs(10)).is_some());
    cluster.join();
    is_so("it is told", &|| role(0).contains("slave"));
}
