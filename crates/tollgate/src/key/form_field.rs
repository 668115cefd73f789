//! A field of a form.

use super::cookie::single;
use super::{KeyExtractor, KeyMissing};
use crate::buffer::{ContentType, WholeBody};
use crate::{Key, RequestView};

/// A field of the form (`application/x-www-form-urlencoded`) that the request's body is, behind a
/// [`BufferBodyLayer`](crate::BufferBodyLayer).
///
/// It is decoded as axum's `Form` decodes it; what is not UTF-8 is replaced. It is missing if there is none of that name, if
/// it is empty, if there are several with different values, if the body is no form by its content type or is too long, or if
/// there is no such layer outside of the limiter.
#[derive(Clone, Debug)]
pub struct FormField {
    name: Box<str>,
    missing: KeyMissing,
}

impl FormField {
    /// The field of this name, as it is when decoded.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            missing: KeyMissing::shared(format!("single form field {name}")),
        }
    }

    fn find(&self, request: &RequestView<'_>) -> Option<String> {
        if ContentType::of(request.headers()) != Some(ContentType::Form) {
            return None;
        }
        let WholeBody(body) = request.extensions().get()?;
        decoded(body, &self.name)
    }
}

/// The one value of a name in what is encoded as a form.
pub(super) fn decoded(form: &[u8], name: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(form).filter(|(found, _)| found == name);
    single(std::iter::from_fn(|| {
        pairs.next().map(|(_, value)| value.into_owned())
    }))
}

impl KeyExtractor for FormField {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        match self.find(request) {
            Some(value) => Ok(Key::from(value)),
            None => Err(self.missing.clone()),
        }
    }

    fn needs_whole_request(&self) -> bool {
        true
    }
}
