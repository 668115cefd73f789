//! Methods of requests, whose letters count: `get` is another method than `GET`.

/// The method that was meant, if only its letters keep this one from it.
pub(crate) fn meant(method: &str, is_meant: impl Fn(&str) -> bool) -> Option<String> {
    let upper = method.to_ascii_uppercase();
    (upper != method && is_meant(&upper)).then_some(upper)
}
