//! The policies that a request meets, asked of the limiter itself.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use http::{Method, Request};
use tollgate::config::{
    ClientAddressConfig, KeyConfig, LimiterConfig, PolicyConfig, QuotasConfig, ReloadError,
};
use tollgate::{Event, PeerAddr};
use tollgate_limiter::transport::PolicySet;

use crate::limits::Limits;

/// A request that stands for all of its kind, and the policies that cover it.
#[derive(Debug)]
pub(crate) struct Covered {
    /// The requests, as an operator writes them.
    pub(crate) requests: String,
    /// The policies' names.
    pub(crate) policies: Vec<String>,
}

/// The name of the last row.
const ANY_OTHER: &str = "any other request";

/// The policies that meet, for each route, method and host that the file names, and for all others.
///
/// The limiter that is asked has the conditions of the file and none of its keys, lists and quotas: these decide whether a request
/// passes, and not whether a policy covers it.
pub(crate) fn table(path: &Path, config: &LimiterConfig) -> Result<Vec<Covered>, ReloadError> {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let observer = {
        let heard = Arc::clone(&heard);
        move |event: &Event<'_>| {
            let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
            heard.push(event.policy().to_owned());
        }
    };
    let limits = Limits::read(path, keep_conditions, |builder| builder.observe(observer))?;
    let mut rows: Vec<Covered> = Vec::new();
    for (requests, request) in kinds(config) {
        drop(limits.limiter().admit(
            &limits.limiter().view(&request),
            PolicySet::Covering,
            || true,
            |_ruling| (),
        ));
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        let policies = std::mem::take(&mut *heard);
        let is_known = rows.iter().any(|row| row.requests == requests);
        if !is_known {
            rows.push(Covered { requests, policies });
        }
    }
    Ok(rows)
}

/// Leaves of each policy what decides whether it covers a request.
fn keep_conditions(config: &mut LimiterConfig) {
    config.client_address = ClientAddressConfig::Peer;
    config.exempt_preflights = false;
    config.exempt_health_checks = false;
    for policy in &mut config.policies {
        let mut bare = PolicyConfig::default();
        bare.name.clone_from(&policy.name);
        bare.quotas = QuotasConfig::One("1000000/s".to_owned());
        bare.key = Some(KeyConfig::ByGlobal);
        bare.routes.clone_from(&policy.routes);
        bare.grpc.clone_from(&policy.grpc);
        bare.exempt_routes.clone_from(&policy.exempt_routes);
        bare.methods.clone_from(&policy.methods);
        bare.exempt_methods.clone_from(&policy.exempt_methods);
        bare.hosts.clone_from(&policy.hosts);
        bare.when.clone_from(&policy.when);
        bare.on_demand = policy.on_demand;
        *policy = bare;
    }
}

/// A request for each kind that the policies tell apart.
fn kinds(config: &LimiterConfig) -> Vec<(String, Request<()>)> {
    let mut kinds = Vec::new();
    let any_method = method_without_exemption(config);
    for policy in &config.policies {
        let of_grpc = policy.grpc.iter().map(|methods| grpc_path(methods));
        let paths = policy.routes.iter().cloned().chain(of_grpc);
        let mut paths: Vec<_> = paths.map(Some).collect();
        if paths.is_empty() {
            paths.push(None);
        }
        for path in paths {
            for method in methods(policy) {
                for host in one_at_least(&policy.hosts) {
                    let words = [method, path.as_deref(), host.map(|_| "for"), host];
                    let words: Vec<_> = words.into_iter().flatten().collect();
                    let words = if words.is_empty() {
                        continue;
                    } else {
                        words.join(" ")
                    };
                    let is_grpc = path.is_some()
                        && !policy
                            .routes
                            .iter()
                            .any(|route| Some(route) == path.as_ref());
                    let method = method.unwrap_or(if is_grpc { "POST" } else { any_method });
                    kinds.extend(request(method, path.as_deref(), host).map(|it| (words, it)));
                }
            }
        }
    }
    kinds.extend(request(any_method, None, None).map(|it| (ANY_OTHER.to_owned(), it)));
    kinds
}

/// The methods that a policy tells apart, and nothing for any other.
fn methods(policy: &PolicyConfig) -> Vec<Option<&str>> {
    let exempt = policy.exempt_methods.iter().map(|name| Some(name.as_str()));
    match policy.methods.as_slice() {
        [] => exempt.chain([None]).collect(),
        methods => one_at_least(methods),
    }
}

/// A method that stands for those which no policy exempts.
fn method_without_exemption(config: &LimiterConfig) -> &'static str {
    let policies = config.policies.iter();
    let exempt: Vec<_> = policies.flat_map(|policy| &policy.exempt_methods).collect();
    let mut methods = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"].into_iter();
    let free = methods.find(|method| exempt.iter().all(|exempt| exempt != method));
    free.unwrap_or("ANY-OTHER")
}

fn one_at_least(names: &[String]) -> Vec<Option<&str>> {
    if names.is_empty() {
        vec![None]
    } else {
        names.iter().map(|name| Some(name.as_str())).collect()
    }
}

/// The path of a call to the methods that a policy names.
fn grpc_path(methods: &str) -> String {
    let methods = methods.trim_matches('/');
    if methods.contains('/') {
        format!("/{}", methods.replace('*', "Method"))
    } else if let Some(package) = methods.strip_suffix('*') {
        format!("/{package}Service/Method")
    } else {
        format!("/{methods}/Method")
    }
}

/// A request with a path that fits the pattern.
fn request(method: &str, pattern: Option<&str>, host: Option<&str>) -> Option<Request<()>> {
    // A path that no service has, so that no route of the file covers it.
    let path = pattern.map_or_else(|| "/-/any-other/path/-".to_owned(), path_of);
    let host = host.unwrap_or("any-other.invalid").replace("*.", "any.");
    let peer = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 0));
    let method = Method::from_bytes(method.as_bytes()).ok()?;
    let request = Request::builder().method(method).uri(path);
    let request = request.header("host", host).extension(PeerAddr(peer));
    request.body(()).ok()
}

/// A path that a pattern in axum's syntax covers: each parameter has a value.
fn path_of(pattern: &str) -> String {
    let mut path = String::new();
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('{') {
        path.push_str(before);
        // A doubled brace is a brace.
        if let Some(after) = after.strip_prefix('{') {
            path.push_str("%7B");
            rest = after;
            continue;
        }
        path.push('x');
        rest = after.split_once('}').map_or("", |(_, rest)| rest);
    }
    path + &rest.replace("}}", "%7D")
}
