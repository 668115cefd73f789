//! The file as it is written.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, StringDeserializer};
use serde::de::{DeserializeSeed, Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tollgate::config::LimiterConfig;
use toml::Spanned;

/// A configuration of the library, with the rules beside it.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) limiter: LimiterConfig,
    pub(super) envoy: Vec<Spanned<RuleConfig>>,
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

/// The table of rules.
const ENVOY: &str = "envoy";

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
        let mut envoy = Vec::new();
        let fields = WithoutRules {
            fields,
            envoy: &mut envoy,
        };
        // The library's own reader refuses every other field that it does not know.
        let limiter = LimiterConfig::deserialize(MapAccessDeserializer::new(fields))?;
        Ok(Document { limiter, envoy })
    }
}

/// The fields of the library, once the rules are taken out.
struct WithoutRules<'r, A> {
    fields: A,
    envoy: &'r mut Vec<Spanned<RuleConfig>>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for WithoutRules<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(field) = self.fields.next_key::<String>()? {
            if field != ENVOY {
                let field: StringDeserializer<A::Error> = field.into_deserializer();
                return seed.deserialize(field).map(Some);
            }
            let rules: Vec<Spanned<RuleConfig>> = self.fields.next_value()?;
            if rules.is_empty() {
                return Err(A::Error::custom("envoy: the list of rules is empty"));
            }
            self.envoy.extend(rules);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.fields.next_value_seed(seed)
    }
}
