//! How do I see what the limiter does, and change it while it runs?
//!
//! `cargo run -p examples --example operated`. The limits stand in the file that `LIMITS` names, or in one that is made; change it, and two
//! seconds later the service limits by it. A file that is wrong changes nothing, and the log says what is wrong in which line.
//! `/metrics` is for Prometheus, `/offenders` says which callers are denied most, and `/switch/api/off` turns a limit off at once.
//! A real service has these three on a port of its own, which callers do not reach.

use std::env;
use std::path::PathBuf;

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::{get, post};
use examples::serve;
use http::StatusCode;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tollgate::{Limiter, RateLimitLayer, RedisBackend, Switch, config};

const LIMITS: &str = r#"[[policies]]
name = "api"
quotas = "5/min"
routes = ["/"]
"#;

#[derive(Clone)]
struct Desk {
    limiter: Limiter,
    page: PrometheusHandle,
}

async fn metrics_page(State(desk): State<Desk>) -> String {
    desk.limiter.publish_metrics();
    desk.page.render()
}

/// The worst callers of each policy. An address may be shown to operators; an API key would be a secret.
async fn offenders(State(desk): State<Desk>) -> String {
    let mut text = String::new();
    for policy in desk.limiter.policies() {
        let Ok(offenders) = desk.limiter.offenders(policy.name()) else {
            continue;
        };
        let (denials, distinct) = (offenders.denials(), offenders.distinct());
        text += &format!(
            "{}: {denials} denials of about {distinct} callers\n",
            policy.name()
        );
        for caller in offenders.callers().iter().take(10) {
            text += &format!(
                "  {} (at most {} too many): {:?}\n",
                caller.denials(),
                caller.error(),
                caller.key()
            );
        }
    }
    text
}

async fn switch(
    State(desk): State<Desk>,
    Path((policy, to)): Path<(String, String)>,
) -> Result<String, (StatusCode, String)> {
    let to = match to.as_str() {
        "on" => Switch::On,
        "shadow" => Switch::Shadow,
        "off" => Switch::Off,
        _ => return Err((StatusCode::NOT_FOUND, "on, shadow or off\n".to_owned())),
    };
    let switched = desk.limiter.switch(&policy, to);
    switched.map_err(|error| (StatusCode::NOT_FOUND, format!("{error}\n")))?;
    Ok(format!("{policy} is {to:?}\n"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The shares of budgets that a graph should tell apart, and the seconds that an alert should.
    let full = |name: &str| Matcher::Full(name.to_owned());
    let used = full("rate_limiting_budget_used_ratio");
    let took = full("rate_limiting_decision_duration_seconds");
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(used, &[0.25, 0.5, 0.75, 0.9, 1.0])?
        .set_buckets_for_metric(took, &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5])?
        .build_recorder();
    let page = recorder.handle();
    metrics::set_global_recorder(recorder)?;

    let path = match env::var_os("LIMITS") {
        Some(path) => PathBuf::from(path),
        None => {
            let path = env::temp_dir().join("tollgate-limits.toml");
            std::fs::write(&path, LIMITS)?;
            path
        }
    };
    let mut file = config::watch(&path, |text| toml::from_str(text));
    let mut builder = file.load()?.metrics().track_offenders();
    if let Ok(url) = env::var("REDIS_URL") {
        builder = builder.backend(RedisBackend::builder(&url).start()?);
    }
    let limiter = builder.build()?;
    let _watch = file.follow(&limiter);

    let desk = Desk {
        limiter: limiter.clone(),
        page,
    };
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(RateLimitLayer::new(limiter))
        .route("/metrics", get(metrics_page))
        .route("/offenders", get(offenders))
        .route("/switch/{policy}/{to}", post(switch))
        .with_state(desk);

    let change = format!("sed -i 's|5/min|50/min|' {}", path.display());
    let tries = [
        "curl -i URL/?[1-6]",
        "curl URL/offenders",
        "curl URL/metrics",
        "curl -X POST URL/switch/api/off",
        &change,
    ];
    serve(app, "five requests a minute for each address", &tries).await
}
