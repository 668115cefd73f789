//! The identity whose budget a request spends, as a configuration writes it.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Registry, refused};
#[cfg(feature = "json")]
use crate::key::JsonField;
use crate::key::{
    AsyncKeyExtractor, BasicUser, BearerToken, Cookie, FormField, Global, Header, Host,
    KeyExtractor, KeyFuture, KeyMissing, KeyShape, MatchedRoute, Method, PathParam, Query, Source,
    whole,
};
use crate::{ClientAddress, ConfigError, Key, RequestView};

/// The identity whose budget a request spends: `"client-ip"`, `{ header = "x-api-key" }`, or a list of such keys, which together
/// name the caller.
///
/// ```
/// use tollgate::config::{KeyConfig, PolicyConfig};
///
/// let policy = |key: &str| toml::from_str::<PolicyConfig>(&format!("name = 'api'\nquotas = '10/s'\nkey = {key}"));
/// assert_eq!(policy("'client-ip'")?.key, Some(KeyConfig::ByClientIp));
/// assert_eq!(policy("{ header = 'x-api-key' }")?.key, Some(KeyConfig::ByHeader("x-api-key".into())));
/// assert!(matches!(policy("['client-ip', { cookie = 'session' }]")?.key, Some(KeyConfig::All(_))));
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    expecting = "a key is \"client-ip\", \"global\", \"host\", \"method\", \"matched-route\", \"bearer-token\", \"basic-user\", a map of one of header, cookie, \
                 query, path-param, form-field, json-field (with the feature json) and registered to a name, or a list of keys"
)]
#[non_exhaustive]
pub enum KeyConfig {
    // No variant has the name of an extractor. The compiler shortens unique names in its errors, and would spell out the paths of
    // the extractors otherwise.
    /// The caller's address.
    #[default]
    #[serde(rename = "client-ip")]
    ByClientIp,
    /// One budget for all requests.
    #[serde(rename = "global")]
    ByGlobal,
    /// The host that the request is for.
    #[serde(rename = "host")]
    ByHost,
    /// The method.
    #[serde(rename = "method")]
    ByMethod,
    /// The pattern that the path matched.
    #[serde(rename = "matched-route")]
    ByMatchedRoute,
    /// The token in `Authorization`.
    #[serde(rename = "bearer-token")]
    ByBearerToken,
    /// The user in `Authorization`.
    #[serde(rename = "basic-user")]
    ByBasicUser,
    /// The value of the header of this name.
    #[serde(rename = "header")]
    ByHeader(String),
    /// The value of the cookie of this name.
    #[serde(rename = "cookie")]
    ByCookie(String),
    /// The value of the query parameter of this name.
    #[serde(rename = "query")]
    ByQuery(String),
    /// The parameter of the path of this name.
    #[serde(rename = "path-param")]
    ByPathParam(String),
    /// The field of this name in a form.
    #[serde(rename = "form-field")]
    ByFormField(String),
    /// The field at this path in a JSON document.
    #[cfg(feature = "json")]
    #[serde(rename = "json-field")]
    ByJsonField(String),
    /// The identity that the [registered key](Registry::register_key) of this name finds.
    #[serde(rename = "registered")]
    ByRegistered(String),
    /// All of these together. One alone is itself, and a list within a list is its parts.
    #[serde(untagged)]
    All(Vec<Self>),
}

impl KeyConfig {
    /// The part of a request that names its class.
    pub(super) fn build_class(
        &self,
        policy: &str,
        registry: &Registry,
    ) -> Result<Source, ConfigError> {
        let names_none = |by: &str, why: &str| {
            let reason =
                format!("{why}, and names no class; a header would: {{ header = \"x-class\" }}");
            Err(refused(policy, "key", by, &reason))
        };
        match self {
            Self::ByGlobal => return names_none("global", "is alike for all requests"),
            Self::ByClientIp => return names_none("client-ip", "is an address"),
            Self::All(keys) => match keys.as_slice() {
                [only] => return only.build_class(policy, registry),
                [] => {}
                _ => return names_none("a list", "has several parts"),
            },
            _ => {}
        }
        let source = self.build(policy, registry)?;
        match self {
            Self::ByRegistered(name) if source.later().is_some() => {
                let reason = "has to be waited for, and a class is found at once";
                Err(refused(policy, "key", name, reason))
            }
            _ => Ok(source),
        }
    }

    /// The part of a request that names it among those of its caller.
    pub(super) fn build_id(
        &self,
        policy: &str,
        registry: &Registry,
    ) -> Result<Source, ConfigError> {
        let word = match self {
            Self::ByClientIp => "client-ip",
            Self::ByGlobal => "global",
            Self::ByHost => "host",
            Self::ByMethod => "method",
            Self::ByMatchedRoute => "matched-route",
            Self::ByBearerToken => "bearer-token",
            Self::ByBasicUser => "basic-user",
            _ => {
                let source = self.build(policy, registry)?;
                return match self {
                    Self::ByRegistered(name) if source.later().is_some() => {
                        let reason = "is asynchronous, and an id is read from the request alone";
                        Err(refused(policy, "once.by", name, reason))
                    }
                    _ => Ok(source),
                };
            }
        };
        let reason = "is the same in other requests of a caller, and names none; a header would: { header = \"idempotency-key\" }";
        Err(refused(policy, "once.by", word, reason))
    }

    pub(super) fn build(&self, policy: &str, registry: &Registry) -> Result<Source, ConfigError> {
        Ok(match self {
            Self::ByClientIp => Source::ClientIp,
            Self::ByGlobal => Source::new(Global),
            Self::ByHost => Source::new(Host),
            Self::ByMethod => Source::new(Method),
            Self::ByMatchedRoute => Source::new(MatchedRoute),
            Self::ByBearerToken => Source::new(BearerToken),
            Self::ByBasicUser => Source::new(BasicUser),
            Self::ByHeader(name) => match Header::try_new(name) {
                Ok(header) => Source::new(header),
                Err(_) => return Err(refused(policy, "key", name, "invalid header name")),
            },
            Self::ByCookie(name) => Source::new(Cookie::new(name)),
            Self::ByQuery(name) => Source::new(Query::new(name)),
            Self::ByPathParam(name) => Source::new(PathParam::new(name)),
            Self::ByFormField(name) => Source::new(FormField::new(name)),
            #[cfg(feature = "json")]
            Self::ByJsonField(path) => Source::new(JsonField::new(path)),
            Self::ByRegistered(name) => registry.key(policy, name)?,
            Self::All(keys) => return Self::together(keys, policy, registry),
        })
    }

    /// The parts of a list, and of lists in it.
    fn parts(&self) -> Vec<&Self> {
        match self {
            Self::All(keys) if !keys.is_empty() => keys.iter().flat_map(Self::parts).collect(),
            part => vec![part],
        }
    }

    fn together(keys: &[Self], policy: &str, registry: &Registry) -> Result<Source, ConfigError> {
        match keys {
            [] => Err(refused(policy, "key", "[]", "is a list of nothing")),
            [key] => key.build(policy, registry),
            keys => {
                let parts = keys.iter().flat_map(Self::parts);
                let parts = parts.map(|key| key.build(policy, registry));
                let parts = TupleKey(parts.collect::<Result<_, _>>()?);
                Ok(if parts.0.iter().any(|part| part.later().is_some()) {
                    Source::Later(Arc::new(parts))
                } else {
                    Source::new(parts)
                })
            }
        }
    }

    /// The only part, if there is one.
    fn sole(&self) -> &Self {
        match self {
            Self::All(keys) if keys.len() == 1 => keys[0].sole(),
            key => key,
        }
    }

    pub(super) fn is_client_ip(&self) -> bool {
        matches!(self.sole(), Self::ByClientIp)
    }

    pub(super) fn is_method(&self) -> bool {
        matches!(self.sole(), Self::ByMethod)
    }

    /// The identity that the key finds where a request says `text`.
    pub(super) fn identity(
        &self,
        policy: &str,
        field: &'static str,
        text: &str,
        client: &ClientAddress,
    ) -> Result<Key, ConfigError> {
        let refuse = |reason| Err(refused(policy, field, text, reason));
        match self {
            Self::ByClientIp => match text.parse::<IpAddr>() {
                Ok(address) => Ok(client.key(address)),
                Err(_) => refuse("not an address, but the key is client-ip"),
            },
            Self::ByGlobal => refuse("names no caller: the key is global"),
            Self::ByBearerToken if has_scheme(text) => {
                refuse("has a scheme, but the key is the token alone")
            }
            Self::All(keys) => match keys.as_slice() {
                [key] => key.identity(policy, field, text, client),
                _ => refuse("names no caller: the key has several parts"),
            },
            _ => Ok(Key::from(text)),
        }
    }
}

fn has_scheme(text: &str) -> bool {
    let scheme = text.split_ascii_whitespace().next().unwrap_or_default();
    scheme.len() < text.len() && scheme.eq_ignore_ascii_case("bearer")
}

/// A tuple of extractors that is known only at run time.
struct TupleKey(Box<[Source]>);

impl KeyExtractor for TupleKey {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        let parts = self.0.iter().map(|part| part.extract(request));
        whole(&parts.collect::<Vec<_>>())
    }

    fn needs_whole_request(&self) -> bool {
        self.0.iter().any(Source::needs_whole_request)
    }

    fn shape(&self) -> KeyShape {
        KeyShape::Parts(self.0.iter().map(Source::shape).collect())
    }

    fn flaw(&self, params: Option<&[&str]>) -> Option<String> {
        self.0.iter().find_map(|part| part.flaw(params))
    }
}

/// The tuple of which some parts have to be waited for.
impl AsyncKeyExtractor for TupleKey {
    fn extract(&self, request: &RequestView<'_>) -> KeyFuture {
        let known = self.0.iter().filter(|part| part.later().is_none());
        let known: Vec<_> = known.map(|part| part.extract(request)).collect();
        let mut known = known.into_iter();
        let parts = self.0.iter().filter_map(|part| match part.later() {
            Some(later) => Some(Part::Later(later.extract(request))),
            None => known.next().map(Part::Now),
        });
        let parts: Vec<Part> = parts.collect();
        Box::pin(async move {
            let mut keys = Vec::with_capacity(parts.len());
            for part in parts {
                keys.push(match part {
                    Part::Now(key) => key,
                    Part::Later(key) => key.await,
                });
            }
            whole(&keys)
        })
    }

    fn shape(&self) -> KeyShape {
        KeyExtractor::shape(self)
    }

    fn flaw(&self, params: Option<&[&str]>) -> Option<String> {
        KeyExtractor::flaw(self, params)
    }
}

enum Part {
    Now(Result<Key, KeyMissing>),
    Later(KeyFuture),
}
