//! Reads the policies of a limiter. Each is read as a whole before its fields are, so that an error names the policy wherever its
//! name stands.

use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::PolicyConfig;

/// A list of policies.
pub(super) fn policies_by_name<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<PolicyConfig>, D::Error> {
    struct Policies;

    impl<'de> Visitor<'de> for Policies {
        type Value = Vec<PolicyConfig>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of policies")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut policies = Vec::new();
            while let Some(policy) = list.next_element_seed(Ordinal(policies.len() + 1))? {
                policies.push(policy);
            }
            Ok(policies)
        }
    }

    deserializer.deserialize_seq(Policies)
}

/// The number of a policy in its list.
struct Ordinal(usize);

impl<'de> DeserializeSeed<'de> for Ordinal {
    type Value = PolicyConfig;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<PolicyConfig, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Ordinal {
    type Value = PolicyConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "policy number {} as a map of fields", self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<PolicyConfig, A::Error> {
        let policy = AnyValue.visit_map(fields)?;
        let which = match policy.get("name") {
            Some(Value::String(name)) => format!("policy {:?}", shortened(name)),
            _ => format!("policy number {}", self.0),
        };
        serde_path_to_error::deserialize(policy).map_err(|error| {
            let (path, reason) = (error.path(), error.inner());
            if path.iter().len() == 0 {
                A::Error::custom(format_args!("{which}: {reason}"))
            } else {
                A::Error::custom(format_args!("{which}: {path}: {reason}"))
            }
        })
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

/// A document of any format, in which no map has a key twice.
struct Document(Value);

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue).map(Self)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a policy, or something in one")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Document(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((name, Document(value))) = entries.next_entry::<String, _>()? {
            if map.contains_key(&name) {
                return Err(A::Error::custom(format_args!(
                    "{:?} is given twice",
                    shortened(&name)
                )));
            }
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}
