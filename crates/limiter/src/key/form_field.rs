//! A field of a form.

use std::borrow::Cow;

use http::Method;

use super::reading::{ELSEWHERE, Reading, is_alike};
use super::seen_body::{ContentType, SeenBody};
use super::spelling::Spelling;
use super::typed::one_form;
use super::{KeyExtractor, KeyMissing, KeyShape};
use crate::{Key, RequestView};

/// A field of a form in the request's body, behind a `BufferBodyLayer`.
///
/// The value is decoded as axum's `Form` does. Bytes that are not UTF-8 are replaced, and a number, a UUID or an IPv6 address is
/// [its value](super::Query). As for `Form`, the form of a `GET` is its query: if its body has the field too, both have to agree.
/// The form of a `HEAD` is both.
///
/// The key is missing if there is no field of that name, or if it is empty. It is [ambiguous](KeyMissing::ambiguous) if several
/// fields differ, if [services differ](super::Query) about it, if the body is JSON by its content type, or if it has not been read:
/// it is too long, its content type is neither a form nor JSON, or there is no such layer outside the limiter.
///
/// ```
/// use tollgate::key::FormField;
/// use tollgate::{Policy, Quota};
///
/// let login = Policy::new("login", Quota::per_minute(5)).route("/login").key(FormField::new("user"));
/// ```
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
            missing: KeyMissing::shared(format!("form field {name}")),
        }
    }
}

/// The values of a name in what is encoded as a form.
pub(super) fn values<'f>(form: &'f [u8], name: &'f str) -> impl Iterator<Item = Cow<'f, [u8]>> {
    let pairs = form_urlencoded::parse(form).filter(move |(found, _)| found == name);
    pairs.map(|(_, value)| match (one_form(value.as_bytes()), value) {
        (Some(form), _) => Cow::Owned(form),
        (None, Cow::Borrowed(text)) => Cow::Borrowed(text.as_bytes()),
        (None, Cow::Owned(text)) => Cow::Owned(text.into_bytes()),
    })
}

/// True if some service finds the name where these values are not, or cuts one of them: Python before 3.9.2 and Rack before 3
/// split at `;` as well.
pub(super) fn is_elsewhere(form: &[u8], name: &str) -> bool {
    let is_called = |written: &[u8]| {
        let mut pairs = form_urlencoded::parse(written);
        pairs
            .next()
            .is_some_and(|(found, _)| is_alike(found.as_bytes(), name.as_bytes()))
    };
    let mut pairs = form.split(|byte| *byte == b'&');
    pairs.any(|pair| {
        let is_cut = pair.contains(&b';');
        let mut parts = pair
            .split(|byte| *byte == b';')
            .filter(|part| is_called(part));
        parts.any(|part| is_cut || values(part, name).next().is_none())
    })
}

impl KeyExtractor for FormField {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        let query = match *request.method() {
            Method::GET | Method::HEAD => request.uri().query().unwrap_or_default(),
            _ => "",
        };
        let in_query = || values(query.as_bytes(), &self.name);
        // `Form` does not look at the body of a GET, and other readers look at nothing else: what the body alone says differs from nothing.
        let is_empty = *request.method() == Method::GET && in_query().next().is_none();
        let nothing = is_empty.then_some(Cow::Borrowed(&b""[..]));
        match SeenBody::of(request, ContentType::Form) {
            Ok(body)
                if [query.as_bytes(), body]
                    .iter()
                    .any(|form| is_elsewhere(form, &self.name)) =>
            {
                Err(self.missing.clone().ambiguous(ELSEWHERE))
            }
            Ok(body) => {
                let in_body = || values(body, &self.name);
                // `Form` looks at the body of a HEAD alone, and other readers at the query as of a GET.
                let is_lacking = *request.method() == Method::HEAD && in_body().next().is_none();
                let lacking = is_lacking.then_some(Cow::Borrowed(&b""[..]));
                let all = in_query().chain(nothing).chain(in_body()).chain(lacking);
                Reading::by(all).key(&self.missing)
            }
            // A form in the query is ambiguous too: a handler that reads the body might see another value.
            Err(why) => Err(self.missing.clone().ambiguous(why)),
        }
    }

    fn needs_whole_request(&self) -> bool {
        true
    }

    fn shape(&self) -> KeyShape {
        KeyShape::Spelled(Spelling::Typed)
    }
}
