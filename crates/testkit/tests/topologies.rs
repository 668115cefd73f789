//! The servers that other tests lean on do what they are said to.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::TcpStream;

use tollgate_testkit::{Cluster, Fault, Proxy, Sentinels, Standalone, Tls};

#[test]
fn sentinels_make_the_replica_a_master_when_the_master_is_gone() {
    let mut all = Sentinels::start();
    assert!(all.command(&["SET", "key", "value"]).starts_with("+OK"));

    all.kill_master();

    assert!(all.command(&["ROLE"]).contains("master"));
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
