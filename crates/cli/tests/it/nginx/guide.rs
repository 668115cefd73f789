//! The page about the module, as it stands: its `limits.toml` and its `nginx.conf`.

use std::fs;

use tollgate_testkit::Standalone;

use crate::nginx::client::{Answer, Ask, status};
use crate::nginx::page::example;
use crate::nginx::served::{Gate, convert};
use crate::support::program::tollgate;

fn wait(answer: &Answer) -> u64 {
    answer.field("retry-after")[0].parse().unwrap()
}

fn order(shop: &str, caller: &str) -> Ask {
    let body = format!("{{\"caller\":\"{caller}\",\"items\":[1,2]}}");
    Ask::new(format!("POST /orders/{shop}")).body("application/json", body)
}

#[tokio::test(flavor = "multi_thread")]
async fn nginx_limits_by_the_configuration_of_the_page() {
    let redis = Standalone::start();
    let gate = Gate::start(&example("toml"), &redis).await;
    let (front, reached) = (gate.address(), &gate.reached);

    // The method, the path and the address of the caller.
    for left in (0..5).rev() {
        let passed = Ask::new("POST /login").send(front).await;
        assert_eq!(
            (passed.status, &*passed.body),
            (200, "served"),
            "{passed:?}"
        );
        assert_eq!(passed.field("ratelimit-policy"), ["\"login\";q=5;w=3600"]);
        let state = passed.field("ratelimit")[0];
        assert!(
            state.starts_with(&format!("\"login\";r={left};t=")),
            "{state}"
        );
    }
    let refused = Ask::new("POST /login").send(front).await;
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!((1..=720).contains(&wait(&refused)), "{refused:?}");
    let state = format!("\"login\";r=0;t={}", wait(&refused));
    assert_eq!(refused.field("ratelimit"), [state]);
    assert_eq!(refused.field("content-type"), ["application/problem+json"]);
    assert_eq!(refused.field("cache-control"), ["no-store"]);
    let problem: serde_json::Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(problem["violated-policies"], serde_json::json!(["login"]));
    assert_eq!(reached.count(), 5);
    assert_eq!(status(front, "GET /login").await, 200);
    assert_eq!(
        Ask::new("POST /login").from(2).send(front).await.status,
        200
    );
    // Neither is it a way around to write the path in another form, nor to claim another address.
    reached.take();
    for line in [
        "POST /login?x=1",
        "POST /%6Cogin",
        "POST /login/",
        "POST http://shop/login",
    ] {
        assert_eq!(status(front, line).await, 429, "{line}");
    }
    for field in ["x-forwarded-for", "x-real-ip", "forwarded"] {
        let lie = Ask::new("POST /login").field(field, "9.9.9.9");
        assert_eq!(lie.send(front).await.status, 429, "{field}");
    }
    assert_eq!(reached.count(), 0);

    // Two quotas, tiers, and both lists.
    let call = |key: &str| Ask::new("GET /api/things").field("x-api-key", key);
    for (key, passes) in [("alice", 20), ("bob", 20), ("partner", 40)] {
        for _ in 0..passes {
            assert_eq!(call(key).send(front).await.status, 200, "{key}");
        }
        let refused = call(key).send(front).await;
        assert_eq!(refused.status, 429, "{key}");
        assert_eq!(reached.count(), passes, "{key}");
        let policies = match key {
            "partner" => "\"api\";q=40;w=3600",
            _ => "\"api-burst\";q=20;w=3600, \"api-day\";q=1000;w=86400",
        };
        assert_eq!(refused.field("ratelimit-policy"), [policies]);
    }
    for _ in 0..25 {
        let exempt = call("our-own").send(front).await;
        assert_eq!((exempt.status, exempt.field("ratelimit").len()), (200, 0));
    }
    reached.take();
    let blocked = call("leaked").send(front).await;
    assert_eq!(
        (blocked.status, blocked.field("cache-control")),
        (403, vec!["no-store"])
    );
    assert_eq!(status(front, "GET /api/things").await, 403);
    assert_eq!(
        call("a").field("X-Api-Key", "b").send(front).await.status,
        400
    );
    assert_eq!(reached.count(), 0);

    // A field of the body, together with a part of the path; and of a form, whole or in pieces.
    for (shop, caller) in [("north", "alice"), ("north", "bob"), ("south", "alice")] {
        for _ in 0..3 {
            assert_eq!(order(shop, caller).send(front).await.status, 200);
        }
        assert_eq!(
            order(shop, caller).send(front).await.status,
            429,
            "{shop} {caller}"
        );
    }
    let form = "application/x-www-form-urlencoded";
    let forms = [
        Ask::new("POST /sign-up").body(form, "caller=al%69ce&x=1"),
        Ask::new("POST /sign-up").chunked(form, &["cal", "ler=alice"]),
        Ask::new("POST /sign-up").body(
            "application/x-www-form-urlencoded; charset=utf-8",
            "caller=alice",
        ),
    ];
    for form in &forms {
        assert_eq!(form.send(front).await.status, 200);
    }
    assert_eq!(forms[0].send(front).await.status, 429);
    assert_eq!(reached.count(), 9 + 3);

    // On trial.
    for _ in 0..4 {
        let passed = Ask::new("GET /search?user=7").send(front).await;
        assert_eq!((passed.status, passed.field("ratelimit").len()), (200, 0));
    }
    assert_eq!(
        redis.command(&["EXISTS", "tollgate:search:0/g:=7"]),
        ":1\r\n"
    );
    assert!(!gate.nginx.log().contains("[lua]"), "{}", gate.nginx.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_worker_keeps_few_connections() {
    let redis = Standalone::start();
    let gate = Gate::start("policies = [{ name = 'a', quotas = '1000/h' }]", &redis).await;
    for _ in 0..50 {
        assert_eq!(status(gate.address(), "GET /").await, 200);
    }
    let clients = redis.command(&["CLIENT", "LIST"]);
    // One of each worker.
    assert!(
        clients.matches(" laddr=127.0.0.1:").count() <= 2,
        "{clients}"
    );
}

/// A file, what nginx cannot do of it, and the line.
const BEYOND: &[(&str, &str)] = &[
    (
        "quotas = '5 at once'",
        "quotas: 5 at once: nginx does not give back what a request holds",
    ),
    (
        "quotas = '5/s burst 1 wait 2s'",
        "requests do not wait in nginx for their turn",
    ),
    (
        "quotas = '5/s'\ngrpc = ['a.B/C']",
        "grpc: nginx does not answer calls of gRPC",
    ),
    (
        "quotas = '100/s'\nlease = { up_to = 50 }",
        "lease: nginx leases nothing",
    ),
    (
        "quotas = '5/s'\nwhen = ['x']",
        "when: only the code of a service has what is registered",
    ),
    (
        "quotas = '5/s'\ncost = 'x'",
        "cost: only the code of a service",
    ),
    (
        "quotas = '5/s'\noutcome = 'x'",
        "outcome: nginx does not correct a charge",
    ),
    (
        "quotas = '5/s'\non_failure = 'local'",
        "on_failure: the workers of nginx have no budgets of their own",
    ),
    (
        "quotas = '5/s'\non_failure = { local-percent = 30 }",
        "on_failure: ",
    ),
    (
        "quotas = '5/s'\nkey = { registered = 'x' }",
        "key: only the code of a service",
    ),
    (
        "quotas = '5/s'\nkey = 'matched-route'",
        "key: nginx does not know the routes of your services",
    ),
    (
        "quotas = '5/s'\nkey = { path-param = 'id' }",
        "key: nginx knows the parameter id only by the routes of the policy",
    ),
    (
        "quotas = '5/s'\nkey = { header = 'x' }\nexempt_keys = [{ registered = 'x' }]",
        "exempt_keys: only the code",
    ),
    (
        "quotas = '5/s'\nkey = { header = 'x' }\nblock_keys = { forbidden = [{ registered = 'x' }] }",
        "block_keys: only the code",
    ),
    (
        "quotas = '5/s'\nexempt_networks = [{ registered = 'x' }]",
        "exempt_networks: only the code",
    ),
    (
        "quotas = '5/s'\ntiers = { by = 'x', quotas = { gold = '9/s' } }",
        "tiers: only the code",
    ),
    (
        "quotas = '5/s'\nkey = { header = 'x' }\ntiers = { by = { a = 'gold' }, quotas = { gold = '9 at once' } }",
        "quotas: 9 at once: ",
    ),
    (
        "quotas = '5/s'\nban = { after = '2 in 1h for 1h', strike_if = 'x' }",
        "strike_if: nginx does not count responses",
    ),
    (
        "quotas = '5/s'\nonce = { by = { header = 'id' } }",
        "once: nginx does not remember ids",
    ),
    (
        "quotas = '5/s'\nclasses = { by = { header = 'c' }, keep_for = ['a 20%'] }",
        "classes: nginx keeps no shares",
    ),
    (
        "quotas = '5/s'\nper_message = { of = 'received' }",
        "per_message: nginx does not see the messages",
    ),
    (
        "quotas = '5/s'\nexempt_preflights = true",
        "exempt_preflights: nginx charges every form of a request",
    ),
    (
        "quotas = '5/s'\nexempt_health_checks = true",
        "exempt_health_checks: nginx charges every form",
    ),
    (
        "quotas = '5/s'\nquotas_by = 'x'",
        "quotas_by: only the code",
    ),
    (
        "quotas = '5/s'\non_demand = true",
        "policies: no policy covers requests by itself",
    ),
];

const TOPS: &[(&str, &str)] = &[
    (
        "exempt_preflights = true",
        "exempt_preflights: nginx charges every form",
    ),
    (
        "exempt_health_checks = true",
        "exempt_health_checks: nginx charges every form",
    ),
    (
        "shed = { classes = ['a', 'b'], by = { header = 'c' }, signals = ['cpu'], at = ['b 70%'] }",
        "[shed]: nginx does not know the pressure",
    ),
];

#[test]
fn a_file_that_asks_for_more_than_nginx_can_do_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let (toml, json) = (
        folder.path().join("limits.toml"),
        folder.path().join("nginx.json"),
    );
    let policy = |fields: &str| format!("# A comment.\n[[policies]]\n{fields}\nname = 'p'\n");
    let policies = BEYOND.iter().map(|(fields, reason)| {
        (
            policy(fields)
                .replace("\nname = 'p'", "")
                .replace("[[policies]]", "[[policies]]\nname = 'p'"),
            *reason,
        )
    });
    let tops = TOPS
        .iter()
        .map(|(top, reason)| (format!("{top}\n{}", policy("quotas = '5/s'")), *reason));
    for (text, reason) in policies.chain(tops) {
        let text = text.replace("# A comment.\n", "");
        fs::write(&toml, &text).unwrap();
        let (code, said) = convert(&[toml.to_str().unwrap(), "--output", json.to_str().unwrap()]);
        assert_eq!(code, Some(1), "{text}: {said}");
        assert!(
            said.contains("nginx cannot do this") && said.contains(reason),
            "{text}: {said}"
        );
        assert!(!json.exists(), "{text}");
    }
    // All of them are told, and not the first alone.
    let two = "[[policies]]\nname = 'a'\nquotas = '5 at once'\ngrpc = ['a.B/C']\n[[policies]]\nname = 'b'\nquotas = '1/s'\nwhen = ['x']\n";
    fs::write(&toml, two).unwrap();
    let (_, said) = convert(&[toml.to_str().unwrap()]);
    for line in [
        "line 3: policy \"a\": quotas",
        "line 4: policy \"a\": grpc",
        "line 8: policy \"b\": when",
    ] {
        assert!(said.contains(line), "{said}");
    }
}

#[test]
fn a_block_list_that_a_caller_may_avoid_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let policy = "[[policies]]\nname = 'api'\nquotas = '5/s'\nkey = { header = 'x' }\n";
    for (more, warns) in [
        ("block_keys = { forbidden = ['d'] }", true),
        (
            "on_missing = 'deny'\nblock_keys = { forbidden = ['d'] }",
            false,
        ),
        ("", false),
        ("tiers = { by = { a = 't' }, quotas = { t = '4/s' } }", true),
        (
            "tiers = { by = { a = 't' }, quotas = { t = '5/s burst 1' } }",
            true,
        ),
        (
            "tiers = { by = { a = 't' }, quotas = { t = '9/s' } }",
            false,
        ),
    ] {
        fs::write(
            folder.path().join("limits.toml"),
            format!("{policy}{more}\n"),
        )
        .unwrap();
        let ran = tollgate(folder.path(), &["nginx", "limits.toml"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let warning = "warning: policy api: refuses callers, or limits some more than others, but requests without an identity";
        assert_eq!(ran.err.starts_with(warning), warns, "{ran:?}");
    }
}
