//! Metrics: each decision counts once, states are those of now, and a recorder that comes later is found.

#![cfg(all(feature = "axum", feature = "metrics"))]

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::figured::Figured;
use crate::common::{Strict, at_a_standstill, from};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use tokio::time::sleep;
use tollgate::key::{Global, KeyList};
use tollgate::{
    Ban, Block, Concurrent, Key, Limiter, LimiterBuilder, MemoryBackend, OnFailure, OnMissing,
    OnUnknown, Once, Policy, PressureGauge, Quota, RateLimitLayer, Share, Switch, Tiers, key,
};
use tower::{Layer, ServiceExt};

fn recorder() -> (PrometheusRecorder, PrometheusHandle) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let page = recorder.handle();
    (recorder, page)
}

/// The decisions on the page: the labels of each series that is not 0, and its count.
fn decisions(page: &PrometheusHandle) -> Vec<String> {
    let page = page.render();
    let lines = page.lines().filter_map(|line| {
        let series = line.strip_prefix("rate_limiting_decisions_total{")?;
        (!series.ends_with(" 0")).then(|| series.replace(['"', '}'], ""))
    });
    let mut lines: Vec<_> = lines.collect();
    lines.sort();
    lines
}

fn value(page: &PrometheusHandle, series: &str) -> Option<f64> {
    let page = page.render();
    let value = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
    page.lines().find_map(value)
}

/// Asks once for this policy and identity.
async fn ask(limiter: &Limiter, policy: &str, key: &str) {
    let _ruled = limiter.check(policy, key).await;
}

async fn send(limiter: &Limiter, times: usize) {
    for _ in 0..times {
        let service = RateLimitLayer::new(limiter).layer(Strict::default());
        drop(service.oneshot(from("10.0.0.1")).await.unwrap());
    }
}

fn metered() -> LimiterBuilder {
    Limiter::builder().backend(at_a_standstill().0).metrics()
}

#[tokio::test]
async fn a_request_counts_once_for_each_policy_whatever_the_number_of_its_quotas() {
    // given
    let (recorder, page) = recorder();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let limiter = metered()
        .policy(Policy::new("api", [("second", "9/s"), ("hour", "2/h")]))
        .policy(Policy::new("trial", Quota::per_hour(1)).shadow())
        .build()
        .unwrap();

    // when
    send(&limiter, 3).await;

    // then
    assert_eq!(
        decisions(&page),
        [
            "policy=api,kind=enforced,result=allowed 2",
            "policy=api,kind=enforced,result=denied 1",
            "policy=trial,kind=trial,result=allowed 1",
            "policy=trial,kind=trial,result=denied 2",
        ]
    );
}

#[tokio::test]
async fn a_recorder_that_is_installed_after_the_limiter_hears_of_what_follows() {
    // given a limiter that has decided without any
    let limiter = metered().policy(Policy::new("api", Quota::per_hour(9)));
    let limiter = limiter.build().unwrap();
    send(&limiter, 3).await;

    // when
    let (recorder, page) = recorder();
    let _installed = metrics::set_default_local_recorder(&recorder);
    send(&limiter, 2).await;
    limiter.publish_metrics();

    // then
    assert_eq!(
        decisions(&page),
        ["policy=api,kind=enforced,result=allowed 2"]
    );
    assert_eq!(value(&page, "rate_limiting_keys"), Some(1.0));
}

/// A rate needs a beginning: a series that begins with 1 has lost its first request.
#[tokio::test]
async fn the_first_page_has_the_series_of_requests_that_have_not_come_yet() {
    for is_late in [false, true] {
        let (recorder, page) = recorder();
        let limiter = || {
            let trial = Policy::new("trial", Quota::per_hour(9)).shadow();
            metered()
                .policies([Policy::new("api", ["9/s", "90/h"]), trial])
                .build()
                .unwrap()
        };
        let early = (!is_late).then(|| {
            let limited = metrics::with_local_recorder(&recorder, limiter);
            (limited, metrics::set_default_local_recorder(&recorder))
        });
        let (limiter, _installed) =
            early.unwrap_or_else(|| (limiter(), metrics::set_default_local_recorder(&recorder)));

        limiter.publish_metrics();

        let page = page.render();
        let lines = page.lines();
        let series = lines.filter(|line| line.starts_with("rate_limiting_decisions_total"));
        let series: BTreeSet<_> = series.collect();
        let expected = [("api", "enforced"), ("trial", "trial")].map(|(policy, kind)| {
            ["allowed", "denied"].map(|result| {
                format!(
                    "rate_limiting_decisions_total{{policy=\"{policy}\",kind=\"{kind}\",result=\"{result}\"}} 0"
                )
            })
        });
        let expected: BTreeSet<_> = expected.iter().flatten().map(String::as_str).collect();
        assert_eq!(series, expected, "{is_late}");
    }
}

/// The numbers of now, and not those of the page before.
#[tokio::test]
async fn requests_that_wait_and_policies_that_are_switched_are_states() {
    let (recorder, page) = recorder();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let minute = Duration::from_secs(60);
    let limiter = metered()
        .policy(Policy::new("places", Concurrent::at_most(1).wait_up_to(minute)).on_demand())
        .policy(Policy::new("api", Quota::per_hour(9)).on_demand())
        .build()
        .unwrap();
    let states = || {
        limiter.publish_metrics();
        [
            "waiting_requests",
            "switched_policies{switch=\"shadow\"}",
            "switched_policies{switch=\"off\"}",
        ]
        .map(|name| value(&page, &format!("rate_limiting_{name}")).unwrap())
    };
    assert_eq!(states(), [0.0, 0.0, 0.0]);

    let place = limiter.acquire("places", "alice").await.unwrap();
    let waits = async {
        let _placed = limiter.acquire("places", "alice").await.unwrap();
    };
    let looks = async {
        tokio::task::yield_now().await;
        assert_eq!(states(), [1.0, 0.0, 0.0]);
        drop(place);
    };
    tokio::join!(waits, looks);
    assert_eq!(states(), [0.0, 0.0, 0.0]);

    for (switch, expected) in [
        (Switch::Off, [0.0, 0.0, 1.0]),
        (Switch::Shadow, [0.0, 1.0, 0.0]),
        (Switch::On, [0.0, 0.0, 0.0]),
    ] {
        limiter.switch("api", switch).unwrap();
        assert_eq!(states(), expected, "{switch:?}");
    }
    limiter.switch_all(Switch::Off);
    assert_eq!(states(), [0.0, 0.0, 2.0]);

    // One without a policy of its own has those of its handlers.
    let without = metered().allow_no_policies().build().unwrap();
    without.switch_all(Switch::Shadow);
    without.publish_metrics();
    let shadow = value(&page, "rate_limiting_switched_policies{switch=\"shadow\"}");
    assert_eq!(shadow, Some(1.0));
}

/// It decides nothing: no request depended on it.
#[tokio::test]
async fn a_probe_counts_as_a_trial() {
    let (recorder, page) = recorder();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let limiter = metered().policy(Policy::new("api", Quota::per_hour(1)));
    let limiter = limiter.build().unwrap();

    ask(&limiter, "api", "alice").await;
    let _probed = limiter.check("api", "alice").probe().await.unwrap();

    assert_eq!(
        decisions(&page),
        [
            "policy=api,kind=enforced,result=allowed 1",
            "policy=api,kind=trial,result=denied 1",
        ]
    );
}

#[tokio::test]
async fn a_limiter_without_metrics_tells_a_recorder_nothing() {
    let (recorder, page) = recorder();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let limiter = Limiter::from(Policy::new("api", Quota::per_hour(9)));

    send(&limiter, 1).await;
    limiter.publish_metrics();

    assert_eq!(page.render(), "");
}

#[tokio::test]
async fn each_way_to_a_decision_has_a_result_of_its_own() {
    let (recorder, page) = recorder();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let minute = Duration::from_secs(60);
    let by_text = || key::Header::new("x-key");
    let limiter = metered()
        .policy(
            Policy::new("guarded", Quota::per_hour(1))
                .key(by_text())
                .ban(Ban::after(2, minute)),
        )
        .policy(
            Policy::new("slow", Quota::per_minute(1).wait_up_to(minute))
                .key(by_text())
                .on_demand(),
        )
        .policy(
            Policy::new("listed", Quota::per_hour(1))
                .key(by_text())
                .exempt_keys(KeyList::from_iter(["friend"]))
                .block_keys(KeyList::from_iter(["foe"]), Block::Forbidden),
        )
        .policy(Policy::new("places", Concurrent::at_most(1).wait_up_to(minute)).on_demand())
        .build()
        .unwrap();

    for _ in 0..4 {
        ask(&limiter, "guarded", "guesser").await;
    }
    for key in ["friend", "foe", "anyone"] {
        ask(&limiter, "listed", key).await;
    }
    ask(&limiter, "slow", "alice").await;
    let next = limiter.acquire("slow", "alice");
    tokio::select! {
        biased;
        _turn = next => panic!("the next turn is a minute away"),
        () = tokio::task::yield_now() => {}
    }

    let place = limiter.acquire("places", "alice").await.unwrap();
    let frees = async {
        sleep(Duration::from_millis(1)).await;
        drop(place);
    };
    let (placed, ()) = tokio::join!(limiter.acquire("places", "alice"), frees);
    assert!(placed.unwrap().is_allowed());

    assert_eq!(
        decisions(&page),
        [
            "policy=guarded,kind=enforced,result=allowed 1",
            "policy=guarded,kind=enforced,result=banned 2",
            "policy=guarded,kind=enforced,result=denied 1",
            "policy=listed,kind=enforced,result=allowed 1",
            "policy=listed,kind=enforced,result=blocked 1",
            "policy=listed,kind=enforced,result=exempt 1",
            "policy=places,kind=enforced,result=allowed 1",
            "policy=places,kind=enforced,result=waited 1",
            "policy=slow,kind=enforced,result=allowed 1",
            "policy=slow,kind=enforced,result=left 1",
            "policy=slow,kind=enforced,result=waited 1",
        ]
    );
}

#[tokio::test]
async fn a_replay_counts_as_one_and_so_does_a_trial_that_was_not_asked_and_a_request_that_left() {
    let (recorder, page) = recorder();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let foes = ["foe"].into_iter().collect::<KeyList>();
    let places = Concurrent::at_most(1).wait_up_to(Duration::from_secs(9));
    let limiter = metered()
        .policy(Policy::new("orders", Quota::per_hour(5)).once(Once::default()))
        .policy(Policy::new("listed", Quota::per_hour(5)).block_keys(foes, Block::Forbidden))
        .policy(Policy::new("trial", Quota::per_hour(5)).shadow())
        .policy(Policy::new("places", places))
        .build()
        .unwrap();

    for _ in 0..2 {
        let _order = limiter.check("orders", "alice").id("7").await;
    }
    let both = ["listed", "trial"].map(|policy| limiter.check(policy, "foe"));
    assert!(!limiter.check_all(both).await.unwrap().is_allowed());
    let place = limiter.acquire("places", "alice").await.unwrap();
    tokio::select! {
        biased;
        _place = limiter.acquire("places", "alice") => panic!("another has the place"),
        () = tokio::task::yield_now() => {}
    }
    drop(place);

    assert_eq!(
        decisions(&page),
        [
            "policy=listed,kind=enforced,result=blocked 1",
            "policy=orders,kind=enforced,result=allowed 1",
            "policy=orders,kind=enforced,result=replayed 1",
            "policy=places,kind=enforced,result=allowed 1",
            "policy=places,kind=enforced,result=left 1",
            "policy=trial,kind=trial,result=unasked 1",
        ]
    );
}

#[tokio::test]
async fn a_request_that_no_quota_decides_on_counts_by_its_reason() {
    let (recorder, page) = recorder();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let tiers = Tiers::by_async(Duration::from_secs(60), |_: Key| async {
        Err::<Option<String>, _>("a database that is away")
    });
    let tiers = tiers.tier("gold", Quota::per_hour(9));
    let limiter = metered()
        .policy(Policy::new("switched", Quota::per_hour(1)).on_demand())
        .policy(
            Policy::new("tiered", Quota::per_hour(1))
                .tiers(tiers.on_unknown(OnUnknown::Deny))
                .on_demand(),
        )
        .policy(
            Policy::new("keyed", Quota::per_hour(1))
                .key(key::Header::new("x-key"))
                .on_missing(OnMissing::Deny),
        )
        .build()
        .unwrap();
    limiter.switch("switched", Switch::Off).unwrap();

    ask(&limiter, "switched", "alice").await;
    let caller = limiter.client_key("192.0.2.7".parse().unwrap());
    let unknown = limiter.check("tiered", caller).await;
    assert!(unknown.is_err());
    // Without the header.
    send(&limiter, 1).await;

    assert_eq!(
        decisions(&page),
        [
            "policy=keyed,kind=enforced,result=unidentified 1",
            "policy=switched,kind=enforced,result=off 1",
            "policy=tiered,kind=enforced,result=tier_unknown 1",
        ]
    );
}

#[tokio::test]
async fn an_outage_counts_by_the_rule_of_each_policy_and_is_a_state() {
    let (recorder, page) = recorder();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let share = OnFailure::Local(Share::WHOLE);
    let limiter = Limiter::builder()
        .policy(Policy::new("open", Quota::per_hour(1)))
        .policy(Policy::new("closed", Quota::per_hour(1)).on_failure(OnFailure::Deny))
        .policy(Policy::new("local", Quota::per_hour(1)).on_failure(share))
        .backend(Figured(MemoryBackend::new()))
        .metrics()
        .build()
        .unwrap();

    for policy in ["open", "closed", "local", "local"] {
        ask(&limiter, policy, "alice").await;
    }
    limiter.publish_metrics();

    assert_eq!(
        decisions(&page),
        [
            "policy=closed,kind=enforced,result=refused_undecided 1",
            "policy=local,kind=enforced,result=allowed_by_share 1",
            "policy=local,kind=enforced,result=denied_by_share 1",
            "policy=open,kind=enforced,result=passed_undecided 1",
        ]
    );
    assert_eq!(
        value(&page, "rate_limiting_backend_failures_total"),
        Some(4.0)
    );
    assert_eq!(value(&page, "rate_limiting_backend_failing"), Some(1.0));
}

#[tokio::test]
async fn each_figure_of_the_backend_has_its_own_metric() {
    let (recorder, page) = recorder();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let limiter = Limiter::builder().policy(Policy::new("api", Quota::per_hour(1)));
    let limiter = limiter.backend(Figured(MemoryBackend::new())).metrics();
    limiter.build().unwrap().publish_metrics();

    let names = [
        "backend_calls_total",
        "backend_requests_total",
        "backend_sent_bytes_total",
        "backend_received_bytes_total",
        "lost_give_backs_total",
        "held_units",
        "lost_leases_total",
        "reclaimed_units_total",
        "known_denials_total",
        "leased_decisions_total",
        "servers_away",
        "keys",
        "evicted_keys_total",
    ];
    let values = names.map(|name| value(&page, &format!("rate_limiting_{name}")));
    let expected: [_; 13] = std::array::from_fn(|n| Some(101.0 + n as f64));
    assert_eq!(values, expected);
}

#[tokio::test]
async fn a_replacement_is_counted_with_its_outcome_and_a_version() {
    let (recorder, page) = recorder();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let limiter = metered().policy(Policy::new("api", Quota::per_hour(9)));
    let limiter = limiter.build().unwrap();

    limiter.replace([Policy::new("api", "10/s")]).unwrap();
    limiter.replace([]).unwrap_err();
    // No replacement.
    limiter.switch("api", Switch::Off).unwrap();
    limiter.publish_metrics();
    limiter.publish_metrics();

    for (series, expected) in [
        ("version", 1.0),
        ("replacements_total{result=\"applied\"}", 1.0),
        ("replacements_total{result=\"refused\"}", 1.0),
        ("last_replacement_successful", 0.0),
    ] {
        let series = format!("rate_limiting_config_{series}");
        assert_eq!(value(&page, &series), Some(expected), "{series}");
    }
}

#[tokio::test]
async fn a_shed_request_counts_under_no_policy() {
    let (recorder, page) = recorder();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let gauge = PressureGauge::new();
    let limiter = metered()
        .policy(Policy::new("api", Quota::per_hour(9)))
        .classes(["critical", "batch"], key::Header::new("x-class"))
        .shed(&gauge, [("batch", 0.5)])
        .build()
        .unwrap();
    gauge.set(0.9);

    send(&limiter, 2).await;
    limiter.publish_metrics();

    assert_eq!(decisions(&page), ["policy=,kind=enforced,result=shed 2"]);
    assert_eq!(value(&page, "rate_limiting_shedding"), Some(1.0));
}

#[tokio::test]
async fn the_share_of_the_fullest_budget_is_measured_at_each_decision() {
    let recorder = PrometheusBuilder::new()
        .set_buckets(&[0.24, 0.26, 0.49, 0.51, 1.0])
        .unwrap()
        .build_recorder();
    let page = recorder.handle();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let limiter = metered().policy(Policy::new("api", ["100/s", "4/h"]).key(Global));
    let limiter = limiter.build().unwrap();

    send(&limiter, 2).await;

    let labels = "policy=\"api\",kind=\"enforced\"";
    for (bound, below) in [("0.24", 0.0), ("0.26", 1.0), ("0.49", 1.0), ("0.51", 2.0)] {
        let series = format!("rate_limiting_budget_used_ratio_bucket{{{labels},le=\"{bound}\"}}");
        assert_eq!(value(&page, &series), Some(below), "{series}");
    }
}
