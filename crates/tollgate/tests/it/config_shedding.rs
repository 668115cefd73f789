//! Classes that are refused under pressure, as a configuration file states them.

#![cfg(feature = "serde")]

use std::fs;
use std::time::Duration;

use crate::common::registry::registry;
use crate::common::{Body, Strict, at_a_standstill, from};
use http::{Request, Response};
use serde_json::{Value, json};
use tollgate::config::{self, LimiterConfig};
use tollgate::key::Header;
use tollgate::{Limiter, LimiterBuilder, PressureGauge, RateLimitLayer, Shedding};
use tower::{Layer, ServiceExt};

const CLASSES: [&str; 3] = ["critical", "normal", "batch"];

/// A whole file with such a table, which sheds by the registered signal unless it says otherwise.
fn file(mut shed: Value) -> Value {
    let usual = json!({
        "classes": CLASSES,
        "by": { "header": "x-class" },
        "signals": [{ "registered": "queue" }],
        "at": ["batch 70%", "normal 90%"],
    });
    for (key, value) in usual.as_object().unwrap() {
        if shed[key].is_null() {
            shed[key] = value.clone();
        }
    }
    json!({ "shed": shed })
}

/// The builder that such a table makes, where the gauge is the registered signal.
fn built(shed: Value, gauge: &PressureGauge) -> Result<LimiterBuilder, String> {
    let config: LimiterConfig = serde_json::from_value(file(shed)).unwrap();
    let built = config.build(&registry().register_pressure("queue", gauge));
    built.map_err(|error| error.to_string())
}

/// A limiter that code makes, without a policy as the files are.
fn coded(gauge: &PressureGauge, shedding: impl Into<Shedding>) -> LimiterBuilder {
    Limiter::builder()
        .classes(CLASSES, Header::new("x-class"))
        .shed(gauge, shedding)
}

async fn send(limiter: &Limiter, class: &str) -> Response<Body> {
    let mut request: Request<Body> = from("10.0.0.1");
    request
        .headers_mut()
        .insert("x-class", class.parse().unwrap());
    let layer = RateLimitLayer::new(limiter).jitter(Duration::ZERO);
    let service = layer.layer(Strict::default());
    service.oneshot(request).await.unwrap()
}

/// The answer to each class at each of these levels.
async fn answers(builder: LimiterBuilder, gauge: &PressureGauge) -> Vec<String> {
    let limiter = builder.backend(at_a_standstill().0).build().unwrap();
    let mut answers = Vec::new();
    for level in [0.0, 0.5, 0.7, 0.9, 1.0, 0.86, 0.84, 0.66, 0.64, 0.51, 0.0] {
        gauge.set(level);
        for class in CLASSES {
            let answer = send(&limiter, class).await;
            let wait = answer.headers().get("retry-after");
            answers.push(format!("{level} {class}: {} {wait:?}", answer.status()));
        }
    }
    answers
}

#[tokio::test]
async fn a_table_refuses_what_the_same_words_in_code_refuse() {
    let at = || Shedding::at([("batch", 0.7), ("normal", 0.9)]);
    let cases = [
        (json!({}), at()),
        (
            json!({ "at": [" normal  90 % ", "batch 51%"], "margin": "0%" }),
            Shedding::at([("batch", 0.51), ("normal", 0.9)]).margin(0.0),
        ),
        (json!({ "margin": "20%" }), at().margin(0.2)),
        (
            json!({ "retry_after": 60 }),
            at().retry_after(Duration::from_secs(60)),
        ),
        (json!({ "shadow": true }), at().shadow()),
    ];
    for (table, shedding) in cases {
        let gauge = PressureGauge::new();
        let written = answers(built(table.clone(), &gauge).unwrap(), &gauge).await;
        let said = answers(coded(&gauge, shedding), &gauge).await;
        assert_eq!(written, said, "{table}");
        let refuses = written.iter().any(|answer| answer.contains(" 503 "));
        assert_eq!(refuses, table["shadow"].is_null(), "{table}");
    }
}

#[tokio::test]
async fn the_highest_of_several_signals_counts() {
    let (queue, pool) = (PressureGauge::new(), PressureGauge::new());
    let signals = json!([{ "registered": "queue" }, { "registered": "pool" }, "cpu", "memory", { "lag-ms": 100 }]);
    let config: LimiterConfig =
        serde_json::from_value(file(json!({ "signals": signals }))).unwrap();
    let registry = registry()
        .register_pressure("queue", &queue)
        .register_pressure("pool", &pool)
        .without_measuring();
    let limiter = config.build(&registry).unwrap().build().unwrap();

    assert!(!limiter.is_shedding());
    for gauge in [&queue, &pool] {
        gauge.set(0.7);
        assert!(limiter.is_shedding());
        gauge.set(0.0);
        assert!(!limiter.is_shedding());
    }
}

/// The signal of the runtime is the only one that says where it is measured.
#[test]
fn signals_are_measured_from_the_moment_when_the_limiter_is_built() {
    let gauge = PressureGauge::new();
    let late = || built(json!({ "signals": [{ "lag-ms": 100 }] }), &gauge).unwrap();
    assert_eq!(
        late().build().unwrap_err().to_string(),
        "pressure: lag: there is no tokio runtime here to be measured"
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    assert!(runtime.block_on(async { late().build().is_ok() }));
    if cfg!(target_os = "linux") {
        let ours = built(json!({ "signals": ["cpu", "memory"] }), &gauge).unwrap();
        ours.build().unwrap();
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_its_key() {
    let cases = [
        (
            json!({ "at": ["batch 70"] }),
            "at \"batch 70\": expected a class and a level in whole percent, such as \"batch 70%\"",
        ),
        (json!({ "at": ["70%"] }), "at \"70%\": expected a class"),
        (
            json!({ "at": ["batch 101%"] }),
            "at \"batch 101%\": expected a class",
        ),
        (
            json!({ "at": ["batch -1%"] }),
            "at \"batch -1%\": expected a class",
        ),
        (
            json!({ "at": ["batch +70%"] }),
            "at \"batch +70%\": expected a class",
        ),
        (
            json!({ "at": ["batch 0.5%"] }),
            "at \"batch 0.5%\": expected a class",
        ),
        (
            json!({ "margin": "0.05" }),
            "margin \"0.05\": expected whole percent, such as \"5%\"",
        ),
        (json!({ "signals": [] }), "signals [] is a list of nothing"),
        (
            json!({ "signals": [{ "registered": "pool" }] }),
            "signals \"pool\": is not registered; registered are queue",
        ),
        (
            json!({ "signals": [{ "lag-ms": 0 }] }),
            "signals lag-ms: every task is late by zero",
        ),
        (
            json!({ "by": { "registered": "class" } }),
            "by \"class\": is not registered; registered are session, user",
        ),
        (
            json!({ "by": { "registered": "session" } }),
            "by \"session\": has to be waited for, and a class is found at once",
        ),
        (
            json!({ "by": "global" }),
            "by \"global\": is alike for all requests, and names no class; a header would: { header = \"x-class\" }",
        ),
        (
            json!({ "by": "client-ip" }),
            "by \"client-ip\": is an address, and names no class; a header would: ",
        ),
        (
            json!({ "by": ["method", "host"] }),
            "by \"a list\": has several parts, and names no class; a header would: ",
        ),
        (
            json!({ "by": { "header": "a b" } }),
            "by \"a b\": invalid header name",
        ),
    ];
    for (table, expected) in cases {
        let refused = built(table, &PressureGauge::new()).unwrap_err();
        let expected = format!("shedding: {expected}");
        assert!(refused.starts_with(&expected), "{refused}");
    }
    // Classes and thresholds that do not go together are found as those in code are.
    for (table, expected) in [
        (
            json!({ "at": [] }),
            "no class has a threshold, so that none is ever refused",
        ),
        (
            json!({ "at": ["batch 0%"] }),
            "class \"batch\": a threshold of 0 is not above 0 and at most 1",
        ),
        (
            json!({ "at": ["night 70%"] }),
            "class \"night\": there is no class of this name; there are critical, normal, batch",
        ),
        (
            json!({ "at": ["normal 70%", "batch 90%"] }),
            "class \"batch\": it is less important than \"normal\", and its threshold is not lower",
        ),
        (
            json!({ "retry_after": 0 }),
            "`retry_after` is 0, so that refused callers come back at once",
        ),
        (
            json!({ "retry_after": u64::MAX }),
            "`retry_after` is longer than a day",
        ),
        (
            json!({ "margin": "70%" }),
            "class \"batch\": a margin of 0.7 is not below its threshold of 0.7, so that it would never be let in again",
        ),
    ] {
        let builder = built(table, &PressureGauge::new()).unwrap();
        let refused = builder.build().unwrap_err().to_string();
        assert_eq!(refused, format!("shedding: {expected}"));
    }
    for (table, expected) in [
        (json!({ "signals": ["load"] }), "unknown variant `load`"),
        (
            json!({ "signals": ["lag-ms"] }),
            "the signal lag-ms needs the milliseconds at which its level is 1: { lag-ms = 100 }",
        ),
        (
            json!({ "signals": ["registered"] }),
            "a registered signal needs its name: { registered = \"queue\" }",
        ),
        (
            json!({ "signals": [{ "cpu": 1 }] }),
            "unknown variant `cpu`, expected `lag-ms` or `registered`",
        ),
        (
            json!({ "signals": [7] }),
            "invalid type: integer `7`, expected a signal, such as \"cpu\" or { lag-ms = 100 }",
        ),
        (json!({ "at": { "batch": 0.7 } }), "invalid type: map"),
        (json!({ "level": 1 }), "unknown field `level`"),
    ] {
        let refused = serde_json::from_value::<LimiterConfig>(file(table)).unwrap_err();
        assert!(refused.to_string().starts_with(expected), "{refused}");
    }
}

const FOLLOWED: &str = "\
policies = [{ name = 'api', quotas = '10/s' }]

[shed]
classes = ['user', 'batch']
by = { header = 'x-class' }
signals = [{ lag-ms = 100 }]
at = ['batch 70%']
";

/// A limiter keeps its classes and thresholds until the next start, so a file that could not start one is refused before.
#[test]
fn a_followed_file_whose_table_is_wrong_is_refused_and_one_that_is_right_says_when_it_holds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    fs::write(&path, FOLLOWED).unwrap();
    let mut file = config::watch(&path, |text| toml::from_str(text));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let limiter = runtime
        .block_on(async { file.start(|builder| builder) })
        .unwrap();
    // No runtime is needed from here on: nothing is measured for a look at a file.
    let watch = file.follow(&limiter);

    for (from, to, expected) in [
        ("batch 70%", "batch 70", "shedding: at \"batch 70\": "),
        ("batch 70%", "night 70%", "shedding: class \"night\": "),
    ] {
        let policy = FOLLOWED.replace("10/s", "20/s");
        fs::write(&path, policy.replace(from, to)).unwrap();
        let refused = watch.reload().unwrap_err();
        assert_eq!((refused.line(), refused.policy()), (Some(3), None));
        assert!(refused.to_string().contains(expected), "{refused}");
        let quota = limiter.policy("api").unwrap().limits()[0].quota;
        assert_eq!(quota.to_string(), "10/s");
    }

    fs::write(&path, FOLLOWED.replace("batch 70%", "batch 80%")).unwrap();
    assert_eq!(
        watch.reload().unwrap(),
        ["shed: changed; takes effect at the next start"]
    );
}

/// A limiter that only sheds may be without policies, and one that does neither may not, at a reload as at a start.
#[test]
fn a_followed_file_that_neither_limits_nor_sheds_is_refused() {
    let sheds_only = FOLLOWED.replace("policies = [{ name = 'api', quotas = '10/s' }]", "");
    let sheds_only = sheds_only.replace("{ lag-ms = 100 }", "{ registered = 'queue' }");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    for (begins_with, is_refused) in [(&sheds_only, "policies = []"), (&sheds_only, "")] {
        fs::write(&path, begins_with).unwrap();
        let mut file = config::watch(&path, |text| toml::from_str(text)).registry(registry());
        let limiter = file.start(|builder| builder).unwrap();
        let watch = file.follow(&limiter);

        fs::write(&path, is_refused).unwrap();
        let refused = watch.reload().unwrap_err().to_string();
        assert!(refused.contains("a limiter without policies"), "{refused}");

        fs::write(&path, sheds_only.replace("70%", "80%")).unwrap();
        assert_eq!(watch.reload().unwrap().len(), 1);
    }
    fs::write(&path, "policies = [{ name = 'api', quotas = '10/s' }]").unwrap();
    let mut file = config::watch(&path, |text| toml::from_str(text)).registry(registry());
    let limiter = file.start(|builder| builder).unwrap();
    let watch = file.follow(&limiter);
    fs::write(&path, &sheds_only).unwrap();
    let refused = watch.reload().unwrap_err().to_string();
    assert!(refused.contains("a limiter without policies"), "{refused}");
}
