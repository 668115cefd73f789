//! The method of a request.

use super::spelling::{METHODS, Spelling};
use super::{KeyExtractor, KeyMissing, KeyShape};
use crate::{Key, RequestView};

/// The method. `HEAD` counts as `GET`, whose handler it runs, and all methods that HTTP does not define share one budget, so
/// that inventing one gives no new budget.
///
/// ```
/// use tollgate::key::Method;
/// use tollgate::{ClientIp, Policy, Quota};
///
/// // Each caller reads and writes out of two budgets.
/// let api = Policy::new("api", Quota::per_second(10)).key((ClientIp, Method));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Method;

impl KeyExtractor for Method {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        let method = match *request.method() {
            http::Method::HEAD => "GET",
            ref method => method.as_str(),
        };
        let known = METHODS.into_iter().find(|known| *known == method);
        Ok(Key::from(known.unwrap_or_default()))
    }

    fn shape(&self) -> KeyShape {
        KeyShape::Spelled(Spelling::Method)
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn an_invented_method_gives_no_new_budget() {
        let key = |method: &str| {
            let request = Request::builder().method(method).body(()).unwrap();
            Method.extract(&RequestView::of(&request))
        };
        assert_eq!(key("INVENTED"), key("OTHER"));
        assert_eq!(key("HEAD"), key("GET"));
        assert_ne!(key("GET"), key("POST"));
        assert_ne!(key("get"), key("GET"));
    }
}
