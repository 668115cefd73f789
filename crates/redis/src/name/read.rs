//! Names in Redis, read back.

use std::fmt;

use tollgate_core::{Key, Unit};

use super::{Name, identity, is_prefix, write_head};
use crate::slot::SLOTS;

/// The name of a state, as `redis-cli --scan` shows it, in its parts: the policy, the quota and the identity.
///
/// ```
/// use std::net::Ipv4Addr;
/// use tollgate::{Key, StateName, Unit};
///
/// let name = StateName::read("tollgate:{17}:login:0/g:10.1.2.3").expect("a name of ours");
/// assert_eq!((name.prefix(), name.partition()), ("tollgate", Some(17)));
/// assert_eq!((name.policy(), name.slot(), name.unit()), ("login", 0, Unit::Gcra));
/// assert_eq!(name.key(), Some(&Key::from(Ipv4Addr::new(10, 1, 2, 3))));
///
/// // The text is another identity than the address.
/// let text = StateName::read("tollgate:login:0/g:=10.1.2.3").expect("a name of ours");
/// assert_eq!(text.key(), Some(&Key::from("10.1.2.3")));
/// assert_eq!(text.identity(), "=10.1.2.3");
/// ```
///
/// | identity | stands for |
/// | --- | --- |
/// | `10.1.2.3`, `2001:db8::/64` | an address, or a network of them |
/// | `=alice`, `=a%20b` | a text or bytes; a byte other than a letter, a digit or one of `-._:@/+=` is escaped as in a URL |
/// | `(=alice,10.1.2.3)` | several identities as one |
/// | `all`, `none` | all callers; all callers without an identity |
/// | `d` and 64 digits | an identity of more than 127 bytes: its SHA-256 digest |
/// | `h` and 32 digits | any identity, under the key given to [`hash_identities`](crate::RedisBackendBuilder::hash_identities) |
///
/// `Debug` does not show the identity: identities are addresses and API keys, and do not belong into logs.
#[derive(Clone, PartialEq, Eq)]
pub struct StateName {
    prefix: String,
    partition: Option<u16>,
    policy: String,
    slot: u16,
    unit: Unit,
    identity: String,
    key: Option<Key>,
}

impl StateName {
    /// Takes a name apart; `None` if no backend writes such a name.
    #[must_use]
    pub fn read(name: impl AsRef<[u8]>) -> Option<Self> {
        let name = name.as_ref();
        let (prefix, rest) = std::str::from_utf8(name).ok()?.split_once(':')?;
        let (partition, rest) = match rest.strip_prefix('{') {
            Some(tagged) => {
                let (partition, rest) = tagged.split_once("}:")?;
                (Some(partition.parse().ok()?), rest)
            }
            None => (None, rest),
        };
        let (policy, rest) = rest.split_once(':')?;
        let (budget, identity) = rest.split_once(':')?;
        let (slot, unit) = budget.split_once('/')?;
        let key = identity::key(identity);
        if !is_prefix(prefix) || (key.is_none() && !identity::is_hashed(identity)) {
            return None;
        }
        let read = Self {
            prefix: prefix.to_owned(),
            partition,
            policy: String::from_utf8(identity::unescaped(policy)?).ok()?,
            slot: slot.parse().ok()?,
            unit: Unit::read(unit)?,
            identity: identity.to_owned(),
            key,
        };
        // Each state has one name: no backend writes `+1` for 1, or `%61` for a letter.
        (read.written() == name && partition < Some(SLOTS)).then_some(read)
    }

    /// The beginning of all names of a backend: see [`prefix`](crate::RedisBackendBuilder::prefix).
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// In a cluster: the number of the identity's hash tag.
    #[must_use]
    pub fn partition(&self) -> Option<u16> {
        self.partition
    }

    /// The policy's name.
    #[must_use]
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// The position of the quota in the policy; the first is 0.
    #[must_use]
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// The kind of the state: the quota's algorithm, and the period of a window.
    #[must_use]
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// The identity that the budget belongs to; `None` if identities are hashed.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// The identity as it stands in the name.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    fn written(&self) -> Name {
        let mut name = Name::new();
        name.extend_from_slice(self.prefix.as_bytes());
        name.push(b':');
        if let Some(partition) = self.partition {
            name.extend_from_slice(format!("{{{partition}}}:").as_bytes());
        }
        write_head(&mut name, &self.policy, self.slot, self.unit);
        match &self.key {
            Some(key) => identity::readable(&mut name, key.as_bytes()),
            None => name.extend_from_slice(self.identity.as_bytes()),
        }
        name
    }
}

impl fmt::Debug for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateName")
            .field("prefix", &self.prefix)
            .field("partition", &self.partition)
            .field("policy", &self.policy)
            .field("slot", &self.slot)
            .field("unit", &self.unit)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
