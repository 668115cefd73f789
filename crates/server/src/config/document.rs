//! The file as it is written.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, StringDeserializer};
use serde::de::{DeserializeSeed, Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tollgate::config::LimiterConfig;
use toml::Spanned;

use crate::original::Form;

/// A configuration of the library, with the rules beside it.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) limiter: LimiterConfig,
    pub(super) envoy: Vec<Spanned<RuleConfig>>,
    pub(super) forward_auth: Option<ForwardAuthConfig>,
}

/// Forward auth as it is written.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ForwardAuthConfig {
    pub(super) gateway: Form,
    #[serde(default)]
    pub(super) allow_ambiguous_paths: bool,
}

/// A rule as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleConfig {
    pub(super) domain: String,
    pub(super) descriptor: Vec<EntryConfig>,
    pub(super) policy: String,
    pub(super) identity: Option<Vec<String>>,
    #[serde(default)]
    pub(super) report: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EntryConfig {
    pub(super) key: String,
    pub(super) value: Option<String>,
}

/// The tables that the library does not have.
const ENVOY: &str = "envoy";
const FORWARD_AUTH: &str = "forward_auth";

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(DocumentVisitor)
    }
}

struct DocumentVisitor;

impl<'de> Visitor<'de> for DocumentVisitor {
    type Value = Document;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a configuration")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Document, A::Error> {
        let (mut envoy, mut forward_auth) = (Vec::new(), None);
        let fields = LibraryFields {
            fields,
            envoy: &mut envoy,
            forward_auth: &mut forward_auth,
        };
        // The library's own reader refuses every other field that it does not know.
        let limiter = LimiterConfig::deserialize(MapAccessDeserializer::new(fields))?;
        Ok(Document {
            limiter,
            envoy,
            forward_auth,
        })
    }
}

/// The fields of the library, once those of gateways are taken out.
struct LibraryFields<'r, A> {
    fields: A,
    envoy: &'r mut Vec<Spanned<RuleConfig>>,
    forward_auth: &'r mut Option<ForwardAuthConfig>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for LibraryFields<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(field) = self.fields.next_key::<String>()? {
            match &*field {
                ENVOY => {
                    let rules: Vec<Spanned<RuleConfig>> = self.fields.next_value()?;
                    if rules.is_empty() {
                        return Err(A::Error::custom("envoy: the list of rules is empty"));
                    }
                    self.envoy.extend(rules);
                }
                FORWARD_AUTH => *self.forward_auth = Some(self.fields.next_value()?),
                _ => {
                    let field: StringDeserializer<A::Error> = field.into_deserializer();
                    return seed.deserialize(field).map(Some);
                }
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.fields.next_value_seed(seed)
    }
}
