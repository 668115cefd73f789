//! Names, written and read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tollgate_core::{Algorithm, BannedCaller, Quota, Scope};

use super::*;
use crate::name::Names;

const QUOTA: Quota = Quota::per_second(10);

fn name_of(key: &Key) -> String {
    let name = Names::new("tollgate".to_owned()).of(Scope::of("api", 0, &QUOTA), key);
    String::from_utf8(name).unwrap()
}

fn address(text: &str, prefix: u8) -> Key {
    Key::address(text.parse().unwrap(), prefix)
}

/// Bytes of every kind, and bytes that look like a part of a name.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..150),
        "[a-z0-9.:/=%(){},+-]{0,150}".prop_map(String::into_bytes),
        any::<Ipv4Addr>().prop_map(|v4| v4.to_string().into_bytes()),
        any::<Ipv6Addr>().prop_map(|v6| format!("{v6}/64").into_bytes()),
        "(all|none|=a|[hd][0-9a-f]{32,64})".prop_map(String::into_bytes),
    ]
}

fn keys() -> impl Strategy<Value = Key> {
    // Addresses with many zeros, which have more than one short form.
    let sparse = vec(
        prop_oneof![2 => Just(0_u16), 1 => any::<u16>(), 1 => 1..20_u16],
        8,
    );
    let sparse = sparse.prop_map(|groups| {
        let groups: [u16; 8] = groups.try_into().unwrap();
        IpAddr::from(groups)
    });
    let one = prop_oneof![
        Just(Key::global()),
        Just(Key::missing()),
        bytes().prop_map(|bytes| Key::bytes(&bytes)),
        any::<Ipv4Addr>().prop_map(Key::from),
        (any::<Ipv6Addr>(), 0..=128_u8).prop_map(|(v6, prefix)| Key::address(v6.into(), prefix)),
        (sparse.clone(), 0..=128_u8).prop_map(|(v6, prefix)| Key::address(v6, prefix)),
        sparse.prop_map(Key::from),
    ];
    one.prop_recursive(6, 24, 4, |part| {
        vec(part, 0..4).prop_map(|parts| Key::tuple(&parts))
    })
}

fn quotas() -> impl Strategy<Value = Quota> {
    let algorithms = prop_oneof![
        Just(Algorithm::Gcra),
        Just(Algorithm::SlidingWindow),
        Just(Algorithm::SlidingLog),
        (0..50_u64).prop_map(|ms| Algorithm::FixedWindow {
            offset: Duration::from_millis(ms)
        }),
        (0..50_u64).prop_map(|ms| Algorithm::IntervalRefill {
            offset: Duration::from_millis(ms)
        }),
        (2..100_u32).prop_map(|buckets| Algorithm::RollingWindow { buckets }),
    ];
    (1..1_000_u64, algorithms).prop_filter_map("a quota", |(limit, algorithm)| {
        let period = Duration::from_secs(limit);
        Quota::try_new(limit, period)
            .and_then(|quota| quota.try_using(algorithm))
            .ok()
    })
}

proptest! {
    #[test]
    fn every_name_that_is_written_is_read_as_what_it_was_written_for(
        key in keys(),
        policy in prop_oneof!["[a-z0-9/_.-]{1,12}", any::<String>()],
        slot in any::<u16>(),
        quota in quotas(),
        partitions in proptest::option::of(1..=SLOTS),
    ) {
        let mut names = Names::new("tollgate".to_owned());
        names.partitions = partitions;
        let scope = Scope::of(&policy, slot, &quota);
        let name = names.of(scope, &key);

        let read = StateName::read(&name).unwrap();

        prop_assert_eq!(names.read(scope, &name), Some(read.clone()));
        // A list of bans tells an identity in these words.
        let listed = BannedCaller::new(key.clone(), Duration::ZERO);
        prop_assert_eq!(read.identity(), listed.identity());

        prop_assert_eq!(read.policy(), policy);
        prop_assert_eq!((read.prefix(), read.slot()), ("tollgate", slot));
        prop_assert_eq!(read.unit(), quota.unit());
        prop_assert_eq!(read.partition().is_some(), partitions.is_some());
        prop_assert!(read.partition() < partitions.or(Some(1)));
        prop_assert_eq!(read.key(), Some(&key));
        let end = [b":", read.identity().as_bytes()].concat();
        prop_assert!(name.ends_with(&end));
        // One tag, ours, and no pattern.
        prop_assert!(name.iter().all(|byte| byte.is_ascii_graphic() && !b"*?[]\\\"'".contains(byte)));
        let braces = name.iter().filter(|byte| b"{}".contains(byte)).count();
        prop_assert_eq!(braces, if partitions.is_some() { 2 } else { 0 });
    }

    #[test]
    fn two_identities_have_two_names(one in keys(), other in keys()) {
        prop_assert_eq!(one == other, name_of(&one) == name_of(&other));
    }

    #[test]
    fn whatever_is_read_would_be_written_so(
        head in prop_oneof!["[a-z]{0,3}", "[a-z]:(\\{[0-9]{1,6}\\}:)?[a-z%]{0,3}:[0-9]{1,3}/[gfsrl][0-9x+]{0,4}"],
        identity in prop_oneof![bytes(), "[(),=a0-9.:/%]{0,40}".prop_map(String::into_bytes)],
    ) {
        let name = [head.as_bytes(), b":", &identity].concat();
        if let Some(read) = StateName::read(&name) {
            prop_assert_eq!(read.written(), name);
        }
    }

    #[test]
    fn a_hashed_identity_is_read_as_one(key in keys(), secret in vec(any::<u8>(), 0..70)) {
        let mut names = Names::new("shop-1".to_owned());
        names.hash_with(&secret);
        let read = StateName::read(names.of(Scope::of("api", 3, &QUOTA), &key)).unwrap();
        prop_assert_eq!((read.prefix(), read.policy(), read.slot()), ("shop-1", "api", 3));
        prop_assert!(read.key().is_none() && read.identity().starts_with('h'));
    }
}

#[test]
fn an_operator_reads_the_identity() {
    let text = Key::from("alice@example.com");
    let cases = [
        (Key::global(), "all"),
        (Key::missing(), "none"),
        (Key::from(Ipv4Addr::new(10, 1, 2, 3)), "10.1.2.3"),
        (address("2001:db8:1:2::7", 64), "2001:db8:1:2::/64"),
        (address("2001:db8::7", 64), "2001:db8::/64"),
        (address("2001:db8::7", 128), "2001:db8::7/128"),
        (address("2001:db8:ff00::", 44), "2001:db8:ff00::/44"),
        (address("0:0:0:1::", 64), "0:0:0:1::/64"),
        (address("::1", 64), "::/64"),
        (text.clone(), "=alice@example.com"),
        (Key::from("10.1.2.3"), "=10.1.2.3"),
        (Key::from("all"), "=all"),
        (Key::from(""), "="),
        (Key::from(42_u64), "=42"),
        (Key::from("caf\u{e9} {1}*"), "=caf%c3%a9%20%7b1%7d%2a"),
        (Key::bytes(&[0, 0xff]), "=%00%ff"),
        (
            Key::tuple([&text, &address("10.1.2.3", 64)]),
            "(=alice@example.com,10.1.2.3)",
        ),
        (
            Key::tuple([&Key::from("a,b"), &Key::tuple([&Key::missing()])]),
            "(=a%2cb,(none))",
        ),
        (Key::tuple([]), "()"),
    ];
    for (key, identity) in cases {
        assert_eq!(name_of(&key), format!("tollgate:api:0/g:{identity}"));
    }
    let digest = name_of(&Key::bytes(&[b'x'; 10_000]));
    assert_eq!(digest.len(), "tollgate:api:0/g:d".len() + 64);
}

#[test]
fn the_names_that_the_contract_of_the_scripts_shows_are_read_and_written_so() {
    let contract = include_str!("../../../../../lua/README.md");
    let shown: Vec<_> = (contract.lines())
        .filter(|line| line.starts_with("tollgate:"))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(shown.len(), 2);

    for text in shown {
        let read = StateName::read(text).unwrap();

        let mut names = Names::new("tollgate".to_owned());
        names.partitions = read.partition().map(|_tag| 64);
        let day = Duration::from_secs(86_400);
        let quota = match read.unit() {
            Unit::Gcra => QUOTA,
            _ => Quota::try_new(1, day)
                .unwrap()
                .using(Algorithm::FixedWindow {
                    offset: Duration::ZERO,
                }),
        };
        let scope = Scope::of(read.policy(), read.slot(), &quota);
        assert_eq!(names.of(scope, read.key().unwrap()), text.as_bytes());
    }
}

#[test]
fn names_that_no_backend_writes_are_not_read() {
    let deep = format!("tollgate:api:0/g:{}", "(".repeat(1_000_000));
    let too_long = format!("tollgate:api:0/g:={}", "x".repeat(Key::MAX_LEN));
    let names = [
        "",
        "tollgate",
        "session:42",
        "tollgate:api:0/g",
        "tollgate:api:0/g:",
        "tollgate:api:0/g:alice",
        "tollgate:api:00/g:=a",
        "tollgate:api:+1/g:=a",
        "tollgate:api:65536/g:=a",
        "tollgate:api:0/q:=a",
        "tollgate:api:0/s1x:=a",
        "tollgate:api:0/s01:=a",
        "tollgate:api:0/f1:=a",
        "tollgate:%61pi:0/g:=a",
        "tollgate:api:0/g:=%61",
        "tollgate:api:0/g:=%2A",
        "tollgate:api:0/g:=%2",
        "tollgate:api:0/g:=a b",
        "tollgate:api:0/g:1.2.3",
        "tollgate:api:0/g:1.2.3.004",
        "tollgate:api:0/g:2001:DB8::/64",
        "tollgate:api:0/g:2001:db8::1/64",
        "tollgate:api:0/g:2001:0:0:0::/64",
        "tollgate:api:0/g:::ffff:1.2.3.4/128",
        "tollgate:api:0/g:::/129",
        "tollgate:api:0/g:(=a",
        "tollgate:api:0/g:(=a,)",
        "tollgate:api:0/g:=a)",
        "tollgate:api:0/g:=a,=b",
        "tollgate:api:0/g:d00",
        "tollgate:api:0/g:h00",
        "tollgate:{16384}:api:0/g:=a",
        "tollgate:{}:api:0/g:=a",
        "toll gate:api:0/g:=a",
        ":api:0/g:=a",
        &deep,
        &too_long,
    ];
    for name in names {
        assert_eq!(StateName::read(name), None, "{name}");
    }
    assert_eq!(StateName::read(b"tollgate:api:0/g:=\xff"), None);
}

#[test]
fn debug_output_of_a_name_tells_no_identity() {
    let name = StateName::read("tollgate:api:0/g:=s3cret").unwrap();
    let shown = format!("{name:?}");
    assert!(
        shown.contains("api") && !shown.contains("s3cret"),
        "{shown}"
    );
}
