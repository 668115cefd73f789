//! Switches, and changes of one caller.

use serde_json::{Value, json};
use tollgate::RedisBackend;
use tollgate_testkit::{Log, Standalone};

use crate::admin::steered::{Steered, TOKEN, address};

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_holds_from_the_next_request_on() {
    let steered = Steered::start().await;
    for _ in 0..2 {
        steered.passes("login", address(7)).await;
    }
    let passes = async || steered.passes("login", address(7)).await;
    assert!(!passes().await);

    for (to, let_pass) in [
        ("shadow", true),
        ("on", false),
        ("off", true),
        ("on", false),
    ] {
        let body = json!({ "policy": "login", "to": to });
        let told = steered.done("/api/switch", &body).await;
        assert_eq!(told, json!({ "policy": "login", "switch": to }));
        assert_eq!(passes().await, let_pass, "{to}");
        let state = steered.told("/api/state").await;
        assert_eq!(state["policies"][0]["switch"], to);
        assert_eq!(state["policies"][0]["on_trial"], to == "shadow");
    }
    let state = steered.told("/api/state").await;
    let decisions = &state["policies"][0]["decisions"];
    assert_eq!(decisions["trial"], json!({ "denied": 1 }));
    assert_eq!(
        decisions["enforced"],
        json!({ "allowed": 2, "denied": 3, "off": 1 })
    );
}

/// The changes of one caller, on any backend.
async fn steers_one_caller(steered: &Steered) {
    let caller = json!({ "policy": "login", "caller": "192.0.2.7" });
    let key = || address(7);
    let inspect = async || {
        steered
            .told("/api/caller?policy=login&caller=192.0.2.7")
            .await
    };
    assert!(steered.passes("login", key()).await);

    let told = inspect().await;
    assert_eq!(told["passes"], true);
    assert_eq!(told["caller"], "192.0.2.7");
    assert_eq!(told["budgets"][0]["quota"], "2/h");
    assert_eq!(told["budgets"][0]["remaining"], 1);
    assert_eq!(
        (&told["banned_for_ms"], &told["strikes_until_ban"]),
        (&Value::Null, &json!(20))
    );
    assert_eq!(
        inspect().await["budgets"][0]["remaining"],
        1,
        "nothing is charged"
    );
    assert!(steered.passes("login", key()).await);
    assert!(!steered.passes("login", key()).await);
    let told = inspect().await;
    assert_eq!(
        (&told["passes"], &told["strikes_until_ban"]),
        (&json!(false), &json!(19))
    );
    assert!(told["budgets"][0]["retry_after_ms"].as_u64().unwrap() > 0);

    // A body says it as well as a query.
    let posted = steered.done("/api/caller", &caller).await;
    assert_eq!(posted["strikes_until_ban"], told["strikes_until_ban"]);
    let told = steered.done("/api/reset", &caller).await;
    assert_eq!(
        (&told["operation"], &told["policy"]),
        (&json!("reset"), &json!("login"))
    );
    assert!(steered.passes("login", key()).await);

    let ban = json!({ "policy": "login", "caller": "192.0.2.7", "seconds": 600 });
    let told = steered.done("/api/ban", &ban).await;
    let banned_for_ms = told["banned_for_ms"].as_u64().unwrap();
    assert!((590_000..=600_000).contains(&banned_for_ms), "{told}");
    assert_eq!(told["was_banned_for_ms"], Value::Null);
    assert!(!steered.passes("login", key()).await);
    let told = inspect().await;
    assert_eq!(told["passes"], false);
    assert!(told["banned_for_ms"].as_u64().unwrap() > 590_000);
    let list = steered.told("/api/bans?policy=login").await;
    assert_eq!(
        (&list["banned"], &list["complete"]),
        (&json!(1), &json!(true))
    );
    assert_eq!(list["callers"][0]["caller"], "192.0.2.7");

    let told = steered.done("/api/unban", &caller).await;
    assert!(told["was_banned_for_ms"].as_u64().unwrap() > 590_000);
    assert_eq!(told["banned_for_ms"], Value::Null);
    assert!(steered.passes("login", key()).await);
    assert_eq!(steered.told("/api/bans?policy=login").await["banned"], 0);
}

#[tokio::test]
async fn an_operator_inspects_resets_bans_and_unbans_a_caller_and_the_log_has_no_identity() {
    let log = Log::default();
    let _guard = log.listen();
    let steered = Steered::start().await;
    steers_one_caller(&steered).await;

    // One caller has one mark, which the answer tells and which is not an identity.
    let caller = json!({ "policy": "login", "caller": "192.0.2.7" });
    let told = steered.done("/api/reset", &caller).await;
    let mark = told["logged_as"].as_str().unwrap();
    let lines = log.text();
    let changes: Vec<_> = lines
        .lines()
        .filter(|line| line.contains("has changed a caller"))
        .collect();
    assert_eq!(changes.len(), 4, "{lines}");
    for (change, operation) in changes.iter().zip(["reset", "ban", "unban", "reset"]) {
        assert!(
            change.contains(&format!("operation=\"{operation}\"")),
            "{change}"
        );
        assert!(
            change.contains("policy=\"login\"") && change.contains(mark),
            "{change}"
        );
        assert!(change.contains("from=127.0.0.1:"), "{change}");
    }
    assert!(
        !lines.contains("192.0.2.7") && !lines.contains(TOKEN),
        "{lines}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_steers_the_fleets_redis() {
    let redis = Standalone::start();
    let backend = RedisBackend::builder(&redis.url()).connect().await.unwrap();
    let steered = Steered::with(|builder| builder.backend(backend)).await;
    steers_one_caller(&steered).await;

    let state = steered.told("/api/state").await;
    assert_eq!(state["backend"]["kind"], "redis");
    let place = state["backend"]["place"].as_str().unwrap();
    assert!(place.contains(&redis.port().to_string()), "{place}");
    assert_eq!(state["backend"]["is_failing"], false);
    assert!(state["backend"]["figures"]["calls"].as_u64().unwrap() > 0);
    // Another process of the fleet knows of it.
    let other = Steered::with({
        let backend = RedisBackend::builder(&redis.url()).connect().await.unwrap();
        |builder| builder.backend(backend)
    })
    .await;
    let ban = json!({ "policy": "login", "caller": "192.0.2.9", "seconds": 60 });
    steered.done("/api/ban", &ban).await;
    assert!(!other.passes("login", address(9)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_identities_come_back_as_they_are_and_can_be_steered() {
    let steered = Steered::start().await;
    let long = "k".repeat(10_000);
    let hostile = [
        "<img src=x onerror=alert(1)>",
        "</script><script>alert(1)</script>",
        "\"quotes\" and 'quotes' & %41 =x",
        "\u{202e}right to left",
        "line\nbreak\r\n\ttab\0",
        &long,
    ];
    for key in hostile {
        steered.passes("keys", key).await;
        assert!(!steered.passes("keys", key).await);
    }
    let offenders = steered.told("/api/offenders?policy=keys").await;
    let offenders = offenders["callers"].as_array().unwrap();
    for key in hostile {
        let found = offenders.iter().find(|one| match key.len() {
            0..100 => one["text"] == key,
            // As long as that it is a digest.
            _ => one["text"].is_null(),
        });
        let shown = found.unwrap()["caller"].as_str().unwrap();
        assert!(
            shown
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'<'),
            "{shown}"
        );
        // In both forms it is the same caller.
        for caller in [shown, key] {
            let body = json!({ "policy": "keys", "caller": caller });
            assert_eq!(steered.done("/api/reset", &body).await["caller"], shown);
            assert!(steered.passes("keys", key).await, "{shown}");
        }
    }
}
