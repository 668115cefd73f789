//! The result of a closure that looks for an identity.

use super::KeyMissing;
use crate::Key;

/// The result of a closure of [`from_fn`](super::from_fn) or [`from_async_fn`](super::from_async_fn): an `Option` of a value that
/// makes a [`Key`], or a `Result` of it and a [`KeyMissing`].
///
/// A function that returns either can be a key:
///
/// ```
/// use tollgate::key::{self, FoundKey};
/// use tollgate::{Key, RequestView};
///
/// fn tenant(request: &RequestView<'_>) -> Option<String> {
///     request.uri().host()?.split('.').next().map(str::to_owned)
/// }
///
/// let by_tenant = key::from_fn(tenant);
/// assert_eq!(Some("acme").into_key(), Ok(Key::from("acme")));
/// assert!(None::<&str>.into_key().is_err());
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whose budget a request spends",
    note = "return `Option<K>` or `Result<K, KeyMissing>`, where `K` is a `Key` or makes one: a string, a number, an address"
)]
pub trait FoundKey {
    /// The identity, or the part that was not found.
    ///
    /// # Errors
    ///
    /// If the closure found no identity. The policy's rule then applies.
    fn into_key(self) -> Result<Key, KeyMissing>;
}

impl<K: Into<Key>> FoundKey for Option<K> {
    fn into_key(self) -> Result<Key, KeyMissing> {
        self.map(Into::into)
            .ok_or(KeyMissing::new("key that the closure looks for"))
    }
}

impl<K: Into<Key>> FoundKey for Result<K, KeyMissing> {
    fn into_key(self) -> Result<Key, KeyMissing> {
        self.map(Into::into)
    }
}
