//! Identities: each has its own budgets, and none has another's.

use std::net::IpAddr;
use std::time::Duration;

use tollgate_core::{Algorithm, Key, Quota, Scope};

use crate::{Budget, Subject, align};

/// Each key takes a different amount, and each finds its own again.
async fn each_has_its_own(subject: &dyn Subject, policy: &str, keys: Vec<Key>) {
    let budget = Budget::of(policy, Quota::per_day(1000));
    let budgets: Vec<Budget> = keys.into_iter().map(|key| budget.for_key(key)).collect();

    for (cost, budget) in (1..).zip(&budgets) {
        budget.take(subject, cost).await;
    }

    for (cost, budget) in (1..).zip(&budgets) {
        let left = budget.remaining(subject).await;
        assert_eq!(left, 1000 - cost, "{cost}: {:?}", budget.key);
    }
}

/// Any bytes are an identity: nothing is cut, unescaped, normalised or read as anything.
pub async fn odd_keys_have_budgets_of_their_own(subject: &dyn Subject) {
    let long = |last: u8| {
        let mut key = vec![b'x'; 10_240];
        key.push(last);
        Key::bytes(&key)
    };
    let keys: Vec<Key> = [
        &b""[..],
        b"\0",
        b"\0\0",
        b"a",
        b"a\0",
        b"\0a",
        b"A",
        b"{a}",
        b"{}",
        b"{b}a",
        b"a:b",
        b"a b",
        b"a\r\nb",
        b"a%00",
        b"\xff\xfe",
        b"\xc3\x28",
        "é".as_bytes(),
        "e\u{301}".as_bytes(),
        b"nil",
        b"-1",
        b"1e3",
        &[7; 5],
        &[7; 6],
        &[7; 7],
        &[7; 8],
        &[7; 9],
        &[7; 127],
        &[7; 128],
    ]
    .into_iter()
    .map(Key::bytes)
    .chain([long(1), long(2)])
    .collect();

    each_has_its_own(subject, "odd-keys", keys).await;
}

/// The parts of a key do not run into each other, a text is not an address, and no text is the missing identity.
pub async fn pitfall_key_parts_joined_without_escaping(subject: &dyn Subject) {
    let pair = |a: &str, b: &str| Key::tuple([&Key::from(a), &Key::from(b)]);
    let address = |text: &str| Key::from(text.parse::<IpAddr>().unwrap());
    let keys = vec![
        pair("a_b", "c"),
        pair("a", "b_c"),
        pair("a", ""),
        pair("", "a"),
        Key::from("a"),
        Key::tuple([&Key::from("a")]),
        address("10.0.0.1"),
        Key::from("10.0.0.1"),
        Key::bytes(&[10, 0, 0, 1]),
        address("2001:db8:1:2::"),
        address("2001:db8:1:3::"),
        Key::missing(),
        Key::global(),
        Key::bytes(&[]),
        Key::bytes(&[0]),
        Key::bytes(&[1]),
    ];

    each_has_its_own(subject, "parts", keys).await;
}

/// No separator in a policy's name makes it another policy's.
pub async fn policies_whose_names_look_alike_do_not_mix(subject: &dyn Subject) {
    let names = [
        "alike", "alike:0", "alike:", "alike{", "alike}", "{alike}", "alike 0", "ALIKE",
    ];
    let budgets: Vec<Budget> = names
        .into_iter()
        .map(|name| Budget::of(name, Quota::per_day(100)))
        .collect();

    for (cost, budget) in (1..).zip(&budgets) {
        budget.take(subject, cost).await;
    }

    for (cost, budget) in (1..).zip(&budgets) {
        let left = budget.remaining(subject).await;
        assert_eq!(left, 100 - cost, "{:?}", budget.scope);
    }
}

/// Ten a second and a hundred an hour are two budgets.
pub async fn every_quota_of_a_policy_has_its_own_budget(subject: &dyn Subject) {
    let quota = Quota::per_day(10);
    let first = Budget::of("slots", quota);
    let second = Budget {
        scope: Scope::of("slots", 1, &quota),
        ..first.clone()
    };

    first.take(subject, 4).await;

    assert_eq!(first.remaining(subject).await, 6);
    assert_eq!(second.remaining(subject).await, 10);
}

/// A caller that moves to another tier takes its charges along.
pub async fn another_limit_is_no_fresh_budget(subject: &dyn Subject) {
    let day = Duration::from_secs(86_400);
    let fixed = Algorithm::FixedWindow {
        offset: Duration::ZERO,
    };
    let refill = Algorithm::IntervalRefill {
        offset: Duration::ZERO,
    };
    for algorithm in [
        fixed,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
        refill,
    ] {
        align(subject, day).await;
        let small = Budget::of("tiers", Quota::per_day(10).using(algorithm));
        let large = Budget {
            quota: Quota::per_day(100).using(algorithm),
            ..small.clone()
        };

        small.take(subject, 8).await;
        assert_eq!(large.remaining(subject).await, 92);
        large.take(subject, 42).await;

        let verdict = small.take(subject, 1).await.verdicts()[0];
        assert!(verdict.is_denied());
        assert_eq!((verdict.limit(), verdict.remaining()), (10, 0));
        subject.advance(day * 2).await;
    }
    // A bucket remembers time, not an amount: half an hour of drain stays half an hour.
    let small = Budget::of("tiers", Quota::per_hour(10));
    let large = Budget {
        quota: Quota::per_hour(100),
        ..small.clone()
    };
    small.take(subject, 5).await;
    assert_eq!(large.remaining(subject).await, 50);
}

/// Another algorithm reads states of another meaning.
pub async fn another_algorithm_is_another_budget(subject: &dyn Subject) {
    let bucket = Budget::of("algorithms", Quota::per_day(10));
    let window = Budget::of(
        "algorithms",
        Quota::per_day(10).using(Algorithm::SlidingWindow),
    );
    let shorter = Budget::of(
        "algorithms",
        Quota::per_hour(10).using(Algorithm::SlidingWindow),
    );

    bucket.take(subject, 10).await;
    window.take(subject, 5).await;

    assert_eq!(bucket.remaining(subject).await, 0);
    assert_eq!(window.remaining(subject).await, 5);
    assert_eq!(shorter.remaining(subject).await, 10);
}
