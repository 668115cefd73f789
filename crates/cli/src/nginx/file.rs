//! The file that nginx reads: see `lua/nginx/README.md`.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tollgate::config::{
    ClientAddressConfig, CostConfig, EntryConfig, KeyConfig, PolicyConfig, ProxiesConfig,
};
use tollgate::{Calendar, Charge, Key, Mode, OnFailure, OnMissing, Quota, Timestamp, Unit};
use tollgate_http::transport::refill_seconds;
use tollgate_limiter::transport::{Limit, PortablePolicy, PortableSegment, PortableTier};
use tollgate_redis::gateway;

use crate::limits::Limits;

/// The version of the file, which changes with what stands in it. The module refuses every other.
const VERSION: u32 = 2;

/// The file as the arguments name it.
#[derive(Debug)]
pub(super) struct Terms<'a> {
    pub(super) prefix: &'a str,
    pub(super) body_limit: u32,
    pub(super) allow_ambiguous_paths: bool,
}

/// The whole file.
#[derive(Debug, Serialize)]
pub(super) struct File {
    version: u32,
    allow_ambiguous_paths: bool,
    ignore_path_case: bool,
    ipv6_prefix: u8,
    body_limit: u32,
    client: Client,
    key_headers: Vec<String>,
    policies: Vec<WrittenPolicy>,
    script: &'static str,
}

/// The place of the caller's address.
#[derive(Debug, Serialize)]
struct Client {
    by: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    networks: Vec<String>,
    /// The number of proxies, in place of their networks.
    #[serde(skip_serializing_if = "Option::is_none")]
    hops: Option<u8>,
}

#[derive(Debug, Serialize)]
struct WrittenPolicy {
    name: String,
    hosts: Vec<String>,
    routes: Vec<Vec<Segment>>,
    exempt_routes: Vec<Vec<Segment>>,
    methods: Vec<String>,
    exempt_methods: Vec<String>,
    exempt_networks: Vec<String>,
    key: Vec<Part>,
    on_missing: &'static str,
    on_failure: &'static str,
    shadow: bool,
    exempt_keys: BTreeMap<String, bool>,
    blocked_keys: BTreeMap<String, u16>,
    tier_of: BTreeMap<String, String>,
    own: WrittenTier,
    tiers: BTreeMap<String, WrittenTier>,
}

#[derive(Debug, Serialize)]
struct Segment {
    prefix: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    param: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rest: Option<String>,
}

/// A part of a key.
#[derive(Debug, Serialize)]
struct Part {
    by: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<Vec<String>>,
    /// The place in words, as a part of a document.
    what: String,
}

/// The charges of callers of one tier.
#[derive(Debug, Serialize)]
struct WrittenTier {
    /// True for a limit of 0.
    none: bool,
    charges: Vec<WrittenCharge>,
}

/// One charge, but for the identity.
#[derive(Debug, Serialize)]
struct WrittenCharge {
    name: String,
    mode: &'static str,
    head: String,
    bytes: String,
    state: String,
    member: String,
    /// The starts of the windows of a calendar, in µs: behind the bytes stand seven of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    starts: Vec<u64>,
    /// The status for the banned, if it is a ban.
    #[serde(skip_serializing_if = "Option::is_none")]
    ban: Option<u16>,
}

/// The file for these limits, which nginx can apply.
pub(super) fn written(limits: &Limits, terms: &Terms<'_>) -> Result<File, String> {
    let config = limits.config();
    let policies = config.policies.iter().filter(|policy| !policy.on_demand);
    let policies = policies.map(|policy| {
        let built = limits.limiter().policy(&policy.name);
        let built = built.ok_or_else(|| format!("policy {:?} is not there", policy.name))?;
        written_policy(policy, &built.portable(), terms)
    });
    let policies: Vec<_> = policies.collect::<Result<_, String>>()?;
    let parts = policies.iter().flat_map(|policy| &policy.key);
    let headers = parts.filter_map(|part| match part.by {
        "header" => part.name.clone(),
        "bearer-token" | "basic-user" => Some("authorization".to_owned()),
        _ => None,
    });
    let mut key_headers: Vec<_> = headers.collect();
    key_headers.sort_unstable();
    key_headers.dedup();
    Ok(File {
        version: VERSION,
        allow_ambiguous_paths: terms.allow_ambiguous_paths,
        ignore_path_case: config.ignore_path_case,
        ipv6_prefix: config.ipv6_prefix.unwrap_or(64),
        body_limit: terms.body_limit,
        client: client(&config.client_address),
        key_headers,
        policies,
        script: gateway::script(),
    })
}

fn client(address: &ClientAddressConfig) -> Client {
    match address {
        ClientAddressConfig::XForwardedFor(proxies) => walked("x-forwarded-for", proxies),
        ClientAddressConfig::Forwarded(proxies) => walked("forwarded", proxies),
        ClientAddressConfig::OneHeader { name, networks } => Client {
            by: "header",
            name: Some(name.to_ascii_lowercase()),
            networks: networks.clone(),
            hops: None,
        },
        _ => Client {
            by: "peer",
            name: None,
            networks: Vec::new(),
            hops: None,
        },
    }
}

/// A field that proxies append to.
fn walked(name: &'static str, proxies: &ProxiesConfig) -> Client {
    let (networks, hops) = match proxies {
        ProxiesConfig::Networks(networks) => (networks.clone(), None),
        ProxiesConfig::Hops(hops) => (Vec::new(), Some(*hops)),
        // Nothing is believed of proxies of a new kind.
        _ => (Vec::new(), None),
    };
    Client {
        by: name,
        name: Some(name.to_owned()),
        networks,
        hops,
    }
}

fn written_policy(
    policy: &PolicyConfig,
    built: &PortablePolicy,
    terms: &Terms<'_>,
) -> Result<WrittenPolicy, String> {
    let cost = match policy.cost {
        CostConfig::Fixed(cost) => cost,
        CostConfig::Registered(_) => 1,
    };
    let mode = match policy.shadow {
        true => Mode::Shadow,
        false => Mode::Enforce,
    };
    let tier = |tier: &PortableTier| written_tier(tier, cost, mode, terms.prefix);
    let tiers = built.tiers.iter();
    let tiers = tiers.map(|(name, of_tier)| Ok((name.clone(), tier(of_tier)?)));
    let exempt = built.exempt_keys.iter().map(|key| (identity(key), true));
    // The first entry of several counts.
    let blocked = built.blocked_keys.iter().rev();
    let blocked = blocked.map(|(key, how)| (identity(key), how.status().as_u16()));
    let tier_of = built.tier_of.iter();
    Ok(WrittenPolicy {
        name: policy.name.clone(),
        hosts: policy.hosts.clone(),
        routes: patterns(&built.routes),
        exempt_routes: patterns(&built.exempt_routes),
        methods: policy.methods.clone(),
        exempt_methods: policy.exempt_methods.clone(),
        exempt_networks: entries(&policy.exempt_networks),
        key: parts(policy.key.as_ref().unwrap_or(&KeyConfig::ByClientIp)),
        on_missing: match policy.on_missing {
            OnMissing::Pass => "pass",
            OnMissing::Deny => "deny",
            _ => "share",
        },
        on_failure: match policy.on_failure {
            OnFailure::Deny => "deny",
            _ => "allow",
        },
        shadow: policy.shadow,
        exempt_keys: exempt.collect(),
        blocked_keys: blocked.collect(),
        tier_of: tier_of
            .map(|(key, name)| (identity(key), name.clone()))
            .collect(),
        own: tier(&built.own)?,
        tiers: tiers.collect::<Result<_, String>>()?,
    })
}

fn entries(list: &[EntryConfig]) -> Vec<String> {
    let written = list.iter().filter_map(|entry| match entry {
        EntryConfig::Written(text) => Some(text.clone()),
        _ => None,
    });
    written.collect()
}

fn patterns(patterns: &[Vec<PortableSegment>]) -> Vec<Vec<Segment>> {
    let segment = |segment: &PortableSegment| {
        let name = |is_rest| {
            let param = segment
                .param
                .as_ref()
                .filter(|param| param.is_rest == is_rest);
            param.map(|param| param.name.clone())
        };
        Segment {
            prefix: segment.prefix.clone(),
            param: name(false),
            rest: name(true),
        }
    };
    let patterns = patterns.iter();
    patterns
        .map(|pattern| pattern.iter().map(segment).collect())
        .collect()
}

fn parts(key: &KeyConfig) -> Vec<Part> {
    let named = |by, what: &str, name: &str| Part {
        by,
        name: Some(name.to_owned()),
        path: None,
        what: escaped(&format!("{what} {name}")),
    };
    let plain = |by, what: &str| Part {
        by,
        name: None,
        path: None,
        what: what.to_owned(),
    };
    vec![match key {
        KeyConfig::All(keys) => return keys.iter().flat_map(parts).collect(),
        KeyConfig::ByGlobal => plain("global", ""),
        KeyConfig::ByHost => plain("host", "host"),
        KeyConfig::ByMethod => plain("method", ""),
        KeyConfig::ByBasicUser => plain("basic-user", "user of basic authorization"),
        KeyConfig::ByBearerToken => plain("bearer-token", "bearer token"),
        KeyConfig::ByHeader(name) => named("header", "header", &name.to_ascii_lowercase()),
        KeyConfig::ByCookie(name) => named("cookie", "cookie", name),
        KeyConfig::ByQuery(name) => named("query", "query parameter", name),
        KeyConfig::ByPathParam(name) => named("path-param", "path parameter", name),
        KeyConfig::ByFormField(name) => named("form-field", "form field", name),
        KeyConfig::ByJsonField(path) => Part {
            path: Some(path.split('.').map(str::to_owned).collect()),
            ..named("json-field", "JSON field", path)
        },
        _ => plain("client-ip", "peer address"),
    }]
}

/// A text as the answer to a caller without an identity has it.
fn escaped(text: &str) -> String {
    let escaped: String = text.chars().flat_map(char::escape_default).collect();
    let escaped = escaped.replace("\\'", "'").replace("\\u{", "(U+");
    escaped.replace('}', ")")
}

fn written_tier(
    tier: &PortableTier,
    cost: u64,
    mode: Mode,
    prefix: &str,
) -> Result<WrittenTier, String> {
    let limits = match tier {
        PortableTier::Limits(limits) => limits.as_slice(),
        PortableTier::Unlimited | PortableTier::Nothing => &[],
    };
    let charges = (limits.iter().enumerate())
        .map(|(before, limit)| written_charge(limit, before, cost, mode, prefix));
    Ok(WrittenTier {
        none: matches!(tier, PortableTier::Nothing),
        charges: charges.collect::<Result<_, String>>()?,
    })
}

/// A charge behind so many others of its policy, which it guards if it is a ban.
fn written_charge(
    limit: &Limit,
    before: usize,
    cost: u64,
    mode: Mode,
    prefix: &str,
) -> Result<WrittenCharge, String> {
    let quota = &limit.quota;
    let charge = Charge {
        scope: limit.scope,
        quota,
        key: &Key::global(),
        // Above the capacity no cost passes, however large.
        cost: if quota.is_ban() {
            0
        } else {
            cost.min(quota.capacity() + 1)
        },
        mode,
    };
    let guards = if quota.is_ban() {
        (1_u32 << before.min(31)) - 1
    } else {
        0
    };
    let bytes = gateway::charge(&charge, guards, Timestamp::default());
    let name = limit.label.quota();
    let mut bytes = bytes.ok_or_else(|| format!("{name}: nginx cannot ask about {quota}"))?;
    let starts = match quota.unit() {
        Unit::Calendar(calendar) => starts(calendar),
        _ => Vec::new(),
    };
    if !starts.is_empty() {
        bytes.truncate(bytes.len().saturating_sub(BOUNDS * size_of::<f64>()));
    }
    Ok(WrittenCharge {
        name: name.to_owned(),
        mode: match mode {
            Mode::Enforce => "enforce",
            _ => "shadow",
        },
        head: gateway::name_head(prefix, limit.scope),
        bytes: hexadecimal(&bytes),
        starts,
        state: format!("\"{name}\";r="),
        member: member(name, quota),
        ban: limit.label.ban().map(|how| how.status().as_u16()),
    })
}

/// The bounds of windows that a charge has.
const BOUNDS: usize = 7;

/// The time for which a file knows the windows of calendars.
const KNOWN: Duration = Duration::from_secs(3 * 366 * 86_400);

/// The starts of windows from now on, the first two of which lie before the current window.
fn starts(calendar: Calendar) -> Vec<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let now = us(now.unwrap_or_default());
    let until = now + us(KNOWN);
    let mut starts = calendar.bounds_around(now).to_vec();
    while let [.., last] = *starts
        && last < until
    {
        // The window that begins there is the third of those around it.
        let Some(next) = calendar.bounds_around(last).get(3).copied() else {
            break;
        };
        if next <= last {
            break;
        }
        starts.push(next);
    }
    starts
}

/// The quota's member of the `RateLimit-Policy` field.
fn member(name: &str, quota: &Quota) -> String {
    match quota.is_ban() {
        true => String::new(),
        false => format!(
            "\"{name}\";q={};w={}",
            quota.capacity(),
            refill_seconds(quota)
        ),
    }
}

fn identity(key: &Key) -> String {
    hexadecimal(key.as_bytes())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
