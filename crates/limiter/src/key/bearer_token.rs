//! The token of a bearer.

use super::authorization::credentials;
use super::reading::{ELSEWHERE, Reading};
use super::spelling::Spelling;
use super::{KeyExtractor, KeyMissing, KeyShape};
use crate::{Key, RequestView};

/// The token that `Authorization: Bearer …` carries, byte for byte, as `Authorization<Bearer>` of the crate `headers` reads it.
/// `Bearer` in any case and any number of blanks around the token are one identity. A [`Header`](super::Header) would make
/// several of them.
///
/// The key is missing if there is no such header, if the scheme is another, or if the token is empty. Several lines that differ
/// are [ambiguous](KeyMissing::ambiguous), and so is a token with a blank or a comma in it.
///
/// Any caller can send any token. Put the limiter behind the layer that checks tokens, or each invented token has a budget. A
/// caller with a new token has a new budget, too. If that matters, let the checking layer name the caller, and use an
/// [`Extension`](super::Extension). The token is a secret: on Redis, hash identities.
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
        let (found, missing) = (
            credentials(request, "Bearer"),
            KeyMissing::new("bearer token"),
        );
        match found {
            // No token has one, and some services take the first part.
            Reading::One(token) if token.iter().any(|byte| matches!(byte, b' ' | b'\t' | b',')) => {
                Err(missing.ambiguous(ELSEWHERE))
            }
            found => found.key(&missing),
        }
    }

    fn shape(&self) -> KeyShape {
        KeyShape::Spelled(Spelling::Token)
    }
}
