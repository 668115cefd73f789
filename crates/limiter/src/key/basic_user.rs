//! The user of the Basic scheme.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::authorization::credentials;
use super::reading::Reading;
use super::spelling::Spelling;
use super::{KeyExtractor, KeyMissing, KeyShape};
use crate::{Key, RequestView};

/// The user that `Authorization: Basic …` names, as `Authorization<Basic>` of the crate `headers` reads it. The password is not
/// part of it, so that guessing passwords spends the user's budget.
///
/// The key is missing if there is no such header, if the scheme is another, or if the user is empty. It is
/// [ambiguous](KeyMissing::ambiguous) if the value is not base64 or has no colon, or if several lines differ. The user need not
/// be UTF-8.
///
/// Any caller can name any user.
///
/// ```
/// use tollgate::key::BasicUser;
/// use tollgate::{ClientIp, Policy, Quota};
///
/// // Each user from each address, so that no user locks another one out.
/// let policy = Policy::new("login", Quota::per_minute(5)).key((ClientIp, BasicUser));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct BasicUser;

impl BasicUser {
    const MISSING: KeyMissing = KeyMissing::new("user of basic authorization");
}

impl KeyExtractor for BasicUser {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        let unreadable = || Self::MISSING.ambiguous("it is not base64 of a user and a password");
        let encoded = match credentials(request, "Basic") {
            Reading::One(encoded) => encoded,
            other => return other.key(&Self::MISSING),
        };
        // Readers differ about base64 without its padding.
        let decoded = STANDARD.decode(encoded).map_err(|_| unreadable())?;
        let colon = decoded.iter().position(|byte| *byte == b':');
        match colon.and_then(|colon| decoded.get(..colon)) {
            Some([]) => Err(Self::MISSING),
            Some(user) => Ok(Key::bytes(user)),
            None => Err(unreadable()),
        }
    }

    fn shape(&self) -> KeyShape {
        KeyShape::Spelled(Spelling::User)
    }
}
