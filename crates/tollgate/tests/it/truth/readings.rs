//! The caller as the extractors of handlers see it.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use axum::body::Body;
use axum::extract::{
    ConnectInfo, Form, FromRequest, FromRequestParts, Json, MatchedPath, Path, Query,
};
use axum_extra::TypedHeader;
use axum_extra::extract::CookieJar;
use axum_extra::extract::cookie::Cookie;
use axum_extra::headers::Authorization;
use axum_extra::headers::authorization::{Basic, Bearer};
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request};
use serde_json::Value;
use tollgate::PeerAddr;
use tonic::metadata::{MetadataMap, MetadataValue};
use uuid::Uuid;

use crate::truth::proxies::{TRUTH, told};

/// The parts of a request that identify a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Who {
    Peer,
    All,
    Header,
    Cookie,
    Bearer,
    BasicUser,
    Query,
    Path,
    Form,
    Json,
    Host,
    Metadata,
    BinaryMetadata,
    Route,
    Method,
    /// All of them together.
    Parts(&'static [Self]),
}

impl Who {
    /// The parts of an identity that has several.
    pub(crate) fn parts(self) -> &'static [Self] {
        match self {
            Self::Parts(parts) => parts,
            _ => &[],
        }
    }

    /// True if the body has to be read for it.
    pub(crate) fn is_in_body(self) -> bool {
        match self {
            Self::Form | Self::Json => true,
            Self::Parts(parts) => parts.iter().any(|part| part.is_in_body()),
            _ => false,
        }
    }

    /// True if typed extractors read it, which take several spellings for one value.
    pub(crate) fn is_typed(self) -> bool {
        matches!(self, Self::Query | Self::Path | Self::Form | Self::Json)
    }

    /// True if two of them are never one: no reader takes anything off them, or anything for the same.
    pub(crate) fn is_exact(self) -> bool {
        match self {
            Self::Peer | Self::Route | Self::Method => true,
            Self::Parts(parts) => parts.iter().all(|part| part.is_exact()),
            _ => false,
        }
    }
}

/// The results of the extractors: several if they disagree, and none if they refuse the request, so that a handler which has them
/// as its arguments would not run.
pub(crate) type Reading = Vec<Option<Vec<u8>>>;

/// The names under which callers are known.
pub(crate) const HEADER: &str = "x-api-key";
pub(crate) const COOKIE: &str = "sid";
pub(crate) const QUERY: &str = "k";
pub(crate) const PARAM: &str = "id";
pub(crate) const FIELD: &str = "user";
pub(crate) const METADATA: &str = "account";
pub(crate) const BINARY: &str = "account-bin";
/// The methods that have a budget each.
const KNOWN: [Method; 8] = [
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::DELETE,
    Method::PATCH,
    Method::OPTIONS,
    Method::CONNECT,
    Method::TRACE,
];

/// The results of the extractors that are asked.
pub(crate) async fn read(
    parts: &mut Parts,
    body: &Bytes,
    wanted: &[Who],
) -> BTreeMap<Who, Reading> {
    let mut readings = BTreeMap::new();
    // Callers that lack a part are told apart by the others.
    let all: Vec<Who> = wanted
        .iter()
        .flat_map(|who| who.parts())
        .chain(wanted)
        .copied()
        .collect();
    for who in all {
        let mut reading = read_one(parts, body, who).await;
        if who.is_typed() {
            typed(&mut reading);
        }
        readings.insert(who, reading);
    }
    readings
}

/// Adds what handlers see that take a number, a UUID or an address.
fn typed(reading: &mut Reading) {
    let mut seen = Vec::new();
    for caller in reading.iter().flatten() {
        let Ok(text) = str::from_utf8(caller) else {
            continue;
        };
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        seen.extend(number.map(|number| number.to_string()));
        seen.extend(text.parse::<u64>().ok().map(|number| number.to_string()));
        seen.extend(text.parse::<Uuid>().ok().map(|id| id.to_string()));
        seen.extend(
            text.parse::<Ipv6Addr>()
                .ok()
                .map(|address| address.to_string()),
        );
    }
    reading.extend(seen.into_iter().map(|caller| Some(caller.into_bytes())));
}

async fn read_one(parts: &mut Parts, body: &Bytes, who: Who) -> Reading {
    match who {
        Who::Parts(of) => {
            let mut whole = vec![Some(Vec::new())];
            for part in of {
                let part = Box::pin(read_one(parts, body, *part)).await;
                whole = joined(&whole, &part);
            }
            whole
        }
        Who::Route => match parts.extensions.get::<MatchedPath>() {
            Some(matched) => vec![text(Some(matched.as_str()))],
            // A policy may know another.
            None => Vec::new(),
        },
        Who::Method => {
            let name = match &parts.method {
                &Method::HEAD => "GET",
                known if KNOWN.contains(known) => known.as_str(),
                _ => "any other",
            };
            vec![text(Some(name))]
        }
        Who::Peer => vec![Some(peer(parts))],
        Who::All => vec![Some(Vec::new())],
        Who::Header => {
            let value = parts.headers.get(HEADER);
            // Blanks around a value are not part of it (RFC 9110, 5.5), and every handler that parses one takes them off.
            vec![present(
                value.map(|value| value.as_bytes().trim_ascii().to_vec()),
            )]
        }
        Who::Cookie => {
            let jar = CookieJar::from_headers(&parts.headers);
            vec![text(jar.get(COOKIE).map(Cookie::value))]
        }
        Who::Bearer => {
            let bearer =
                Option::<TypedHeader<Authorization<Bearer>>>::from_request_parts(parts, &());
            match bearer.await {
                Ok(bearer) => vec![text(bearer.as_ref().map(|bearer| bearer.token()))],
                Err(_) => Vec::new(),
            }
        }
        Who::BasicUser => {
            let basic = Option::<TypedHeader<Authorization<Basic>>>::from_request_parts(parts, &());
            match basic.await {
                Ok(basic) => vec![text(basic.as_ref().map(|basic| basic.username()))],
                Err(_) => Vec::new(),
            }
        }
        Who::Query => {
            let last = Query::<HashMap<String, String>>::try_from_uri(&parts.uri);
            let all = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
            match (last, all) {
                (Ok(last), Ok(all)) => {
                    let first = all.iter().find(|(name, _)| name == QUERY);
                    vec![
                        text(last.get(QUERY).map(String::as_str)),
                        text(first.map(|(_, value)| value.as_str())),
                    ]
                }
                _ => Vec::new(),
            }
        }
        Who::Path => match Path::<HashMap<String, String>>::from_request_parts(parts, &()).await {
            // A fallback has no parameters, and can be asked for none.
            Ok(params) => match params.get(PARAM) {
                Some(param) => vec![text(Some(param))],
                None => Vec::new(),
            },
            Err(_) => Vec::new(),
        },
        Who::Form => form(parts, body).await,
        Who::Json => json(parts, body).await,
        Who::Host => {
            let said = said_host(parts).await;
            let target = parts.uri.host().map(str::to_owned);
            let one_of_both = said.or(target.clone());
            vec![host(one_of_both.clone()), host(target.or(one_of_both))]
        }
        Who::Metadata => {
            let metadata = MetadataMap::from_headers(parts.headers.clone());
            let value = metadata.get(METADATA).map(MetadataValue::as_bytes);
            vec![present(value.map(|value| value.trim_ascii().to_vec()))]
        }
        Who::BinaryMetadata => {
            let metadata = MetadataMap::from_headers(parts.headers.clone());
            match metadata.get_bin(BINARY).map(MetadataValue::to_bytes) {
                None => vec![None],
                Some(Ok(value)) => vec![present(Some(value.to_vec()))],
                Some(Err(_)) => Vec::new(),
            }
        }
    }
}

#[expect(deprecated, reason = "handlers have it")]
async fn said_host(parts: &mut Parts) -> Option<String> {
    let said = Option::<axum_extra::extract::Host>::from_request_parts(parts, &()).await;
    said.ok().flatten().map(|said| said.0)
}

type Pairs = Vec<(String, String)>;

/// The results of handlers with axum's form, axum-extra's, or the bytes.
async fn form(parts: &Parts, body: &Bytes) -> Reading {
    let map = Form::<HashMap<String, String>>::from_request(whole(parts, body), &()).await;
    let pairs = Form::<Pairs>::from_request(whole(parts, body), &()).await;
    let others = axum_extra::extract::Form::<Pairs>::from_request(whole(parts, body), &()).await;
    let first = |pairs: &Pairs| {
        let found = pairs.iter().find(|(name, _)| name == FIELD);
        text(found.map(|(_, value)| value.as_str()))
    };
    let mut found = Vec::new();
    if let Ok(Form(map)) = map {
        found.push(text(map.get(FIELD).map(String::as_str)));
    }
    if let Ok(Form(pairs)) = pairs {
        found.push(first(&pairs));
    }
    if let Ok(axum_extra::extract::Form(pairs)) = others {
        found.push(first(&pairs));
    }
    let pairs: Pairs = form_urlencoded::parse(body).into_owned().collect();
    if !pairs.is_empty() {
        found.push(first(&pairs));
    }
    found
}

/// The results of handlers with axum's JSON, or the bytes.
async fn json(parts: &Parts, body: &Bytes) -> Reading {
    let user = |document: &Value| match document.get(FIELD) {
        None | Some(Value::Null) => Some(None),
        Some(Value::String(user)) => Some(text(Some(user))),
        Some(Value::Number(user)) => Some(text(Some(&user.to_string()))),
        // No caller has this name.
        Some(_) => None,
    };
    let mut found = Vec::new();
    if let Ok(Json(document)) = Json::<Value>::from_request(whole(parts, body), &()).await {
        found.extend(user(&document));
    }
    if let Ok(document) = serde_json::from_slice(body) {
        found.extend(user(&document));
    }
    found
}

/// Case, the port and the dot behind it make no other host of it.
fn host(said: Option<String>) -> Option<Vec<u8>> {
    let said = said?.trim().to_ascii_lowercase();
    let name = said.split_once(':').map_or(&*said, |(name, _)| name);
    text(Some(name.trim_end_matches('.')))
}

/// The address of the peer, of the service or of a proxy that speaks for it. IPv6 counts by networks of 64 bits.
fn peer(parts: &Parts) -> Vec<u8> {
    let set = parts.extensions.get::<PeerAddr>().map(|peer| peer.0);
    let connected = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    let address = set.or(connected.map(|peer| peer.0));
    let peer = address.map(|address| address.ip());
    let truth = parts.headers.get(TRUTH).and_then(|line| line.to_str().ok());
    match truth.and_then(|line| told(line, peer)).or(peer) {
        None => Vec::new(),
        Some(IpAddr::V4(address)) => address.octets().to_vec(),
        Some(IpAddr::V6(address)) => address.octets()[..8].to_vec(),
    }
}

/// Each of the one with each of the other. A caller without a name in one of them has none at all.
fn joined(one: &Reading, other: &Reading) -> Reading {
    let pairs = one
        .iter()
        .flat_map(|one| other.iter().map(move |other| (one, other)));
    let pairs = pairs.map(|(one, other)| {
        let (mut one, other) = (one.clone()?, other.as_ref()?);
        one.extend_from_slice(&other.len().to_be_bytes());
        one.extend_from_slice(other);
        Some(one)
    });
    pairs.collect()
}

/// A copy of the request, for an extractor that takes all of it.
fn whole(parts: &Parts, body: &Bytes) -> Request<Body> {
    let mut request = Request::new(Body::from(body.clone()));
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = parts.uri.clone();
    *request.headers_mut() = parts.headers.clone();
    request
}

fn text(value: Option<&str>) -> Option<Vec<u8>> {
    present(value.map(|value| value.as_bytes().to_vec()))
}

/// An identity without characters counts as absent.
fn present(value: Option<Vec<u8>>) -> Option<Vec<u8>> {
    value.filter(|value| !value.is_empty())
}
