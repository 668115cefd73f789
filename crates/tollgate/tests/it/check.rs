//! A limiter without any request.

use std::net::IpAddr;
use std::time::Duration;

use crate::common::at_a_standstill;
use tollgate::key::{self, Global, Header, KeyList};
use tollgate::{Block, CheckError, ClientAddress, ClientIp, Key, Limiter, Policy, Quota, Tiers};

fn limiter() -> (Limiter, tollgate::ManualClock) {
    let (backend, clock) = at_a_standstill();
    let limiter = Limiter::builder()
        .policy(Policy::new(
            "mail",
            [Quota::per_minute(2), Quota::per_day(3)],
        ))
        .policy(Policy::new("trial", Quota::per_minute(1)).shadow())
        .backend(backend)
        .build()
        .unwrap();
    (limiter, clock)
}

#[tokio::test]
async fn a_check_takes_from_every_quota_of_its_policy_or_from_none() {
    let (limiter, clock) = limiter();

    assert_eq!(limiter.check("mail", "alice").await.unwrap().remaining(), 1);
    assert_eq!(limiter.check("mail", "alice").await.unwrap().remaining(), 0);
    let denied = limiter.check("mail", "alice").await.unwrap();
    assert!(!denied.is_allowed());
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(30)));
    assert_eq!(denied.verdicts()[1].remaining(), 1);

    clock.advance(Duration::from_secs(60));
    assert!(limiter.check("mail", "alice").await.unwrap().is_allowed());
    assert!(!limiter.check("mail", "alice").await.unwrap().is_allowed());
    assert!(limiter.check("mail", "bob").await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_probe_and_a_cost_of_0_take_nothing() {
    let (limiter, _) = limiter();

    for _ in 0..5 {
        assert!(
            limiter
                .check("mail", 42_u64)
                .cost(2)
                .probe()
                .await
                .unwrap()
                .is_allowed()
        );
        assert_eq!(
            limiter
                .check("mail", 42_u64)
                .cost(0)
                .await
                .unwrap()
                .remaining(),
            2
        );
    }
    let probe = limiter.check("mail", 42_u64).cost(3).probe().await.unwrap();
    assert!(!probe.is_allowed() && probe.retry_after().is_none());
}

#[tokio::test]
async fn a_policy_on_trial_always_allows() {
    let (limiter, _) = limiter();

    for denied in [false, true, true] {
        let checked = limiter.check("trial", "alice").await.unwrap();
        assert!(checked.is_allowed());
        assert_eq!(checked.verdicts()[0].is_denied(), denied);
    }
}

#[tokio::test]
async fn what_was_taken_can_be_given_back_and_added_to() {
    let (limiter, _) = limiter();

    for receipt in limiter
        .check("mail", "alice")
        .cost(2)
        .await
        .unwrap()
        .into_receipts()
    {
        limiter.refund(receipt, 1);
    }
    let peek = limiter.check("mail", "alice").cost(0).await.unwrap();
    assert_eq!(
        peek.verdicts()
            .iter()
            .map(tollgate::Verdict::remaining)
            .collect::<Vec<_>>(),
        [1, 2]
    );

    for receipt in limiter
        .check("mail", "alice")
        .await
        .unwrap()
        .into_receipts()
    {
        limiter.debit(&receipt, 1);
    }
    let denied = limiter.check("mail", "alice").await.unwrap();
    // One minute's budget full, one unit of debt behind it, and the next request: two intervals of 30 s.
    assert_eq!(
        denied.verdicts()[0].retry_after(),
        Some(Duration::from_secs(60))
    );
}

#[tokio::test]
async fn a_reset_fills_every_quota_of_the_policy() {
    let (limiter, _) = limiter();
    limiter.check("mail", "alice").cost(2).await.unwrap();

    limiter.reset("mail", "alice").await.unwrap();

    assert_eq!(
        limiter
            .check("mail", "alice")
            .cost(0)
            .await
            .unwrap()
            .remaining(),
        2
    );
}

#[tokio::test]
async fn a_policy_that_does_not_exist_is_named() {
    let (limiter, _) = limiter();

    let error = limiter.check("email", "alice").await.unwrap_err();

    assert!(matches!(error, CheckError::UnknownPolicy { .. }));
    assert_eq!(
        error.to_string(),
        "policy \"email\": there is no policy of this name"
    );
    assert!(limiter.reset("email", "alice").await.is_err());
}

#[tokio::test]
async fn a_check_that_nobody_awaits_spends_nothing() {
    use std::future::IntoFuture;

    let (limiter, _) = limiter();

    for _ in 0..5 {
        drop(limiter.check("mail", "alice").into_future());
    }

    assert_eq!(
        limiter
            .check("mail", "alice")
            .cost(0)
            .await
            .unwrap()
            .remaining(),
        2
    );
}

/// A limiter whose policy `page` has this key, and groups addresses by 56 bits.
fn page(policy: impl FnOnce(Policy) -> Policy) -> Limiter {
    let policy = policy(Policy::new("page", Quota::per_hour(5)));
    let address = ClientAddress::peer().ipv6_prefix(56);
    let builder = Limiter::builder().client_address(address);
    builder.policy(policy).build().unwrap()
}

#[tokio::test]
async fn an_identity_that_no_request_under_the_policy_ever_has_is_an_error_of_every_verb() {
    let ip = |text: &str| Key::from(text.parse::<IpAddr>().unwrap());
    let (text, v4, v6) = (
        || Key::from("alice"),
        || ip("203.0.113.7"),
        || ip("2001:db8::1"),
    );
    let pair = |one: Key, other: Key| Key::tuple([&one, &other]);
    let by_address = "its key is the client's address, and this is";
    type Of = fn(Policy) -> Policy;
    let unstated: Of = |policy| policy;
    let address: Of = |policy| policy.key(ClientIp);
    let header: Of = |policy| policy.key(Header::new("x-api-key"));
    let global: Of = |policy| policy.key(Global);
    let both: Of = |policy| policy.key((ClientIp, Header::new("x-api-key")));
    let cases = [
        (unstated, Key::from("203.0.113.7"), by_address),
        (unstated, Key::from("[2001:db8::1]:443"), by_address),
        (
            unstated,
            v6(),
            "an IPv6 network of 64 bits, and the limiter groups addresses by 56",
        ),
        (address, Key::from("203.0.113.7"), by_address),
        (address, text(), by_address),
        (address, Key::global(), "and this is the key of all callers"),
        (address, v6(), "limiter.client_key(address)"),
        (
            header,
            v4(),
            "its key is what a request says, and this is an address",
        ),
        (
            header,
            pair(text(), text()),
            "and this is an identity of several parts",
        ),
        (global, text(), "pass Key::global()"),
        (
            both,
            text(),
            "its key has 2 parts, and this is text or bytes",
        ),
        (
            both,
            Key::tuple([&v4()]),
            "its key has 2 parts, and this has 1",
        ),
        (
            both,
            pair(text(), v4()),
            "part 1 of its key: its key is the client's address",
        ),
        (
            both,
            pair(v6(), text()),
            "part 1 of its key: this is an IPv6 network of 64 bits",
        ),
    ];
    for (policy, key, reason) in cases {
        let limiter = page(policy);
        let refusals = [
            limiter.check("page", key.clone()).await.err(),
            limiter.check("page", key.clone()).cost(0).await.err(),
            limiter.check("page", key.clone()).probe().await.err(),
            limiter.reset("page", key.clone()).await.err(),
            limiter.forget_tier("page", key.clone()).err(),
        ];
        for refusal in refusals {
            let refusal = refusal.expect("no request has it").to_string();
            assert!(refusal.starts_with("policy \"page\": "), "{refusal}");
            assert!(refusal.contains(reason), "{refusal}: {reason}");
            assert!(
                !refusal.contains("203.0.113.7") && !refusal.contains("alice"),
                "{refusal}"
            );
        }
    }

    // An identity that a request may have is accepted as before, and for a closure any may be.
    let long = || Key::from("x".repeat(500));
    let closure: Of = |policy| policy.key(key::from_fn(|_| Some("anything")));
    let client = page(unstated).client_key("2001:db8::1".parse().unwrap());
    let good = [
        (unstated, text()),
        (unstated, v4()),
        (unstated, client.clone()),
        (address, v4()),
        (address, client.clone()),
        (address, Key::missing()),
        (header, Key::from("203.0.113.7")),
        (header, long()),
        (header, long().compact()),
        (global, Key::global()),
        (both, pair(v4(), text())),
        (both, pair(client, long())),
        (both, pair(v4(), long()).compact()),
        (closure, text()),
        (closure, v6()),
    ];
    for (policy, key) in good {
        let limiter = page(policy);
        assert!(limiter.check("page", key.clone()).await.is_ok(), "{key:?}");
        limiter.reset("page", key).await.unwrap();
    }
}

#[tokio::test]
async fn a_text_that_a_check_charged_is_reset_where_the_key_was_never_stated_and_refused_where_it_is_the_address()
 {
    // given a policy without a word about its key, under which text was charged
    let unstated = page(|policy| policy);
    let spent = || unstated.check("page", "alice").cost(0);
    unstated.check("page", "alice").cost(5).await.unwrap();
    assert_eq!(spent().await.unwrap().remaining(), 0);

    // then a reset of that text fills its budget
    unstated.reset("page", "alice").await.unwrap();
    assert_eq!(spent().await.unwrap().remaining(), 5);

    // and no verb takes text under a policy whose key is stated to be the address
    let stated = page(|policy| policy.key(ClientIp));
    for refused in [
        stated.check("page", "alice").await.err(),
        stated.reset("page", "alice").await.err(),
    ] {
        let refused = refused.unwrap().to_string();
        assert!(
            refused.contains("its key is the client's address"),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn the_parts_of_a_composite_key_are_named_as_a_tuple() {
    // given a key of an address and a header, whose budget a check has spent
    let limiter = page(|policy| policy.key((ClientIp, Header::new("x-api-key"))));
    let address: IpAddr = "203.0.113.7".parse().unwrap();
    let left = || limiter.check("page", (address, "alice")).cost(0);
    let key = Key::tuple([&Key::from(address), &Key::from("alice")]);
    limiter.check("page", key).cost(5).await.unwrap();
    assert_eq!(left().await.unwrap().remaining(), 0);

    limiter.reset("page", (address, "alice")).await.unwrap();

    assert_eq!(left().await.unwrap().remaining(), 5);
    let network = limiter.client_key("2001:db8::1".parse().unwrap());
    limiter.reset("page", (network, "alice")).await.unwrap();
    let refused = limiter.reset("page", ("alice", address)).await.unwrap_err();
    assert!(
        refused.to_string().contains("part 1 of its key"),
        "{refused}"
    );
}

#[test]
fn lists_and_tiers_of_identities_that_no_request_has_are_refused_when_the_limiter_is_built() {
    let refusal = |policy: Policy| {
        let limiter = Limiter::builder().policy(policy).build();
        limiter.unwrap_err().to_string()
    };
    let page = || Policy::new("page", Quota::per_hour(5));
    let list = || KeyList::from_iter(["203.0.113.7"]);
    let end = "no request can have this identity: its key is the client's address, and this is text that spells one; pass \
               an IpAddr, or better limiter.client_key(address)";

    let tiers = Tiers::by_key([("203.0.113.7", "gold")]).unlimited("gold");
    for (place, policy) in [
        ("tiers", page().tiers(tiers)),
        ("exempt_keys", page().exempt_keys(list())),
        ("block_keys", page().block_keys(list(), Block::Forbidden)),
    ] {
        assert_eq!(refusal(policy), format!("policy \"page\": {place}: {end}"));
    }
    let by_header = page().key(Header::new("x-api-key")).exempt_keys(list());
    assert!(Limiter::builder().policy(by_header).build().is_ok());
}
