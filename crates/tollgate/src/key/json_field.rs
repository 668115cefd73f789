//! A field of a JSON document.

use serde_json::Value;

use super::{KeyExtractor, KeyMissing};
use crate::buffer::{ContentType, WholeBody};
use crate::{Key, RequestView};

/// A field of the JSON document (`application/json` or `application/…+json`) that the request's body is, behind a
/// [`BufferBodyLayer`](crate::BufferBodyLayer).
///
/// The value may be a text, or an integer, which is the same identity as the text of its digits, so that `7` and `"7"` are one
/// caller. It is missing if it is anything else, if it is empty, if the body is not JSON by its content type, is not
/// well-formed or is too long, or if there is no such layer outside of the limiter. Of several fields of one name the last
/// counts.
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
        let document: Value = serde_json::from_slice(body).ok()?;
        let field = self
            .path
            .iter()
            .try_fold(&document, |value, name| match value {
                Value::Array(list) => list.get(name.parse::<usize>().ok()?),
                other => other.get(&**name),
            })?;
        match field {
            Value::String(text) if !text.is_empty() => Some(Key::from(text)),
            Value::Number(number) if number.is_u64() || number.is_i64() => {
                Some(Key::from(number.to_string()))
            }
            _ => None,
        }
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
