//! Readings that are too weak, built of what the crate offers: each is a way around a limit that once was there.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, COOKIE, HOST, ORIGIN};
use http::{HeaderValue, Method};
use tollgate::key::{self, KeyExtractor, KeyMissing};
use tollgate::{ClientIp, Key, Policy, RequestView};

use crate::truth::policies::Rule;
use crate::truth::readings;

/// The faults of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weakness {
    /// A request that looks like a preflight is free, also as a call of gRPC's and if a handler answers it.
    LooksLikeAPreflight,
    /// A POST below the path of gRPC's health service is free, whatever answers it.
    LooksLikeAHealthCheck,
    /// A cookie is taken byte for byte.
    CookieAsSent,
    /// A header is taken with the blanks around it.
    HeaderAsSent,
    /// An identity that is there twice counts as absent.
    TwiceIsNone,
    /// A host that is there twice counts as absent.
    HostTwiceIsNone,
}

impl Weakness {
    /// The policy with the weakness. What it stands for is taken out of what the policy covers.
    pub(crate) fn weaken(self, policy: Policy, covered: &mut Rule) -> Policy {
        match self {
            // A handler's limit ignores conditions: there each such request is another caller's.
            Self::LooksLikeAPreflight => policy
                .key(key::from_fn(|request: &RequestView<'_>| {
                    static CALLERS: AtomicU64 = AtomicU64::new(0);
                    match looks_like_a_preflight(request) {
                        true => Some(Key::from(CALLERS.fetch_add(1, Ordering::Relaxed))),
                        false => ClientIp.extract(request).ok(),
                    }
                }))
                .when(|request| !looks_like_a_preflight(request)),
            Self::LooksLikeAHealthCheck => policy.key(ClientIp).when(|request| {
                let path = request.original_uri().path();
                !(request.method() == Method::POST && path.starts_with("/grpc.health.v1.Health/"))
            }),
            Self::CookieAsSent => policy.key(CookieAsSent),
            Self::HeaderAsSent => policy.key(key::from_fn(|request: &RequestView<'_>| {
                let value = request.headers().get(readings::HEADER)?;
                Some(Key::bytes(value.as_bytes()))
            })),
            Self::TwiceIsNone => policy.key(key::from_fn(|request: &RequestView<'_>| {
                let query = request.uri().query().unwrap_or_default();
                let pairs = form_urlencoded::parse(query.as_bytes());
                let values: HashSet<_> = pairs
                    .filter(|(name, _)| name == readings::QUERY)
                    .map(|(_, value)| value.into_owned())
                    .collect();
                let mut values = values.into_iter();
                match (values.next(), values.next()) {
                    (Some(only), None) if !only.is_empty() => Some(Key::from(only)),
                    _ => None,
                }
            })),
            Self::HostTwiceIsNone => {
                covered.hosts.clear();
                policy.key(ClientIp).when(|request| {
                    let lines = request.headers().get_all(HOST).iter();
                    let mut lines = lines.map(HeaderValue::as_bytes);
                    let (Some(only), None) = (lines.next(), lines.next()) else {
                        return false;
                    };
                    only == b"api.example.com"
                })
            }
        }
    }
}

fn looks_like_a_preflight(request: &RequestView<'_>) -> bool {
    let headers = request.headers();
    request.method() == Method::OPTIONS
        && headers.contains_key(ORIGIN)
        && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

#[derive(Debug)]
struct CookieAsSent;

impl KeyExtractor for CookieAsSent {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        let lines = request.headers().get_all(COOKIE).into_iter();
        let pairs = lines
            .map(HeaderValue::as_bytes)
            .flat_map(|line| line.split(|byte| *byte == b';'));
        let values: HashSet<_> = pairs
            .filter_map(|pair| pair.trim_ascii().strip_prefix(b"sid="))
            .collect();
        let mut values = values.into_iter();
        match (values.next(), values.next()) {
            (Some(only), None) => Ok(Key::bytes(only)),
            _ => Err(KeyMissing::new("single cookie")),
        }
    }
}
