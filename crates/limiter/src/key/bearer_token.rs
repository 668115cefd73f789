//! The token of a bearer.

use super::authorization::credentials;
use super::{KeyExtractor, KeyMissing, KeyShape};
use crate::{Key, RequestView};

/// The token that `Authorization: Bearer …` carries, byte for byte, as headers' `Authorization<Bearer>` reads it: `Bearer` in any
/// case, and any number of blanks around the token, are one identity, where [`Header`](super::Header) sees as many.
///
/// It is missing without such a header, with one of another scheme, and if the token is empty. Several lines that differ are
/// [ambiguous](KeyMissing::ambiguous).
///
/// Anybody can send any token: put the limiter behind the layer that checks it, or each token that a caller thinks up has a budget.
/// A caller who is given a new token has a new budget, too; where that matters, let the checking layer say who it is, and use an
/// [`Extension`](super::Extension). The identity is a secret: with Redis, have identities hashed.
///
/// ```
/// use tollgate::key::BearerToken;
/// use tollgate::{OnMissing, Policy, Quota};
///
/// let policy = Policy::new("api", Quota::per_minute(60)).key(BearerToken).on_missing(OnMissing::Deny);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct BearerToken;

impl KeyExtractor for BearerToken {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        credentials(request, "Bearer").key(&KeyMissing::new("bearer token"))
    }

    fn shape(&self) -> KeyShape {
        KeyShape::Bytes
    }
}
