//! Whose budget a request spends.
//!
//! A [`KeyExtractor`] finds an identity in the head of a request. Here are the usual ones, and several of them at once are a
//! tuple:
//!
//! | extractor | whose budget |
//! | --- | --- |
//! | [`ClientIp`] | the caller's address, as far as the limiter [trusts](crate::ClientAddress) what it is told |
//! | [`Header`], [`Cookie`], [`Query`] | what the caller sent there: an API key, a session |
//! | [`PathParam`], [`MatchedRoute`] | a part of the path, or the pattern that it matched |
//! | [`Method`], [`Host`] | what the request is for |
//! | [`FormField`], and `JsonField` with the feature `json` | what stands in the body, behind a [`BufferBodyLayer`](crate::BufferBodyLayer) |
//! | `Metadata`, with the feature `tonic` | what a gRPC caller sent there, binary values included |
//! | `PeerCertificate`, with the feature `tls` | the caller's certificate: its common name, DNS name or URI |
//! | [`Extension`] | what an outer layer found: an authenticated user |
//! | [`from_fn`] | whatever a closure makes of the request |
//! | [`from_async_fn`] | whatever somebody has to be asked for: see [`Policy::key_async`](crate::Policy::key_async) |
//! | [`Global`] | everybody's |
//!
//! What an extractor does *not* find is for the policy to judge: see [`OnMissing`](crate::OnMissing).

mod client_ip;
mod cookie;
mod extension;
mod form_field;
mod global;
mod header;
mod host;
#[cfg(feature = "json")]
mod json_field;
mod later;
mod list;
mod matched_route;
#[cfg(feature = "tonic")]
mod metadata;
mod method;
mod path_param;
#[cfg(feature = "tls")]
mod peer_certificate;
mod query;

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;

pub use self::client_ip::ClientIp;
pub use self::cookie::Cookie;
pub use self::extension::Extension;
pub use self::form_field::FormField;
pub use self::global::Global;
pub use self::header::Header;
pub use self::host::Host;
#[cfg(feature = "json")]
pub use self::json_field::JsonField;
pub use self::later::{AsyncKeyExtractor, FromAsyncFn, KeyFuture, from_async_fn};
pub use self::list::KeyList;
pub use self::matched_route::MatchedRoute;
#[cfg(feature = "tonic")]
pub use self::metadata::{InvalidMetadataName, Metadata};
pub use self::method::Method;
pub use self::path_param::PathParam;
#[cfg(feature = "tls")]
pub use self::peer_certificate::PeerCertificate;
#[cfg(feature = "tls")]
pub(crate) use self::peer_certificate::tls_peer;
pub use self::query::Query;

use crate::{Key, RequestView};

/// Finds the identity whose budget a request spends.
///
/// ```
/// use tollgate::key::{KeyExtractor, KeyMissing};
/// use tollgate::{Key, Policy, Quota, RequestView};
///
/// /// The tenant that an outer layer found in the session.
/// #[derive(Clone)]
/// struct Tenant(u64);
///
/// struct ByTenant;
///
/// impl KeyExtractor for ByTenant {
///     fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
///         let tenant = request.extensions().get::<Tenant>();
///         tenant.map(|tenant| Key::from(tenant.0)).ok_or(KeyMissing::new("tenant"))
///     }
/// }
///
/// let policy = Policy::new("reports", Quota::per_hour(10)).key(ByTenant);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whose budget a request spends",
    note = "use `ClientIp`, `Header::new(\"x-api-key\")`, `Global`, a tuple of these, `key::from_fn(|request| ..)`, or \
            implement `KeyExtractor`; what has to be waited for (`key::from_async_fn`) is for `Policy::key_async`"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// The identity, or what could not be found.
    ///
    /// # Errors
    ///
    /// If the request does not say who it is from. The policy decides what that means.
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing>;

    /// Whether it looks for what only a whole request has: a path, a host, a body. An interceptor of gRPC's sees none of them.
    #[doc(hidden)]
    fn needs_whole_request(&self) -> bool {
        false
    }
}

/// The extractor of a policy. The one that most policies have is known by name, so that a request pays no call to it.
#[derive(Clone)]
pub(crate) enum Source {
    ClientIp,
    Other(Arc<dyn KeyExtractor>),
    Later(Arc<dyn AsyncKeyExtractor>),
}

impl Source {
    /// If somebody has to be waited for.
    pub(crate) fn later(&self) -> Option<&dyn AsyncKeyExtractor> {
        match self {
            Self::Later(key) => Some(&**key),
            Self::ClientIp | Self::Other(_) => None,
        }
    }

    pub(crate) fn is_client_ip(&self) -> bool {
        matches!(self, Self::ClientIp)
    }

    /// Whether it looks for what only a whole request has.
    #[cfg(feature = "tonic")]
    pub(crate) fn needs_whole_request(&self) -> bool {
        match self {
            Self::Other(key) => key.needs_whole_request(),
            Self::ClientIp | Self::Later(_) => false,
        }
    }

    pub(crate) fn new<K: KeyExtractor>(key: K) -> Self {
        if TypeId::of::<K>() == TypeId::of::<ClientIp>() {
            Self::ClientIp
        } else {
            Self::Other(Arc::new(key))
        }
    }

    #[inline]
    pub(crate) fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        match self {
            Self::ClientIp => ClientIp.extract(request),
            Self::Other(key) => key.extract(request),
            Self::Later(_) => Err(KeyMissing::new("key that has to be waited for")),
        }
    }
}

/// What an extractor looked for and did not find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyMissing(What);

// Requests without a key are as frequent as an attacker likes: saying so must not allocate.
#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Literal(&'static str),
    Shared(Arc<str>),
}

impl KeyMissing {
    /// `what` names the place, not a value: `session`.
    #[must_use]
    pub const fn new(what: &'static str) -> Self {
        Self(What::Literal(what))
    }

    /// The same for a name that is known at run time only; make it once and clone it.
    pub fn shared(what: impl Into<Arc<str>>) -> Self {
        Self(What::Shared(what.into()))
    }

    /// What was looked for.
    #[must_use]
    pub fn what(&self) -> &str {
        match &self.0 {
            What::Literal(what) => what,
            What::Shared(what) => what,
        }
    }
}

impl fmt::Display for KeyMissing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {} in the request", self.what())
    }
}

impl std::error::Error for KeyMissing {}

/// An extractor from a closure: `None` if the request does not say who it is from.
///
/// ```
/// use tollgate::{Policy, Quota, key};
///
/// let by_host = key::from_fn(|request| request.uri().host().map(str::to_lowercase));
/// let policy = Policy::new("per-host", Quota::per_second(100)).key(by_host);
/// ```
pub fn from_fn<F, K>(find: F) -> FromFn<F>
where
    F: Fn(&RequestView<'_>) -> Option<K> + Send + Sync + 'static,
    K: Into<Key>,
{
    FromFn(find)
}

/// What [`from_fn`] makes.
#[derive(Clone, Copy)]
pub struct FromFn<F>(F);

impl<F> fmt::Debug for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("key::from_fn(..)")
    }
}

impl<F, K> KeyExtractor for FromFn<F>
where
    F: Fn(&RequestView<'_>) -> Option<K> + Send + Sync + 'static,
    K: Into<Key>,
{
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        (self.0)(request)
            .map(Into::into)
            .ok_or(KeyMissing::new("key that the closure looks for"))
    }
}

macro_rules! tuple {
    ($($name:ident),+) => {
        /// All of them together name the caller: every combination has a budget of its own. One that is missing makes
        /// the whole key missing.
        impl<$($name: KeyExtractor),+> KeyExtractor for ($($name,)+) {
            fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
                #[expect(non_snake_case, reason = "one name for the type and its value")]
                let ($($name,)+) = self;
                Ok(Key::tuple([$(&$name.extract(request)?),+]))
            }

            fn needs_whole_request(&self) -> bool {
                #[expect(non_snake_case, reason = "one name for the type and its value")]
                let ($($name,)+) = self;
                $($name.needs_whole_request())||+
            }
        }
    };
}

tuple!(A, B);
tuple!(A, B, C);
tuple!(A, B, C, D);

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn a_tuple_needs_all_of_its_parts() {
        let both = (Header::new("x-tenant"), Header::new("x-user"));
        let request = |tenant: Option<&str>, user: &str| {
            let mut request = Request::builder().header("x-user", user);
            if let Some(tenant) = tenant {
                request = request.header("x-tenant", tenant);
            }
            both.extract(&RequestView::of(&request.body(()).unwrap()))
        };

        assert_eq!(request(None, "a").unwrap_err().what(), "header x-tenant");
        assert_eq!(request(Some("t"), "a"), request(Some("t"), "a"));
        assert_ne!(request(Some("a_b"), "c"), request(Some("a"), "b_c"));
    }

    #[test]
    fn a_closure_that_finds_nothing_finds_no_key() {
        let none = from_fn(|_| None::<Key>);
        let request = Request::new(());
        assert!(none.extract(&RequestView::of(&request)).is_err());
    }
}
