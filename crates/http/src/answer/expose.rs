//! The headers that a page in a browser may read (CORS).

use http::header::ACCESS_CONTROL_EXPOSE_HEADERS;
use http::{HeaderMap, HeaderValue};

use super::HeaderForm;

/// The names of all headers that answers have of these forms.
pub(super) fn names(forms: &[HeaderForm]) -> Vec<&'static str> {
    let names = forms.iter().flat_map(|form| form.names());
    names.copied().chain(["Retry-After"]).collect()
}

/// Adds the names to those that are exposed already.
pub(super) fn expose(headers: &mut HeaderMap, names: &[&str]) {
    let lines = headers.get_all(ACCESS_CONTROL_EXPOSE_HEADERS).iter();
    let exposed: Vec<_> = lines
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .collect();
    let is_missing = |name: &&&str| {
        let name = name.as_bytes();
        !exposed.iter().any(|one| one.eq_ignore_ascii_case(name))
    };
    let missing: Vec<_> = names.iter().filter(is_missing).copied().collect();
    if let Ok(value) = HeaderValue::try_from(missing.join(", "))
        && !value.is_empty()
    {
        headers.append(ACCESS_CONTROL_EXPOSE_HEADERS, value);
    }
}
