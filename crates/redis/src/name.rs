//! The names of states in Redis: `prefix:policy:slot/unit:identity`, in a cluster `prefix:{partition}:policy:…`.
//!
//! The name has the unit, because states of two units are incompatible; it does not have the limit. Names are printable ASCII
//! that an operator can read, and [`StateName`] reads them back. Policy and identity are escaped so that no two identities have
//! one name, and none can forge a hash tag or reach into another part of the name.

mod identity;
mod read;

use std::fmt;

use hmac::{Hmac, KeyInit};
use sha2::Sha256;
use tollgate_core::{Key, Scope, Unit};

pub use self::read::StateName;
use crate::slot;

/// The parts of a state's name.
pub(crate) type Name = Vec<u8>;

/// The settings of names.
#[derive(Clone)]
pub(crate) struct Names {
    pub(crate) prefix: String,
    /// In a cluster: the number of hash tags over which identities spread.
    pub(crate) partitions: Option<u16>,
    secret: Option<Hmac<Sha256>>,
}

impl Names {
    pub(crate) fn new(prefix: String) -> Self {
        Self {
            prefix,
            partitions: None,
            secret: None,
        }
    }

    /// Hashes identities in names under this key from here on.
    pub(crate) fn hash_with(&mut self, key: &[u8]) {
        // A key of any length will do.
        self.secret = Hmac::new_from_slice(key).ok();
    }

    /// The name of one state.
    pub(crate) fn of(&self, scope: Scope, key: &Key) -> Name {
        let parts = [
            self.prefix.as_bytes(),
            scope.policy().as_bytes(),
            key.as_bytes(),
        ];
        let mut name = Name::with_capacity(parts.iter().map(|part| part.len()).sum::<usize>() + 48);
        name.extend_from_slice(self.prefix.as_bytes());
        name.push(b':');
        let tag = name.len();
        write_head(&mut name, scope.policy(), scope.slot(), scope.unit());
        let identity = name.len();
        self.write_identity(&mut name, key);
        if let Some(partitions) = self.partitions {
            let hash = match key.parts().next() {
                // In the slot of the caller's budgets.
                Some(caller) if scope.unit() == Unit::Once => self.hash(&caller),
                _ => slot::crc16(&name[identity..]),
            };
            let partition = hash % partitions;
            name.splice(tag..tag, format!("{{{partition}}}:").into_bytes());
        }
        name
    }

    /// The name of a state of a scope up to the identity, without a hash tag.
    pub(crate) fn head(&self, scope: Scope) -> Name {
        let mut head = self.prefix.clone().into_bytes();
        head.push(b':');
        write_head(&mut head, scope.policy(), scope.slot(), scope.unit());
        head
    }

    /// The pattern of all names of a scope. `*` is its only byte that has a meaning to `SCAN`.
    pub(crate) fn pattern(&self, scope: Scope) -> Name {
        let mut pattern = self.prefix.clone().into_bytes();
        pattern.push(b':');
        if self.partitions.is_some() {
            pattern.extend_from_slice(b"{*}:");
        }
        write_head(&mut pattern, scope.policy(), scope.slot(), scope.unit());
        pattern.push(b'*');
        pattern
    }

    /// The pattern of all names of a policy, whatever its quotas and tiers. Behind a policy's name stands `:`, or the escape of a
    /// sign before the name of a quota or a tier.
    pub(crate) fn pattern_of_policy(&self, policy: &str) -> Name {
        let mut pattern = self.prefix.clone().into_bytes();
        pattern.push(b':');
        if self.partitions.is_some() {
            pattern.extend_from_slice(b"{*}:");
        }
        write_policy(&mut pattern, policy);
        pattern.extend_from_slice(b"[:%]*");
        pattern
    }

    /// The identity as it stands in names.
    pub(crate) fn identity(&self, key: &Key) -> String {
        let mut name = Name::new();
        self.write_identity(&mut name, key);
        // Names are ASCII.
        String::from_utf8(name).unwrap_or_default()
    }

    /// Reads the name of a state of a scope; `None` if this backend writes no such name.
    pub(crate) fn read(&self, scope: Scope, name: &[u8]) -> Option<StateName> {
        let read = StateName::read(name)?;
        let partition = |partitions| slot::crc16(read.identity().as_bytes()) % partitions;
        let is_ours = read.key().is_none() == self.secret.is_some()
            && read.prefix() == self.prefix
            && read.partition() == self.partitions.map(partition)
            && (read.policy(), read.slot(), read.unit())
                == (scope.policy(), scope.slot(), scope.unit());
        is_ours.then_some(read)
    }

    /// The hash by which an identity chooses its partition.
    fn hash(&self, key: &Key) -> u16 {
        slot::crc16(self.identity(key).as_bytes())
    }

    fn write_identity(&self, name: &mut Name, key: &Key) {
        match &self.secret {
            Some(secret) => identity::hashed(name, secret, key.as_bytes()),
            None => identity::readable(name, key.as_bytes()),
        }
    }
}

/// The start of every name.
pub(crate) fn is_prefix(prefix: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    !prefix.is_empty() && prefix.chars().all(allowed)
}

fn write_policy(name: &mut Name, policy: &str) {
    for &byte in policy.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._".contains(&byte) {
            name.push(byte);
        } else {
            name.push(b'%');
            identity::hexadecimals(name, [&byte]);
        }
    }
}

/// `policy:slot/unit:`
fn write_head(name: &mut Name, policy: &str, slot: u16, unit: Unit) {
    write_policy(name, policy);
    name.push(b':');
    number(name, slot);
    name.push(b'/');
    let ascii = |sign: char| u8::try_from(sign).unwrap_or(b'?');
    name.push(ascii(unit.letter()));
    if let Some(period_us) = unit.period_us() {
        number(name, period_us);
    }
    if let Some((sign, detail)) = unit.detail() {
        name.push(ascii(sign));
        number(name, detail);
    }
    if let Some(calendar) = unit.calendar() {
        // A zone's name has neither a colon nor a brace.
        name.extend_from_slice(calendar.to_name().as_bytes());
    }
    name.push(b':');
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the key, which would allow to test guesses of identities.
        f.debug_struct("Names")
            .field("prefix", &self.prefix)
            .field("partitions", &self.partitions)
            .field("hashed", &self.secret.is_some())
            .finish()
    }
}

fn number(name: &mut Name, number: impl itoa::Integer) {
    name.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tollgate_core::Quota;

    use super::*;

    /// Identities that look like something else.
    fn odd() -> Vec<Key> {
        let odd: [&[u8]; 12] = [
            b"",
            b"a",
            b"a:b",
            b"{a}",
            b"%7ba%7d",
            b"a\0",
            b"a\n",
            b"\xff\xfe",
            b"}",
            b"{",
            b"%",
            b"%25",
        ];
        let mut keys: Vec<_> = odd.iter().map(|bytes| Key::bytes(bytes)).collect();
        keys.extend([Key::global(), Key::missing(), Key::bytes(&[b'x'; 10_000])]);
        keys.extend([Key::bytes(&[b'{'; 10_000]), Key::bytes(&[0xff; 10_000])]);
        keys.push(Key::from("4\u{1}\u{2}\u{3}\u{4}"));
        keys.push(Key::from(std::net::Ipv4Addr::new(1, 2, 3, 4)));
        keys.push(Key::tuple([&Key::from("a"), &Key::from("b")]));
        keys
    }

    /// Holds the characters of names: no terminal, `xargs` or pattern of `SCAN` gives one of these a meaning, nor does a shell
    /// but for parentheses, which stand in tuples only.
    fn is_readable(byte: u8) -> bool {
        byte.is_ascii_alphanumeric() || b"-._:@/+=%(),".contains(&byte)
    }

    #[test]
    fn no_two_identities_have_one_name() {
        let quota = Quota::per_second(10);
        let names = Names::new("tollgate".to_owned());
        let mut seen = HashSet::new();
        for policy in ["p", "p:0/g", "{p}", "p%3a0"] {
            let scope = Scope::of(policy, 0, &quota);
            for key in odd() {
                let name = names.of(scope, &key);
                assert!(name.iter().all(|byte| is_readable(*byte)), "{name:?}");
                assert!(seen.insert(name), "{policy} {key:?}");
            }
        }
    }

    #[test]
    fn an_identity_in_a_cluster_has_one_tag_whatever_its_budget() {
        let quota = Quota::per_second(10);
        let mut names = Names::new("tollgate".to_owned());
        names.partitions = Some(64);
        let plain = (0..2_000).map(|n| Key::from(format!("{{{n}}}").as_str()));
        let mut seen = HashSet::new();
        for key in plain.chain(odd()) {
            let tags = ["login", "{1}", "mail"].map(|policy| {
                let name = names.of(Scope::of(policy, 0, &quota), &key);
                let text = String::from_utf8_lossy(&name).into_owned();
                assert!(text.starts_with("tollgate:{"), "{text}");
                assert_eq!(text.matches(['{', '}']).count(), 2, "{text}");
                let tag = text.split_terminator(['{', '}']).nth(1);
                // The server looks where the tag leads.
                let leads_to = tag.map(|tag| slot::of(tag.as_bytes()));
                assert_eq!(leads_to, Some(slot::of(&name)), "{text}");
                tag.map(str::to_owned)
            });
            let [first, second, third] = tags;
            assert!(first == second && second == third, "{key:?}");
            seen.insert(first);
        }
        assert_eq!(seen.len(), 64);
    }

    #[test]
    fn a_hashed_identity_is_equal_under_one_key_only_and_cannot_be_read() {
        let quota = Quota::per_second(10);
        let scope = Scope::of("login", 0, &quota);
        let name = |secret: &[u8], identity: &str| {
            let mut names = Names::new("tollgate".to_owned());
            names.hash_with(secret);
            assert!(!format!("{names:?}").contains("s3cret"));
            names.of(scope, &Key::from(identity))
        };
        let alice = name(b"s3cret", "alice");
        assert_eq!(alice, name(b"s3cret", "alice"));
        assert_ne!(alice, name(b"s3cret", "bob"));
        assert_ne!(alice, name(b"other", "alice"));
        let text = String::from_utf8_lossy(&alice).into_owned();
        assert!(!text.contains("alice"), "{text}");
        assert_eq!(
            text.len(),
            "tollgate:login:0/g:h".len() + 2 * identity::HASH_BYTES
        );
    }
}
