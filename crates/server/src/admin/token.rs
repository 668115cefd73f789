//! The token that an operator states.

use std::error::Error;
use std::fmt;

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// The fewest bytes of a token.
const LEAST_BYTES: usize = 16;

/// The token without which the admin answers nothing: at least 16 bytes.
///
/// ```
/// use tollgate_server::AdminToken;
///
/// let token = AdminToken::new("a-token-of-an-operator")?;
/// assert_eq!(format!("{token:?}"), "AdminToken(..)");
/// assert!(AdminToken::new("too-short").is_err());
/// # Ok::<(), tollgate_server::AdminTokenError>(())
/// ```
#[derive(Clone)]
pub struct AdminToken([u8; 32]);

/// The reason why a text is not a [token](AdminToken).
///
/// ```
/// use tollgate_server::{AdminToken, AdminTokenError};
///
/// assert_eq!(AdminToken::new("short").err(), Some(AdminTokenError::Short));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdminTokenError {
    /// It has fewer than 16 bytes.
    Short,
    /// It has characters that a header field cannot carry: blanks, control characters, or others than those of ASCII.
    Characters,
}

impl fmt::Display for AdminTokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => {
                "the admin's token is shorter than 16 bytes; `openssl rand -hex 32` makes one that cannot be guessed"
            }
            Self::Characters => {
                "the admin's token has blanks or characters that are not of ASCII, which a header field cannot carry; \
                 `openssl rand -hex 32` makes one that it can"
            }
        })
    }
}

impl Error for AdminTokenError {}

impl AdminToken {
    /// A token.
    ///
    /// # Errors
    ///
    /// If it is shorter than 16 bytes, or if a header field cannot carry it.
    pub fn new(text: &str) -> Result<Self, AdminTokenError> {
        if text.len() < LEAST_BYTES {
            Err(AdminTokenError::Short)
        } else if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            Err(AdminTokenError::Characters)
        } else {
            Ok(Self(digest(text.as_bytes())))
        }
    }

    /// True if a request has stated this token. Digests are compared, and all of their bytes: the time tells neither how long the
    /// token is nor how much of it was right.
    pub(super) fn is(&self, stated: &[u8]) -> bool {
        are_same(&self.0, &digest(stated)).into()
    }
}

fn digest(text: &[u8]) -> [u8; 32] {
    Sha256::digest(text).into()
}

/// Compares all bytes, whichever of them differ.
fn are_same<B: ConstantTimeEq>(one: &[B; 32], other: &[B; 32]) -> Choice {
    one.as_slice().ct_eq(other.as_slice())
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const TEXT: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn only_the_token_itself_is_it() {
        let token = AdminToken::new(TEXT).unwrap();
        assert!(token.is(TEXT.as_bytes()));
        for place in 0..TEXT.len() {
            let mut other = TEXT.as_bytes().to_vec();
            other[place] ^= 1;
            assert!(!token.is(&other), "{place}");
        }
        for other in ["", &TEXT[1..], &TEXT[..31], &TEXT.repeat(2)] {
            assert!(!token.is(other.as_bytes()), "{other}");
        }
    }

    /// A byte that counts how often it was compared.
    struct Counted<'a>(u8, &'a Cell<usize>);

    impl ConstantTimeEq for Counted<'_> {
        fn ct_eq(&self, other: &Self) -> Choice {
            self.1.set(self.1.get() + 1);
            self.0.ct_eq(&other.0)
        }
    }

    #[test]
    fn a_comparison_looks_at_all_bytes_wherever_the_first_wrong_one_is() {
        for wrong in 0..32 {
            let compared = Cell::new(0);
            let one = [(); 32].map(|()| Counted(7, &compared));
            let mut other = [(); 32].map(|()| Counted(7, &compared));
            other[wrong].0 = 8;
            assert!(!bool::from(are_same(&one, &other)));
            assert_eq!(compared.get(), 32, "{wrong}");
        }
        // Digests have 32 bytes, however long the token is.
        for text in [TEXT.to_owned(), TEXT.repeat(100)] {
            let token = AdminToken::new(&text).unwrap();
            assert_eq!((token.0.len(), token.is(text.as_bytes())), (32, true));
        }
    }

    #[test]
    fn what_is_no_token_is_refused_without_being_told() {
        let cases = [
            ("", AdminTokenError::Short),
            ("fifteen-bytes-x", AdminTokenError::Short),
            ("a token with blanks in it", AdminTokenError::Characters),
            ("ein-schlüssel-mit-umlaut", AdminTokenError::Characters),
        ];
        for (text, expected) in cases {
            let error = AdminToken::new(text).unwrap_err();
            assert_eq!(error, expected);
            assert!(text.is_empty() || !error.to_string().contains(text));
        }
        let token = AdminToken::new(TEXT).unwrap();
        assert_eq!(format!("{token:?}"), "AdminToken(..)");
    }
}
