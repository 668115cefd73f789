//! The API of the admin, asked over sockets. What counts is what the limiter does afterwards.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use common::File;
use common::http::{Answer, post, send};
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tollgate::{Key, LimiterBuilder, RedisBackend, Switch};
use tollgate_server::{Admin, AdminToken, Gateway};
use tollgate_testkit::{Log, Standalone};

const TOKEN: &str = "a-token-of-the-operators";

const POLICIES: &str = r#"
[[policies]]
name = "login"
quotas = "2/h"
on_demand = true
ban = { after = "20 in 10min for 15min" }

[[policies]]
name = "pages"
quotas = ["3/h", "100/day"]
on_demand = true

[[policies]]
name = "keys"
quotas = "1/h"
key = { header = "x-api-key" }

[[envoy]]
domain = "shop"
descriptor = [{ key = "remote_address" }]
policy = "login"
"#;

/// A gateway with an admin.
struct Steered {
    gateway: Arc<Gateway>,
    admin: SocketAddr,
    _file: File,
}

impl Steered {
    async fn start() -> Self {
        Self::with(|builder| builder).await
    }

    async fn with(finish: impl FnOnce(LimiterBuilder) -> LimiterBuilder) -> Self {
        let file = File::toml(POLICIES);
        let admin = Admin::new(AdminToken::new(TOKEN).unwrap());
        let gateway = Gateway::start(file.path(), |builder| finish(admin.watch(builder)));
        let gateway = Arc::new(gateway.unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Arc::clone(&gateway);
        tokio::spawn(async move {
            let never = std::future::pending();
            serving.serve_admin(listener, &admin, never).await
        });
        Self {
            gateway,
            admin: address,
            _file: file,
        }
    }

    async fn get(&self, path: &str) -> Answer {
        let token = format!("authorization: Bearer {TOKEN}\r\n");
        send(self.admin, &format!("GET {path}"), &token).await
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        let token = format!("authorization: Bearer {TOKEN}\r\n");
        post(self.admin, path, &token, &body.to_string()).await
    }

    /// The answer to a request that works.
    async fn told(&self, path: &str) -> Value {
        read(&self.get(path).await)
    }

    async fn done(&self, path: &str, body: &Value) -> Value {
        read(&self.post(path, body).await)
    }

    /// True if a request of this caller passes.
    async fn passes(&self, policy: &str, key: impl Into<Key>) -> bool {
        let checked = self.gateway.limiter().check(policy, key).await;
        checked.unwrap().is_allowed()
    }
}

/// The caller with this address.
fn address(last: u8) -> Key {
    Key::from(Ipv4Addr::new(192, 0, 2, last))
}

fn read(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.field("cache-control"), ["no-store"]);
    serde_json::from_str(&answer.body).unwrap()
}

/// The status and the reason of an answer to what has none.
fn fault(answer: &Answer) -> (u16, String) {
    assert_eq!(answer.field("cache-control"), ["no-store"], "{answer:?}");
    assert_eq!(answer.field("content-type"), ["application/json"]);
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    (answer.status, body["error"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_wrong_token_is_answered_401_whatever_it_asks_for_and_the_log_names_neither() {
    let log = Log::default();
    let _guard = log.listen();
    let steered = Steered::start().await;
    let wrong = [
        String::new(),
        "authorization: Bearer a-token-of-the-operatorz\r\n".to_owned(),
        "authorization: Bearer a-token-of-the-operator\r\n".to_owned(),
        "authorization: Bearer \r\n".to_owned(),
        "authorization: Bearer\r\n".to_owned(),
        format!("authorization: Basic {TOKEN}\r\n"),
        format!("authorization: {TOKEN}\r\n"),
        format!("authorization: Bearer {TOKEN}x\r\n"),
        format!("authorization: Bearer  {TOKEN}\r\n"),
        // Two contradict each other.
        format!("authorization: Bearer {TOKEN}\r\nauthorization: Bearer {TOKEN}\r\n"),
        format!("x-token: {TOKEN}\r\n"),
    ];
    let mut bodies = Vec::new();
    for fields in &wrong {
        for line in [
            "GET /api/state",
            "GET /api/caller?policy=login&caller=192.0.2.7",
            "POST /api/ban",
            "GET /nothing",
            "PUT /",
        ] {
            let answer = send(steered.admin, line, fields).await;
            assert_eq!(answer.status, 401, "{line} {fields} {answer:?}");
            assert_eq!(answer.field("www-authenticate"), ["Bearer"]);
            bodies.push(answer.body);
        }
        let token = format!("GET /api/state?token={TOKEN}");
        assert_eq!(send(steered.admin, &token, fields).await.status, 401);
    }
    // All answers are one, so that they do not tell what exists.
    bodies.dedup();
    assert_eq!(bodies.len(), 1);
    // The scheme has no case.
    let fields = format!("authorization: bEARER {TOKEN}\r\n");
    assert_eq!(
        send(steered.admin, "GET /api/state", &fields).await.status,
        200
    );

    let lines = log.text();
    let told = lines
        .matches("the admin was asked without its token")
        .count();
    assert_eq!(told, 1, "{lines}");
    assert!(
        !lines.contains("operators") && !lines.contains("operatorz"),
        "{lines}"
    );
}

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

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_told_and_changes_nothing() {
    let steered = Steered::start().await;
    let token = format!("authorization: Bearer {TOKEN}\r\n");
    let gets = [
        ("/nothing", 404, "there is nothing at this path"),
        ("/api", 404, "there is nothing at this path"),
        ("/api/switch", 405, "this path has the method POST"),
        ("/api/ban", 405, "this path has the method POST"),
        ("/api/caller?policy=login", 400, "caller: is missing"),
        ("/api/caller?caller=x", 400, "policy: is missing"),
        ("/api/caller?policy=login&caller=", 400, "caller: is empty"),
        (
            "/api/caller?policy=logon&caller=x",
            404,
            "there is no policy of this name; there are login, pages, keys",
        ),
        (
            "/api/caller?policy=login&policy=pages&caller=x",
            400,
            "policy: is there twice",
        ),
        (
            "/api/caller?policy=login&caller=x&most=3",
            400,
            "the parameters are policy, caller, and there is another one",
        ),
        (
            "/api/offenders?policy=logon",
            404,
            "there is no policy of this name",
        ),
        (
            "/api/offenders?policy=login&most=0",
            400,
            "most: is not a number above 0",
        ),
        (
            "/api/offenders?policy=login&most=many",
            400,
            "most: is not a number above 0",
        ),
        ("/api/bans?policy=pages", 409, "policy \"pages\""),
        (
            "/api/caller?policy=keys&caller=h00000000000000000000000000000000",
            400,
            "caller: this is the hash of an identity",
        ),
    ];
    for (path, status, reason) in gets {
        let told = fault(&steered.get(path).await);
        assert_eq!(told.0, status, "{path}: {told:?}");
        assert!(told.1.contains(reason), "{path}: {told:?}");
    }

    let whole = |more: &str| format!(r#"{{"policy":"login","caller":"192.0.2.7"{more}}}"#);
    let posts = [
        ("/api/state", whole(""), 405, "this path has the method GET"),
        ("/", whole(""), 405, "this path has the method GET"),
        ("/api/reset", String::new(), 400, "the body: "),
        ("/api/reset", "{".to_owned(), 400, "the body: "),
        ("/api/reset", "[]".to_owned(), 400, "the body: "),
        ("/api/reset", "null".to_owned(), 400, "the body: "),
        (
            "/api/reset",
            whole(r#","whom":1"#),
            400,
            "the body: unknown field `whom`",
        ),
        (
            "/api/reset",
            whole(r#","policy":"login""#),
            400,
            "the body: duplicate field `policy`",
        ),
        (
            "/api/reset",
            whole(r#","seconds":1"#),
            400,
            "seconds: this operation takes policy, caller",
        ),
        (
            "/api/reset",
            r#"{"policy":"login"}"#.to_owned(),
            400,
            "caller: is missing",
        ),
        (
            "/api/reset",
            r#"{"caller":"x"}"#.to_owned(),
            400,
            "policy: is missing",
        ),
        (
            "/api/reset",
            r#"{"policy":7,"caller":"x"}"#.to_owned(),
            400,
            "the body: invalid type",
        ),
        (
            "/api/reset",
            whole("").replace("login", "logon"),
            404,
            "there is no policy of this name",
        ),
        ("/api/ban", whole(""), 400, "seconds: is missing"),
        (
            "/api/ban",
            whole(r#","seconds":-1"#),
            400,
            "the body: invalid value",
        ),
        (
            "/api/ban",
            whole(r#","seconds":0"#),
            400,
            "the length of the ban",
        ),
        (
            "/api/ban",
            whole(r#","seconds":18446744073709551615"#),
            400,
            "the length of the ban",
        ),
        (
            "/api/ban",
            whole(r#","seconds":60"#).replace("login", "pages"),
            409,
            "policy \"pages\"",
        ),
        (
            "/api/unban",
            whole("").replace("login", "pages"),
            409,
            "policy \"pages\"",
        ),
        (
            "/api/switch",
            r#"{"policy":"login"}"#.to_owned(),
            400,
            "to: is missing",
        ),
        (
            "/api/switch",
            r#"{"policy":"login","to":"of"}"#.to_owned(),
            400,
            "the body: unknown variant `of`",
        ),
        (
            "/api/switch",
            r#"{"policy":"logon","to":"off"}"#.to_owned(),
            404,
            "there is no policy of this name",
        ),
        (
            "/api/switch",
            whole(r#","to":"off""#),
            400,
            "caller: this operation takes policy, to",
        ),
        (
            "/api/reset",
            format!("{{\"policy\":\"{}\"}}", "x".repeat(16 << 10)),
            413,
            "the body has more than 16384 bytes",
        ),
    ];
    for (path, body, status, reason) in posts {
        let told = fault(&post(steered.admin, path, &token, &body).await);
        assert_eq!(told.0, status, "{path} {body}: {told:?}");
        assert!(told.1.contains(reason), "{path} {body}: {told:?}");
    }
    let answer = send(steered.admin, "DELETE /api/state", &token).await;
    assert_eq!(
        (fault(&answer).0, answer.field("allow")),
        (405, vec!["GET, HEAD"])
    );
    let answer = send(steered.admin, "GET /api/ban", &token).await;
    assert_eq!(answer.field("allow"), ["POST"]);

    // Nothing has come of all that.
    let limiter = steered.gateway.limiter();
    assert_eq!(limiter.switch_of("login"), Switch::On);
    assert_eq!(limiter.banned("login", address(7)).await.unwrap(), None);
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

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_served_without_the_token_and_embeds_and_asks_nothing_else() {
    let steered = Steered::start().await;
    for (path, content_type) in [
        ("/", "text/html; charset=utf-8"),
        ("/admin.css", "text/css; charset=utf-8"),
        ("/admin.js", "text/javascript; charset=utf-8"),
    ] {
        let answer = send(steered.admin, &format!("GET {path}"), "").await;
        assert_eq!(
            (answer.status, answer.field("content-type")),
            (200, vec![content_type])
        );
        assert_eq!(answer.field("x-content-type-options"), ["nosniff"]);
        assert_eq!(answer.field("referrer-policy"), ["no-referrer"]);
        assert_eq!(answer.field("cache-control"), ["no-store"]);
        let policy = answer.field("content-security-policy")[0].to_owned();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "connect-src 'self'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(
            !policy.contains("unsafe") && !policy.contains('*'),
            "{policy}"
        );
        for other in [
            "http://",
            "https://",
            "//",
            "innerHTML",
            "onclick",
            "style=",
        ] {
            let body = answer.body.replace("// ", "");
            assert!(!body.contains(other), "{path}: {other}");
        }
        let head = send(steered.admin, &format!("HEAD {path}"), "").await;
        assert_eq!((head.status, &*head.body), (200, ""));
    }
}
