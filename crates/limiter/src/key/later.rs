//! Identities that somebody has to be asked for.

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;

use super::{FoundKey, KeyExtractor, KeyMissing, KeyShape, whole};
use crate::{Key, RequestView};

/// Finds the identity whose budget a request spends by asking somebody who answers later: a session store, a token's
/// issuer. See [`Policy::key_async`](crate::Policy::key_async).
///
/// Every request waits for it, so let it remember what it was told.
///
/// With keys that are known at once it makes a tuple, in which it stands last: `(ClientIp, key::from_async_fn(..))`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whose budget a request spends by asking somebody",
    note = "use `key::from_async_fn(|request| ..)`, a tuple that ends in such a key, or implement `AsyncKeyExtractor`; a key that \
            is known at once is for `Policy::key`"
)]
pub trait AsyncKeyExtractor: Send + Sync + 'static {
    /// The identity, or what could not be found. What the future needs of the request it takes along.
    fn extract(&self, request: &RequestView<'_>) -> KeyFuture;

    /// What identities it finds: others are refused where a policy is asked by hand.
    #[doc(hidden)]
    fn shape(&self) -> KeyShape {
        KeyShape::Any
    }

    /// Why it finds no identity in any request under a policy: wrong when the limiter is built, rather than missing in each request.
    /// `params` are those that the policy's paths have, if no route of axum's may have others.
    #[doc(hidden)]
    fn flaw(&self, _params: Option<&[&str]>) -> Option<String> {
        None
    }
}

/// What [`AsyncKeyExtractor::extract`] returns.
pub type KeyFuture = Pin<Box<dyn Future<Output = Result<Key, KeyMissing>> + Send>>;

/// An extractor from a closure whose future says `None` if the request does not say who it is from, or `Err` with what is missing
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

/// What [`from_async_fn`] makes.
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
        /// All of them together name the caller: every combination has a budget of its own. Nobody is asked for the last part
        /// if another one is missing or ambiguous.
        impl<$($name: KeyExtractor,)+ $last: AsyncKeyExtractor> AsyncKeyExtractor for ($($name,)+ $last) {
            fn extract(&self, request: &RequestView<'_>) -> KeyFuture {
                #[expect(non_snake_case, reason = "one name for the type and its value")]
                let ($($name,)+ $last) = self;
                let known = [$($name.extract(request)),+];
                if let Err(missing) = whole(&known) {
                    return Box::pin(ready(Err(missing)));
                }
                let last = $last.extract(request);
                Box::pin(async move {
                    let last = last.await?;
                    Ok(Key::tuple(known.iter().flatten().chain([&last])))
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
