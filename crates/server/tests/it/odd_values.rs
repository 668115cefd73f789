//! Values that a caller chooses and that a policy's key cannot read: no call fails for one, because Envoy would let the request pass
//! without any limit then.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use tollgate_server::proto::rate_limit_response::Code;
use tollgate_server::proto::rate_limit_response::rate_limit::Unit;
use tollgate_server::proto::{RateLimitDescriptor, RateLimitResponse};

use crate::common::File;
use crate::common::asking::{
    Asker, at_a_standstill, descriptor, raw_descriptor, stating, statuses,
};

/// A policy of two an hour with these lines, and a rule for it with this identity.
fn rules(of_policy: &str, entries: &[&str]) -> String {
    let entries = entries.iter().map(|key| format!("{{ key = '{key}' }}"));
    let entries: Vec<_> = entries.collect();
    format!(
        "
        [[policies]]
        name = 'search'
        quotas = '3/h'
        on_demand = true

        [[envoy]]
        domain = 'shop'
        descriptor = [{{ key = 'generic_key', value = 'search' }}]
        policy = 'search'

        [[policies]]
        name = 'odd'
        quotas = '2/h'
        on_demand = true
        {of_policy}

        [[envoy]]
        domain = 'shop'
        descriptor = [{}]
        policy = 'odd'
        ",
        entries.join(", ")
    )
}

fn passes(answer: &RateLimitResponse) -> bool {
    answer.overall_code() == Code::Ok
}

/// The number of calls of four that pass, each with a value of its own beside the global limit of three.
async fn passed_of_four(asker: &mut Asker, values: impl Fn(usize) -> RateLimitDescriptor) -> usize {
    let mut passed = 0;
    for number in 0..4 {
        let search = descriptor(&[("generic_key", "search")]);
        passed += usize::from(passes(&asker.ask([values(number), search]).await));
    }
    passed
}

#[tokio::test]
async fn a_value_is_an_identity_of_its_own_whatever_its_bytes_are() {
    let odd: [&[u8]; 8] = [
        b"1.2.3.4:5",
        b"[::1]:1",
        b"[::1]",
        b"\xff",
        b"a\xc3",
        b"",
        b"\t",
        b"fe80::1%eth0",
    ];
    let yaml = "
domain: shop
descriptors:
  - key: generic_key
    value: search
    rate_limit: { unit: hour, requests_per_unit: 3 }
  - key: api_key
    rate_limit: { unit: hour, requests_per_unit: 2 }
";
    for file in [File::toml(&rules("", &["api_key"])), File::yaml(yaml)] {
        for value in odd {
            let mut asker = Asker::with(&file, at_a_standstill).await;
            let of = |_| raw_descriptor(&[("api_key", value)]);
            assert_eq!(passed_of_four(&mut asker, of).await, 2, "{value:?}");
        }
        // Each has a budget of its own, and the limit beside them holds.
        let mut asker = Asker::with(&file, at_a_standstill).await;
        let of = |number: usize| raw_descriptor(&[("api_key", odd[number])]);
        assert_eq!(passed_of_four(&mut asker, of).await, 3);
        assert_eq!(asker.served.gateway.counts().invalid, 0);
    }
}

#[tokio::test]
async fn a_value_that_the_key_cannot_read_spends_the_budget_of_those_without_an_identity() {
    let hosts: &[&[u8]] = &[
        b"a@b", b"a,b", b"%61", b"a;b", b"[::1", b"a:b", b"*", b"\xff", b"",
    ];
    let cases: &[(&str, &[&[u8]])] = &[
        ("key = 'host'", hosts),
        ("key = 'client-ip'", &[b"unknown", b"1.2.3", b"\xff", b""]),
        ("key = { header = 'x-api-key' }", &[b"", b" ", b"\t"]),
        ("key = { cookie = 'session' }", &[b"", b"\"\"", b"%22%22"]),
        ("key = 'basic-user'", &[b"", b"a:b", b"c:d"]),
    ];
    for (key, values) in cases {
        let mut asker = Asker::of(&rules(key, &["value"])).await;
        let of = |number: usize| raw_descriptor(&[("value", values[number % values.len()])]);
        assert_eq!(passed_of_four(&mut asker, of).await, 2, "{key}");
        for value in *values {
            let answer = asker.ask([raw_descriptor(&[("value", value)])]).await;
            assert!(!passes(&answer), "{key}: {value:?}");
        }
        assert_eq!(asker.served.gateway.counts().invalid, 0);
    }
}

#[tokio::test]
async fn on_missing_decides_as_in_a_service() {
    let host = |value: &str| descriptor(&[("host", value)]);
    let mut asker = Asker::of(&rules("key = 'host'\non_missing = 'deny'", &["host"])).await;
    for value in ["a@b", "", "a,b"] {
        let answer = asker.ask([host(value)]).await;
        assert_eq!(statuses(&answer), ["OVER_LIMIT"], "{value:?}");
    }
    assert!(passes(&asker.ask([host("a.example")]).await));

    // A host that is there and unclear never passes free.
    let mut asker = Asker::of(&rules("key = 'host'\non_missing = 'pass'", &["host"])).await;
    for _ in 0..4 {
        assert!(passes(&asker.ask([host("")]).await));
    }
    assert_eq!(passed_of_four(&mut asker, |_| host("a@b")).await, 2);
}

#[tokio::test]
async fn methods_and_hosts_are_read_as_in_a_service() {
    let mut asker = Asker::of(&rules("key = 'method'", &["method"])).await;
    let methods = ["HEAD", "GET", "HEAD", "GET"];
    let of = |number: usize| descriptor(&[("method", methods[number])]);
    assert_eq!(passed_of_four(&mut asker, of).await, 2);
    let invented = ["FOO", "get", "", "a b"];
    let of = |number: usize| descriptor(&[("method", invented[number])]);
    let mut asker = Asker::of(&rules("key = 'method'", &["method"])).await;
    assert_eq!(passed_of_four(&mut asker, of).await, 2);

    let mut asker = Asker::of(&rules("key = 'host'", &["host"])).await;
    let hosts = ["A.example", "a.example:80", "a.example.", "a.example"];
    let of = |number: usize| descriptor(&[("host", hosts[number])]);
    assert_eq!(passed_of_four(&mut asker, of).await, 2);
    let mut asker = Asker::of(&rules("key = { cookie = 'c' }", &["c"])).await;
    // A value is decoded once.
    for value in ["%2541", "%41"] {
        let answer = asker.ask([descriptor(&[("c", value)])]).await;
        assert_eq!(statuses(&answer), ["OK 1 of 2 odd per HOUR"], "{value}");
    }
}

#[tokio::test]
async fn the_parts_of_a_key_are_read_each_as_its_own() {
    let key = "key = ['client-ip', { header = 'x-user' }]";
    let of = |address: &str, user: &str| descriptor(&[("remote_address", address), ("user", user)]);
    let mut asker = Asker::of(&rules(key, &["remote_address", "user"])).await;
    // One network of IPv6, as in a service.
    let in_network = |number: usize| of(&format!("2001:db8::{number}"), "alice");
    assert_eq!(passed_of_four(&mut asker, in_network).await, 2);
    let answer = asker.ask([of("2001:db8::1", "bob")]).await;
    assert_eq!(statuses(&answer), ["OK 1 of 2 odd per HOUR"]);
    // Without a user, the callers of one network share a budget, and those of another one do not.
    for (address, left) in [("192.0.2.1", 1), ("192.0.2.1", 0), ("192.0.2.2", 1)] {
        let answer = asker.ask([of(address, " ")]).await;
        assert_eq!(statuses(&answer), [format!("OK {left} of 2 odd per HOUR")]);
    }
    assert!(!passes(&asker.ask([of("192.0.2.1", "")]).await));
}

/// Envoy takes 60 KiB of fields from a caller, and puts one field into as many descriptors as its configuration says.
#[tokio::test]
async fn a_long_value_in_many_descriptors_fails_no_call() {
    let mut asker = Asker::of(&rules("", &["a", "b"])).await;
    let value = "x".repeat(60_000);
    let many = (0..31).map(|number: u32| descriptor(&[("a", &*value), ("b", &number.to_string())]));
    let search = descriptor(&[("generic_key", "search")]);
    let mut passed = 0;
    for _ in 0..4 {
        let answer = asker.ask(many.clone().chain([search.clone()])).await;
        passed += usize::from(passes(&answer));
    }
    assert_eq!(passed, 2);
}

#[tokio::test]
async fn values_that_meet_in_a_budget_under_different_stated_limits_refuse_the_request() {
    let mut asker = Asker::of(&rules("key = { header = 'a' }", &["a"])).await;
    let of = |value: &str, limit| stating(descriptor(&[("a", value)]), limit, Unit::Hour);
    let answer = asker.ask([of("x", 5), of("y", 9)]).await;
    assert_eq!(
        statuses(&answer),
        ["OK 4 of 5 odd per HOUR", "OK 8 of 9 odd per HOUR"]
    );
    assert!(!passes(&asker.ask([of("x", 5), of("x", 9)]).await));
}

/// Envoy states a whole line where `request_headers` names `authorization` or `cookie`.
#[tokio::test]
async fn a_credential_is_one_identity_in_a_line_of_its_header_and_alone() {
    for (key, spellings) in [
        (
            "'bearer-token'",
            [
                "leaked",
                "Bearer leaked",
                "bEARER  leaked ",
                " bearer leaked",
            ],
        ),
        // bob:1, bob:2 and bob:3
        (
            "'basic-user'",
            ["bob", "Basic Ym9iOjE=", "basic Ym9iOjI=", "BASIC Ym9iOjM="],
        ),
        (
            "{ cookie = 's' }",
            ["leaked", "s=leaked", "a=1; s=leaked", "s=leaked;b=2"],
        ),
    ] {
        let mut asker = Asker::of(&rules(&format!("key = {key}"), &["c"])).await;
        let mut passed = 0;
        for value in spellings {
            passed += usize::from(passes(&asker.ask([descriptor(&[("c", value)])]).await));
        }
        assert_eq!(passed, 2, "{key}");
    }
}

/// A line that has no such credential, or one that readers differ about, is no identity that its sender could choose.
#[tokio::test]
async fn a_line_is_read_as_the_policys_key_reads_it() {
    let spaced = |n: usize| format!("s{}=leaked", " ".repeat(n));
    let encoded = ["%73", "s"].map(|name| format!("{name}=leaked"));
    let lines: [(&str, Vec<String>, usize); 6] = [
        ("{ cookie = 's' }", (0..5).map(spaced).collect(), 2),
        ("{ cookie = 's' }", [encoded.clone(), encoded].concat(), 2),
        (
            "{ cookie = 's' }",
            (0..5).map(|n| format!("theme=x{n}")).collect(),
            0,
        ),
        (
            "'bearer-token'",
            (0..5).map(|n| format!("Basic x{n}")).collect(),
            0,
        ),
        (
            "'bearer-token'",
            (0..5).map(|n| format!("Bearer abc,{n}")).collect(),
            0,
        ),
        (
            "'basic-user'",
            (0..5).map(|n| format!("Bearer x{n}")).collect(),
            0,
        ),
    ];
    for (key, lines, most) in lines {
        let rules = rules(&format!("key = {key}\non_missing = 'deny'"), &["c"]);
        let mut asker = Asker::of(&rules).await;
        let mut passed = 0;
        for line in &lines {
            passed += usize::from(passes(&asker.ask([descriptor(&[("c", line)])]).await));
        }
        assert!(passed <= most, "{key} {lines:?}: {passed}");
    }
}
