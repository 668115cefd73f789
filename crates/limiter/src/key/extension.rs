//! A value that an outer layer put into the request.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

use super::{KeyExtractor, KeyMissing};
use crate::{Key, RequestView};

/// A value that an outer layer put into the request's extensions: an authenticated user, a tenant. Missing if there is none
/// of the type.
///
/// ```
/// use tollgate::key::Extension;
/// use tollgate::{OnMissing, Policy, Quota};
///
/// /// The user that the authentication layer found. That layer must be outside the limiter.
/// #[derive(Clone)]
/// struct User {
///     id: u64,
/// }
///
/// let policy = Policy::new("per-user", Quota::per_minute(100))
///     .key(Extension::new(|user: &User| user.id))
///     .on_missing(OnMissing::Deny);
/// ```
pub struct Extension<T, F> {
    identify: F,
    missing: KeyMissing,
    of: PhantomData<fn(&T)>,
}

impl<T, K, F> Extension<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> K + Send + Sync + 'static,
    K: Into<Key>,
{
    /// The identity that `identify` makes of the value.
    #[must_use]
    pub fn new(identify: F) -> Self {
        Self {
            identify,
            missing: KeyMissing::shared(format!("extension {}", short_name::<T>())),
            of: PhantomData,
        }
    }
}

/// The name of a type without its modules. Callers read it in an answer and need not know the modules.
fn short_name<T>() -> String {
    let parts =
        type_name::<T>().split_inclusive(|c: char| !c.is_alphanumeric() && !"_:".contains(c));
    parts.filter_map(|part| part.rsplit("::").next()).collect()
}

impl<T, K, F> KeyExtractor for Extension<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> K + Send + Sync + 'static,
    K: Into<Key>,
{
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        match request.extensions().get() {
            Some(value) => Ok((self.identify)(value).into()),
            None => Err(self.missing.clone()),
        }
    }
}

impl<T, F> fmt::Debug for Extension<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extension({})", type_name::<T>())
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[derive(Clone)]
    struct User(u64);

    #[test]
    fn a_value_is_found_by_its_type_and_named_if_it_is_missing() {
        let by_user = Extension::new(|user: &User| user.0);
        let mut request = Request::new(());

        let missing = by_user.extract(&RequestView::of(&request)).unwrap_err();
        assert_eq!(missing.to_string(), "no extension User in the request");

        request.extensions_mut().insert(User(7));
        assert_eq!(
            by_user.extract(&RequestView::of(&request)),
            Ok(Key::from(7_u64))
        );
    }

    #[test]
    fn what_is_missing_is_named_without_the_modules_that_it_stands_in() {
        assert_eq!(short_name::<User>(), "User");
        assert_eq!(
            short_name::<Option<Vec<(User, &str)>>>(),
            "Option<Vec<(User, &str)>>"
        );
    }
}
