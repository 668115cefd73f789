//! Short texts with numbers in them.

use http::HeaderValue;

/// The largest integer that a structured field can say (RFC 9651, 3.3.1).
const MOST: u64 = 999_999_999_999_999;

/// A short text on the stack. It has room for a name of 64, three numbers of 15 and the characters between them, so that nothing
/// is ever cut off.
pub(super) struct Line {
    bytes: [u8; 128],
    len: usize,
}

impl Line {
    #[inline]
    pub(super) fn new() -> Self {
        Self {
            bytes: [0; 128],
            len: 0,
        }
    }

    #[inline]
    pub(super) fn text(&mut self, text: &str) {
        if let Some(room) = self.bytes.get_mut(self.len..self.len + text.len()) {
            room.copy_from_slice(text.as_bytes());
            self.len += text.len();
        }
    }

    #[inline]
    pub(super) fn integer(&mut self, number: u64) {
        self.text(itoa::Buffer::new().format(number.min(MOST)));
    }

    pub(super) fn value(&self) -> HeaderValue {
        value(&self.bytes[..self.len])
    }
}

/// Names are checked to be a part of ASCII that needs no escape, and the rest is written here.
fn value(bytes: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(bytes).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// A number, as a value.
pub(super) fn integer(number: u64) -> HeaderValue {
    value(itoa::Buffer::new().format(number.min(MOST)).as_bytes())
}

/// The members of a list, as one value.
#[inline(never)]
pub(super) fn list(members: impl Iterator<Item = HeaderValue>) -> HeaderValue {
    let mut list = Vec::with_capacity(128);
    for member in members {
        if !list.is_empty() {
            list.extend_from_slice(b", ");
        }
        list.extend_from_slice(member.as_bytes());
    }
    value(&list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_has_at_most_fifteen_digits() {
        for (number, expected) in [
            (0, "0"),
            (MOST, "999999999999999"),
            (MOST + 1, "999999999999999"),
            (u64::MAX, "999999999999999"),
        ] {
            assert_eq!(integer(number), expected);
        }
    }
}
