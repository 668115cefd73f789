//! The state of the whole, for a page that asks every second.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use axum::response::Response;
use serde_json::{Map, Value, json};
use tollgate::{Figure, Limiter, Mode, Policy};

use super::answer::object;
use super::asked::{Asked, switch_name};
use super::looks::{ms, told_key};
use super::watch::ResultCount;

/// The budgets that are told.
const MOST_BUDGETS: usize = 20;

impl Asked<'_> {
    /// The policies, the decisions, the tightest budgets and the health of the backend.
    pub(super) fn state(&self) -> Response {
        let (limiter, watch) = (&self.live.limiter, &self.admin.watch);
        let policies = limiter.policies();
        let asked = watch.since_asked(Instant::now());
        // Requests that are shed have no policy.
        watch.keep(|name| name.is_empty() || limiter.policy(name).is_some());
        let told = policies.iter().map(|policy| self.told_policy(policy));
        let counts = self.live.counts.read();
        object(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "run": self.admin.run(),
            "uptime_ms": ms(self.admin.started_at.elapsed()),
            "policies": told.collect::<Vec<_>>(),
            "shed": decisions(&watch.counts("")),
            "shedding": limiter.is_shedding(),
            "waiting": limiter.waiting(),
            "tightest": self.tightest(),
            "backend": backend(limiter, asked),
            "questions": {
                "passed": counts.passed,
                "refused": counts.refused,
                "undecided": counts.undecided,
                "invalid": counts.invalid,
                "unknown_domains": counts.unknown_domains,
                "unknown_descriptors": counts.unknown_descriptors,
                "lost_reports": counts.lost_reports,
            },
        }))
    }

    fn told_policy(&self, policy: &Policy) -> Value {
        let name = policy.name();
        let quotas = policy.limits().iter().filter(|limit| !limit.quota.is_ban());
        let quotas = quotas
            .map(|limit| json!({ "name": limit.label.quota(), "quota": limit.quota.to_string() }));
        json!({
            "name": name,
            "quotas": quotas.collect::<Vec<_>>(),
            "switch": switch_name(self.live.limiter.switch_of(name)),
            "on_trial": policy.mode() == Mode::Shadow,
            "on_demand": policy.is_on_demand(),
            "tiers": policy.has_tiers(),
            "bans": policy.bans(),
            "decisions": decisions(&self.admin.watch.counts(name)),
        })
    }

    fn tightest(&self) -> Vec<Value> {
        let now = Instant::now();
        let budgets = self.admin.watch.tightest(MOST_BUDGETS, now);
        let told = budgets.iter().map(|tight| {
            let budget = &tight.budget;
            let mut told = json!({
                "policy": tight.policy,
                "quota": budget.quota.to_string(),
                "limit": budget.limit,
                "remaining": budget.remaining,
                "full_in_ms": ms(budget.full_in(now)),
                "seen_ms_ago": ms(now.saturating_duration_since(budget.seen_at)),
            });
            told_key(&mut told, &tight.key);
            told
        });
        told.collect()
    }
}

/// The decisions by result, those of policies on trial apart.
fn decisions(counts: &[ResultCount]) -> Value {
    let mut kinds: BTreeMap<_, Map<String, Value>> = BTreeMap::new();
    for kind in ["enforced", "trial"] {
        kinds.insert(kind, Map::new());
    }
    for count in counts {
        let kind = if count.is_enforced {
            "enforced"
        } else {
            "trial"
        };
        let of_kind = kinds.entry(kind).or_default();
        of_kind.insert(count.result.to_owned(), count.decisions.into());
    }
    json!(kinds)
}

/// The health of the backend. A server that is away is known to the backend, and a failed decision to the limiter: either is an
/// outage. A limiter hears of its end by the next decision, so that the time since the latest one is told as well.
fn backend(limiter: &Limiter, asked: Option<Duration>) -> Value {
    let backend = limiter.backend();
    let place = backend.admin().place();
    let mut figures = Map::new();
    let mut away = 0;
    backend.admin().figures(&mut |figure, value| {
        let name = match figure {
            Figure::Calls => "calls",
            Figure::Requests => "requests",
            Figure::LostGiveBacks => "lost_give_backs",
            Figure::ServersAway => {
                away = value;
                return;
            }
            Figure::Keys => "keys",
            Figure::Evicted => "evicted_keys",
            _ => return,
        };
        figures.insert(name.to_owned(), value.into());
    });
    json!({
        "kind": if place.is_some() { "redis" } else { "memory" },
        "place": place,
        "is_failing": limiter.is_failing() || away > 0,
        "failures": limiter.failures(),
        "last_decision_ms_ago": asked.map(ms),
        "servers_away": away,
        "figures": figures,
    })
}
