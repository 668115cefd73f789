//! What a closure says about a request.

use super::KeyMissing;
use crate::Key;

/// What a closure of [`from_fn`](super::from_fn) or [`from_async_fn`](super::from_async_fn) returns: an `Option` of what makes a
/// [`Key`], or a `Result` of it and a [`KeyMissing`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whose budget a request spends",
    note = "return `Option<K>` or `Result<K, KeyMissing>`, where `K` is a `Key` or makes one: a string, a number, an address"
)]
pub trait FoundKey {
    /// The identity, or what could not be found.
    ///
    /// # Errors
    ///
    /// If the closure found none. The policy decides what that means.
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
