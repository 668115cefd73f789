//! The state of the whole.

use std::collections::{BTreeMap, BTreeSet};

use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::json;

use crate::admin::steered::{POLICIES, Steered, address};

#[tokio::test(flavor = "multi_thread")]
async fn the_state_tells_policies_decisions_budgets_and_the_backend() {
    let steered = Steered::start().await;
    for caller in ["203.0.113.7", "203.0.113.8"] {
        let key = steered
            .gateway
            .limiter()
            .client_key(caller.parse().unwrap());
        for _ in 0..3 {
            steered.passes("login", key.clone()).await;
        }
    }
    steered.passes("pages", "alice").await;

    let state = steered.told("/api/state").await;
    let policy = |name: &str| {
        let policies = state["policies"].as_array().unwrap().iter();
        let mut of_name = policies.filter(|policy| policy["name"] == name);
        of_name.next().unwrap().clone()
    };
    assert_eq!(state["version"], env!("CARGO_PKG_VERSION"));
    let login = policy("login");
    assert_eq!(
        login["quotas"],
        json!([{ "name": "login", "quota": "2/h" }])
    );
    assert_eq!(login["switch"], "on");
    assert_eq!(
        (&login["on_demand"], &login["on_trial"], &login["bans"]),
        (&json!(true), &json!(false), &json!(true))
    );
    // Counted once for each decision, however many quotas a policy has.
    assert_eq!(
        login["decisions"]["enforced"],
        json!({ "allowed": 4, "denied": 2 })
    );
    assert_eq!(
        policy("pages")["decisions"]["enforced"],
        json!({ "allowed": 1 })
    );
    assert_eq!(
        policy("keys")["decisions"],
        json!({ "enforced": {}, "trial": {} })
    );
    assert_eq!(policy("keys")["on_demand"], false);

    // Those with the least share left are first.
    let tightest = state["tightest"].as_array().unwrap();
    let told: Vec<_> = tightest
        .iter()
        .map(|one| {
            let text = |name: &str| one[name].as_str().unwrap().to_owned();
            (
                text("policy"),
                text("caller"),
                text("quota"),
                one["remaining"].as_u64().unwrap(),
            )
        })
        .collect();
    let row = |policy: &str, caller: &str, quota: &str, left| {
        (policy.to_owned(), caller.to_owned(), quota.to_owned(), left)
    };
    assert_eq!(
        told,
        [
            row("login", "203.0.113.7", "2/h", 0),
            row("login", "203.0.113.8", "2/h", 0),
            row("pages", "=alice", "3/h", 2),
            row("pages", "=alice", "100/day", 99),
        ]
    );
    let full_in_ms = tightest[0]["full_in_ms"].as_u64().unwrap();
    assert!(
        (3_500_000..=3_600_000).contains(&full_in_ms),
        "{tightest:?}"
    );
    assert_eq!(state["backend"]["kind"], "memory");
    assert_eq!(state["backend"]["is_failing"], false);
    assert_eq!(state["backend"]["failures"], 0);

    let offenders = steered.told("/api/offenders?policy=login&most=1").await;
    assert_eq!(
        (&offenders["denials"], &offenders["distinct"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(offenders["callers"].as_array().unwrap().len(), 1);
    assert_eq!(offenders["callers"][0]["denials"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_was_away_for_one_reload_has_its_counts_and_no_callers_meanwhile() {
    let steered = Steered::start().await;
    steered.passes("login", address(7)).await;
    steered.passes("pages", "alice").await;
    let reload = async |text: &str| {
        steered.file.write(text);
        steered.gateway.reload().unwrap();
        steered.told("/api/state").await
    };
    let pages = "name = \"pages\"";
    assert!(POLICIES.contains(pages));

    let state = reload(&POLICIES.replace(pages, "name = \"others\"")).await;
    let tightest = state["tightest"].as_array().unwrap();
    assert!(tightest.iter().all(|one| one["policy"] == "login"));
    assert_eq!(tightest.len(), 1);
    let state = reload(POLICIES).await;

    let counted = state["policies"].as_array().unwrap().iter();
    let counted: Vec<_> = counted
        .map(|policy| policy["decisions"]["enforced"]["allowed"].as_u64())
        .collect();
    assert_eq!(counted, [Some(1), Some(1), None, None]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_tells_when_the_backend_was_asked_last() {
    let steered = Steered::start().await;
    let since =
        async || steered.told("/api/state").await["backend"]["last_decision_ms_ago"].clone();
    assert_eq!(since().await, json!(null));
    steered
        .done("/api/switch", &json!({ "policy": "login", "to": "off" }))
        .await;
    // Without a limit no backend is asked.
    steered.passes("login", address(7)).await;
    assert_eq!(since().await, json!(null));

    steered.passes("pages", "alice").await;
    let first = since().await.as_u64().unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let later = since().await.as_u64().unwrap();
    assert!(later >= first + 50, "{first} {later}");
}

#[test]
fn the_counts_are_those_of_the_metrics() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let page = recorder.handle();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let state = metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let steered = Steered::start().await;
            let ban = json!({ "policy": "login", "caller": "192.0.2.9", "seconds": 60 });
            steered.done("/api/ban", &ban).await;
            for to in ["on", "shadow", "off", "on"] {
                for policy in ["login", "pages"] {
                    let switch = json!({ "policy": policy, "to": to });
                    steered.done("/api/switch", &switch).await;
                }
                for _ in 0..3 {
                    for last in [7, 9] {
                        steered.passes("login", address(last)).await;
                    }
                    steered.passes("pages", "alice").await;
                    steered.passes("keys", "alice").await;
                }
                // A look counts as well, and an operator's does not.
                let probe = steered.gateway.limiter().check("pages", "alice").probe();
                drop(probe.await.unwrap());
                steered
                    .told("/api/caller?policy=login&caller=192.0.2.7")
                    .await;
            }
            steered.told("/api/state").await
        })
    });

    let page = page.render();
    let told = page.lines().filter_map(|line| {
        let labels = line.strip_prefix("rate_limiting_decisions_total{")?;
        let (labels, count) = labels.split_once("} ")?;
        let mut values = labels.split('"').skip(1).step_by(2);
        let mut next = || values.next().unwrap().to_owned();
        let count: u64 = count.parse().unwrap();
        (count > 0).then(|| ((next(), next(), next()), count))
    });
    let told: BTreeMap<_, _> = told.collect();
    let mut counted = BTreeMap::new();
    for policy in state["policies"].as_array().unwrap() {
        let name = policy["name"].as_str().unwrap().to_owned();
        for (kind, results) in policy["decisions"].as_object().unwrap() {
            for (result, count) in results.as_object().unwrap() {
                let labels = (name.clone(), kind.clone(), result.clone());
                counted.insert(labels, count.as_u64().unwrap());
            }
        }
    }
    assert_eq!(counted, told);
    let results: BTreeSet<_> = told.keys().map(|(_, _, result)| result.as_str()).collect();
    assert_eq!(
        results,
        BTreeSet::from(["allowed", "banned", "denied", "off"])
    );
}
