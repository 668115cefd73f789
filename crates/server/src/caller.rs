//! The identity of a caller, as operators write it and as they are shown it: in the program and in the admin alike.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use tollgate::{CheckError, Key, Limiter, Policy, StateName};

/// An address of documentation.
const EXAMPLE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

/// The reason why a text is not a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerError {
    /// The text is the hash of an identity, of which the identity cannot be found.
    Hash {
        /// The text.
        text: String,
    },
    /// No request under the policy can have such an identity.
    Misfit {
        /// The text.
        text: String,
        /// The policy's name.
        policy: String,
        /// The reason.
        reason: String,
    },
}

impl fmt::Display for CallerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hash { text } => write!(
                f,
                "{text:?} is the hash of an identity; the identity itself is needed"
            ),
            Self::Misfit {
                text,
                policy,
                reason,
            } => write!(
                f,
                "{text:?} is not a caller under policy {policy:?}: {reason}"
            ),
        }
    }
}

impl Error for CallerError {}

/// The identity that a text stands for under a policy. An identity as the names of states show it is read as that, an address as
/// the limiter reads addresses of clients, and any other text as itself. The first that requests under the policy can have is
/// meant.
///
/// # Errors
///
/// If no request under the policy can have such an identity.
pub fn read(limiter: &Limiter, policy: &Policy, text: &str) -> Result<Key, CallerError> {
    read_as(limiter, policy, text, |key| limiter.identity(policy, key))
}

/// As [`read`], under a policy that no check by hand charges: if it has no key of its own, requests are known by their addresses
/// alone.
///
/// # Errors
///
/// If no request under the policy can have such an identity.
pub(crate) fn read_of_requests(
    limiter: &Limiter,
    policy: &Policy,
    text: &str,
) -> Result<Key, CallerError> {
    read_as(limiter, policy, text, |key| {
        limiter.identity_of_requests(policy, key)
    })
}

fn read_as(
    limiter: &Limiter,
    policy: &Policy,
    text: &str,
    identity: impl Fn(&Key) -> Result<Key, CheckError>,
) -> Result<Key, CallerError> {
    let address = || text.parse::<IpAddr>().ok();
    let named = in_a_name(text);
    let is_hash = named.as_ref().is_some_and(|name| name.key().is_none());
    let text = || text.to_owned();
    if is_hash {
        return Err(CallerError::Hash { text: text() });
    }
    let meanings = [
        address().map(|address| limiter.client_key(address)),
        named.and_then(|name| name.key().cloned()),
        Some(Key::from(text())),
    ];
    let mut why = None;
    for key in meanings.into_iter().flatten() {
        match identity(&key) {
            Ok(key) => return Ok(key),
            Err(CheckError::WrongKey { reason, .. }) => why = Some(reason),
            Err(error) => why = Some(error.to_string()),
        }
    }
    // Behind the semicolon stands what a programmer has to do.
    let why = why.unwrap_or_default();
    let mut reason = why.split(';').next().unwrap_or_default().to_owned();
    if identity(&limiter.client_key(EXAMPLE)).is_ok() {
        reason += &format!("; its callers are addresses, such as {EXAMPLE} or 2001:db8::7");
    }
    Err(CallerError::Misfit {
        text: text(),
        policy: policy.name().to_owned(),
        reason,
    })
}

/// The identity as [`read`] takes it, in characters that no page and no terminal takes for anything else.
#[must_use]
pub fn shown(key: &Key) -> String {
    key.readable()
}

/// A name with this identity.
fn in_a_name(identity: &str) -> Option<StateName> {
    StateName::read(format!("tollgate:policy:0/g:{identity}"))
}

#[cfg(test)]
mod tests {
    use tollgate::key::Header;
    use tollgate::{ClientIp, Quota};

    use super::*;

    #[test]
    fn a_policy_that_only_requests_charge_knows_addresses_unless_it_says_otherwise() {
        let quota = Quota::per_second(1);
        let unstated = Policy::new("unstated", quota);
        let by_text = Policy::new("text", quota).key(Header::new("x-api-key"));
        let limiter = Limiter::builder().policies([unstated, by_text]);
        let limiter = limiter.build().unwrap();
        let policy = |name: &str| limiter.policy(name).unwrap();

        // A check by hand may have any identity.
        assert!(read(&limiter, &policy("unstated"), "alice").is_ok());
        let refused = read_of_requests(&limiter, &policy("unstated"), "alice");
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("its callers are addresses"), "{refused}");
        assert!(read_of_requests(&limiter, &policy("unstated"), "192.0.2.7").is_ok());
        assert!(read_of_requests(&limiter, &policy("unstated"), "2001:db8::5").is_ok());
        assert!(read_of_requests(&limiter, &policy("text"), "alice").is_ok());
    }

    #[test]
    fn a_caller_is_read_as_requests_under_the_policy_have_it() {
        let quota = Quota::per_second(1);
        let by_address = Policy::new("address", quota).key(ClientIp);
        let by_text = Policy::new("text", quota).key(Header::new("x-api-key"));
        let limiter = Limiter::builder().policies([by_address, by_text]);
        let limiter = limiter.build().unwrap();
        let read = |policy: &str, text: &str| {
            let policy = limiter.policy(policy).unwrap();
            read(&limiter, &policy, text).map_err(|failure| failure.to_string())
        };

        let address = Key::from(Ipv4Addr::new(192, 0, 2, 7));
        assert_eq!(read("address", "192.0.2.7"), Ok(address));
        let network = limiter.client_key("2001:db8::".parse().unwrap());
        assert_eq!(read("address", "2001:db8::5"), Ok(network.clone()));
        assert_eq!(read("address", "2001:db8::/64"), Ok(network));
        assert!(
            read("address", "alice")
                .unwrap_err()
                .ends_with("its callers are addresses, such as 192.0.2.7 or 2001:db8::7")
        );
        for (text, key) in [
            ("alice", "alice"),
            ("=alice", "alice"),
            ("192.0.2.7", "192.0.2.7"),
            ("=a%20b", "a b"),
            ("a b", "a b"),
            ("==", "="),
        ] {
            assert_eq!(read("text", text), Ok(Key::from(key)), "{text}");
        }
        let hash = format!("h{}", "0".repeat(32));
        // As it is shown, it is read again.
        for text in ["192.0.2.7", "2001:db8::/64"] {
            assert_eq!(shown(&read("address", text).unwrap()), text);
        }
        let hostile = "a b\u{202e}\"<img src=x>%41\n.";
        let key = Key::from(hostile);
        assert!(shown(&key).is_ascii() && !shown(&key).contains(['<', '"', ' ', '\n']));
        assert_eq!(read("text", &shown(&key)), Ok(key));
        assert!(
            read("address", &hash)
                .unwrap_err()
                .contains("hash of an identity")
        );
    }
}
