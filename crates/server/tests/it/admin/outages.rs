//! A backend that fails.

use std::time::Duration;

use serde_json::json;
use tollgate::RedisBackend;
use tollgate_testkit::{Log, Standalone};

use crate::admin::steered::{Steered, address, fault};

#[tokio::test]
async fn a_backend_that_fails_is_told_with_its_reason() {
    let log = Log::default();
    let _guard = log.listen();
    let mut redis = Standalone::start();
    let backend = RedisBackend::builder(&redis.url()).connect().await.unwrap();
    let steered = Steered::with(|builder| builder.backend(backend)).await;
    steered.passes("login", address(7)).await;
    redis.kill();

    let caller = json!({ "policy": "login", "caller": "192.0.2.7" });
    let ban = json!({ "policy": "login", "caller": "192.0.2.7", "seconds": 60 });
    for answer in [
        steered
            .get("/api/caller?policy=login&caller=192.0.2.7")
            .await,
        steered.get("/api/bans?policy=login").await,
        steered.post("/api/reset", &caller).await,
        steered.post("/api/ban", &ban).await,
        steered.post("/api/unban", &caller).await,
    ] {
        let (status, reason) = fault(&answer);
        assert_eq!(status, 503, "{reason}");
        assert!(
            reason.contains("policy") || reason.contains("backend"),
            "{reason}"
        );
    }
    // The log has a line for each change that failed, and none about questions or about a request that makes no sense.
    let endless = json!({ "policy": "login", "caller": "192.0.2.7", "seconds": 0 });
    assert_eq!(fault(&steered.post("/api/ban", &endless).await).0, 503);
    let lines = log.text();
    for (operation, count) in [("reset", 1), ("ban", 2), ("unban", 1)] {
        let told = lines.lines().filter(|line| {
            line.contains("could not change a caller")
                && line.contains(&format!("operation=\"{operation}\""))
        });
        assert_eq!(told.count(), count, "{lines}");
    }
    // The state needs no backend.
    steered.passes("login", address(7)).await;
    let state = steered.told("/api/state").await;
    assert_eq!(state["backend"]["is_failing"], true);
    assert!(state["backend"]["failures"].as_u64().unwrap() > 0);
    assert!(state["backend"]["last_decision_ms_ago"].is_u64());
    let decisions = &state["policies"][0]["decisions"]["enforced"];
    assert_eq!(decisions["passed_undecided"], 1);

    redis.restart();
    let begin = tokio::time::Instant::now();
    while steered.told("/api/state").await["backend"]["is_failing"] == true {
        assert!(begin.elapsed() < Duration::from_secs(30));
        steered.passes("login", address(7)).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    steered.done("/api/reset", &caller).await;
}
