//! The RateLimit fields, read by a foreign parser.

use http::{HeaderMap, Request};
use sfv::{BareItem, Item, List, ListEntry, Parser};
use tollgate::key::Global;
use tollgate::{Limiter, ManualClock, MemoryBackend, Policy, Quota, RateLimitLayer};

use crate::service::answer;

/// The largest integer of RFC 9651.
const MOST: u64 = 999_999_999_999_999;

/// The first line is the name of a policy, the second the cost of a request, the others are quotas. A foreign parser reads the
/// fields, and finds the intended values.
pub fn fields(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let name = lines.next().unwrap_or_default();
    let cost: u64 = lines.next().and_then(|line| line.parse().ok()).unwrap_or(1);
    let quotas: Vec<Quota> = lines.filter_map(|line| line.parse().ok()).take(4).collect();
    let Ok(policy) = Policy::try_new(name, quotas.clone()) else {
        return;
    };
    let backend = MemoryBackend::builder().clock(ManualClock::new()).build();
    let policy = policy.key(Global).cost_by(move |_| cost);
    let limiter = Limiter::builder()
        .policy(policy)
        .backend(backend)
        .build()
        .unwrap();
    let layer = RateLimitLayer::new(limiter);
    for _ in 0..3 {
        let response = answer(&layer, Request::get("/").body(()).unwrap());
        let headers = response.headers();
        let policies = members(headers, "ratelimit-policy");
        let states = members(headers, "ratelimit");
        for member in policies.iter().chain(&states) {
            let found = member.bare_item.as_string().unwrap().as_str();
            assert!(found.starts_with(name), "{found} of {name}");
        }
        for member in &policies {
            let found = integer(member, "q").unwrap();
            let is_one = quotas
                .iter()
                .any(|quota| quota.capacity().min(MOST) == found);
            assert!(is_one, "q={found} of {quotas:?}");
            assert!(integer(member, "w").is_none_or(|window| window > 0));
        }
        let retry_after = headers
            .get("retry-after")
            .map(|value| value.to_str().unwrap());
        for member in &states {
            let left = integer(member, "r").unwrap();
            if response.status() == 429 {
                assert_eq!(left, 0);
                let told = integer(member, "t").map(|seconds| seconds.to_string());
                assert!(retry_after.is_none() || told.as_deref() == retry_after);
            } else {
                assert!(quotas.iter().any(|quota| left <= quota.capacity()));
            }
        }
        assert_ne!(retry_after, Some("0"));
    }
}

fn members(headers: &HeaderMap, name: &str) -> Vec<Item> {
    let Some(value) = headers.get(name) else {
        return Vec::new();
    };
    let list: List = Parser::new(value.to_str().unwrap()).parse().unwrap();
    let item = |entry| match entry {
        ListEntry::Item(item) => item,
        ListEntry::InnerList(_) => panic!("a list in a list: {value:?}"),
    };
    list.into_iter().map(item).collect()
}

fn integer(item: &Item, name: &str) -> Option<u64> {
    let number = item.params.get(name).and_then(BareItem::as_integer)?;
    Some(u64::try_from(i64::from(number)).unwrap())
}
