//! The fields as others read them: whatever was decided, a parser of RFC 9651 that is not ours gets the numbers back.

use std::time::Duration;

use crate::common::{Body, Strict, at_a_standstill, from, header};
use http::Response;
use proptest::prelude::*;
use sfv::{BareItem, Dictionary, Item, List, ListEntry, Parameters, Parser};
use tollgate::{
    Algorithm, HeaderForm, Limiter, Policy, PolicyVerdict, Quota, RateLimitHeaders, RateLimitLayer,
    RateLimitStatus, Timestamp,
};
use tower::{Layer, ServiceExt};

const MOST: i64 = 999_999_999_999_999;

fn quota() -> impl Strategy<Value = Quota> {
    let limit = prop_oneof![1..=20_u64, 1..=1_u64 << 40];
    let period_us = prop_oneof![1..=5_000_000_u64, 1..=366 * 86_400_000_000_u64];
    let algorithm = prop_oneof![
        Just(Algorithm::Gcra),
        Just(Algorithm::SlidingWindow),
        Just(Algorithm::FixedWindow {
            offset: Duration::ZERO
        }),
        Just(Algorithm::SlidingLog),
    ];
    let burst = prop::option::of(prop_oneof![1..=20_u64, 1..=1_u64 << 40]);
    (limit, period_us, algorithm, burst).prop_filter_map(
        "no such quota",
        |(limit, period_us, algorithm, burst)| {
            let quota = Quota::try_new(limit, Duration::from_micros(period_us)).ok()?;
            let quota = quota.try_using(algorithm).ok()?;
            match burst {
                Some(burst) => quota.try_burst(burst).ok(),
                None => Some(quota),
            }
        },
    )
}

/// A policy of one or two quotas, by its name, and what a request costs.
fn policy() -> impl Strategy<Value = Policy> {
    let name = "[a-z0-9][a-z0-9._/-]{0,61}";
    let quotas = prop::collection::vec(quota(), 1..=2);
    let cost = prop_oneof![0..=3_u64, any::<u64>()];
    (name, quotas, cost)
        .prop_map(|(name, quotas, cost)| Policy::new(&name, quotas).cost_by(move |_| cost))
}

/// The times at which requests come: microseconds after each other.
fn arrivals() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(
        prop_oneof![Just(0), 0..=3_000_000_u64, any::<u32>().prop_map(u64::from)],
        1..8,
    )
}

/// The answer to one request under this policy, and everything that was decided about it.
struct Answered {
    response: Response<Body>,
    verdicts: Vec<PolicyVerdict>,
    tightest: PolicyVerdict,
    at: Timestamp,
}

/// Sends requests to a layer that writes these headers.
fn answers(policy: Policy, headers: RateLimitHeaders, arrivals: &[u64]) -> Vec<Answered> {
    let (backend, clock) = at_a_standstill();
    let limiter = Limiter::builder().policy(policy).backend(backend);
    let layer = RateLimitLayer::new(limiter.build().unwrap()).headers(headers);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let answer = |after_us: &u64| {
        clock.advance(Duration::from_micros(*after_us));
        // An outer handle sees what the layer decides, whether it refuses or not.
        let outer = RateLimitStatus::default();
        let mut request = from("10.0.0.1");
        request.extensions_mut().insert(outer.clone());
        let response = runtime.block_on(layer.layer(Strict::default()).oneshot(request));
        Answered {
            response: response.unwrap(),
            verdicts: outer.verdicts(),
            tightest: outer.tightest().unwrap(),
            at: tollgate::Clock::now(&clock),
        }
    };
    arrivals.iter().map(answer).collect()
}

fn list(text: &str) -> Vec<Item> {
    let list: List = Parser::new(text).parse().unwrap();
    list.into_iter()
        .map(|entry| match entry {
            ListEntry::Item(item) => item,
            ListEntry::InnerList(_) => panic!("no list of lists: {text}"),
        })
        .collect()
}

fn integer(item: &BareItem) -> u64 {
    let integer = i64::from(item.as_integer().unwrap());
    assert!((0..=MOST).contains(&integer));
    integer.cast_unsigned()
}

fn parameter(parameters: &Parameters, name: &str) -> Option<u64> {
    parameters.get(name).map(integer)
}

/// The answers to a refused caller and to one that passed.
fn expected(one: &PolicyVerdict) -> (u64, Duration) {
    let verdict = one.verdict();
    match verdict.retry_after() {
        Some(wait) => (0, wait),
        None if verdict.is_denied() => (0, verdict.reset_after()),
        None => (verdict.remaining(), verdict.reset_after()),
    }
}

fn rounded_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros().div_ceil(1_000_000)).unwrap()
}

/// `RateLimit` and `RateLimit-Policy` of draft-11, member by member.
fn check_draft_11(answered: &Answered, all: bool) {
    let Answered {
        response, verdicts, ..
    } = answered;
    let policies = list(header(response, "ratelimit-policy"));
    assert_eq!(policies.len(), verdicts.len());
    for (member, one) in policies.iter().zip(verdicts) {
        assert_eq!(member.bare_item.as_string().unwrap().as_str(), one.quota());
        let quota = parameter(&member.params, "q").unwrap();
        assert_eq!(quota, one.verdict().limit());
        assert!(parameter(&member.params, "w").unwrap() > 0);
        assert_eq!(member.params.len(), 2);
    }
    let told: Vec<_> = verdicts
        .iter()
        .filter(|one| all || one.quota() == answered.tightest.quota())
        .collect();
    let states = list(header(response, "ratelimit"));
    assert_eq!(states.len(), told.len());
    for (member, one) in states.iter().zip(told) {
        assert_eq!(member.bare_item.as_string().unwrap().as_str(), one.quota());
        let (remaining, after) = expected(one);
        assert_eq!(parameter(&member.params, "r"), Some(remaining));
        let after = (!one.verdict().never_passes()).then(|| rounded_up(after));
        assert_eq!(parameter(&member.params, "t"), after);
        let is_tightest = one.quota() == answered.tightest.quota();
        if is_tightest && one.verdict().is_denied() {
            // Both absent, or both the same.
            let after = after.map(|seconds| seconds.to_string());
            assert_eq!(after.unwrap_or_default(), header(response, "retry-after"));
        }
    }
}

/// `RateLimit` of draft-07, a dictionary, and its `RateLimit-Policy`, a list of numbers.
fn check_draft_07(answered: &Answered) {
    let Answered {
        response, tightest, ..
    } = answered;
    let state: Dictionary = Parser::new(header(response, "ratelimit")).parse().unwrap();
    let number = |name: &str| match state.get(name) {
        Some(ListEntry::Item(item)) => integer(&item.bare_item),
        _ => panic!("no {name} in {}", header(response, "ratelimit")),
    };
    let (remaining, after) = expected(tightest);
    assert_eq!(number("limit"), tightest.verdict().limit());
    assert_eq!(number("remaining"), remaining);
    assert_eq!(number("reset"), rounded_up(after));
    let policies = list(header(response, "ratelimit-policy"));
    for (member, one) in policies.iter().zip(&answered.verdicts) {
        assert_eq!(integer(&member.bare_item), one.verdict().limit());
        assert!(parameter(&member.params, "w").unwrap() > 0);
    }
    assert_eq!(policies.len(), answered.verdicts.len());
}

/// Three headers of a number each. `since` is what times are counted from.
fn check_triple(answered: &Answered, prefix: &str, since: Duration) {
    let number = |name: &str| {
        let value = header(&answered.response, &format!("{prefix}ratelimit-{name}"));
        let item: Item = Parser::new(value).parse().unwrap();
        integer(&item.bare_item)
    };
    let (remaining, after) = expected(&answered.tightest);
    assert_eq!(number("limit"), answered.tightest.verdict().limit());
    assert_eq!(number("remaining"), remaining);
    assert_eq!(number("reset"), rounded_up(since + after));
}

proptest! {
    #[test]
    fn draft_11_says_what_was_decided(policy in policy(), arrivals in arrivals(), all: bool) {
        let headers = RateLimitHeaders::default();
        let headers = if all { headers.of_all_policies() } else { headers };
        for answered in answers(policy, headers, &arrivals) {
            check_draft_11(&answered, all);
        }
    }

    #[test]
    fn the_older_forms_say_the_same(policy in policy(), arrivals in arrivals()) {
        let forms = [HeaderForm::Draft07, HeaderForm::Draft06, HeaderForm::Legacy];
        for answered in answers(policy, RateLimitHeaders::new(forms), &arrivals) {
            check_draft_07(&answered);
            check_triple(&answered, "", Duration::ZERO);
            let now = Duration::from_micros(answered.at.as_micros());
            check_triple(&answered, "x-", now);
        }
    }
}
