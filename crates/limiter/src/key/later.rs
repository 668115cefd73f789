//! Identities that another system has to be asked for.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use super::{FoundKey, KeyExtractor, KeyMissing, KeyShape, whole};
use crate::{Key, RequestView};

/// Finds the identity whose budget a request spends by asking another system: a session store, a token's issuer. See
/// [`Policy::key_async`](crate::Policy::key_async).
///
/// Every request waits for it, so it should cache its answers.
///
/// It forms a tuple with keys that are known at once, and stands last in it: `(ClientIp, key::from_async_fn(..))`.
///
/// ```
/// use tollgate::key::{AsyncKeyExtractor, KeyFuture, KeyMissing};
/// use tollgate::{Key, Policy, Quota, RequestView};
///
/// /// Asks the session store for the account.
/// struct ByAccount;
///
/// # async fn account_of(session: &str) -> Option<u64> { None }
/// impl AsyncKeyExtractor for ByAccount {
///     fn extract(&self, request: &RequestView<'_>) -> KeyFuture {
///         let session = request.headers().get("x-session").cloned();
///         Box::pin(async move {
///             let missing = || KeyMissing::new("session");
///             let session = session.as_ref().and_then(|value| value.to_str().ok()).ok_or_else(missing)?;
///             account_of(session).await.map(Key::from).ok_or_else(missing)
///         })
///     }
/// }
///
/// let policy = Policy::new("reports", Quota::per_hour(10)).key_async(ByAccount);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an extractor that asks elsewhere whose budget a request spends",
    note = "use `key::from_async_fn(|request| ..)`, a tuple that ends in such a key, or implement `AsyncKeyExtractor`; a key that \
            is known at once is for `Policy::key`"
)]
pub trait AsyncKeyExtractor: Send + Sync + 'static {
    /// The identity, or the part that was not found. The future owns the parts of the request that it needs.
    fn extract(&self, request: &RequestView<'_>) -> KeyFuture;

    /// The identities that it can find. A check by hand with another kind of identity is refused.
    #[doc(hidden)]
    fn shape(&self) -> KeyShape {
        KeyShape::Any
    }

    /// The reason why it finds no identity in any request under a policy. It is an error when the limiter is built, rather than an
    /// identity that is missing in each request.
    /// `params` are those that the policy's paths have, if no route of axum's may have others.
    #[doc(hidden)]
    fn flaw(&self, _params: Option<&[&str]>) -> Option<String> {
        None
    }
}

/// The result of [`AsyncKeyExtractor::extract`].
///
/// ```
/// use tollgate::key::KeyFuture;
/// use tollgate::Key;
///
/// fn known_already(account: u64) -> KeyFuture {
///     Box::pin(async move { Ok(Key::from(account)) })
/// }
/// ```
pub type KeyFuture = Pin<Box<dyn Future<Output = Result<Key, KeyMissing>> + Send>>;

/// An extractor from a closure whose future says `None` if the request does not name its caller, or `Err` with what is missing
/// or [ambiguous](KeyMissing::ambiguous).
///
/// ```
/// use tollgate::{Policy, Quota, key};
///
/// # async fn account_of(token: Option<String>) -> Option<u64> { None }
/// let by_account = key::from_async_fn(|request| {
///     let token = request.headers().get("authorization").and_then(|value| value.to_str().ok());
///     account_of(token.map(str::to_owned))
/// });
/// let policy = Policy::new("per-account", Quota::per_second(100)).key_async(by_account);
/// ```
pub fn from_async_fn<F, A, R>(find: F) -> FromAsyncFn<F>
where
    F: Fn(&RequestView<'_>) -> A + Send + Sync + 'static,
    A: Future<Output = R> + Send + 'static,
    R: FoundKey,
{
    FromAsyncFn(find)
}

/// The extractor that [`from_async_fn`] makes.
///
/// ```
/// use std::future::{Ready, ready};
/// use tollgate::key::{self, FromAsyncFn};
/// use tollgate::{Policy, Quota, RequestView};
///
/// fn by_account() -> FromAsyncFn<impl Fn(&RequestView<'_>) -> Ready<Option<&'static str>>> {
///     key::from_async_fn(|_request: &RequestView<'_>| ready(Some("account-7")))
/// }
///
/// let policy = Policy::new("reports", Quota::per_hour(10)).key_async(by_account());
/// ```
#[derive(Clone, Copy)]
pub struct FromAsyncFn<F>(F);

impl<F> fmt::Debug for FromAsyncFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("key::from_async_fn(..)")
    }
}

impl<F, A, R> AsyncKeyExtractor for FromAsyncFn<F>
where
    F: Fn(&RequestView<'_>) -> A + Send + Sync + 'static,
    A: Future<Output = R> + Send + 'static,
    R: FoundKey,
{
    fn extract(&self, request: &RequestView<'_>) -> KeyFuture {
        let found = (self.0)(request);
        Box::pin(async move { found.await.into_key() })
    }
}

macro_rules! tuple {
    ($($name:ident),+; $last:ident) => {
        /// All parts together name the caller: every combination has a budget of its own. The last part is asked for even if another
        /// one is missing, so that callers who lack one part share a budget only if they agree in the others.
        impl<$($name: KeyExtractor,)+ $last: AsyncKeyExtractor> AsyncKeyExtractor for ($($name,)+ $last) {
            fn extract(&self, request: &RequestView<'_>) -> KeyFuture {
                #[expect(non_snake_case, reason = "one name for the type and its value")]
                let ($($name,)+ $last) = self;
                let known = [$($name.extract(request)),+];
                let last = $last.extract(request);
                Box::pin(async move {
                    let mut parts = Vec::from(known);
                    parts.push(last.await);
                    whole(&parts)
                })
            }

            fn shape(&self) -> KeyShape {
                #[expect(non_snake_case, reason = "one name for the type and its value")]
                let ($($name,)+ $last) = self;
                KeyShape::Parts(vec![$($name.shape(),)+ $last.shape()])
            }

            fn flaw(&self, params: Option<&[&str]>) -> Option<String> {
                #[expect(non_snake_case, reason = "one name for the type and its value")]
                let ($($name,)+ $last) = self;
                None$(.or_else(|| $name.flaw(params)))+.or_else(|| $last.flaw(params))
            }
        }
    };
}

tuple!(A; Z);
tuple!(A, B; Z);
tuple!(A, B, C; Z);
