//! A policy in words, for a reader who does not know the keys of the configuration.

use tollgate::config::{
    CostConfig, DirectionConfig, KeyConfig, LimiterConfig, PolicyConfig, QuotasConfig, SignalConfig,
};
use tollgate::{OnFailure, OnMissing, Quota};

/// The requests that a policy covers.
pub(crate) fn covers(policy: &PolicyConfig, config: &LimiterConfig) -> String {
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
    let mut exempt: Vec<_> = exempt.map(String::as_str).collect();
    let preflights = policy.exempt_preflights || config.exempt_preflights;
    let health_checks = policy.exempt_health_checks || config.exempt_health_checks;
    let others = [
        (preflights, "preflights"),
        (health_checks, "health checks"),
        (
            !policy.exempt_networks.is_empty(),
            "those from exempt networks",
        ),
    ];
    exempt.extend(others.iter().filter(|(is, _)| *is).map(|(_, what)| what));
    if !exempt.is_empty() {
        words += &format!(", except {}", exempt.join(", "));
    }
    match policy.per_message.map(|messages| messages.of) {
        Some(DirectionConfig::Received) => format!("messages that callers send in {words}"),
        Some(DirectionConfig::Sent) => format!("messages that the service sends in {words}"),
        Some(_) => format!("messages in both directions of {words}"),
        None => words,
    }
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

/// True if no caller of the policy has a quota, so that the backend is never asked.
pub(crate) fn asks_nobody(policy: &PolicyConfig) -> bool {
    policy.quotas_by.is_none() && policy.tiers.is_none() && refuse_all(&policy.quotas)
}

/// The rule for requests without an identity, if there may be any and it is not the default for callers without an address.
pub(crate) fn missing(policy: &PolicyConfig) -> Option<&'static str> {
    match (policy.on_missing, &policy.key) {
        // All callers together, and each request, have one.
        (_, Some(KeyConfig::ByGlobal | KeyConfig::ByMethod)) => None,
        (OnMissing::Pass, _) => Some("pass uncharged"),
        (OnMissing::Deny, _) => Some("are refused"),
        (_, None | Some(KeyConfig::ByClientIp)) => None,
        _ => Some("share one budget"),
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
    let others = match policy.on_missing {
        OnMissing::Deny => return String::new(),
        _ if missing(policy).is_none() => return String::new(),
        OnMissing::Pass => {
            "requests without an identity pass uncharged, and those with an unclear one share one budget"
        }
        _ => "requests without an identity, or with an unclear one, share one budget",
    };
    format!(", but {others} unless on_missing = \"deny\"")
}

/// The tiers that have less than callers in none: a lower rate, a smaller burst, or fewer at once.
pub(crate) fn stricter_tiers(policy: &PolicyConfig) -> impl Iterator<Item = &str> {
    let own = least(&policy.quotas);
    let tiers = policy.tiers.iter().flat_map(|tiers| &tiers.quotas);
    let is_less = move |quotas| least(quotas).iter().zip(own).any(|(less, own)| *less < own);
    let stricter = tiers.filter(move |(_, quotas)| is_less(quotas));
    stricter.map(|(tier, _)| tier.as_str())
}

/// The least that the quotas let through in a thousand seconds, in one moment, and at once; the most there is where none of them says.
fn least(quotas: &QuotasConfig) -> [u128; 3] {
    let texts: Vec<&str> = match quotas {
        QuotasConfig::One(text) => vec![text],
        QuotasConfig::Many(texts) => texts.iter().map(String::as_str).collect(),
        QuotasConfig::Named(texts) => texts.values().map(String::as_str).collect(),
    };
    let quotas = texts.iter().flat_map(|text| text.split(';'));
    let quotas = quotas.filter_map(|text| text.trim().parse::<Quota>().ok());
    quotas.fold([u128::MAX; 3], |[rate, burst, at_once], quota| {
        let capacity = u128::from(quota.capacity());
        match quota.period().as_nanos() {
            0 => [rate, burst, at_once.min(capacity)],
            nanoseconds => {
                let own = u128::from(quota.limit()) * 1_000_000_000_000 / nanoseconds;
                [rate.min(own), burst.min(capacity), at_once]
            }
        }
    })
}

/// A line for each policy that refuses callers or has stricter tiers, and whose limit some may avoid.
pub(crate) fn avoidable(config: &LimiterConfig) -> Vec<String> {
    let enforced = config.policies.iter().filter(|policy| !policy.shadow);
    let refuses = |policy: &&PolicyConfig| {
        let blocked = &policy.block_keys;
        let mut tiers = policy.tiers.iter().flat_map(|tiers| &tiers.quotas);
        !blocked.forbidden.is_empty()
            || !blocked.too_many_requests.is_empty()
            || tiers.any(|(_, quotas)| refuse_all(quotas))
            || stricter_tiers(policy).next().is_some()
    };
    let refusing = enforced.filter(refuses);
    let lines = refusing.map(|policy| (&policy.name, unclear(policy)));
    let avoidable = lines.filter(|(_, others)| !others.is_empty());
    avoidable
        .map(|(name, others)| {
            format!("policy {name}: refuses callers, or limits some more than others{others}")
        })
        .collect()
}
