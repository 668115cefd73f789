//! The identity whose budget a request spends.
//!
//! A [`KeyExtractor`] finds an identity in the head of a request. These are the usual ones. A tuple combines several:
//!
//! | extractor | identity |
//! | --- | --- |
//! | [`ClientIp`] | the caller's address, from the peer or from [trusted](crate::ClientAddress) proxies |
//! | [`Header`], [`Cookie`], [`Query`] | a value that the caller sent: an API key, a session |
//! | [`BearerToken`], [`BasicUser`] | the token in `Authorization`, or the user without the password |
//! | [`PathParam`], [`MatchedRoute`] | a part of the path, or the pattern that it matched |
//! | [`Method`], [`Host`] | the target of the request |
//! | [`FormField`], and `JsonField` with the feature `json` | a field of the body, behind a `BufferBodyLayer` |
//! | `Metadata`, with the feature `tonic` | a value that a gRPC caller sent, also a binary one |
//! | `PeerCertificate`, with the feature `tls` | the caller's certificate: its common name, DNS name or URI |
//! | [`Extension`] | a value that an outer layer found: an authenticated user |
//! | [`from_fn`] | the result of a closure |
//! | [`from_async_fn`] | an identity that another system is asked for: see [`Policy::key_async`](crate::Policy::key_async) |
//! | [`Global`] | one budget for all requests |
//!
//! Each reads as the extractors of axum, axum-extra and tonic do, so that all spellings of one caller have one budget. If an
//! extractor finds no identity, the policy's [`OnMissing`](crate::OnMissing) applies. An absent identity differs from an
//! ambiguous one: see [`KeyMissing`].

mod authorization;
mod basic_user;
mod bearer_token;
mod client_ip;
mod cookie;
mod extension;
mod form_field;
mod found;
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
mod missing;
mod path_param;
#[cfg(feature = "tls")]
mod peer_certificate;
mod query;
mod read_list;
mod reading;
mod seen_body;
mod shape;
mod spelling;
mod typed;

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;

pub use self::basic_user::BasicUser;
pub use self::bearer_token::BearerToken;
pub use self::client_ip::ClientIp;
pub use self::cookie::Cookie;
pub use self::extension::Extension;
pub use self::form_field::FormField;
pub use self::found::FoundKey;
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
pub use self::missing::KeyMissing;
pub use self::path_param::PathParam;
#[cfg(feature = "tls")]
pub use self::peer_certificate::PeerCertificate;
pub use self::query::Query;
pub(crate) use self::read_list::ReadList;
pub use self::seen_body::{ContentType, SeenBody};
#[doc(hidden)]
pub use self::shape::KeyShape;
#[doc(hidden)]
pub use self::spelling::Spelling;

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
    /// The identity, or the part that was not found.
    ///
    /// # Errors
    ///
    /// If the request has no identity, or one that readers could differ about ([`KeyMissing::ambiguous`]). The policy's rule then
    /// applies.
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing>;

    /// The class of the request, which is ambiguous if it names two: no caller gains by that.
    #[doc(hidden)]
    fn extract_class(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        self.extract(request)
    }

    /// True if it needs a whole request: a path, a host, a body. A gRPC interceptor sees none of them.
    #[doc(hidden)]
    fn needs_whole_request(&self) -> bool {
        false
    }

    /// The identities that it can find. A check by hand with another kind of identity is refused.
    #[doc(hidden)]
    fn shape(&self) -> KeyShape {
        KeyShape::Any
    }

    /// The reason why it finds no identity in any request under a policy. The limiter is not built then. `params` are the
    /// parameters of the policy's paths, if no route of axum's may have others.
    #[doc(hidden)]
    fn flaw(&self, _params: Option<&[&str]>) -> Option<String> {
        None
    }
}

/// The extractor of a policy. The usual one has a variant of its own, so that a request pays no virtual call.
#[derive(Clone)]
pub(crate) enum Source {
    ClientIp,
    Other(Arc<dyn KeyExtractor>),
    Later(Arc<dyn AsyncKeyExtractor>),
}

impl Source {
    /// The extractor, if it has to be waited for.
    pub(crate) fn later(&self) -> Option<&dyn AsyncKeyExtractor> {
        match self {
            Self::Later(key) => Some(&**key),
            Self::ClientIp | Self::Other(_) => None,
        }
    }

    /// The identities that it can find.
    pub(crate) fn shape(&self) -> KeyShape {
        match self {
            Self::ClientIp => KeyShape::Address,
            Self::Other(key) => key.shape(),
            Self::Later(key) => key.shape(),
        }
    }

    /// The reason why it finds no identity in any request: see [`KeyExtractor::flaw`].
    pub(crate) fn flaw(&self, params: Option<&[&str]>) -> Option<String> {
        match self {
            Self::ClientIp => None,
            Self::Other(key) => key.flaw(params),
            Self::Later(key) => key.flaw(params),
        }
    }

    pub(crate) fn is_client_ip(&self) -> bool {
        matches!(self, Self::ClientIp)
    }

    /// True if it needs a whole request.
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

    pub(crate) fn extract_class(&self, request: &RequestView<'_>) -> Option<Key> {
        match self {
            Self::Other(key) => key.extract_class(request).ok(),
            Self::ClientIp | Self::Later(_) => self.extract(request).ok(),
        }
    }
}

/// Makes an extractor of a closure. `None` says that the request has no identity.
///
/// ```
/// use tollgate::{Policy, Quota, key};
///
/// let by_version = key::from_fn(|request| request.uri().path().split('/').nth(1).map(str::to_owned));
/// let policy = Policy::new("per-version", Quota::per_second(100)).key(by_version);
/// ```
///
/// If the request could be read in several ways, the closure returns [`KeyMissing::ambiguous`], and no policy lets the request
/// pass for it:
///
/// ```
/// use tollgate::key::{self, KeyMissing};
/// use tollgate::{Key, OnMissing, Policy, Quota};
///
/// let by_trace = key::from_fn(|request| {
///     let mut lines = request.headers().get_all("x-trace").iter();
///     match (lines.next(), lines.next()) {
///         (Some(only), None) => Ok(Key::bytes(only.as_bytes().trim_ascii())),
///         (None, _) => Err(KeyMissing::new("trace")),
///         _ => Err(KeyMissing::new("trace").ambiguous("it has several lines")),
///     }
/// });
/// let policy = Policy::new("per-trace", Quota::per_second(100)).key(by_trace).on_missing(OnMissing::Pass);
/// ```
pub fn from_fn<F, R>(find: F) -> FromFn<F>
where
    F: Fn(&RequestView<'_>) -> R + Send + Sync + 'static,
    R: FoundKey,
{
    FromFn(find)
}

/// The extractor that [`from_fn`] makes.
///
/// ```
/// use tollgate::key::{self, FromFn};
/// use tollgate::{Policy, Quota, RequestView};
///
/// fn by_version() -> FromFn<impl Fn(&RequestView<'_>) -> Option<String>> {
///     key::from_fn(|request| request.uri().path().split('/').nth(1).map(str::to_owned))
/// }
///
/// let policy = Policy::new("per-version", Quota::per_second(100)).key(by_version());
/// ```
#[derive(Clone, Copy)]
pub struct FromFn<F>(F);

impl<F> fmt::Debug for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("key::from_fn(..)")
    }
}

impl<F, R> KeyExtractor for FromFn<F>
where
    F: Fn(&RequestView<'_>) -> R + Send + Sync + 'static,
    R: FoundKey,
{
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        (self.0)(request).into_key()
    }
}

/// The key of several parts, if all are there. An ambiguous part is reported before a missing one.
pub(crate) fn whole(parts: &[Result<Key, KeyMissing>]) -> Result<Key, KeyMissing> {
    let mut missing = parts.iter().filter_map(|part| part.as_ref().err());
    let Some(first) = missing.next() else {
        return Ok(Key::tuple(parts.iter().flatten()));
    };
    let ambiguous = std::iter::once(first)
        .chain(missing)
        .find(|part| part.is_ambiguous());
    let reported = ambiguous.unwrap_or(first).clone();
    let is_known = |part: &Result<Key, KeyMissing>| match part {
        Ok(_) => true,
        Err(missing) => missing.has_known_parts(),
    };
    if !parts.iter().any(is_known) {
        return Err(reported);
    }
    let known: Vec<Key> = parts
        .iter()
        .map(|part| part.clone().unwrap_or_else(|missing| missing.shared_key()))
        .collect();
    Err(reported.beside(Key::tuple(&known)))
}

macro_rules! tuple {
    ($($name:ident),+) => {
        /// All parts together name the caller: every combination has a budget of its own. A missing part makes the whole key
        /// missing, and an ambiguous part makes it ambiguous. Requests that lack a part share a budget only with requests that
        /// agree in all known parts.
        impl<$($name: KeyExtractor),+> KeyExtractor for ($($name,)+) {
            fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
                #[expect(non_snake_case, reason = "one name for the type and its value")]
                let ($($name,)+) = self;
                whole(&[$($name.extract(request)),+])
            }

            fn needs_whole_request(&self) -> bool {
                #[expect(non_snake_case, reason = "one name for the type and its value")]
                let ($($name,)+) = self;
                $($name.needs_whole_request())||+
            }

            fn shape(&self) -> KeyShape {
                #[expect(non_snake_case, reason = "one name for the type and its value")]
                let ($($name,)+) = self;
                KeyShape::Parts(vec![$($name.shape()),+])
            }

            fn flaw(&self, params: Option<&[&str]>) -> Option<String> {
                #[expect(non_snake_case, reason = "one name for the type and its value")]
                let ($($name,)+) = self;
                None$(.or_else(|| $name.flaw(params)))+
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
