//! The fields of a line: words between blanks, texts in quotes, and texts in brackets.

use std::net::{IpAddr, Ipv4Addr};

use memchr::memchr;

/// The rest of a line, from which fields are taken one by one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'l>(pub(super) &'l [u8]);

impl<'l> Fields<'l> {
    /// The next field, without its quotes or brackets.
    #[inline]
    pub(super) fn next(&mut self) -> Option<&'l [u8]> {
        match self.0.first()? {
            b'"' => self.quoted(),
            b'[' => self.until(1, b']'),
            _ => self.word(),
        }
    }

    /// The next word, up to a blank.
    #[inline]
    pub(super) fn word(&mut self) -> Option<&'l [u8]> {
        // Words are short: a search for the next blank in whole registers costs more than it saves.
        match self.0.iter().position(|byte| *byte == b' ') {
            Some(end) => {
                let word = &self.0[..end];
                self.0 = &self.0[end + 1..];
                Some(word)
            }
            None => {
                let word = std::mem::take(&mut self.0);
                (!word.is_empty()).then_some(word)
            }
        }
    }

    /// The text from a place to a byte, and the blank behind it.
    #[inline]
    pub(super) fn until(&mut self, from: usize, end: u8) -> Option<&'l [u8]> {
        let behind = self.0.get(from..)?;
        let end = memchr(end, behind)?;
        self.0 = after_blank(&behind[end + 1..]);
        Some(&behind[..end])
    }

    /// The text between quotes. A quote within it has a backslash before it.
    #[inline]
    pub(super) fn quoted(&mut self) -> Option<&'l [u8]> {
        let text = self.0.strip_prefix(b"\"")?;
        let mut from = 0;
        loop {
            let end = from + memchr(b'"', &text[from..])?;
            let backslashes = text[..end]
                .iter()
                .rev()
                .take_while(|byte| **byte == b'\\')
                .count();
            if backslashes % 2 == 0 {
                self.0 = after_blank(&text[end + 1..]);
                return Some(&text[..end]);
            }
            from = end + 1;
        }
    }
}

fn after_blank(rest: &[u8]) -> &[u8] {
    rest.strip_prefix(b" ").unwrap_or(rest)
}

/// A field that stands for something, and is not the dash that stands for nothing.
pub(super) fn present(field: &[u8]) -> Option<&[u8]> {
    (!field.is_empty() && field != b"-").then_some(field)
}

/// The address of a caller. An IPv4 address in IPv6 notation, as a socket for both has it, is an IPv4 address.
#[inline]
pub(super) fn address(text: &[u8]) -> Option<IpAddr> {
    match dotted(text) {
        Some(address) => Some(address.into()),
        None => {
            let address: IpAddr = std::str::from_utf8(text).ok()?.parse().ok()?;
            Some(address.to_canonical())
        }
    }
}

/// An IPv4 address of four numbers without zeros before them. The standard library reads texts only, and takes twice as long.
#[inline]
fn dotted(text: &[u8]) -> Option<Ipv4Addr> {
    let (mut bits, mut octet, mut digits, mut dots) = (0_u32, 0_u32, 0, 0);
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 {
            let is_first = digits == 0 || octet > 0;
            octet = octet * 10 + u32::from(digit);
            digits += 1;
            if !is_first || octet > 255 {
                return None;
            }
        } else if *byte == b'.' && digits > 0 && dots < 3 {
            bits = bits << 8 | octet;
            (octet, digits) = (0, 0);
            dots += 1;
        } else {
            return None;
        }
    }
    (dots == 3 && digits > 0).then(|| Ipv4Addr::from_bits(bits << 8 | octet))
}

/// The method and the target of `GET /path HTTP/1.1`.
#[inline]
pub(super) fn request_line(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut fields = Fields(text);
    let method = fields.word()?;
    let target = fields.word()?;
    let is_method = method.first().is_some_and(u8::is_ascii_uppercase);
    let is_target = matches!(target.first(), Some(b'/' | b'*' | b'h'));
    (is_method && is_target).then_some((method, target))
}

/// A number of units, with a fraction or without, in whole microseconds.
pub(super) fn microseconds(text: &[u8], unit_us: u64) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let whole: u64 = whole.parse().ok()?;
    // Digits behind the sixth are less than a microsecond.
    let fraction = fraction.get(..6).unwrap_or(fraction);
    let millionths: u64 = format!("{fraction:0<6}").parse().ok()?;
    whole
        .checked_mul(unit_us)?
        .checked_add(millionths * unit_us / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_standard_library() {
        let numbers = [
            "", "0", "00", "01", "9", "10", "255", "256", "999", "1000", "a",
        ];
        for a in numbers {
            for b in numbers {
                for text in [
                    format!("{a}.1.2.{b}"),
                    format!("1.{a}.{b}.2"),
                    format!("{a}.{b}.1"),
                    format!("1.2.3.{a}.{b}"),
                ] {
                    assert_eq!(address(text.as_bytes()), text.parse().ok(), "{text}");
                }
            }
        }
        assert_eq!(address(b"2001:db8::1"), "2001:db8::1".parse().ok());
        assert_eq!(address(b"::ffff:192.0.2.1"), "192.0.2.1".parse().ok());
    }

    #[test]
    fn quotes_within_a_text_do_not_end_it() {
        let mut fields = Fields(br#""a \" b" "\\" [c d] e"#);
        assert_eq!(fields.next(), Some(&br#"a \" b"#[..]));
        assert_eq!(fields.next(), Some(&br"\\"[..]));
        assert_eq!(fields.next(), Some(&b"c d"[..]));
        assert_eq!(fields.next(), Some(&b"e"[..]));
        assert_eq!(fields.next(), None);
    }

    #[test]
    fn durations_are_whole_microseconds_in_whichever_unit_they_are_written() {
        for (text, unit_us, expected) in [
            ("1500", 1, Some(1_500)),
            ("1.5", 1_000, Some(1_500)),
            ("0.003", 1_000_000, Some(3_000)),
            ("2.0000019", 1_000_000, Some(2_000_001)),
            ("12", 1_000_000, Some(12_000_000)),
            ("-", 1_000_000, None),
            ("-1", 1_000_000, None),
            ("99999999999999999999", 1, None),
        ] {
            assert_eq!(microseconds(text.as_bytes(), unit_us), expected, "{text}");
        }
    }
}
