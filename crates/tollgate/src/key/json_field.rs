//! A field of a JSON document.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::{KeyExtractor, KeyMissing};
use crate::buffer::{ContentType, WholeBody};
use crate::{Key, RequestView};

/// A field of the JSON document (`application/json` or `application/…+json`) that the request's body is, behind a
/// [`BufferBodyLayer`](crate::BufferBodyLayer).
///
/// The value may be a text, or an integer, which is the same identity as the text of its digits, so that `7` and `"7"` are one
/// caller. It is missing if it is anything else, if it is empty, if the body is not JSON by its content type, is not
/// well-formed or is too long, or if there is no such layer outside of the limiter. So it is if there are several fields of one
/// name on the way with different values: readers of JSON do not agree on which of them counts, and a caller could show one to
/// the limiter and another to the handler.
///
/// ```
/// use tollgate::key::JsonField;
/// use tollgate::{Policy, Quota};
///
/// let policy = Policy::new("invite", Quota::per_hour(3)).key(JsonField::new("user.email"));
/// ```
#[derive(Clone, Debug)]
pub struct JsonField {
    path: Box<[Box<str>]>,
    missing: KeyMissing,
}

impl JsonField {
    /// The field at this path: names with dots between them, for lists the number of the element, from 0.
    #[must_use]
    pub fn new(path: &str) -> Self {
        Self {
            path: path.split('.').map(Into::into).collect(),
            missing: KeyMissing::shared(format!("JSON field {path}")),
        }
    }

    fn find(&self, request: &RequestView<'_>) -> Option<Key> {
        if ContentType::of(request.headers()) != Some(ContentType::Json) {
            return None;
        }
        let WholeBody(body) = request.extensions().get()?;
        let mut document = serde_json::Deserializer::from_slice(body);
        let found = Field(&self.path).deserialize(&mut document).ok()?;
        document.end().ok()?;
        found
    }
}

/// Looks for the field at a path, and at nothing beside it.
struct Field<'p>(&'p [Box<str>]);

impl<'de> DeserializeSeed<'de> for Field<'_> {
    type Value = Option<Key>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if self.0.is_empty() {
            return Value::deserialize(deserializer).map(|value| identity(&value));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Field<'_> {
    type Value = Option<Key>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = fields.next_key::<Cow<'_, str>>()? {
            match self.0 {
                [first, rest @ ..] if **first == *name => {
                    let value = fields.next_value_seed(Field(rest))?;
                    if found
                        .replace(value.clone())
                        .is_some_and(|other| other != value)
                    {
                        return Err(A::Error::custom("several fields of one name"));
                    }
                }
                _ => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found.flatten())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let wanted = self.0.split_first();
        let wanted = wanted.and_then(|(first, rest)| Some((first.parse::<usize>().ok()?, rest)));
        let (mut found, mut index) = (None, 0_usize);
        loop {
            let element = match wanted {
                Some((wanted, rest)) if wanted == index => list.next_element_seed(Field(rest))?,
                _ => list.next_element::<IgnoredAny>()?.map(|_| None),
            };
            match element {
                None => return Ok(found),
                Some(value) => found = found.or(value),
            }
            index += 1;
        }
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// What the field has to be.
fn identity(value: &Value) -> Option<Key> {
    match value {
        Value::String(text) if !text.is_empty() => Some(Key::from(text.as_str())),
        Value::Number(number) if number.is_u64() || number.is_i64() => {
            Some(Key::from(number.to_string()))
        }
        _ => None,
    }
}

impl KeyExtractor for JsonField {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        self.find(request).ok_or_else(|| self.missing.clone())
    }

    fn needs_whole_request(&self) -> bool {
        true
    }
}
