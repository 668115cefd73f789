//! Hostile and odd requests: nginx finds the budgets that Tollgate's layer finds in the same request, or passes nothing on.
//!
//! After each request the names in Redis tell whose budgets were charged.

use std::collections::BTreeSet;

use tollgate_testkit::Standalone;

use crate::client::Ask;
use crate::odd::{bodies, fields, paths, queries, refused_by_nginx};
use crate::served::{Gate, service};

/// A policy for each kind of key, on a path of its own.
const LIMITS: &str = "
[[policies]]
name = 'header'
quotas = '9/h'
routes = ['/header']
key = { header = 'x-api-key' }
block_keys = { forbidden = ['blocked'] }

[[policies]]
name = 'cookie'
quotas = '9/h'
routes = ['/cookie']
key = { cookie = 'sid' }
on_missing = 'pass'

[[policies]]
name = 'query'
quotas = '9/h'
routes = ['/query']
key = { query = 'user' }

[[policies]]
name = 'path'
quotas = '9/h'
routes = ['/items/{id}', '/caf\u{e9}/{id}', '/a-{id}/end']
exempt_routes = ['/items/free', '/items/{id}/none']
key = { path-param = 'id' }

[[policies]]
name = 'files'
quotas = '9/h'
routes = ['/files/{*rest}']
exempt_routes = ['/files/open/{*all}']
key = { path-param = 'rest' }

[[policies]]
name = 'form'
quotas = '9/h'
routes = ['/form']
key = { form-field = 'user' }
on_missing = 'deny'

[[policies]]
name = 'json'
quotas = '9/h'
routes = ['/json']
key = { json-field = 'user' }
on_missing = 'pass'

[[policies]]
name = 'nested'
quotas = '9/h'
routes = ['/nested']
key = { json-field = 'a.1.user' }

[[policies]]
name = 'bearer'
quotas = '9/h'
routes = ['/bearer']
key = ['bearer-token', 'method']

[[policies]]
name = 'address'
quotas = '9/h'
routes = ['/address']
methods = ['GET']
exempt_networks = ['127.0.0.8/30']
";

const TRUSTING: &str = "
client_address = { x-forwarded-for = { networks = ['127.0.0.0/8', '10.0.0.0/8'] } }
[[policies]]
name = 'address'
quotas = '9/h'
";

/// The budgets that were charged since the last question.
fn charged(redis: &Standalone) -> BTreeSet<String> {
    let names = redis.command(&["KEYS", "*"]);
    let _said = redis.command(&["FLUSHALL"]);
    let names = names
        .split("\r\n")
        .filter(|line| line.starts_with("tollgate:"));
    names.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn nginx_finds_the_budgets_that_the_layer_finds() {
    let (ours, theirs) = (Standalone::start(), Standalone::start());
    let gate = Gate::start(LIMITS, &ours).await;
    let (layer, _behind) = service(LIMITS, Some(&theirs)).await;
    let asks = [paths(), queries(), fields(), bodies()].concat();
    let (mut found, mut different) = (BTreeSet::new(), Vec::new());
    for ask in asks {
        let nginx = ask.try_send(gate.address()).await;
        let (nginx, one) = (nginx.map(|answer| answer.status), charged(&ours));
        let layer = ask.try_send(layer).await;
        let (layer, other) = (layer.map(|answer| answer.status), charged(&theirs));
        let reached = gate.reached.count();
        // Bytes that are not HTTP are refused by nginx, or by the service behind it: they reach no handler.
        let is_bad = |status: Option<u16>| matches!(status, None | Some(400 | 405 | 501));
        if is_bad(nginx) && reached == 0 {
            continue;
        }
        if is_bad(layer) {
            different.push(format!("the service refuses, {nginx:?} at nginx: {ask:?}"));
        } else if (nginx, &one) != (layer, &other) {
            different.push(format!(
                "{nginx:?} {one:?}, by the layer {layer:?} {other:?}: {ask:?}"
            ));
        }
        found.extend(one);
    }
    assert!(
        different.is_empty(),
        "{}:\n{}",
        different.len(),
        different.join("\n")
    );
    // The requests say something about each policy.
    assert!(found.len() > 60, "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nginx_passes_nothing_on_that_services_read_in_different_ways() {
    let redis = Standalone::start();
    let gate = Gate::start(LIMITS, &redis).await;
    for ask in refused_by_nginx() {
        let answer = ask.send(gate.address()).await;
        assert_eq!(answer.status, 400, "{ask:?}");
        assert_eq!(
            (gate.reached.count(), charged(&redis).len()),
            (0, 0),
            "{ask:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_address_is_the_one_that_trusted_proxies_wrote() {
    let (ours, theirs) = (Standalone::start(), Standalone::start());
    let gate = Gate::start(TRUSTING, &ours).await;
    let (layer, _behind) = service(TRUSTING, Some(&theirs)).await;
    let chains: &[&[&str]] = &[
        &[],
        &["9.9.9.9"],
        &["9.9.9.9, 10.1.1.1"],
        &["9.9.9.9", "10.1.1.1"],
        &["1.1.1.1, 9.9.9.9, 10.1.1.1"],
        &["10.1.1.1"],
        &["x, 10.1.1.1"],
        &["9.9.9.9,"],
        &["9.9.9.9:4711"],
        &["[2001:db8::1]:80"],
        &["2001:db8:1:2:3:4:5:6"],
        &["::ffff:9.9.9.9"],
        &["64:ff9b::909:909"],
        &["2001:db8::1%eth0"],
        &["\"9.9.9.9\""],
        &["09.9.9.9"],
        &["9.9.9"],
        &["::"],
        &["1::2:3"],
        &["1:0:0:2::"],
        &["9.9.9.9:"],
        &["unknown"],
        &[" 9.9.9.9 "],
        &["[::1"],
        &["1:2:3:4:5:6:7:8:9"],
        &["::1.2.3.4"],
        &["1:2:3:4:5:6:1.2.3.4"],
        &["fe80::1:0:0:1"],
    ];
    for lines in chains {
        let ask = lines.iter().fold(Ask::new("GET /"), |ask, line| {
            ask.field("x-forwarded-for", line)
        });
        assert_eq!(ask.send(gate.address()).await.status, 200);
        assert_eq!(ask.send(layer).await.status, 200);
        assert_eq!(charged(&ours), charged(&theirs), "{lines:?}");
    }
}
