//! A policy in words, for a reader who does not know the keys of the configuration.

use tollgate::config::{
    CostConfig, KeyConfig, LimiterConfig, PolicyConfig, QuotasConfig, SignalConfig,
};
use tollgate::{OnFailure, OnMissing};

/// The requests that a policy covers.
pub(crate) fn covers(policy: &PolicyConfig) -> String {
    if policy.on_demand {
        return "only what the service's code charges by the policy's name".to_owned();
    }
    let mut paths = policy.routes.clone();
    paths.extend(policy.grpc.iter().map(|methods| format!("gRPC {methods}")));
    let methods = policy.methods.join(", ");
    let mut words = match (methods.is_empty(), paths.is_empty()) {
        (true, true) => "all requests".to_owned(),
        (true, false) => paths.join(", "),
        (false, true) => format!("all {methods} requests"),
        (false, false) => format!("{methods} {}", paths.join(", ")),
    };
    if !policy.hosts.is_empty() {
        words += &format!(" for {}", policy.hosts.join(", "));
    }
    if !policy.when.is_empty() {
        words += &format!(", if {}", policy.when.join(" and "));
    }
    let exempt = policy.exempt_methods.iter().chain(&policy.exempt_routes);
    let exempt: Vec<_> = exempt.map(String::as_str).collect();
    if !exempt.is_empty() {
        words += &format!(", except {}", exempt.join(", "));
    }
    if !policy.exempt_networks.is_empty() {
        words += ", except from exempt networks";
    }
    words
}

/// The identity that has a budget.
pub(crate) fn payer(policy: &PolicyConfig) -> String {
    policy
        .key
        .as_ref()
        .map_or_else(|| key(&KeyConfig::ByClientIp), key)
}

pub(crate) fn key(config: &KeyConfig) -> String {
    match config {
        KeyConfig::ByClientIp => "the caller's address".to_owned(),
        KeyConfig::ByGlobal => "all callers together".to_owned(),
        KeyConfig::ByHost => "the host".to_owned(),
        KeyConfig::ByMethod => "the method".to_owned(),
        KeyConfig::ByMatchedRoute => "the route".to_owned(),
        KeyConfig::ByBearerToken => "the bearer token".to_owned(),
        KeyConfig::ByBasicUser => "the user of Basic authorization".to_owned(),
        KeyConfig::ByHeader(name) => format!("the header {name}"),
        KeyConfig::ByCookie(name) => format!("the cookie {name}"),
        KeyConfig::ByQuery(name) => format!("the query parameter {name}"),
        KeyConfig::ByPathParam(name) => format!("the path parameter {name}"),
        KeyConfig::ByFormField(name) => format!("the form field {name}"),
        KeyConfig::ByJsonField(path) => format!("the JSON field {path}"),
        KeyConfig::ByRegistered(name) => format!("the registered key {name}"),
        KeyConfig::All(parts) => parts.iter().map(key).collect::<Vec<_>>().join(" and "),
        _ => "another key".to_owned(),
    }
}

/// The signals of pressure, of which the highest counts.
pub(crate) fn signals(signals: &[SignalConfig]) -> String {
    let words = signals.iter().map(|signal| match signal {
        SignalConfig::Cpu => "the processor time".to_owned(),
        SignalConfig::Memory => "the memory".to_owned(),
        SignalConfig::LagMs(full) => format!("the lateness of tasks, which is full at {full} ms"),
        SignalConfig::Registered(name) => format!("the registered signal {name}"),
        _ => "another signal".to_owned(),
    });
    let words: Vec<_> = words.collect();
    match words.as_slice() {
        [only] => only.clone(),
        several => format!("the highest of: {}", several.join("; ")),
    }
}

/// The quotas, as they are written.
pub(crate) fn quotas(policy: &PolicyConfig) -> String {
    let mut words = match &policy.quotas_by {
        Some(lookup) => format!("what the registered lookup {lookup} says"),
        None => quotas_as_written(&policy.quotas),
    };
    match &policy.cost {
        CostConfig::Fixed(1) => {}
        CostConfig::Fixed(cost) => words += &format!(", of which a request costs {cost}"),
        CostConfig::Registered(name) => {
            words += &format!(", of which a request costs what {name} computes");
        }
    }
    words
}

/// Quotas, as they are written.
pub(crate) fn quotas_as_written(quotas: &QuotasConfig) -> String {
    match quotas {
        QuotasConfig::One(text) => text.clone(),
        QuotasConfig::Many(texts) => texts.join("; "),
        QuotasConfig::Named(texts) => {
            let texts = texts.iter().map(|(name, text)| format!("{name}: {text}"));
            texts.collect::<Vec<_>>().join("; ")
        }
    }
}

/// True if the quotas refuse every request.
pub(crate) fn refuse_all(quotas: &QuotasConfig) -> bool {
    matches!(quotas, QuotasConfig::One(text) if text.trim().eq_ignore_ascii_case("none"))
}

/// The rule for requests without an identity, unless it is the default.
pub(crate) fn missing(policy: &PolicyConfig) -> Option<&'static str> {
    match policy.on_missing {
        OnMissing::Pass => Some("pass uncharged"),
        OnMissing::Deny => Some("are refused"),
        // Each caller has an address, and all of them together need none.
        _ => match policy.key {
            None | Some(KeyConfig::ByClientIp | KeyConfig::ByGlobal | KeyConfig::ByMethod) => None,
            _ => Some("share one budget"),
        },
    }
}

/// The rule while the backend fails.
pub(crate) fn failure(policy: &PolicyConfig) -> &'static str {
    match policy.on_failure {
        OnFailure::Deny => "requests are refused with 503",
        OnFailure::Allow => "requests pass",
        _ => "each process decides by a budget of its own",
    }
}

/// The warning that a refused caller may pass without an identity that the limiter can tell: with another content type, a doubled header.
pub(crate) fn unclear(policy: &PolicyConfig) -> String {
    match missing(policy) {
        Some(others) if policy.on_missing != OnMissing::Deny => format!(
            ", but one without an identity, or with an unclear one, is not known: such requests {others} unless on_missing = \"deny\""
        ),
        _ => String::new(),
    }
}

/// A line for each policy that refuses callers, and whose refusal some may avoid.
pub(crate) fn avoidable(config: &LimiterConfig) -> Vec<String> {
    let enforced = config.policies.iter().filter(|policy| !policy.shadow);
    let refuses = |policy: &&PolicyConfig| {
        let blocked = &policy.block_keys;
        let mut tiers = policy.tiers.iter().flat_map(|tiers| &tiers.quotas);
        !blocked.forbidden.is_empty()
            || !blocked.too_many_requests.is_empty()
            || tiers.any(|(_, quotas)| refuse_all(quotas))
    };
    let refusing = enforced.filter(refuses);
    let lines = refusing.map(|policy| (&policy.name, unclear(policy)));
    let avoidable = lines.filter(|(_, others)| !others.is_empty());
    avoidable
        .map(|(name, others)| format!("policy {name}: refuses callers{others}"))
        .collect()
}
