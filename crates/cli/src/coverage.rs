//! The policies that a request meets, asked of the limiter itself.

use std::fmt;
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

/// A request as an example, and the policies that cover it.
#[derive(Debug)]
pub(crate) struct Covered {
    /// The request: its method, its path, and its host if a policy names one.
    pub(crate) request: String,
    /// The policies' names.
    pub(crate) policies: Vec<String>,
}

/// The policies that meet, for an example of each route, method and host that the file names, and for a request that it does not name.
///
/// Examples claim nothing about other requests: patterns overlap, and a policy may ask for a method, a host or an address alone.
/// The limiter that is asked has the conditions of the file and none of its keys, lists and quotas: these decide whether a request
/// passes, and not whether a policy covers it.
pub(crate) fn examples(path: &Path, config: &LimiterConfig) -> Result<Vec<Covered>, ReloadError> {
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
    for example in requests(config) {
        let Some(request) = example.request() else {
            continue;
        };
        drop(limits.limiter().admit(
            &limits.limiter().view(&request),
            PolicySet::Covering,
            || true,
            |_ruling| (),
        ));
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        let policies = std::mem::take(&mut *heard);
        let request = example.to_string();
        if rows.iter().all(|row| row.request != request) {
            rows.push(Covered { request, policies });
        }
    }
    Ok(rows)
}

/// Leaves of each policy what decides whether it covers a request.
fn keep_conditions(config: &mut LimiterConfig) {
    config.client_address = ClientAddressConfig::Peer;
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
        bare.exempt_networks.clone_from(&policy.exempt_networks);
        bare.when.clone_from(&policy.when);
        bare.exempt_preflights = policy.exempt_preflights;
        bare.exempt_health_checks = policy.exempt_health_checks;
        bare.per_message = policy.per_message;
        bare.on_demand = policy.on_demand;
        *policy = bare;
    }
}

/// A request that a policy of the file may cover.
struct Example {
    method: String,
    path: String,
    host: Option<String>,
}

impl fmt::Display for Example {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, path, host } = self;
        write!(f, "{method} {path}")?;
        host.iter().try_for_each(|host| write!(f, " for {host}"))
    }
}

impl Example {
    fn request(&self) -> Option<Request<()>> {
        let method = Method::from_bytes(self.method.as_bytes()).ok()?;
        let peer = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 0));
        let host = self.host.as_deref().unwrap_or("other.invalid");
        let request = Request::builder().method(method).uri(&self.path);
        let request = request.header("host", host).extension(PeerAddr(peer));
        request.body(()).ok()
    }
}

/// Requests for each policy, and two more.
fn requests(config: &LimiterConfig) -> Vec<Example> {
    let mut examples = Vec::new();
    for policy in &config.policies {
        if policy.on_demand || policy.per_message.is_some() {
            // It covers no request as such.
            continue;
        }
        let calls = policy.grpc.iter().map(|methods| grpc_path(methods));
        let mut paths: Vec<_> = policy.routes.iter().map(|route| path_of(route)).collect();
        paths.extend(calls.clone());
        if paths.is_empty() {
            paths.push(OTHER_PATH.to_owned());
        }
        for path in &paths {
            let usual = match calls.clone().any(|call| call == *path) {
                true => "POST",
                false => "GET",
            };
            for method in methods(policy, usual) {
                examples.extend(hosts(policy).map(|host| Example {
                    method: method.to_owned(),
                    path: path.clone(),
                    host,
                }));
            }
        }
    }
    // No wildcard covers the first.
    examples.extend(["/", OTHER_PATH].map(|path| Example {
        method: "GET".to_owned(),
        path: path.to_owned(),
        host: None,
    }));
    examples
}

/// A path that hardly any file names.
const OTHER_PATH: &str = "/any/other/path";

/// Returns every method that the policy names and, unless it lists its methods, the first usual one that it does not exempt.
fn methods<'a>(policy: &'a PolicyConfig, usual: &'a str) -> Vec<&'a str> {
    let named = policy.methods.iter().chain(&policy.exempt_methods);
    let mut methods: Vec<_> = named.map(String::as_str).collect();
    if policy.methods.is_empty() {
        let others = [usual, "GET", "POST", "PUT", "DELETE", "PATCH"];
        methods.extend(others.into_iter().find(|other| !methods.contains(other)));
    }
    methods
}

fn hosts(policy: &PolicyConfig) -> impl Iterator<Item = Option<String>> {
    let named = policy.hosts.iter();
    let named = named.map(|host| Some(host.replace("*.", "any.")));
    named.chain(policy.hosts.is_empty().then_some(None))
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
