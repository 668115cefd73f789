//! The parts of a request to the admin: its query, and its body of JSON.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Deserialize;
use serde_json::Value;
use tollgate::{Key, Policy, Switch};

use super::answer::ApiError;
use super::shared::Shared;
use crate::caller::{self, CallerError};
use crate::live::Live;

/// The most bytes of a body. The longest key that a request could have fits many times.
const MOST_BYTES: usize = 16 << 10;

/// The time for a body: that of a head.
const DEADLINE: Duration = Duration::from_secs(30);

/// A request of an operator.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) live: &'a Live,
    pub(super) admin: &'a Shared,
    pub(super) from: Option<SocketAddr>,
}

impl Asked<'_> {
    /// The policy of this name.
    pub(super) fn policy(&self, name: &str) -> Result<Arc<Policy>, ApiError> {
        self.live.limiter.policy(name).ok_or_else(|| {
            let policies = self.live.limiter.policies();
            let mut names: Vec<_> = policies.iter().map(|policy| policy.name()).collect();
            let more = names.len().saturating_sub(20);
            names.truncate(20);
            let names = names.join(", ");
            let more = match more {
                0 => String::new(),
                _ => format!(" and {more} more"),
            };
            ApiError::new(
                StatusCode::NOT_FOUND,
                format!("there is no policy of this name; there are {names}{more}"),
            )
        })
    }

    /// The caller that the text stands for.
    pub(super) fn key(&self, policy: &Policy, text: &str) -> Result<Key, ApiError> {
        if text.is_empty() {
            return Err(ApiError::bad_request(
                "caller: is empty; \"none\" is the caller without an identity, and \"all\" all callers together",
            ));
        }
        // A rule for Envoy names callers by the texts of descriptors.
        let is_asked_about =
            policy.is_on_demand() || self.live.gateways.load().rules.charge(policy.name());
        let read = match is_asked_about {
            true => caller::read,
            false => caller::read_of_requests,
        };
        read(&self.live.limiter, policy, text).map_err(|error| {
            ApiError::bad_request(match error {
                CallerError::Hash { .. } => {
                    "caller: this is the hash of an identity; the identity itself is needed"
                        .to_owned()
                }
                CallerError::Misfit { policy, reason, .. } => {
                    format!("caller: cannot be one under policy {policy:?}: {reason}")
                }
            })
        })
    }
}

/// The parameters of a query, each of them once.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the query, which may have these parameters.
    pub(super) fn read(text: &str, known: &[&str]) -> Result<Self, ApiError> {
        let pairs = form_urlencoded::parse(text.as_bytes()).into_owned();
        let mut read: Vec<(String, String)> = Vec::new();
        for (name, value) in pairs {
            if !known.contains(&&*name) {
                let known = known.join(", ");
                return Err(ApiError::bad_request(format!(
                    "the parameters are {known}, and there is another one"
                )));
            }
            if read.iter().any(|(other, _)| *other == name) {
                return Err(ApiError::bad_request(format!("{name}: is there twice")));
            }
            read.push((name, value));
        }
        Ok(Self(read))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut found = self.0.iter();
        found
            .find(|(known, _)| known == name)
            .map(|(_, value)| &**value)
    }

    pub(super) fn required(&self, name: &str) -> Result<&str, ApiError> {
        self.get(name)
            .ok_or_else(|| ApiError::bad_request(format!("{name}: is missing")))
    }

    /// The number of rows that are asked for.
    pub(super) fn most(&self, otherwise: usize) -> Result<usize, ApiError> {
        let Some(stated) = self.get("most") else {
            return Ok(otherwise);
        };
        let number = stated.parse().ok().filter(|number| *number > 0);
        number.ok_or_else(|| ApiError::bad_request("most: is not a number above 0"))
    }
}

/// The fields of a body. Each operation needs some of them, and takes no others.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Body {
    policy: Option<String>,
    caller: Option<String>,
    pub(super) seconds: Option<u64>,
    pub(super) to: Option<SwitchName>,
}

/// A switch, as the API names it.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SwitchName {
    On,
    Shadow,
    Off,
}

impl From<SwitchName> for Switch {
    fn from(name: SwitchName) -> Self {
        match name {
            SwitchName::On => Self::On,
            SwitchName::Shadow => Self::Shadow,
            SwitchName::Off => Self::Off,
        }
    }
}

/// The name of a switch.
pub(super) fn switch_name(switch: Switch) -> &'static str {
    match switch {
        Switch::Shadow => "shadow",
        Switch::Off => "off",
        _ => "on",
    }
}

impl Body {
    /// Reads the body of a request.
    pub(super) async fn read(body: axum::body::Body) -> Result<Self, ApiError> {
        let read = Limited::new(body, MOST_BYTES).collect();
        let Ok(read) = tokio::time::timeout(DEADLINE, read).await else {
            let reason = format!("the body is not there after {} s", DEADLINE.as_secs());
            return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, reason));
        };
        let bytes = read.map_err(|error| {
            if error.downcast_ref::<LengthLimitError>().is_some() {
                let reason = format!("the body has more than {MOST_BYTES} bytes");
                ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, reason)
            } else {
                ApiError::bad_request("the body ended before it was whole")
            }
        })?;
        Self::of_json(&bytes.to_bytes())
    }

    fn of_json(bytes: &[u8]) -> Result<Self, ApiError> {
        let kind = match serde_json::from_slice::<Value>(bytes) {
            _ if bytes.iter().all(u8::is_ascii_whitespace) => Some("empty"),
            Ok(Value::Null) => Some("null"),
            Ok(Value::Bool(_)) => Some("true or false"),
            Ok(Value::Number(_)) => Some("a number"),
            Ok(Value::String(_)) => Some("a text"),
            Ok(Value::Array(_)) => Some("a list"),
            Ok(Value::Object(_)) | Err(_) => None,
        };
        if let Some(kind) = kind {
            return Err(ApiError::bad_request(format!(
                "the body: is {kind}, and has to be an object of JSON, such as {{\"policy\": \"NAME\", \"caller\": \"NAME\"}}"
            )));
        }
        serde_json::from_slice(bytes)
            .map_err(|error| ApiError::bad_request(format!("the body: {error}")))
    }

    pub(super) fn policy(&self) -> Result<&str, ApiError> {
        required("policy", self.policy.as_deref())
    }

    pub(super) fn caller(&self) -> Result<&str, ApiError> {
        required("caller", self.caller.as_deref())
    }

    /// Refuses fields that the operation has no use for.
    pub(super) fn only(&self, takes: &[&str]) -> Result<(), ApiError> {
        let given = [
            ("policy", self.policy.is_some()),
            ("caller", self.caller.is_some()),
            ("seconds", self.seconds.is_some()),
            ("to", self.to.is_some()),
        ];
        match given
            .iter()
            .find(|(name, is_given)| *is_given && !takes.contains(name))
        {
            None => Ok(()),
            Some((name, _)) => Err(ApiError::bad_request(format!(
                "{name}: this operation takes {}",
                takes.join(", ")
            ))),
        }
    }
}

fn required<'a>(name: &str, value: Option<&'a str>) -> Result<&'a str, ApiError> {
    value.ok_or_else(|| ApiError::bad_request(format!("{name}: is missing")))
}
