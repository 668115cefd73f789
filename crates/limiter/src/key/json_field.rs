//! A field of a JSON document.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::reading::{ELSEWHERE, SEVERAL};
use super::seen_body::{ContentType, SeenBody};
use super::spelling::Spelling;
use super::typed::one_form;
use super::{KeyExtractor, KeyMissing, KeyShape};
use crate::{Key, RequestView};

/// Below this, readers of floating point represent each whole number exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A field of a JSON document (`application/json` or `application/…+json`) in the request's body, behind a `BufferBodyLayer`.
///
/// The value may be a text or a whole number. `7`, `7.0` and `"7"` are one identity. A text that is a number, a UUID or an IPv6 address is
/// [its value](super::Query), too.
///
/// The key is missing if there is no such field, or if it is `null` or empty. It is [ambiguous](KeyMissing::ambiguous) if the value
/// is anything else, such as a number above 2^53, which some readers take for its neighbour; if several fields of one name on the
/// path differ, because readers of JSON disagree about which one counts; if a name differs from one on the path in its capital
/// letters alone, since some readers ignore these; if there is a list where the path has a name, because serde reads structs from
/// lists as well; if the body is a form by its content type; or if it has not been read: it is too long, not well-formed, its
/// content type is neither JSON nor a form, or there is no such layer outside the limiter.
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
    /// The field at this path: names with dots between them, for lists the number of the element, from 0. With a JSON pointer
    /// (`"/user/email"`) no limiter is built.
    #[must_use]
    pub fn new(path: &str) -> Self {
        Self {
            path: path.split('.').map(Into::into).collect(),
            missing: KeyMissing::shared(format!("JSON field {path}")),
        }
    }

    fn find(&self, request: &RequestView<'_>) -> FieldReading {
        let body = match SeenBody::of(request, ContentType::Json) {
            Ok([]) => return FieldReading::Nothing,
            Ok(body) => body,
            Err(why) => return FieldReading::Ambiguous(why),
        };
        let mut document = serde_json::Deserializer::from_slice(body);
        let found = Field(&self.path).deserialize(&mut document);
        match found.and_then(|found| document.end().map(|()| found)) {
            Ok(found) => found,
            Err(_) if ContentType::of(request.headers()) == Some(ContentType::Json) => {
                FieldReading::Ambiguous("the body is not JSON")
            }
            Err(_) => FieldReading::Nothing,
        }
    }
}

/// The content of a document, or of a part of it.
#[derive(Debug, PartialEq)]
enum FieldReading {
    Nothing,
    One(Key),
    Ambiguous(&'static str),
}

/// True if a reader takes one name for the other: those of Go and .NET do not tell capital letters from small ones, and to Go two
/// letters beyond ASCII are small ones.
fn is_alike(one: &str, other: &str) -> bool {
    let folded = |letter: char| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        letter => letter.to_ascii_lowercase(),
    };
    one.chars().map(folded).eq(other.chars().map(folded))
}

/// Looks for the field at a path, and at nothing beside it.
struct Field<'p>(&'p [Box<str>]);

impl<'de> DeserializeSeed<'de> for Field<'_> {
    type Value = FieldReading;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<FieldReading, D::Error> {
        if self.0.is_empty() {
            deserializer.deserialize_any(Identity)
        } else {
            deserializer.deserialize_any(self)
        }
    }
}

impl<'de> Visitor<'de> for Field<'_> {
    type Value = FieldReading;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<FieldReading, A::Error> {
        let mut found = None;
        while let Some(name) = fields.next_key::<Cow<'_, str>>()? {
            match self.0 {
                [first, rest @ ..] if **first == *name => {
                    let value = fields.next_value_seed(Field(rest))?;
                    found = match found {
                        Some(other) if other != value => Some(FieldReading::Ambiguous(SEVERAL)),
                        _ => Some(value),
                    };
                }
                [first, ..] => {
                    if is_alike(first, &name) {
                        found = Some(FieldReading::Ambiguous(ELSEWHERE));
                    }
                    let _other: IgnoredAny = fields.next_value()?;
                }
                [] => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found.unwrap_or(FieldReading::Nothing))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<FieldReading, A::Error> {
        let Some((first, rest)) = self.0.split_first() else {
            return Ok(FieldReading::Nothing);
        };
        let wanted = first.parse::<usize>().ok();
        let (mut found, mut index) = (FieldReading::Nothing, 0_usize);
        loop {
            if wanted == Some(index) {
                match list.next_element_seed(Field(rest))? {
                    Some(value) => found = value,
                    None => return Ok(found),
                }
            } else if list.next_element::<IgnoredAny>()?.is_none() {
                return Ok(found);
            } else if wanted.is_none() {
                found = FieldReading::Ambiguous("there is a list where its name should be");
            }
            index += 1;
        }
    }

    fn visit_bool<E>(self, _: bool) -> Result<FieldReading, E> {
        Ok(FieldReading::Nothing)
    }

    fn visit_i64<E>(self, _: i64) -> Result<FieldReading, E> {
        Ok(FieldReading::Nothing)
    }

    fn visit_u64<E>(self, _: u64) -> Result<FieldReading, E> {
        Ok(FieldReading::Nothing)
    }

    fn visit_f64<E>(self, _: f64) -> Result<FieldReading, E> {
        Ok(FieldReading::Nothing)
    }

    fn visit_str<E>(self, _: &str) -> Result<FieldReading, E> {
        Ok(FieldReading::Nothing)
    }

    fn visit_unit<E>(self) -> Result<FieldReading, E> {
        Ok(FieldReading::Nothing)
    }
}

/// Reads the value at the end of the path, and keeps nothing of a list or an object, however large.
struct Identity;

const NEITHER: FieldReading = FieldReading::Ambiguous("it is neither a text nor a number");

impl<'de> Visitor<'de> for Identity {
    type Value = FieldReading;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<FieldReading, E> {
        Ok(FieldReading::Nothing)
    }

    fn visit_str<E>(self, text: &str) -> Result<FieldReading, E> {
        Ok(match one_form(text.as_bytes()) {
            _ if text.is_empty() => FieldReading::Nothing,
            Some(form) => FieldReading::One(Key::bytes(&form)),
            None => FieldReading::One(Key::from(text)),
        })
    }

    fn visit_u64<E>(self, value: u64) -> Result<FieldReading, E> {
        Ok(whole(value as f64))
    }

    fn visit_i64<E>(self, value: i64) -> Result<FieldReading, E> {
        Ok(whole(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<FieldReading, E> {
        Ok(whole(value))
    }

    fn visit_bool<E>(self, _: bool) -> Result<FieldReading, E> {
        Ok(NEITHER)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<FieldReading, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(NEITHER)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<FieldReading, A::Error> {
        while let Some(name) = fields.next_key::<Cow<'_, str>>()? {
            if name == "$serde_json::private::Number" && has_arbitrary_precision() {
                let digits: String = fields.next_value()?;
                return Ok(whole(digits.parse().unwrap_or(f64::NAN)));
            }
            let _other: IgnoredAny = fields.next_value()?;
        }
        Ok(NEITHER)
    }
}

/// True if the program has serde_json's feature `arbitrary_precision`, which shows numbers as objects of one field.
fn has_arbitrary_precision() -> bool {
    serde_json::from_str::<serde_json::Number>("1e999").is_ok()
}

/// The identity of a whole number. Readers of floating point do not tell `7` from `7.0`, nor large numbers from their neighbours.
fn whole(value: f64) -> FieldReading {
    if value.abs() >= EXACT || value.fract() != 0.0 {
        return FieldReading::Ambiguous("it is not a whole number that all readers represent");
    }
    let digits = value.to_string();
    let digits = if value == 0.0 { "0" } else { &digits };
    FieldReading::One(Key::from(digits))
}

impl KeyExtractor for JsonField {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        match self.find(request) {
            FieldReading::One(key) => Ok(key),
            FieldReading::Nothing => Err(self.missing.clone()),
            FieldReading::Ambiguous(why) => Err(self.missing.clone().ambiguous(why)),
        }
    }

    fn needs_whole_request(&self) -> bool {
        true
    }

    fn shape(&self) -> KeyShape {
        KeyShape::Spelled(Spelling::Typed)
    }

    /// A JSON pointer is refused. A text with a dot is not: its names may begin with a slash.
    fn flaw(&self, _: Option<&[&str]>) -> Option<String> {
        let [only] = &*self.path else {
            return None;
        };
        let pointer = only.strip_prefix('/')?;
        let names = match pointer {
            "" => "user.email".to_owned(),
            _ => pointer
                .replace('/', ".")
                .replace("~1", "/")
                .replace("~0", "~"),
        };
        Some(format!(
            "JSON field {only:?}: is a JSON pointer; write the names with dots between them, as in {names:?}"
        ))
    }
}
