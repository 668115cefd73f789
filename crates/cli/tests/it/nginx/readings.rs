//! Hostile and odd requests: nginx finds the budgets that Tollgate's layer finds in the same request, or passes nothing on.
//!
//! After each request the names in Redis tell whose budgets were charged.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;

use tollgate_testkit::Standalone;

use crate::nginx::client::Ask;
use crate::nginx::odd::{bodies, fields, paths, queries, refused_by_nginx};
use crate::nginx::served::{Gate, PATIENT, service};

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
block_keys = { forbidden = ['\"b%3D%3D\"'] }

[[policies]]
name = 'query'
quotas = '9/h'
routes = ['/query']
key = { query = 'user' }
block_keys = { forbidden = ['+49171'] }
exempt_keys = ['049172']

[[policies]]
name = 'path'
quotas = '9/h'
routes = ['/items/{id}', '/caf\u{e9}/{id}', '/a-{id}/end']
exempt_routes = ['/items/free', '/items/{id}/none']
key = { path-param = 'id' }

[[policies]]
name = 'areas'
quotas = '9/h'
routes = ['/area-{area}/{*page}', '/{area}/areas/{id}']
exempt_routes = ['/{area}/areas/none']
key = { path-param = 'area' }

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
key = ['bearer-token', ['method', 'host']]

[[policies]]
name = 'basic'
quotas = '9/h'
routes = ['/basic']
key = 'basic-user'
on_missing = 'pass'

[[policies]]
name = 'address'
quotas = '9/h'
routes = ['/address']
methods = ['GET']
exempt_networks = ['127.0.0.8/30']
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

/// Entries of X-Forwarded-For, a text for each line.
const CHAINS: &[&[&str]] = &[
    &[],
    &["9.9.9.9"],
    &["9.9.9.9, 10.1.1.1"],
    &["9.9.9.9", "10.1.1.1"],
    &["1.1.1.1, 9.9.9.9, 10.1.1.1"],
    &["10.1.1.1"],
    &["10.1.1.1, 10.1.1.2"],
    &["x, 10.1.1.1"],
    &["9.9.9.9,"],
    &["9.9.9.9", ""],
    &[",,"],
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
    &["for=9.9.9.9"],
];

/// Lines of Forwarded.
const FORWARDED: &[&[&str]] = &[
    &[],
    &["for=9.9.9.9"],
    &["For=\"[2001:db8::17]:4711\""],
    &["for=9.9.9.9;proto=http;by=203.0.113.43"],
    &["by=203.0.113.43; FOR=9.9.9.9 ;"],
    &[";;for=9.9.9.9"],
    &["for=\"9.9.9.9:80\""],
    &["for=9.9.9.9:80"],
    &["for=[2001:db8::1]"],
    &["for=\"\\9.9\\.9.9\""],
    &["host=\"a,b;c\\\"d\";for=9.9.9.9"],
    &[";"],
    &["for=unknown"],
    &["for=_hidden"],
    &["for="],
    &["for"],
    &["by=9.9.9.9"],
    &["for=9.9.9.9;for=8.8.8.8"],
    &["for=9.9.9.9 x"],
    &["for=9.9.9.9 by=x"],
    &["for=\"9.9.9.9\"by=x"],
    &["for = 9.9.9.9"],
    &["for=\"9.9.9.9"],
    &["for=9.9.9.9\""],
    &["for=\"9.9.9.9\"x"],
    &["for=\"9.9.9.9\\\""],
    &["=9.9.9.9"],
    &["for=9.9.9.9;x"],
    &["for=8.8.8.8, for=\"[2001:db8::1]\";host=\"a,b\" ,for=unknown"],
    &[",for=9.9.9.9"],
    &[" , for=9.9.9.9 ,\t, "],
    &["for=\", for=9.9.9.9"],
    &["for=6.6.6.6;x=\", for=9.9.9.9"],
    &["for=6.6.6.6;x=\"\\, for=9.9.9.9"],
    &["for=\"6.6.6.6\\\", for=9.9.9.9"],
    &["\"\"\", for=\"[2001:db8::1]:80\""],
    &["for=6.6.6.6, for=\"a, for=9.9.9.9;host=\"a,b\\\"\""],
    &["for=9.9.9.9", "for=10.1.1.1"],
    &["for=9.9.9.9", "for=10.1.1.1, for=10.1.1.2"],
    &["for=\"9.9.9.9", "for=10.1.1.1\""],
    &["for=10.1.1.1, for=10.1.1.1"],
    &["for=9.9.9.9 , for=\" 10.1.1.1 \""],
    &["FOR=\"9.9.9.9\";;;"],
];

#[tokio::test(flavor = "multi_thread")]
async fn the_address_is_the_one_that_trusted_proxies_wrote() {
    let networks = "networks = ['127.0.0.0/8', '10.0.0.0/8']";
    let rules = [
        ("x-forwarded-for", networks),
        ("x-forwarded-for", "hops = 0"),
        ("x-forwarded-for", "hops = 1"),
        ("x-forwarded-for", "hops = 2"),
        ("forwarded", networks),
        ("forwarded", "hops = 1"),
        ("forwarded", "hops = 2"),
        ("forwarded", "networks = ['10.0.0.0/8']"),
    ];
    let deep = format!("9.9.9.9, {}", ["10.1.1.1"; 70].join(", "));
    let deep_of_forwarded = deep
        .replace("9.9.9.9", "for=9.9.9.9")
        .replace("10.", "for=10.");
    let (ours, theirs) = (Standalone::start(), Standalone::start());
    for (name, proxies) in rules {
        let limits = format!(
            "client_address = {{ {name} = {{ {proxies} }} }}\npolicies = [{{ name = 'a', quotas = '9/h' }}]"
        );
        let gate = Gate::start(&limits, &ours).await;
        let (layer, _behind) = service(&limits, Some(&theirs)).await;
        let deep = [&*deep, &*deep_of_forwarded];
        let chains = [CHAINS, FORWARDED, &[&deep[..1], &deep[1..]]].concat();
        let mut found = BTreeSet::new();
        for lines in chains {
            let ask = { lines.iter() }.fold(Ask::new("GET /"), |ask, line| ask.field(name, line));
            assert_eq!(ask.send(gate.address()).await.status, 200);
            assert_eq!(ask.send(layer).await.status, 200);
            let nginx = charged(&ours);
            assert_eq!(nginx, charged(&theirs), "{name} {proxies} {lines:?}");
            found.extend(nginx);
        }
        // All that is believed is told apart.
        let is_peer = proxies.contains("hops = 0") || proxies == "networks = ['10.0.0.0/8']";
        assert_eq!(found.len() == 1, is_peer, "{name} {proxies} {found:?}");
    }
}

const HOSTS: &str = "
[[policies]]
name = 'hosts'
quotas = '9/h'
hosts = ['api.example.com', '*.tenants.example.com', '[2001:db8::1]']
key = 'global'

[[policies]]
name = 'host'
quotas = '9/h'
key = 'host'
on_missing = 'pass'
";

#[tokio::test(flavor = "multi_thread")]
async fn nginx_and_the_layer_read_the_same_hosts() {
    let (ours, theirs) = (Standalone::start(), Standalone::start());
    let gate = Gate::start(HOSTS, &ours).await;
    let (layer, _behind) = service(HOSTS, Some(&theirs)).await;
    let said = [
        "api.example.com",
        "API.example.com.",
        "api.example.com..:80",
        "api.example.com:",
        "api.example.com:80:80",
        "api.example.com:http",
        "user@api.example.com",
        "api.example.com@other.example.com",
        "other.example.com, api.example.com",
        "api.example.com other.example.com",
        "api.example.com/path",
        "http://api.example.com",
        "api%2eexample.com",
        "%61pi.example.com",
        "\"api.example.com\"",
        "a.tenants.example.com:1",
        "[2001:db8:0::1]:80",
        "[2001:db8::2]",
        "2001:DB8::1",
        "",
        ":80",
        "example.com",
        "badapi.example.com",
        "api.example.com.evil.example",
        "tenants.example.com",
        ".tenants.example.com",
        "a_b.example.com",
        "host=\"api\\.example.com:80\";for=1.1.1.1",
    ];
    let mut asks = Vec::new();
    for said in said {
        asks.push(Ask::new("GET /").host(said));
        asks.push(Ask::new("GET http://other.example.com/").host(said));
        asks.push(Ask::new(format!("GET http://{said}/")).host("other.example.com"));
        for field in ["forwarded", "x-forwarded-host", "host"] {
            asks.push(
                Ask::new("GET /")
                    .host("other.example.com")
                    .field(field, said),
            );
        }
    }
    let (mut alike, mut found, mut different) = (0, BTreeSet::new(), Vec::new());
    for ask in asks {
        let nginx = ask.try_send(gate.address()).await;
        let nginx = nginx.map(|answer| answer.status);
        let one = charged(&ours);
        let layer = ask.try_send(layer).await.map(|answer| answer.status);
        let other = charged(&theirs);
        // nginx refuses lines that it or others would read in another way: they reach no handler.
        if gate.reached.count() == 0 && matches!(nginx, None | Some(400)) {
            continue;
        }
        if layer == Some(200) && (nginx, &one) != (layer, &other) {
            different.push(format!(
                "{nginx:?} {one:?}, by the layer {other:?}: {ask:?}"
            ));
        }
        alike += 1;
        found.extend(one);
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(alike > 80 && found.len() > 8, "{alike} {found:?}");
}

/// The status of a request over HTTP/2.
fn over_http_2(to: SocketAddr, path: &str, options: &[&str]) -> String {
    let mut curl = Command::new("curl");
    curl.args([
        "--silent",
        "--http2-prior-knowledge",
        "--output",
        "/dev/null",
    ])
    .args(["--write-out", "%{http_version} %{http_code}"])
    .args(options)
    .arg(format!("http://{to}{path}"));
    let output = curl.output();
    let output = output.unwrap_or_else(|_| panic!("curl is missing: `apt-get install curl`"));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_over_http_2_are_read_with_a_length_and_without() {
    let redis = Standalone::start();
    let words = [("listen {listen};", "listen {listen} http2;"), PATIENT];
    let gate = Gate::start_with(LIMITS, &redis, &words).await;
    let json = "content-type: application/json";
    let cases: [(&str, &[&str], &str); 5] = [
        (
            "/json",
            &["--header", json, "--data", r#"{"user":"abc"}"#],
            "json:0/g:=abc",
        ),
        ("/form", &["--data", "user=a%62c"], "form:0/g:=abc"),
        // The length is not stated.
        (
            "/json",
            &[
                "--header",
                json,
                "--header",
                "content-length:",
                "--data",
                r#"{"user":"abc"}"#,
            ],
            "json:0/g:=abc",
        ),
        ("/query?user=abc", &[], "query:0/g:=abc"),
        ("/form?user=abc", &[], "form:0/g:=abc"),
    ];
    for (path, options, name) in cases {
        let said = over_http_2(gate.address(), path, options);
        assert_eq!(said, "2 200", "{path} {options:?} {}", gate.nginx.log());
        let names = BTreeSet::from([format!("tollgate:{name}")]);
        assert_eq!(charged(&redis), names, "{path} {options:?}");
        assert_eq!(gate.reached.count(), 1, "{path} {options:?}");
    }
}
