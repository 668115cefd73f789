use std::net::Ipv4Addr;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn ip(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

fn private() -> Networks {
    Networks::new(["10.0.0.0/8", "fd00::/8"])
}

/// The address that is found for a peer and these header lines.
fn resolve(address: &ClientAddress, peer: &str, lines: &[(&str, &str)]) -> Option<IpAddr> {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name: HeaderName = name.parse().unwrap();
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    address.resolve(ip(peer), &headers)
}

#[test]
fn rule_1_a_peer_that_is_not_trusted_is_the_caller_and_every_header_is_ignored() {
    let lines = [
        ("x-forwarded-for", "6.6.6.6"),
        ("forwarded", "for=6.6.6.6"),
        ("cf-connecting-ip", "6.6.6.6"),
    ];
    for address in [
        ClientAddress::peer(),
        ClientAddress::x_forwarded_for(private()),
        ClientAddress::forwarded(private()),
        ClientAddress::header("cf-connecting-ip", private()),
    ] {
        let found = resolve(&address, "198.51.100.1", &lines);
        assert_eq!(found, ip("198.51.100.1"), "{address:?}");
    }
}

#[test]
fn rules_2_and_3_the_walk_from_the_right() {
    let address = ClientAddress::x_forwarded_for(private());
    let cases: &[(&[&str], &str)] = &[
        (&["203.0.113.7"], "203.0.113.7"),
        (&["203.0.113.7, 10.0.0.2"], "203.0.113.7"),
        // All lines are one list.
        (&["203.0.113.7", "10.0.0.2, fd00::2"], "203.0.113.7"),
        (&["6.6.6.6", "203.0.113.7"], "203.0.113.7"),
        (&["203.0.113.7:4711, [fd00::2]:80"], "203.0.113.7"),
        // Proxies alone.
        (&[], "10.0.0.1"),
        (&[""], "10.0.0.1"),
        (&["10.0.0.3, 10.0.0.2"], "10.0.0.1"),
        // An entry that is not an address ends the walk.
        (&["6.6.6.6, unknown"], "10.0.0.1"),
        (&["6.6.6.6, unknown, 10.0.0.2"], "10.0.0.2"),
        (&["6.6.6.6, , 10.0.0.2"], "10.0.0.2"),
        // An empty entry, or one in quotes, is not an address: never what stands left of it.
        (&["203.0.113.7,"], "10.0.0.1"),
        (&["203.0.113.7, \t"], "10.0.0.1"),
        (&["\"203.0.113.7\""], "10.0.0.1"),
        (&["6.6.6.6, \"203.0.113.7\", 10.0.0.2"], "10.0.0.2"),
        (&["6.6.6.6, 10.0.0.300, 10.0.0.2"], "10.0.0.2"),
    ];
    for (lines, expected) in cases {
        let lines: Vec<_> = lines
            .iter()
            .map(|line| ("x-forwarded-for", *line))
            .collect();
        assert_eq!(
            resolve(&address, "10.0.0.1", &lines),
            ip(expected),
            "{lines:?}"
        );
    }
}

#[test]
fn rule_4_a_number_of_hops() {
    let cases = [
        (0, "6.6.6.6, 203.0.113.7", "10.0.0.1"),
        (1, "6.6.6.6, 203.0.113.7", "203.0.113.7"),
        (2, "6.6.6.6, 203.0.113.7, 10.0.0.2", "203.0.113.7"),
        // Fewer than that.
        (2, "203.0.113.7", "10.0.0.1"),
        (1, "", "10.0.0.1"),
        // An entry that is not an address ends the count.
        (2, "6.6.6.6, unknown, 10.0.0.2", "10.0.0.2"),
        (2, "6.6.6.6, unknown", "10.0.0.1"),
    ];
    for (hops, line, expected) in cases {
        let address = ClientAddress::x_forwarded_for(Hops(hops));
        let found = resolve(&address, "10.0.0.1", &[("x-forwarded-for", line)]);
        assert_eq!(found, ip(expected), "{hops} hops: {line:?}");
    }
}

#[test]
fn rule_5_forwarded_by_the_same_walk_and_never_mixed() {
    let lines = [
        ("forwarded", "for=6.6.6.6"),
        (
            "forwarded",
            "for=\"[2001:db8::17]:4711\";host=\"a,b\", for=10.0.0.2",
        ),
        ("x-forwarded-for", "203.0.113.7"),
    ];
    let forwarded = ClientAddress::forwarded(private());
    assert_eq!(resolve(&forwarded, "10.0.0.1", &lines), ip("2001:db8::17"));
    let hops = ClientAddress::forwarded(Hops(2));
    assert_eq!(resolve(&hops, "10.0.0.1", &lines), ip("2001:db8::17"));
    let other = ClientAddress::x_forwarded_for(private());
    assert_eq!(resolve(&other, "10.0.0.1", &lines), ip("203.0.113.7"));
    assert_eq!(resolve(&other, "10.0.0.1", &lines[..2]), ip("10.0.0.1"));
    for hidden in ["for=6.6.6.6, for=unknown", "for=6.6.6.6, for=_hidden"] {
        let found = resolve(&forwarded, "10.0.0.1", &[("forwarded", hidden)]);
        assert_eq!(found, ip("10.0.0.1"), "{hidden}");
    }
}

#[test]
fn rule_6_a_header_of_one_value_behind_a_trusted_peer() {
    let address = ClientAddress::header("CF-Connecting-IP", private());
    let name = "cf-connecting-ip";
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[(name, "203.0.113.7")], "203.0.113.7"),
        (&[], "10.0.0.1"),
        (&[(name, "")], "10.0.0.1"),
        (&[(name, "203.0.113.7"), (name, "203.0.113.8")], "10.0.0.1"),
        (&[(name, "203.0.113.7, 203.0.113.8")], "10.0.0.1"),
        (&[("x-forwarded-for", "203.0.113.7")], "10.0.0.1"),
    ];
    for (lines, expected) in cases {
        assert_eq!(
            resolve(&address, "10.0.0.1", lines),
            ip(expected),
            "{lines:?}"
        );
    }
}

#[test]
fn a_peer_without_address_is_not_in_any_network_and_counts_as_no_hop() {
    let headers =
        HeaderMap::from_iter([(X_FORWARDED_FOR, HeaderValue::from_static("203.0.113.7"))]);
    let networks = ClientAddress::x_forwarded_for(private());
    assert_eq!(networks.resolve(None, &headers), None);
    let header = ClientAddress::header("x-forwarded-for", private());
    assert_eq!(header.resolve(None, &headers), None);
    let hops = ClientAddress::x_forwarded_for(Hops(1));
    assert_eq!(hops.resolve(None, &headers), ip("203.0.113.7"));
    assert_eq!(hops.resolve(None, &HeaderMap::new()), None);
}

#[test]
fn cve_2026_110726_the_leftmost_entry_is_the_callers_own_invention() {
    for address in [
        ClientAddress::x_forwarded_for(private()),
        ClientAddress::x_forwarded_for(Hops(1)),
    ] {
        for n in 0..20 {
            let forged = format!("198.51.100.{n}, 203.0.113.7");
            let found = resolve(&address, "10.0.0.1", &[("x-forwarded-for", &forged)]);
            assert_eq!(found, ip("203.0.113.7"));
        }
    }
}

#[test]
fn cve_2026_30827_a_prefix_does_not_put_all_of_ipv4_into_one_bucket() {
    for bits in [1, 48, 56, 64] {
        let address = ClientAddress::peer().ipv6_prefix(bits);
        let key = |text: &str| address.key(text.parse().unwrap());
        for other in ["192.0.2.2", "::ffff:192.0.2.2", "64:ff9b::192.0.2.2"] {
            for one in ["192.0.2.1", "::ffff:192.0.2.1", "64:ff9b::192.0.2.1"] {
                assert_ne!(key(one), key(other), "{one} and {other} by /{bits}");
            }
        }
    }
}

#[test]
fn ghsa_5847_rm3g_23mw_mapped_and_plain_forms_are_one_caller() {
    let address = ClientAddress::x_forwarded_for(private());
    let forms = [
        "192.0.2.1",
        "::ffff:192.0.2.1",
        "::FFFF:c000:201",
        "64:ff9b::c000:201",
    ];
    for form in forms {
        for (peer, lines) in [
            (form, vec![]),
            ("::ffff:10.0.0.1", vec![("x-forwarded-for", form)]),
        ] {
            assert_eq!(
                resolve(&address, peer, &lines),
                ip("192.0.2.1"),
                "{form} from {peer}"
            );
        }
        assert_eq!(
            address.key(form.parse().unwrap()),
            Key::from(ip("192.0.2.1").unwrap())
        );
    }
}

#[test]
fn behind_nat64_nobody_is_trusted_who_is_not_named() {
    // The prefix is not to be used for private addresses, so one that has it did not come from there.
    let address = ClientAddress::x_forwarded_for(private());
    let lines = [("x-forwarded-for", "6.6.6.6")];
    assert_eq!(
        resolve(&address, "64:ff9b::10.0.0.1", &lines),
        ip("10.0.0.1")
    );
}

#[test]
fn a_list_longer_than_anybodys_proxies_is_not_read_to_its_end() {
    let long = vec!["10.0.0.2"; 1_000].join(",");
    let address = ClientAddress::x_forwarded_for(private());
    let found = resolve(
        &address,
        "10.0.0.1",
        &[("x-forwarded-for", &format!("6.6.6.6,{long}"))],
    );
    assert_eq!(found, ip("10.0.0.1"));
}

#[test]
fn ipv6_is_grouped_as_it_was_configured() {
    let key = |bits, text: &str| {
        ClientAddress::peer()
            .ipv6_prefix(bits)
            .key(text.parse().unwrap())
    };
    assert_eq!(key(56, "2001:db8:0:1::1"), key(56, "2001:db8:0:2::1"));
    assert_ne!(key(64, "2001:db8:0:1::1"), key(64, "2001:db8:0:2::1"));
    assert_eq!(
        key(64, "2001:db8::1"),
        Key::from(ip("2001:db8::2").unwrap())
    );
    for bits in [0, 129] {
        let error = ClientAddress::peer().try_ipv6_prefix(bits).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("IPv6 prefix {bits}: is not between 1 and 128")
        );
    }
}

#[test]
#[should_panic(expected = "header \"x client\"")]
fn a_name_that_is_none_fails_while_it_is_built() {
    drop(ClientAddress::header("x client", private()));
}

/// Bytes that a header may hold, those that mean something in a list more often than others.
fn header_bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        3 => prop::sample::select(b",;=\"\\ \t.:[]%fFoOrR0123456789".to_vec()),
        1 => 0x20_u8..=0x7e,
        1 => 0x80_u8..=0xff,
    ];
    vec(byte, 0..60)
}

/// An address that is not one of the proxies'.
fn caller() -> impl Strategy<Value = IpAddr> {
    let not_trusted = |address: &IpAddr| !private().contains(*address);
    any::<IpAddr>().prop_filter("a proxy's", not_trusted)
}

fn headers(name: &HeaderName, lines: &[Vec<u8>]) -> HeaderMap {
    let line = |line: &Vec<u8>| (name.clone(), HeaderValue::from_bytes(line).unwrap());
    lines.iter().map(line).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_a_caller_sends_changes_who_it_is_behind_a_proxy(
        sent in vec(header_bytes(), 0..4),
        caller in caller(),
        port in any::<Option<u16>>(),
        same_line in any::<bool>(),
    ) {
        let bracketed = if caller.is_ipv6() { format!("[{caller}]") } else { caller.to_string() };
        let node = port.map_or(bracketed.clone(), |port| format!("{bracketed}:{port}"));
        for (name, appended, address) in [
            (X_FORWARDED_FOR, node.clone(), ClientAddress::x_forwarded_for(private())),
            (X_FORWARDED_FOR, caller.to_string(), ClientAddress::x_forwarded_for(Hops(1))),
            (FORWARDED, format!("for=\"{node}\";proto=https"), ClientAddress::forwarded(private())),
            (FORWARDED, format!("by=_me;for=\"{node}\""), ClientAddress::forwarded(Hops(1))),
        ] {
            // A proxy appends to the last line, or adds one.
            let mut lines = sent.clone();
            match lines.last_mut() {
                Some(last) if same_line => {
                    last.extend_from_slice(b", ");
                    last.extend_from_slice(appended.as_bytes());
                }
                _ => lines.push(appended.into_bytes()),
            }
            let found = address.resolve(ip("10.0.0.1"), &headers(&name, &lines));
            prop_assert_eq!(found, Some(by_its_bits(caller)), "{:?}", lines);
        }
    }

    #[test]
    fn whatever_the_headers_a_peer_that_is_not_trusted_is_the_caller(
        sent in vec(header_bytes(), 0..4),
        peer in caller(),
    ) {
        for (name, address) in [
            (X_FORWARDED_FOR, ClientAddress::x_forwarded_for(private())),
            (FORWARDED, ClientAddress::forwarded(private())),
            (X_FORWARDED_FOR, ClientAddress::header("x-forwarded-for", private())),
        ] {
            let found = address.resolve(Some(peer), &headers(&name, &sent));
            prop_assert_eq!(found, Some(by_its_bits(peer)));
        }
    }

    #[test]
    fn no_bytes_make_a_parser_panic_or_a_caller_disappear(sent in vec(header_bytes(), 0..4)) {
        for (name, address) in [
            (X_FORWARDED_FOR, ClientAddress::x_forwarded_for(Hops(2))),
            (FORWARDED, ClientAddress::forwarded(Hops(2))),
            (X_FORWARDED_FOR, ClientAddress::header("x-forwarded-for", private())),
        ] {
            prop_assert!(address.resolve(ip("10.0.0.1"), &headers(&name, &sent)).is_some());
        }
    }

    #[test]
    fn all_forms_of_one_address_are_one_caller(bits in any::<u32>(), port in any::<u16>()) {
        let address = ClientAddress::x_forwarded_for(Hops(1));
        let v4 = Ipv4Addr::from_bits(bits);
        let mapped = v4.to_ipv6_mapped();
        let forms = [
            v4.to_string(),
            format!("{v4}:{port}"),
            mapped.to_string(),
            format!("[{mapped}]:{port}"),
            format!("::ffff:{:x}:{:X}", bits >> 16, bits & 0xffff),
        ];
        for form in forms {
            let lines = headers(&X_FORWARDED_FOR, &[form.clone().into_bytes()]);
            prop_assert_eq!(address.resolve(ip("10.0.0.1"), &lines), Some(IpAddr::V4(v4)), "{}", form);
        }
    }
}
