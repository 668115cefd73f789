//! An identity as text that an operator reads.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Key, KeyKind, kind_of};

impl Key {
    /// The text of the canonical form, as it stands in names in Redis: see `tollgate_redis::StateName`.
    #[doc(hidden)]
    #[must_use]
    pub fn readable(&self) -> String {
        let mut text = String::new();
        write_identity(&mut text, self.as_bytes());
        text
    }
}

fn write_identity(text: &mut String, canonical: &[u8]) {
    let Some((kind, content)) = canonical.split_first() else {
        return;
    };
    match kind_of(Some(kind)) {
        KeyKind::Global => text.push_str("all"),
        KeyKind::Missing => text.push_str("none"),
        KeyKind::Ipv4 => {
            let octets: [u8; 4] = content.first_chunk().copied().unwrap_or_default();
            push(text, Ipv4Addr::from(octets));
        }
        KeyKind::Ipv6 => {
            let (prefix, covered) = content.split_first().unwrap_or((&0, &[]));
            let mut octets = [0; 16];
            for (octet, covered) in octets.iter_mut().zip(covered) {
                *octet = *covered;
            }
            push(text, format_args!("{}/{prefix}", Ipv6Addr::from(octets)));
        }
        KeyKind::Digest => {
            text.push('d');
            for byte in content {
                push(text, format_args!("{byte:02x}"));
            }
        }
        KeyKind::Tuple => write_tuple(text, content),
        KeyKind::Bytes => {
            text.push('=');
            for &byte in content {
                if byte.is_ascii_alphanumeric() || b"-._:@/+=".contains(&byte) {
                    text.push(char::from(byte));
                } else {
                    push(text, format_args!("%{byte:02x}"));
                }
            }
        }
    }
}

fn write_tuple(text: &mut String, content: &[u8]) {
    text.push('(');
    let mut rest = content;
    while let Some((&len, behind)) = rest.split_first() {
        let (part, behind) = behind.split_at(usize::from(len).min(behind.len()));
        if rest.len() < content.len() {
            text.push(',');
        }
        write_identity(text, part);
        rest = behind;
    }
    text.push(')');
}

fn push(text: &mut String, shown: impl std::fmt::Display) {
    // A write into a text does not fail.
    let _written = write!(text, "{shown}");
}
