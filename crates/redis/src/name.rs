//! What a state is called in Redis: `prefix:policy:slot/unit:identity`.
//!
//! The unit is what makes states incompatible, the limit is not part of it. Policy and identity are escaped so that no
//! two identities have one name and none can write a hash tag or leave its place.

use std::fmt::Write;

use tollgate_core::{Key, Scope, Unit};

/// The name of one state.
pub(crate) fn of(prefix: &str, scope: Scope, key: &Key) -> Box<[u8]> {
    let mut name = String::with_capacity(64);
    name.push_str(prefix);
    name.push(':');
    for byte in scope.policy().bytes() {
        if byte.is_ascii_alphanumeric() || b"-._".contains(&byte) {
            name.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _written = write!(name, "%{byte:02x}");
        }
    }
    let _written = write!(name, ":{}/", scope.slot());
    let _written = match scope.unit() {
        Unit::FixedWindow {
            period_us,
            offset_us,
        } => write!(name, "f{period_us}+{offset_us}:"),
        Unit::SlidingWindow { period_us } => write!(name, "s{period_us}:"),
        Unit::RollingWindow { period_us, buckets } => write!(name, "r{period_us}x{buckets}:"),
        Unit::SlidingLog { period_us } => write!(name, "l{period_us}:"),
        _ => write!(name, "g:"),
    };
    let mut name = name.into_bytes();
    identity(&mut name, key.as_bytes());
    name.into()
}

/// The kind as a letter, then the content as it is but for what a hash tag is made of.
fn identity(name: &mut Vec<u8>, key: &[u8]) {
    let Some((kind, content)) = key.split_first() else {
        return;
    };
    match kind {
        0 => name.extend_from_slice(b"all"),
        1 => name.extend_from_slice(b"none"),
        4 => name.push(b'4'),
        6 => name.push(b'6'),
        kind => name.push(*kind),
    }
    for &byte in content {
        match byte {
            b'{' => name.extend_from_slice(b"%7b"),
            b'}' => name.extend_from_slice(b"%7d"),
            b'%' => name.extend_from_slice(b"%25"),
            byte => name.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tollgate_core::Quota;

    use super::*;

    #[test]
    fn no_two_identities_have_one_name() {
        let quota = Quota::per_second(10);
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
        keys.push(Key::from("4\u{1}\u{2}\u{3}\u{4}"));
        keys.push(Key::from(std::net::Ipv4Addr::new(1, 2, 3, 4)));
        keys.push(Key::tuple([&Key::from("a"), &Key::from("b")]));

        let mut names = HashSet::new();
        for policy in ["p", "p:0/g", "{p}", "p%3a0"] {
            let scope = Scope::of(policy, 0, &quota);
            for key in &keys {
                let name = of("tollgate", scope, key);
                assert!(!name.contains(&b'{') && !name.contains(&b'}'));
                assert!(names.insert(name), "{policy} {key:?}");
            }
        }
    }
}
